"""The drawings of the HTML report: each phase's frames over time, and the shares of all phases.

Plain SVG made of strings: no plotting library is needed to draw three hundred dots, and the page stays one file that opens
anywhere. Cloud and edge differ in shape as well as in colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hil.results import PhaseResult, Point
from partitioner.charts.markup import escape

WIDTH, HEIGHT = 640, 216
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 32, 34
CLOUD, EDGE, BAD = "#2563eb", "#d97706", "#dc2626"
INK, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"

LEGEND = (
    ("cloud, on time", CLOUD, "circle"),
    ("edge, on time", EDGE, "square"),
    ("late", BAD, "ring"),
    ("no answer", BAD, "cross"),
)


def legend() -> str:
    """What the marks mean, as one line."""
    parts: list[str] = []
    x = 8.0
    for words, colour, shape in LEGEND:
        parts.append(_mark(x, 11, colour, shape, 4.0))
        parts.append(_text(x + 10, 15, words, size=13))
        x += 28 + 7.2 * len(words)
    parts.append(f'<line x1="{x}" y1="11" x2="{x + 22}" y2="11" stroke="{INK}" stroke-dasharray="5 3"/>')
    parts.append(_text(x + 28, 15, "deadline", size=13))
    x += 104
    parts.append(f'<line x1="{x}" y1="3" x2="{x}" y2="19" stroke="{BAD}" stroke-width="1.5"/>')
    parts.append(_text(x + 8, 15, "fault", size=13))
    return f'<svg viewBox="0 0 {x + 60:.0f} 22" width="{x + 60:.0f}" height="22" role="img">{"".join(parts)}</svg>'


def panel(result: PhaseResult) -> str:
    """Latency of every frame of a phase over the time at which it was due, with its deadline and its faults."""
    last_ms = max((point.due_ms for point in result.timeline), default=0.0)
    span_s = max(1.0, last_ms / 1e3)
    top_ms = result.deadline_ms * 1.3
    inside = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(due_ms: float) -> float:
        return LEFT + inside[0] * due_ms / 1e3 / span_s

    def y(latency_ms: float) -> float:
        return TOP + inside[1] * (1 - min(latency_ms, top_ms) / top_ms)

    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{inside[0]}" height="{inside[1]}" fill="#fff" stroke="{GRID}"/>']
    for tick in _ticks(top_ms, 4):
        parts.append(f'<line x1="{LEFT}" y1="{y(tick):.1f}" x2="{WIDTH - RIGHT}" y2="{y(tick):.1f}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 6, y(tick) + 4, f"{tick:g}", anchor="end"))
    parts += [_text(x(tick * 1e3), HEIGHT - BOTTOM + 14, f"{tick:g}", anchor="middle") for tick in _ticks(span_s, 10)]
    parts.append(_text(LEFT + inside[0] / 2, HEIGHT - 4, "seconds since the phase began", anchor="middle"))
    middle = TOP + inside[1] / 2
    parts.append(
        f'<text x="11" y="{middle}" transform="rotate(-90 11 {middle})" text-anchor="middle" font-size="11" '
        f'fill="{FAINT}">latency, ms</text>'
    )
    parts += list(_faults(result, x))
    due = y(result.deadline_ms)
    parts.append(
        f'<line x1="{LEFT}" y1="{due:.1f}" x2="{WIDTH - RIGHT}" y2="{due:.1f}" stroke="{INK}" stroke-dasharray="5 3"/>'
    )
    for point in result.timeline:
        colour, shape = _look(point)
        height = y(top_ms if point.latency_ms is None else point.latency_ms)
        parts.append(_mark(x(point.due_ms), height, colour, shape, 2.4))
    return _svg(HEIGHT, parts, f"latency of the frames of {result.title}")


def shares(results: tuple[PhaseResult, ...]) -> str:
    """One bar for each phase: what part of its frames was answered by whom, and what part was not in time."""
    row, left, right = 26, 310, 60
    parts: list[str] = []
    for number, result in enumerate(results):
        y = 4 + number * row
        parts.append(_text(left - 8, y + 15, f"{number + 1}. {result.title}", anchor="end", size=12, colour=INK))
        edge = result.on_time_share - result.cloud_on_time
        x = float(left)
        for share, colour in ((result.cloud_on_time, CLOUD), (edge, EDGE), (1 - result.on_time_share, BAD)):
            wide = (2 * WIDTH - left - right) * max(0.0, share)
            if wide > 0.05:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{row - 7}" fill="{colour}"/>')
            if wide > 44:
                parts.append(_text(x + wide / 2, y + 14, f"{share:.1%}", anchor="middle", size=12, colour="#fff"))
            x += wide
        parts.append(_text(2 * WIDTH - right + 8, y + 15, f"{result.on_time_share:.1%}", size=12, colour=INK))
    return _svg(8 + row * len(results), parts, "shares of the phases", 2 * WIDTH)


def _svg(height: int, parts: list[str], title: str, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="100%" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _faults(result: PhaseResult, x: Callable[[float], float]) -> Iterator[str]:
    """A line for each fault. Words of faults at one time are joined, those of later ones are higher or lower in turn, and
    they stand on the other side of a line near the right border."""
    by_time: dict[float, list[str]] = {}
    for at_ms, words in result.faults:
        near = next((known for known in by_time if abs(known - at_ms) < 300), max(at_ms, 0.0))
        by_time.setdefault(near, []).append(words)
    for number, (at_ms, told) in enumerate(by_time.items()):
        at, above = x(at_ms), 5 if number % 2 else 18
        anchor, shift = ("end", -4) if at > WIDTH * 0.7 else ("start", 4)
        ends = f'x1="{at:.1f}" y1="{TOP - above - 9}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}"'
        yield f'<line {ends} stroke="{BAD}" stroke-width="1.5"/>'
        yield _text(at + shift, TOP - above, ", ".join(told), anchor=anchor, colour=BAD)


def _look(point: Point) -> tuple[str, str]:
    if point.outcome == "on_time":
        return (CLOUD, "circle") if point.source == "cloud" else (EDGE, "square")
    return (BAD, "ring") if point.outcome == "late" else (BAD, "cross")


def _mark(x: float, y: float, colour: str, shape: str, size: float) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:g}" fill="{colour}" fill-opacity=".75"/>'
    if shape == "square":
        side = 1.8 * size
        return (
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'fill="{colour}" fill-opacity=".75"/>'
        )
    if shape == "ring":
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size * 1.4:.1f}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        )
    arm = size * 1.3
    return (
        f'<path d="M{x - arm:.1f} {y - arm:.1f}L{x + arm:.1f} {y + arm:.1f}M{x - arm:.1f} {y + arm:.1f}'
        f'L{x + arm:.1f} {y - arm:.1f}" stroke="{colour}" stroke-width="1.6"/>'
    )


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 11, colour: str = FAINT) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(words)}</text>'


def _ticks(top: float, about: int) -> list[float]:
    """Round numbers from 0 to `top`, about that many."""
    step = next(
        (base * 10.0**power for power in range(-3, 6) for base in (1, 2, 5) if top / (base * 10.0**power) <= about), top
    )
    return [round(step * n, 6) for n in range(int(top / step + 1e-9) + 1)]
