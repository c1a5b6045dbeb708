"""The model as a chain, folded into the bundle's segments, and above it what would cross at each place to cut."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitioner.charts.frame import BADGE, Box, Mark, badge
from partitioner.charts.layout import spread_out
from partitioner.charts.scales import LinearScale, LogScale, decades
from partitioner.charts.svg import SIZE, drawing, line, rect, shortened, tag, text, text_width

TOP, BOX, FOOT = 44.0, 190.0, 96.0
CHAIN = 24.0
LANE = 18.0
"""How far beside its stem a letter stands."""
MANY = 50
"""With more places to cut, the stems of those that were estimated are thin and have no heads."""
LEFT, RIGHT = 46.0, 18.0


@dataclass(frozen=True, slots=True)
class Crossing:
    """A place where the model may be cut: after which share of its time, what crosses raw, and the ways that send it coded.
    `ways` are (label, KB) of the measured ones; `kept` is whether a route of the bundle cuts here."""

    name: str
    share: float
    raw_kb: float
    ways: tuple[tuple[str, float], ...]
    kept: bool


def draw_chain(crossings: Sequence[Crossing], marks: Mapping[str, Mark], title: str, width: float) -> str:
    """The drawing. A stem is a candidate cut, its head the raw bytes; dots are measured codings, with their letters."""
    inside = Box(LEFT, TOP, width - RIGHT, TOP + BOX)
    sizes = [c.raw_kb for c in crossings] + [kb for c in crossings for _, kb in c.ways]
    low, high = decades(min(sizes), max(sizes) * 1.01)
    across = LinearScale(0.0, 1.0, inside.left + 6.0, inside.right - 6.0)
    up = LogScale(low, high, inside.bottom, inside.top)
    parts: list[str] = []
    for tick in up.ticks():
        y = up.at(tick.value)
        parts.append(line(inside.left, y, inside.right, y, "grid" if tick.words else "grid faint"))
        if tick.words:
            parts.append(text(inside.left - 7.0, y + 4.0, tick.words, "end", "tick"))
    parts.append(text(4.0, 14.0, "crosses, KB", class_="title"))
    dense = "dense" if len(crossings) > MANY else ""
    for crossing in crossings:
        x = across.at(crossing.share)
        kind = "measured" if crossing.ways else f"estimated {dense}".strip()
        parts.append(line(x, inside.bottom, x, up.at(crossing.raw_kb), f"stem {kind}"))
        if not crossing.ways and not dense:
            parts.append(tag("circle", cx=x, cy=up.at(crossing.raw_kb), r=2.6, class_="stem estimated"))
    parts += _dots(crossings, marks, across, up, inside)
    parts += _folded(crossings, across, inside, width)
    estimated = sum(not c.ways for c in crossings)
    told = f"{len(crossings)} places to cut, {estimated} of them estimated only."
    return drawing(width, TOP + BOX + FOOT, title, told, *parts)


def _dots(
    crossings: Sequence[Crossing], marks: Mapping[str, Mark], across: LinearScale, up: LogScale, inside: Box
) -> list[str]:
    """Letters beside the stems of what was measured, kept apart upwards: to the right, or to the left where another stem with
    letters is near on the right."""
    parts: list[str] = []
    coded = [(across.at(c.share), [(label, kb) for label, kb in c.ways if label in marks]) for c in crossings]
    coded = [(x, named) for x, named in coded if named]
    lanes: list[float] = []
    for x, named in coded:
        free = [
            lane
            for lane in (x + LANE, x - LANE)
            if inside.left < lane - BADGE
            and lane + BADGE < inside.right
            and not any(abs(lane - other) < 2 * BADGE + 1.0 for other in lanes)
        ]
        clear = [lane for lane in free if not any(abs(lane - other) < LANE - 2.0 for other, _ in coded)]
        lane = next(iter((*clear, *free, x + LANE)))
        lanes.append(lane)
        wanted = [-up.at(kb) for _, kb in named]
        places = spread_out(wanted, 2 * BADGE + 2.0, -inside.bottom + BADGE, -inside.top + BADGE)
        for (label, kb), place in zip(named, places, strict=True):
            y = up.at(kb)
            parts.append(line(x, y, lane, -place, "leader"))
            parts.append(tag("circle", cx=x, cy=y, r=4.0, class_=f"point full k{marks[label].colour}"))
            parts.append(badge(lane, -place, marks[label]))
    return parts


def _folded(crossings: Sequence[Crossing], across: LinearScale, inside: Box, width: float) -> list[str]:
    """The chain: one box for each segment of the bundle, a gap at each cut that is in it, its name below."""
    top = inside.bottom + 10.0
    cuts = [c for c in crossings if c.kept and 0.0 < c.share < 1.0]
    ends = [0.0, *(c.share for c in cuts), 1.0]
    parts: list[str] = []
    for number, (first, last) in enumerate(itertools.pairwise(ends)):
        left = across.at(first) + (1.5 if number else 0.0)
        right = across.at(last) - (1.5 if last < 1.0 else 0.0)
        parts.append(rect(left, top, right - left, CHAIN, "segment", rx=3.0))
        words = f"segment {number + 1}" if right - left > 78.0 else str(number + 1)
        if right - left > text_width(words) + 4.0:
            parts.append(text((left + right) / 2, top + 16.5, words, "middle"))
    names = ["input", *(c.name for c in cuts), "output"]
    room = min(150.0, (width - 16.0) / max(2.0, len(names)) - 10.0)
    shown = [shortened(name, room) for name in names]
    halves = [text_width(name) / 2 for name in shown]
    apart = max(a + b for a, b in itertools.pairwise(halves)) + 8.0
    middles = spread_out(
        [across.at(end) for end in ends], apart, 3.0 + halves[0], width - 3.0 - max(halves[-1], halves[0])
    )
    for end, middle, name in zip(ends, middles, shown, strict=True):
        x = across.at(end)
        parts.append(line(x, top + CHAIN, middle, top + CHAIN + 9.0, "leader"))
        parts.append(text(middle, top + CHAIN + 9.0 + SIZE, name, "middle"))
    title = "share of the model's time"
    parts.append(text(inside.left + 4.0, top + CHAIN + 46.0, "0 %", "middle", "tick"))
    parts.append(text(inside.right - 6.0, top + CHAIN + 46.0, "100 %", "middle", "tick"))
    parts.append(text((inside.left + inside.right) / 2, top + CHAIN + 46.0, title, "middle", "title"))
    return parts
