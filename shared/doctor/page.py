"""The doctor's page: findings by group, at most 100 columns wide, advice under what it is for."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby

from shared.doctor.findings import Finding, Verdict

WIDTH = 100
WORDS: dict[Verdict, str] = {"ok": "ok", "look": "look", "bad": "BAD"}
_WORD = 5
_NAME = 18
_INDENT = 2 + _WORD + _NAME + 1

Paint = Callable[[Verdict, str], str]


def page(title: str, findings: Sequence[Finding], ending: Sequence[str], paint: Paint | None = None) -> list[str]:
    """The lines of the page. `ending` are sentences of what it all means; `paint` colours a verdict's word."""
    lines = [line for part in title.splitlines() for line in textwrap.wrap(part, WIDTH)]
    for group, members in groupby(findings, key=lambda finding: finding.group):
        lines += ["", group]
        for finding in members:
            first, *rest = _lines(finding)
            end = 2 + _WORD
            word = first[2:end]
            lines += [first[:2] + (paint(finding.verdict, word) if paint else word) + first[end:], *rest]
    worst = {finding.verdict for finding in findings}
    if worst - {"ok"}:
        lines += ["", "look: worth a look; BAD: costs answers. What to do is written under each."]
    lines += ["", "WHAT IT MEANS"]
    for sentence in ending:
        lines += _wrapped(sentence, "  ", "  ")
    return lines


def _lines(finding: Finding) -> list[str]:
    head = f"  {WORDS[finding.verdict]:<{_WORD}}{finding.name:<{_NAME}} "
    if len(head) > _INDENT:
        lines = [head.rstrip(), *_wrapped(finding.value, " " * _INDENT, " " * _INDENT)]
    else:
        lines = _wrapped(finding.value, head, " " * _INDENT)
    if finding.advice and finding.verdict != "ok":
        lines += _wrapped(finding.advice, " " * _INDENT + "-> ", " " * (_INDENT + 3))
    return lines


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
