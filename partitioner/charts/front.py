"""The front of latency, agreement and bytes: three strips of dots that share their rows, one row for each way.

A scatter was rejected: most ways agree almost fully, so that its dots and letters lie on each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitioner.charts.frame import BADGE, Mark, badge
from partitioner.charts.scales import LinearScale, LogScale, Scale, decades
from partitioner.charts.svg import drawing, line, shortened, tag, text, text_width

NARROW = 430.0
ROW, TALL_ROW = 25.0, 44.0
HEAD, FOOT = 30.0, 26.0
GAP = 26.0
ZERO = 24.0
"""Room for the ways that send nothing, left of the scale of bytes."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A way: its p50 in ms, its agreement, what it sends in KB, and whether no other way is better in all three."""

    label: str
    time_ms: float
    agreement: float
    up_kb: float
    front: bool


def draw_front(dots: Sequence[Dot], marks: Mapping[str, Mark], title: str, width: float) -> str:
    """The drawing; filled dots are on the front."""
    narrow = width < NARROW
    step = TALL_ROW if narrow else ROW
    height = HEAD + len(dots) * step + FOOT
    names = 10.0 if narrow else 188.0
    strip = (width - names - 12.0 - 2 * GAP) / 3
    lefts = [names + 8.0 + n * (strip + GAP) for n in range(3)]
    scales = _scales(dots, lefts, strip - 8.0)
    parts: list[str] = []
    for scale, words, left in zip(scales, ("p50, ms", "agreement", "sent, KB"), lefts, strict=True):
        parts.append(text(left - 4.0, 14.0, words, class_="title"))
        for x, words_x, tick in _ends(scale, width - 2.0):
            parts.append(line(x, HEAD - 6.0, x, height - FOOT, "grid"))
            parts.append(text(words_x, height - FOOT + 15.0, tick, "middle", "tick"))
    if any(dot.up_kb <= 0.0 for dot in dots):
        parts.append(line(lefts[2], HEAD - 6.0, lefts[2], height - FOOT, "grid"))
        parts.append(text(lefts[2], height - FOOT + 15.0, "0", "middle", "tick"))
    for number, dot in enumerate(dots):
        top = HEAD + number * step
        y = top + (step - 12.0 if narrow else step / 2)
        words_y = top + 14.0 if narrow else y + 4.2
        mark = marks[dot.label]
        weight = "" if dot.front else "weak"
        parts.append(badge(BADGE + 1.0, words_y - 4.2, mark, weight))
        room = width - 34.0 if narrow else names - 40.0
        parts.append(text(2 * BADGE + 9.0, words_y, shortened(dot.label, room), class_=weight))
        parts.append(line(lefts[0] - 6.0, y, width - 6.0, y, "row"))
        values = (dot.time_ms, dot.agreement, dot.up_kb)
        for place, (scale, value) in enumerate(zip(scales, values, strict=True)):
            x = lefts[2] if place == 2 and value <= 0.0 else scale.at(value)
            parts.append(
                tag("circle", cx=x, cy=y, r=5.0, class_=f"point k{mark.colour} {'full' if dot.front else 'hollow'}")
            )
    on = ", ".join(dot.label for dot in dots if dot.front)
    return drawing(width, height, title, f"Ways that no other beats in all three: {on}.", *parts)


def _scales(dots: Sequence[Dot], lefts: Sequence[float], wide: float) -> tuple[Scale, Scale, Scale]:
    times = decades(min(dot.time_ms for dot in dots), max(dot.time_ms for dot in dots) * 1.01)
    least = min(dot.agreement for dot in dots)
    low = max(0.0, int(least * 20.0) / 20.0) if least < 1.0 else 0.95
    sent = [dot.up_kb for dot in dots if dot.up_kb > 0.0] or [1.0]
    sizes = decades(min(sent), max(sent) * 1.01)
    return (
        LogScale(*times, lefts[0], lefts[0] + wide),
        LinearScale(min(low, 0.95), 1.0, lefts[1], lefts[1] + wide),
        LogScale(*sizes, lefts[2] + ZERO, lefts[2] + wide),
    )


def _ends(scale: Scale, most: float) -> list[tuple[float, float, str]]:
    """The pixels of those ticks that have room in a narrow strip, of their words, which end before `most`, and the words."""
    named = [tick for tick in scale.ticks() if tick.words]
    kept: list[tuple[float, float, str]] = []
    for tick in named:
        x = scale.at(tick.value)
        words_x = min(x, most - text_width(tick.words) / 2)
        if not kept or words_x - kept[-1][1] >= 36.0:
            kept.append((x, words_x, tick.words))
    return kept
