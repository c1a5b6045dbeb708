"""Which letter and which colour each way has, the same in every drawing and table of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioner.charts.frame import Mark

COLOURS = 10


def marks_for(labels: Sequence[str], coloured: Sequence[str]) -> Mapping[str, Mark]:
    """A mark for each label: letters in the order given, colours for the first of `coloured`, as many as there are; the
    others are grey."""
    colours = {label: number + 1 for number, label in enumerate(coloured[:COLOURS])}
    return {label: Mark(letters(number), colours.get(label, 0)) for number, label in enumerate(labels)}


def letters(number: int) -> str:
    """`A` to `Z`, then `AA` to `ZZ`."""
    return chr(65 + number) if number < 26 else f"{chr(64 + number // 26)}{chr(65 + number % 26)}"
