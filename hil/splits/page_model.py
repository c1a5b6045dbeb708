"""The section of one model: what it is, what to do with it, and its tables."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hil.splits.answers import MAIN, RATIOS, ROADS, RULES, Answer, Rule, answers_to, changes, wins
from hil.splits.findings import CutPlace, Doubt, Finding, Road, Way
from hil.splits.markdown import paragraph, table
from hil.splits.subjects import Subject
from hil.splits.words import EVERYWHERE, Outcome, changes_in_words, place_in_words, verdict
from partitioner.words import joined

HEADS: dict[Road, str] = {"device": "on device", "raw": "raw input", "coded": "coded input", "split": "best split"}
WON: dict[Road, str] = {"device": "device", "raw": "raw input", "coded": "coded input", "split": "split"}
NAMED_DOUBTS = 3


@dataclass(frozen=True, slots=True)
class Letters:
    """Short names of the cuts that stand in one model's tables, the earliest first."""

    names: Mapping[str, str]

    @classmethod
    def of(cls, finding: Finding, answers: Sequence[Answer]) -> Letters:
        """Letters for the cuts that are the best split of some answer."""
        used = {answer.entries["split"].way.cut for answer in answers if "split" in answer.entries}
        cuts = [cut.name for cut in finding.cuts if cut.name in used]
        return cls(dict(zip(cuts, string.ascii_uppercase, strict=False)))

    def split(self, way: Way) -> str:
        """What a split is called in a cell."""
        return f"{self.names.get(way.cut, way.cut)} {way.coding}"


def model_section(subject: Subject, finding: Finding, outcome: Outcome) -> str:
    """The whole section."""
    by_rule = {rule: answers_to(finding, rule) for rule in RULES}
    everything = list(itertools.chain.from_iterable(by_rule.values()))
    letters = Letters.of(finding, everything)
    parts = [
        f"## {subject.title}\n",
        paragraph(verdict(outcome)),
        paragraph(
            f"Takes {subject.takes} ({_kilobytes(_raw_bytes(finding))}); gives {subject.gives}",
            f"({_kilobytes(max(way.bytes_down for way in finding.ways))}). Agreement: {subject.counts}.",
            f"Data: {subject.data}; {finding.rows_judged} rows to judge by and {finding.rows_fitted} others to fit to.",
            *_cut_words(finding, letters),
        ),
    ]
    for ratio in RATIOS:
        rows = [answer for answer in outcome.main if answer.place.ratio == ratio]
        parts += [f"### {subject.title}: device {ratio:g} times slower\n", _ratio_table(rows, letters)]
    parts += [f"### {subject.title}: other agreements, private input\n", _rules_table(by_rule)]
    if any("split" in answer.entries for answer in outcome.private):
        parts += ["Times with a private input:\n", _private_table(outcome.private, letters)]
    parts += [
        "<details><summary>The ways in these tables, as measured on this machine</summary>\n",
        _ways_table(finding, everything, letters),
        "</details>\n",
    ]
    return "\n".join(parts)


def _cut_words(finding: Finding, letters: Letters) -> list[str]:
    places = {cut.name: cut for cut in finding.cuts}
    told = [_place_words(letter, places[name]) for name, letter in letters.names.items()]
    found = (
        f"It can be cut at {finding.cuts_found} places where one tensor crosses, and the search found "
        f"{finding.several} of several; {len(finding.cuts)} were measured."
    )
    named = [f"In the tables, {joined(told)}."] if told else []
    return [found, *named, _doubt_words(finding.doubts)]


def _place_words(letter: str, cut: CutPlace) -> str:
    what = "" if cut.tensors == 1 else f", {cut.tensors} tensors,"
    return f"{letter} is the cut at `{cut.name}`{what} after {cut.share:.0%} of the time"


def _doubt_words(doubts: Sequence[Doubt]) -> str:
    if not doubts:
        return "No other would win anywhere, even if all its codings agreed fully."
    most = max(doubt.conditions for doubt in doubts)
    named = [f"`{doubt.cut}` as {doubt.coding}" for doubt in doubts[:NAMED_DOUBTS]]
    others = [f"{len(doubts) - NAMED_DOUBTS} others"] if len(doubts) > NAMED_DOUBTS else []
    listed = joined([*named, *others])
    return f"Only estimated, and ahead under up to {most} conditions each if they agreed fully, are {listed}."


def _ratio_table(answers: Sequence[Answer], letters: Letters) -> str:
    rows = [
        [
            place_in_words(answer.place),
            *(_cell(answer, road, letters) for road in ROADS),
            f"{'≈ ' if answer.close else ''}{WON[answer.winner]}",
        ]
        for answer in answers
    ]
    return table(["link", *(HEADS[road] for road in ROADS), "winner"], rows)


def _cell(answer: Answer, road: Road, letters: Letters) -> str:
    entry = answer.entries.get(road)
    if entry is None:
        return "–"
    time = f"**{_ms(entry.time_us)}**" if answer.winner == road else _ms(entry.time_us)
    if road == "coded":
        return f"{time} {entry.way.coding}"
    return f"{time} {letters.split(entry.way)}" if road == "split" else time


def _rules_table(by_rule: Mapping[Rule, Sequence[Answer]]) -> str:
    heads = ["agreement", *(HEADS[road] for road in ROADS), f"what differs from {MAIN.floor:.2f}"]
    rows: list[list[str]] = []
    for rule, answers in by_rule.items():
        counted = wins(answers)
        differs = "–" if rule == MAIN else changes_in_words(changes(by_rule[MAIN], answers))
        name = f"{rule.floor:.2f}, private" if rule.private else f"{rule.floor:.2f}"
        rows.append([name, *(str(counted[road]) for road in ROADS), differs])
    return paragraph(f"How often each way wins, of {EVERYWHERE}:") + "\n" + table(heads, rows)


def _private_table(answers: Sequence[Answer], letters: Letters) -> str:
    by_link: dict[str, list[Answer]] = {}
    for answer in answers:
        by_link.setdefault(place_in_words(answer.place), []).append(answer)
    roads: tuple[Road, Road] = ("device", "split")
    heads = ["link", *(f"×{ratio:g} {HEADS[road]}" for ratio in RATIOS for road in roads)]
    rows = [
        [link, *(_cell(answer, road, letters) for answer in group for road in roads)] for link, group in by_link.items()
    ]
    return table(heads, rows)


def _ways_table(finding: Finding, answers: Sequence[Answer], letters: Letters) -> str:
    used = {entry.way for answer in answers for entry in answer.entries.values()}
    heads = ["way", "head ms", "encode ms", "KB up", "decode ms", "tail ms", "agreement"]
    rows = [
        [
            _way_words(way, letters),
            *(f"{time_us / 1000:.2f}" for time_us in (way.head_us, way.encode_us)),
            f"{way.bytes_up / 1000:.1f}",
            *(f"{time_us / 1000:.2f}" for time_us in (way.decode_us, way.tail_us)),
            f"{way.agreement:.4f}",
        ]
        for way in finding.ways
        if way in used
    ]
    return table(heads, rows)


def _way_words(way: Way, letters: Letters) -> str:
    if way.road == "split":
        return letters.split(way)
    return f"input as {way.coding}" if way.road == "coded" else HEADS[way.road]


def _raw_bytes(finding: Finding) -> int:
    return next((way.bytes_up for way in finding.ways if way.road == "raw"), 0)


def _kilobytes(nbytes: int) -> str:
    return f"{nbytes / 1000:.1f} KB" if nbytes < 100_000 else f"{nbytes / 1000:.0f} KB"


def _ms(time_us: float) -> str:
    value = time_us / 1000.0
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
