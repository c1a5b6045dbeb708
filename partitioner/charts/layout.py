"""Where labels go: kept apart on a line, and in the widest part of a region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Cell = tuple[int, int]
"""(column, row) of a raster."""


def spread_out(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places as near to the wanted ones as can be, in their order, `apart` from each other and between `low` and `high`.

    Where there is no room for all, they are evenly spread. Neighbours that collide are moved as one block about their mean,
    which is the least squares answer (pool adjacent violators, Ayer et al. 1955).
    """
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    count = len(order)
    if not count:
        return []
    apart = min(apart, (high - low) / max(1, count - 1)) if count > 1 else apart
    blocks: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        blocks.append((wanted[index] - rank * apart, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, size), (other, more) = blocks.pop(), blocks.pop()
            blocks.append(((mean * size + other * more) / (size + more), size + more))
    shifts = [mean for mean, size in blocks for _ in range(size)]
    ceiling = high - (count - 1) * apart
    places = [0.0] * count
    for rank, index in enumerate(order):
        places[index] = min(max(shifts[rank], low), ceiling) + rank * apart
    return places


@dataclass(frozen=True, slots=True)
class Place:
    """The middle of a region's widest part, in cells, how many cells it is from there to the region's border, and how many
    cells the region has."""

    column: int
    row: int
    reach: int
    cells: int


def widest_places(cells: Mapping[Cell, str], columns: int, rows: int) -> list[tuple[str, Place]]:
    """For each connected region of a raster the cell that is farthest from its border, which cells of other regions and the
    raster's own edge are. Distance is in steps of eight directions (two passes, Rosenfeld and Pfaltz 1966)."""
    reach = _distances(cells, columns, rows)
    seen: set[Cell] = set()
    found: list[tuple[str, Place]] = []
    for cell in cells:
        if cell in seen:
            continue
        region = _region(cells, cell)
        seen |= region
        top = max(reach[c] for c in region)
        ridge = [c for c in region if reach[c] == top]
        middle = (sum(c[0] for c in ridge) / len(ridge), sum(c[1] for c in ridge) / len(ridge))
        best = min(ridge, key=lambda c: ((c[0] - middle[0]) ** 2 + (c[1] - middle[1]) ** 2, c))
        found.append((cells[cell], Place(best[0], best[1], top, len(region))))
    return found


def _distances(cells: Mapping[Cell, str], columns: int, rows: int) -> dict[Cell, int]:
    back = ((-1, -1), (0, -1), (1, -1), (-1, 0))
    forth = tuple((-x, -y) for x, y in back)
    order = [(column, row) for row in range(rows) for column in range(columns)]
    reach = dict.fromkeys(order, columns + rows)
    for steps, walk in ((back, order), (forth, order[::-1])):
        for column, row in walk:
            near = [(column + x, row + y) for x, y in steps]
            kind = cells[column, row]
            nearest = min(reach[c] if c in cells and cells[c] == kind else 0 for c in near)
            reach[column, row] = min(reach[column, row], nearest + 1)
    return reach


def _region(cells: Mapping[Cell, str], start: Cell) -> set[Cell]:
    kind = cells[start]
    region, front = {start}, [start]
    while front:
        column, row = front.pop()
        for near in ((column - 1, row), (column + 1, row), (column, row - 1), (column, row + 1)):
            if near not in region and near in cells and cells[near] == kind:
                region.add(near)
                front.append(near)
    return region
