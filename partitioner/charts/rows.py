"""Rows of bars on one scale of time: the stages of a way one after the other, or the rungs of a ladder below each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.charts.frame import Box
from partitioner.charts.scales import LinearScale
from partitioner.charts.svg import drawing, line, rect, shortened, text, text_width

NARROW = 430.0
"""Below this width the words and the value of a row stand above its bar."""
WORDS = 178.0
BAR = 14.0
ROW = 27.0
TALL_ROW = 40.0
HEAD, FOOT = 30.0, 40.0


@dataclass(frozen=True, slots=True)
class Row:
    """A bar from `start_us` to `end_us`, and a thin one from there to `most_us` (its p99); `value` stands behind it.
    `class_` is that of the bar."""

    words: str
    start_us: float
    end_us: float
    most_us: float
    value: str
    class_: str


def draw_rows(rows: Sequence[Row], deadline_ms: float, title: str, width: float) -> str:
    """The drawing, with a line at the deadline."""
    narrow = width < NARROW
    step = TALL_ROW if narrow else ROW
    height = HEAD + len(rows) * step + FOOT
    inside = Box(4.0 if narrow else WORDS, HEAD, width - 14.0, height - FOOT)
    latest = max([deadline_ms * 1000.0, *(row.most_us for row in rows)]) / 1000.0
    scale = LinearScale(0.0, latest * 1.04, inside.left, inside.right)
    due = scale.at(deadline_ms)
    parts: list[str] = []
    for tick in scale.ticks():
        x = scale.at(tick.value)
        parts.append(line(x, inside.top, x, inside.bottom, "grid"))
        parts.append(
            text(
                min(max(x, text_width(tick.words) / 2), width - 12.0),
                inside.bottom + 16.0,
                tick.words,
                "middle",
                "tick",
            )
        )
    parts.append(line(due, inside.top - 4.0, due, inside.bottom, "due"))
    words = f"deadline {deadline_ms:g} ms"
    half = text_width(words) / 2
    parts.append(text(min(max(due, half + 2.0), width - half - 2.0), inside.top - 12.0, words, "middle", "due"))
    parts.append(text((inside.left + inside.right) / 2, inside.bottom + 34.0, "ms", "middle", "title"))
    for number, row in enumerate(rows):
        top = inside.top + number * step
        bar = top + (step - BAR - 4.0 if narrow else (step - BAR) / 2)
        if narrow:
            room = inside.width - text_width(row.value) - 10.0
            parts.append(text(inside.left, bar - 6.0, shortened(row.words, room)))
        else:
            parts.append(text(inside.left - 10.0, bar + 11.0, shortened(row.words, WORDS - 16.0), "end"))
        start, end, most = (scale.at(value / 1000.0) for value in (row.start_us, row.end_us, row.most_us))
        parts.append(rect(start, bar, max(end - start, 1.5), BAR, f"stage {row.class_}", rx=2.0))
        if most > end + 1.0:
            parts.append(rect(end, bar + BAR / 2 - 2.0, most - end, 4.0, f"stage thin {row.class_}"))
        parts += _value(row, bar, (start, max(end, start + 1.5), most), inside, narrow)
    told = "; ".join(f"{row.words}: {row.value}" for row in rows)
    return drawing(width, height, title, told, *parts)


def _value(row: Row, bar: float, ends: tuple[float, float, float], inside: Box, narrow: bool) -> list[str]:
    """The words of a row's value: behind its bar, before it, or else inside of it; on a narrow drawing above it."""
    wide = text_width(row.value)
    start, end, most = ends
    if narrow:
        plate = rect(inside.right - wide - 3.0, bar - 17.0, wide + 6.0, 15.0, "plate")
        return [plate, text(inside.right, bar - 6.0, row.value, "end", "value")]
    if max(end, most) + wide + 12.0 < inside.right + 12.0:
        x, anchor = max(end, most) + 7.0, "start"
    elif start - wide - 10.0 > inside.left:
        x, anchor = start - 7.0, "end"
    else:
        return [text(start + 7.0, bar + 11.5, shortened(row.value, end - start - 10.0), "start", "inside")]
    left = x - 3.0 if anchor == "start" else x - wide - 3.0
    plate = rect(left, bar - 1.0, wide + 6.0, BAR + 2.0, "plate")
    return [plate, text(x, bar + 11.5, row.value, "start" if anchor == "start" else "end", "value")]
