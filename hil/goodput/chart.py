"""Share in time against the offered rate, a line for each policy: one SVG that stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from hil.goodput.search import Goodput, Point
from partitioner.charts.markup import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 42, 52
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#64748b")
INK, GRID = "#1f2937", "#e5e7eb"
LEAST = 0.9
"""The chart's lowest share: below that a policy has collapsed."""
APART = 17.0


def draw(title: str, found: Sequence[Goodput], asked: float) -> str:
    """The drawing of one case, of the first seed of each policy."""
    first: dict[str, Goodput] = {}
    for one in found:
        first.setdefault(one.policy, one)
    most = max((p.rate_per_s for one in first.values() for p in one.points if p.share >= LEAST), default=1.0) * 1.04
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(rate: float) -> float:
        return LEFT + wide * min(1.0, rate / most)

    def y(share: float) -> float:
        return TOP + high * (1.0 - max(0.0, share - LEAST) / (1.0 - LEAST))

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', _text(LEFT, 22, title, size=14)]
    for percent in range(int(LEAST * 100), 101, 2):
        at = y(percent / 100)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + wide}" y2="{at:.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, at + 4, f"{percent} %", anchor="end"))
    step = _step(most)
    rates = [i * step for i in range(int(most / step) + 1)]
    parts += [_text(x(rate), TOP + high + 20, f"{rate:,.0f}", anchor="middle") for rate in rates]
    parts.append(_text(LEFT + wide / 2, HEIGHT - 10, "offered, requests a second", anchor="middle"))
    at = y(asked)
    parts.append(
        f'<line x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + wide}" y2="{at:.1f}" stroke="{INK}" stroke-dasharray="5 3"/>'
    )
    labels: dict[str, float] = {}
    for colour, (policy, one) in zip(COLOURS * 2, first.items(), strict=False):
        points = [(x(p.rate_per_s), y(p.share)) for p in _shown(one.points)]
        joined = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{colour}"/>' for px, py in points]
        labels[policy] = one.rate_per_s
    for row, (policy, rate) in enumerate(sorted(labels.items(), key=lambda item: -item[1])):
        colour = COLOURS[list(first).index(policy) % len(COLOURS)]
        parts.append(_text(LEFT + wide + 12, TOP + 10 + row * APART, f"{policy} {rate:,.0f}", colour=colour))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    return f"{head}{''.join(parts)}</svg>\n"


def _shown(points: Sequence[Point]) -> list[Point]:
    """Up to the first that has left the chart."""
    kept: list[Point] = []
    for point in points:
        kept.append(point)
        if point.share < LEAST:
            break
    return kept


def _step(most: float) -> float:
    size = 10.0 ** len(str(int(most))) / 100.0
    return next(size * k for k in (1, 2, 5, 10, 20, 50, 100) if most / (size * k) <= 8)


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, colour: str = INK) -> str:
    style = f'font-family="system-ui, sans-serif" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
