"""Line charts over time as SVG, made of strings, as the demo's report is (`hil.report_svg`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from partitioner.charts.markup import escape

WIDTH, PANEL = 960, 210
LEFT, RIGHT, TOP, BOTTOM = 62, 190, 34, 34
INK, FAINT, GRID, SHADE = "#1f2937", "#6b7280", "#e5e7eb", "#fde2e2"
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#0891b2", "#a16207", "#64748b")


class Line(msgspec.Struct, frozen=True):
    """A named line through points of (seconds, value)."""

    name: str
    points: tuple[tuple[float, float], ...]


class Panel(msgspec.Struct, frozen=True):
    """One chart: lines, the times (from, to, in seconds) that are shaded, and a bound that is drawn across, if there is one.

    `unit` stands beside the values; they are shown from 0 to `top`, the greatest of them where that is None."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    shaded: tuple[tuple[float, float], ...] = ()
    bound: float | None = None
    top: float | None = None


def page(title: str, panels: Sequence[Panel]) -> str:
    """All panels one below the other, on one time axis each."""
    height = 40 + PANEL * len(panels)
    parts = [_text(LEFT, 24, title, size=16, colour=INK)]
    for index, panel in enumerate(panels):
        parts.append(f'<g transform="translate(0 {40 + PANEL * index})">{_drawn(panel)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _drawn(panel: Panel) -> str:
    last = max((x for line in panel.lines for x, _ in line.points), default=1.0) or 1.0
    values = [y for line in panel.lines for _, y in line.points] + ([panel.bound] if panel.bound is not None else [])
    top = panel.top if panel.top is not None else max([1e-9, *values]) * 1.05
    wide, high = WIDTH - LEFT - RIGHT, PANEL - TOP - BOTTOM

    def x(seconds: float) -> float:
        return LEFT + wide * seconds / last

    def y(value: float) -> float:
        return TOP + high * (1 - min(value, top) / top)

    parts = [
        _text(LEFT, TOP - 10, f"{panel.title}, {panel.unit}", size=13, colour=INK),
        f'<rect x="{LEFT}" y="{TOP}" width="{wide}" height="{high}" fill="#fff" stroke="{GRID}"/>',
    ]
    parts += [
        f'<rect x="{x(a):.1f}" y="{TOP}" width="{max(0.8, x(min(b, last)) - x(a)):.1f}" height="{high}" fill="{SHADE}"/>'
        for a, b in panel.shaded
        if a < last
    ]
    for tick in ticks(top, 4):
        parts.append(f'<line x1="{LEFT}" y1="{y(tick):.1f}" x2="{LEFT + wide}" y2="{y(tick):.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g}", anchor="end"))
    parts += [_text(x(tick), PANEL - BOTTOM + 15, f"{tick:g} s", anchor="middle") for tick in ticks(last, 10)]
    for index, line in enumerate(panel.lines):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
        at = TOP + 12 + 17 * index
        parts.append(
            f'<line x1="{LEFT + wide + 12}" y1="{at - 4}" x2="{LEFT + wide + 32}" y2="{at - 4}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(_text(LEFT + wide + 38, at, line.name, size=12, colour=INK))
    if panel.bound is not None:
        parts.append(
            f'<line x1="{LEFT}" y1="{y(panel.bound):.1f}" x2="{LEFT + wide}" y2="{y(panel.bound):.1f}" '
            f'stroke="{INK}" stroke-dasharray="5 4"/>'
        )
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 11, colour: str = FAINT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(words)}</text>'


def ticks(top: float, about: int) -> list[float]:
    """Round numbers from 0 to `top`, about so many."""
    raw = top / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def rolling(points: Sequence[tuple[float, float]], width: float) -> tuple[tuple[float, float], ...]:
    """The mean of the values of each stretch of `width` seconds, at its middle."""
    sums: dict[int, tuple[float, int]] = {}
    for at, value in points:
        index = int(at / width)
        total, count = sums.get(index, (0.0, 0))
        sums[index] = (total + value, count + 1)
    return tuple(((index + 0.5) * width, total / count) for index, (total, count) in sorted(sums.items()))
