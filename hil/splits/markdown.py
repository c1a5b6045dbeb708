"""Markdown as strings: paragraphs that are wrapped, lists, tables."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 120


def paragraph(*sentences: str) -> str:
    """Sentences as one paragraph."""
    return textwrap.fill(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def bullets(items: Sequence[str]) -> str:
    """A list, one item after the other."""
    return "".join(
        textwrap.fill(
            item, WIDTH, initial_indent="* ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        + "\n"
        for item in items
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table. The first and the last column are left-aligned, the others right."""
    last = len(heads) - 1
    marks = ["---" if number in {0, last} else "--:" for number in range(len(heads))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, marks, *rows))


def anchor(title: str) -> str:
    """What a heading is called in a link to it."""
    return title.lower().replace(" ", "-")
