"""A folded model from top to bottom, in strips that stand side by side or below each other: a box for each row, coloured by
what it costs, lines where a cut falls, and on the left, in lanes, what lives for longer than from one row to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from partitioner.charts.markup import escape
from partitioner.charts.svg import SIZE, drawing, line, rect, shortened, tag, text, text_width
from partitioner.inspections.folding import Fold, Lane, Row

STRIP = 330.0
"""Width of a strip, in pixels: a phone's page, half of a sheet of paper."""
TALLEST = 840.0
"""Height that a strip should not exceed, so that a page of paper holds it."""
ROW, MARK, END = 20.0, 38.0, 24.0
BOX = 46.0
BOX_HIGH = 15.0
LANE, LANES = 7.0, 84.0
"""Distance of two lanes where there is room, and the room that all of them may take."""
LEAST_FILL, MOST_FILL = 0.05, 0.92

BOLD = SIZE * 1.08
"""The size by which a bold text is as wide as it is counted."""
SHORT = {
    "BatchNormalization": "BatchNorm",
    "DequantizeLinear": "Dequantize",
    "DynamicQuantizeLinear": "DynQuantize",
    "GlobalAveragePool": "GlobalAvgPool",
    "InstanceNormalization": "InstanceNorm",
    "LayerNormalization": "LayerNorm",
    "QuantizeLinear": "Quantize",
}
"""Long names of operators as they are shown."""

Entry = tuple[str, int]
"""(`mark` or `row`, the row that it stands before or is), and (`start` or `end`, 0)."""


@dataclass(frozen=True, slots=True)
class MarkWords:
    """What stands at a cut: its name, what it sends, and the share of the work before it; `told` is for the pointer."""

    name: str
    sends: str
    share: str
    told: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """The drawing of a strip, and its height in pixels."""

    svg: str
    height: float


@dataclass(frozen=True, slots=True)
class _Strip:
    """Entries with the heights at which they begin, from the top of their strip."""

    entries: tuple[tuple[Entry, float], ...]
    height: float


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where things stand in all strips: the middle of each row and of the ends, by strip and height."""

    strips: tuple[_Strip, ...]
    at: Mapping[int, tuple[int, float]]
    gap: float
    left: float

    def lane(self, number: int) -> float:
        return self.left - 8.0 - number * self.gap


def draw_column(
    fold: Fold, costs: Sequence[str], marks: Mapping[int, MarkWords], title: str, most: float
) -> tuple[Drawn, ...]:
    """The strips, each a drawing of its own. `costs` says what each row costs, `marks` are the words of the cuts by the
    row before which they fall, `most` is the cost that has the full colour."""
    frame = _framed(fold, marks)
    count = len(frame.strips)
    found: list[Drawn] = []
    for number, strip in enumerate(frame.strips):
        name = title if count == 1 else f"{title}, part {number + 1} of {count}"
        told = f"{sum(kind == 'row' for (kind, _), _ in strip.entries)} rows from top to bottom."
        parts = _strip(fold, costs, marks, most, frame, number)
        found.append(Drawn(drawing(STRIP, strip.height, name, told, *parts), strip.height))
    return tuple(found)


def _framed(fold: Fold, marks: Mapping[int, MarkWords]) -> _Frame:
    lanes = fold.most_lanes
    gap = min(LANE, LANES / max(1, lanes))
    entries = list(_entries(fold, marks))
    heights = [{"row": ROW, "mark": MARK}.get(kind, END) for kind, _ in entries]
    strips = tuple(_broken(entries, heights))
    at: dict[int, tuple[int, float]] = {}
    for number, strip in enumerate(strips):
        for (kind, row), y in strip.entries:
            if kind == "row":
                at[row] = (number, y + ROW / 2)
            elif kind == "start":
                at[-1] = (number, y + END - 6.0)
            elif kind == "end":
                at[len(fold.rows)] = (number, y + 6.0)
    return _Frame(strips, at, gap, lanes * gap + 12.0)


def _entries(fold: Fold, marks: Mapping[int, MarkWords]) -> Iterator[Entry]:
    yield "start", 0
    for row in range(len(fold.rows)):
        if row in marks:
            yield "mark", row
        yield "row", row
    yield "end", 0


def _broken(entries: Sequence[Entry], heights: Sequence[float]) -> Iterator[_Strip]:
    """Strips of about the same height, as few as can be. A cut stays with the row behind it."""
    total = sum(heights)
    count = max(1, -(-int(total) // int(TALLEST - MARK)))
    wanted = total / count
    held: list[tuple[Entry, float]] = []
    y = 0.0
    made = 1
    for entry, height in zip(entries, heights, strict=True):
        if held and made < count and held[-1][0][0] != "mark" and y + height / 2 > wanted:
            yield _Strip(tuple(held), y)
            held, y, made = [], 0.0, made + 1
        held.append((entry, y))
        y += height
    yield _Strip(tuple(held), y)


def _strip(
    fold: Fold, costs: Sequence[str], marks: Mapping[int, MarkWords], most: float, frame: _Frame, number: int
) -> list[str]:
    strip = frame.strips[number]
    parts = [_lane(lane, fold, frame, number) for lane in fold.lanes]
    middle = frame.left + BOX / 2
    for row in sorted(fold.links):
        parts += _down(frame, middle, row, row + 1, number, "wire")
    room = STRIP - frame.left - BOX - 12.0
    label = frame.left + BOX + 8.0
    for (kind, row), y in strip.entries:
        if kind == "row":
            parts.append(_row(fold.rows[row], costs[row], most, y, frame.left, room))
            if row in fold.others:
                parts.append(line(middle - 9.0, y, middle + 9.0, y, "cut other"))
        elif kind == "mark":
            parts.append(_mark(marks[row], y, label, room))
        elif kind == "start":
            parts.append(text(label, y + 14.0, "input", class_="title"))
            parts.append(tag("circle", cx=middle, cy=y + END - 8.0, r=2.5, class_="end"))
        else:
            parts.append(text(label, y + 14.0, "output", class_="title"))
            parts.append(tag("circle", cx=middle, cy=y + 8.0, r=2.5, class_="end"))
    return parts


def _row(row: Row, cost: str, most: float, y: float, left: float, room: float) -> str:
    words = [f"{name} ×{count}" if count > 1 else name for name, count in row.operators.items()]
    short = [f"{SHORT.get(n, n)} ×{count}" if count > 1 else SHORT.get(n, n) for n, count in row.operators.items()]
    names = row.first if row.parts == 1 else f"{row.parts} groups, {row.first} to {row.last}"
    fill = LEAST_FILL + (MOST_FILL - LEAST_FILL) * (row.cost / most if most else 0.0)
    top = y + (ROW - BOX_HIGH) / 2
    shown = _listed(short, room - text_width(cost) - 14.0)
    stacked = [rect(left + 3.0, top + 3.0, BOX, BOX_HIGH, "kernel under", rx=3.0)] if row.parts > 1 else []
    return tag(
        "g",
        tag("title", escape(f"{names}: {', '.join(words)}; {cost}")),
        *stacked,
        rect(left, top, BOX, BOX_HIGH, "kernel paper", rx=3.0),
        rect(left, top, BOX, BOX_HIGH, "kernel", rx=3.0, fill_opacity=fill),
        text(left + BOX + 8.0, y + 14.2, shown),
        text(left + BOX + 8.0 + room - 8.0, y + 14.2, cost, "end", "cost"),
    )


def _listed(words: Sequence[str], room: float) -> str:
    """As many of the words as there is room for, and a sign where some are left out."""
    for count in range(len(words), 1, -1):
        shown = ", ".join(words[:count]) + (", …" if count < len(words) else "")
        if text_width(shown) <= room:
            return shown
    return shortened(words[0] + (", …" if len(words) > 1 else ""), room)


def _mark(mark: MarkWords, y: float, label: float, room: float) -> str:
    name = shortened(mark.name, room - text_width(mark.share, BOLD) - 20.0, BOLD)
    return tag(
        "g",
        tag("title", escape(mark.told)),
        line(1.0, y + 4.0, STRIP - 1.0, y + 4.0, "cut"),
        text(label, y + 18.0, name, class_="name cutname"),
        text(label + room - 8.0, y + 18.0, mark.share, "end", "cutname"),
        text(label, y + 33.0, shortened(mark.sends, room - 8.0), class_="title"),
    )


def _lane(lane: Lane, fold: Fold, frame: _Frame, number: int) -> str:
    """What of a lane is in a strip: the line down, and the stubs to the rows that make and use the value."""
    x = frame.lane(lane.lane)
    parts = _down(frame, x, lane.start, lane.ends[-1], number, "wire side", 4.0)
    middle = frame.left + BOX / 2
    for row, shift in ((lane.start, 4.0), *((end, -4.0) for end in lane.ends)):
        strip, y = frame.at[row]
        if strip == number and not (row == lane.start + 1 and lane.start in fold.links):
            inner = middle if row in {-1, len(fold.rows)} else frame.left
            shift_y = 0.0 if row in {-1, len(fold.rows)} else shift
            parts.append(line(x, y + shift_y, inner, y + shift_y, "wire side"))
    return "".join(parts)


def _down(
    frame: _Frame, x: float, first: int, last: int, number: int, class_: str, beside: float = BOX_HIGH / 2
) -> list[str]:
    """The piece of an upright line from one row to another that is in this strip."""
    (from_strip, top), (to_strip, bottom) = frame.at[first], frame.at[last]
    if not from_strip <= number <= to_strip:
        return []
    rows = len(frame.at) - 2
    start = top + (0.0 if first == -1 else beside) if number == from_strip else 0.0
    end = bottom - (0.0 if last == rows else beside) if number == to_strip else frame.strips[number].height
    return [line(x, start, x, end, class_)]


def side_by_side(strips: Sequence[Drawn], columns: int, gap: float, top: float) -> tuple[str, float, float]:
    """Strips in lines of so many, below a head of height `top`: the inside of a drawing, its width and its height."""
    parts: list[str] = []
    y = top
    for start in range(0, len(strips), columns):
        line_of = strips[start : start + columns]
        for column, strip in enumerate(line_of):
            x = gap + column * (STRIP + gap)
            parts.append(tag("g", strip.svg, transform=f"translate({x:g} {y:g})"))
        y += max(strip.height for strip in line_of) + gap
    return "".join(parts), gap + min(columns, len(strips)) * (STRIP + gap), y
