"""The map of winners over two conditions: regions with their letters, borders, and the asked conditions marked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitioner.charts.frame import BADGE, Box, Mark, axes, badge, box, label_width
from partitioner.charts.layout import Cell, Place, widest_places
from partitioner.charts.scales import LogScale, Scale
from partitioner.charts.svg import drawing, line, path, rect, tag, text
from partitioner.explanations.regions import Column, RegionMap

CELL = 6.0
"""Side of a cell of the raster by which labels are placed, in pixels."""
LEAST_CELLS = 5
"""A region of fewer cells is a sliver, and has no letter."""
FAR = 12
"""Farthest that a letter stands from its region, in cells."""
OVERLAP = 0.3
"""Pixels by which neighbouring pieces overlap, so that no seam is seen."""
HERE = "asked"
NONE = Mark("–", 0)


@dataclass(frozen=True, slots=True)
class Titles:
    """What is said of a map: its name, and its axes' titles with their units."""

    name: str
    across: str
    up: str


def draw_map(regions: RegionMap, marks: Mapping[str, Mark], titles: Titles, width: float, height: float) -> str:
    """The drawing of a map. `marks` are by the ways' labels. What is late is hatched (`#late` of the page)."""
    inside = box(width, height, regions.across.high, regions.up.high)
    ratio = regions.up.axis == "edge-slowdown"
    across = LogScale(regions.across.low, regions.across.high, inside.left, inside.right)
    up = LogScale(regions.up.low, regions.up.high, inside.bottom, inside.top, 2 if ratio else 10)
    conditions = regions.conditions
    here = (across.at(conditions.value(regions.across.axis)), up.at(conditions.value(regions.up.axis)))
    label_left = here[0] + 11.0 + label_width(HERE) > inside.right
    label = Box(
        here[0] - 11.0 - label_width(HERE) if label_left else here[0] - 9.0,
        min(max(here[1] - 9.0, inside.top), inside.bottom - 18.0),
        here[0] + 9.0 if label_left else here[0] + 11.0 + label_width(HERE),
        min(max(here[1] + 9.0, inside.top + 18.0), inside.bottom),
    )
    labels = _labels(regions, marks, inside, label)
    won = "; ".join(f"{marks[name].letter}: {name}" if name in marks else name for name in regions.winners)
    return drawing(
        width,
        height,
        titles.name,
        f"Regions over {titles.across} and {titles.up}. Winners: {won or 'none'}.",
        *_fills(regions, marks, inside, up),
        *_borders(regions, inside, up),
        axes(inside, across, up, titles.across, titles.up),
        labels,
        _here(here, label, label_left),
    )


def _here(here: tuple[float, float], label: Box, label_left: bool) -> str:
    x, y = here
    words_x = x - 10.0 if label_left else x + 10.0
    return tag(
        "g",
        tag("circle", cx=x, cy=y, r=5.5),
        tag("circle", cx=x, cy=y, r=1.8, class_="dot"),
        text(words_x, (label.top + label.bottom) / 2 + 4.2, HERE, "end" if label_left else "start"),
        class_="here",
    )


def _pieces(regions: RegionMap, inside: Box) -> list[tuple[list[Column], list[float]]]:
    """The runs with the pixels of their columns, each reaching half way to the next."""
    runs = regions.runs()
    found: list[tuple[list[Column], list[float]]] = []
    for place, run in enumerate(runs):
        first = run[0].x if place == 0 else (runs[place - 1][-1].x + run[0].x) / 2
        last = run[-1].x if place == len(runs) - 1 else (run[-1].x + runs[place + 1][0].x) / 2
        xs = [inside.left + inside.width * column.x for column in run]
        ends = inside.left + inside.width * first, inside.left + inside.width * last
        found.append(([run[0], *run, run[-1]], [ends[0], *xs, ends[1]]))
    return found


def _fills(regions: RegionMap, marks: Mapping[str, Mark], inside: Box, up: Scale) -> list[str]:
    """A path for each way, and one for all that is late."""
    by_way: dict[str, list[str]] = {}
    late: list[str] = []
    for columns, xs in _pieces(regions, inside):
        for place, (winner, in_time) in enumerate(columns[0].order):
            lower = [(x, up.at(c.intervals[place].low)) for c, x in zip(columns, xs, strict=True)]
            upper = [(x, up.at(c.intervals[place].high)) for c, x in zip(columns, xs, strict=True)]
            lower[0], upper[0] = (lower[0][0] - OVERLAP, lower[0][1]), (upper[0][0] - OVERLAP, upper[0][1])
            lower[-1], upper[-1] = (lower[-1][0] + OVERLAP, lower[-1][1]), (upper[-1][0] + OVERLAP, upper[-1][1])
            piece = path([*lower, *upper[::-1]], close=True)
            by_way.setdefault(winner, []).append(piece)
            if not in_time:
                late.append(piece)
    parts = [
        tag("path", d="".join(pieces), class_=f"region k{marks.get(winner, NONE).colour}")
        for winner, pieces in by_way.items()
    ]
    if late:
        parts.append(tag("path", d="".join(late), class_="hatch"))
    return parts


def _borders(regions: RegionMap, inside: Box, up: Scale) -> list[str]:
    """Lines where another way wins on the other side."""
    drawn: list[str] = []
    pieces = _pieces(regions, inside)
    for columns, xs in pieces:
        order = columns[0].order
        apart = [place for place in range(len(order) - 1) if order[place][0] != order[place + 1][0]]
        for place in apart:
            heights = [up.at(column.intervals[place].high) for column in columns]
            drawn.append(path(list(zip(xs, heights, strict=True))))
    for (left, xs), (right, _) in itertools.pairwise(pieces):
        a, b = left[-1], right[0]
        ends = sorted({p.low for p in (*a.intervals, *b.intervals)} | {a.intervals[-1].high})
        for low, high in itertools.pairwise(ends):
            middle = (low + high) / 2
            if a.at(middle)[0] != b.at(middle)[0]:
                drawn.append(path([(xs[-1], up.at(low)), (xs[-1], up.at(high))]))
    return [tag("path", d="".join(drawn), class_="border")] if drawn else []


def _labels(regions: RegionMap, marks: Mapping[str, Mark], inside: Box, taken: Box) -> str:
    """A badge in the widest part of each region that has room for one, and the way's name where that has room, too; beside
    the others, with a line that leads to them."""
    columns, rows = int(inside.width / CELL), int(inside.height / CELL)
    cells = _raster(regions, inside, columns, rows, taken)
    parts: list[str] = []
    boxes = [taken]
    small: list[tuple[str, Place]] = []
    for winner, place in widest_places(cells, columns, rows):
        if winner not in marks:
            continue
        if (place.reach - 0.5) * CELL < BADGE + 1.0:
            small += [(winner, place)] if place.cells >= LEAST_CELLS else []
            continue
        x, y = _middle(inside, place.column, place.row)
        half = label_width(winner) / 2
        if half + 2.0 < _free(cells, place.column, range(place.row - 1, place.row + 5), winner) * CELL:
            y -= 6.0
            parts.append(rect(x - half, y + BADGE + 1.0, 2 * half, 16.0, "plate", rx=4.0))
            parts.append(text(x, y + BADGE + 13.0, winner, "middle", "name"))
            boxes.append(Box(x - half, y - BADGE, x + half, y + BADGE + 17.0))
        boxes.append(_around(x, y))
        parts.append(badge(x, y, marks[winner]))
    for winner, place in sorted(small, key=lambda pair: -pair[1].cells):
        at = _beside(place, cells, inside, boxes)
        if at is not None:
            x, y = _middle(inside, place.column, place.row)
            boxes.append(_around(*at))
            parts.append(line(x, y, *at, "callout"))
            parts.append(tag("circle", cx=x, cy=y, r=2.0, class_="callout"))
            parts.append(badge(*at, marks[winner]))
    return "".join(parts)


def _raster(regions: RegionMap, inside: Box, columns: int, rows: int, taken: Box) -> dict[Cell, str]:
    """The winner of each cell; nothing where the box is taken."""
    cells: dict[Cell, str] = {}
    for column in range(columns):
        here = regions.column(regions.across.value((column + 0.5) / columns))
        for row in range(rows):
            x, y = _middle(inside, column, row)
            covered = taken.left - 4 < x < taken.right + 4 and taken.top - 2 < y < taken.bottom + 2
            cells[column, row] = "\0" if covered else here.at(regions.up.value(1.0 - (row + 0.5) / rows))[0]
    return cells


def _middle(inside: Box, column: int, row: int) -> tuple[float, float]:
    return inside.left + (column + 0.5) * CELL, inside.top + (row + 0.5) * CELL


def _around(x: float, y: float) -> Box:
    return Box(x - BADGE, y - BADGE, x + BADGE, y + BADGE)


def _beside(place: Place, cells: Mapping[Cell, str], inside: Box, boxes: Sequence[Box]) -> tuple[float, float] | None:
    """The nearest middle for a badge within `FAR` cells that lies on nothing that is drawn and on no border; None where there
    is none."""
    found: list[tuple[int, float, float]] = []
    for column in range(place.column - FAR, place.column + FAR + 1):
        for row in range(place.row - FAR, place.row + FAR + 1):
            x, y = _middle(inside, column, row)
            own = _around(x, y)
            within = own.left > inside.left + 2 and own.right < inside.right - 2
            within = within and own.top > inside.top + 2 and own.bottom < inside.bottom - 2
            if not within or any(_overlap(own, other) for other in boxes):
                continue
            below = {cells.get((column + dx, row + dy)) for dx in (-2, 0, 2) for dy in (-2, 0, 2)}
            if len(below) == 1:
                found.append(((column - place.column) ** 2 + (row - place.row) ** 2, x, y))
    return min(found)[1:] if found else None


def _overlap(one: Box, other: Box) -> bool:
    return (
        one.left < other.right + 3
        and other.left < one.right + 3
        and one.top < other.bottom + 3
        and other.top < one.bottom + 3
    )


def _free(cells: Mapping[Cell, str], column: int, rows: range, winner: str) -> int:
    """How many cells to either side are of the same region in all of these rows."""
    reach = 0
    while all(cells.get((column + side * (reach + 1), row)) == winner for side in (-1, 1) for row in rows):
        reach += 1
    return reach
