"""Latency against the rate of the link: a line for each way, with its letter at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.charts.frame import BADGE, BOTTOM, TOP, Mark, axes, badge, box, grid, label_width
from partitioner.charts.layout import spread_out
from partitioner.charts.scales import LogScale, decades
from partitioner.charts.svg import drawing, line, path, rect, tag, text
from partitioner.costs.cost import Kind

APART = 2 * BADGE + 2.0
LETTERS = 34.0
"""Room on the right for the letters."""
HEIGHT = 330.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A way's time in ms at each of the chart's rates."""

    label: str
    kind: Kind
    times_ms: tuple[float, ...]


def draw_lines(
    curves: Sequence[Curve],
    rates_mbit: Sequence[float],
    marks: dict[str, Mark],
    asked_mbit: float,
    deadline_ms: float,
    title: str,
    width: float,
) -> str:
    """The drawing. Lines differ by kind: whole for the device, dashed for the input, dotted for a split. Curves without a
    mark are drawn faintly and without a letter. What is many times later than the deadline is left out."""
    named = [curve for curve in curves if curve.label in marks]
    height = max(HEIGHT, len(named) * APART + TOP + BOTTOM)
    flat = [time for curve in curves if curve.kind == "device" for time in curve.times_ms]
    fastest = min([deadline_ms * 0.5, *(time for curve in curves for time in curve.times_ms)])
    low, high = decades(fastest, max([deadline_ms * 8.0, *(time * 1.5 for time in flat)]))
    inside = box(width, height, rates_mbit[-1], high, LETTERS)
    across = LogScale(rates_mbit[0], rates_mbit[-1], inside.left, inside.right)
    up = LogScale(low, high, inside.bottom, inside.top)
    parts = [grid(inside, across, up)]
    due = up.at(deadline_ms)
    asked = across.at(asked_mbit)
    parts += [line(inside.left, due, inside.right, due, "due"), line(asked, inside.top, asked, inside.bottom, "asked")]
    for curve in sorted(curves, key=lambda c: c.label in marks):
        pairs = zip(rates_mbit, curve.times_ms, strict=True)
        points = [(across.at(rate), up.at(time)) for rate, time in pairs if low <= time <= high]
        mark = marks.get(curve.label)
        colour = f"k{mark.colour}" if mark else "k0 faint"
        if len(points) > 1:
            parts.append(tag("path", d=path(points), class_=f"curve {curve.kind} {colour}"))
    ends = [up.at(min(max(curve.times_ms[-1], low), high)) for curve in named]
    places = spread_out(ends, APART, inside.top + BADGE - 6.0, inside.bottom - BADGE)
    for curve, end, place in zip(named, ends, places, strict=True):
        x = inside.right + 20.0
        parts.append(line(inside.right, end, x - BADGE, place, "leader"))
        parts.append(badge(x, place, marks[curve.label]))
    parts.append(axes(inside, across, up, "rate of the link, Mbit/s", "p99, ms"))
    words = f"deadline {deadline_ms:g} ms"
    parts += [
        rect(inside.left + 4.0, due - 18.0, label_width(words), 15.0, "plate", rx=3.0),
        text(inside.left + 7.0, due - 6.5, words, class_="due"),
    ]
    return drawing(width, height, title, f"p99 in ms against the rate of the link, {len(curves)} ways.", *parts)
