"""Which way wins over two conditions at once: a map of regions, exact along one axis and as fine as wanted along the other.

The map is a row of columns. In each of them the winners along the vertical axis are exact (`partitioner.crossings`).
Between two columns with the same winners in the same order the borders are taken as straight; where the order differs,
columns are added by bisection until they are nearer than can be seen. A raster of points was rejected: it has steps where
borders are oblique, and misses regions that are narrower than its grid.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from partitioner.costs.conditions import Axis, Conditions
from partitioner.crossings import Contest, Interval

COLUMNS = 24
NEAREST = 0.0005
"""Columns are not brought nearer than this share of the map's width."""
STEEP = 0.015
"""A border that rises by more than this share of the height from one column to the next is drawn more finely,"""
SMOOTH = 0.006
"""down to columns that are this share of the width apart: most borders are curves."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one side of a map covers, in the axis' unit. Both ends are more than zero: a map is logarithmic."""

    axis: Axis
    low: float
    high: float

    def value(self, share: float) -> float:
        """The value at a share of the side, 0 to 1."""
        return self.low * math.pow(self.high / self.low, share)

    def share(self, value: float) -> float:
        """The share of the side at which a value is; below 0 or above 1 where it is outside."""
        if value <= 0.0:
            return -math.inf
        return math.log(value / self.low) / math.log(self.high / self.low)


@dataclass(frozen=True, slots=True)
class Column:
    """The winners along the vertical axis at one place of the horizontal one; `x` is a share of the width."""

    x: float
    intervals: tuple[Interval, ...]

    @property
    def order(self) -> tuple[tuple[str, bool], ...]:
        """Winners from the bottom to the top, and whether they are in time."""
        return tuple((part.winner, part.in_time) for part in self.intervals)

    def at(self, value: float) -> tuple[str, bool]:
        """Who wins at a value of the vertical axis, and whether in time."""
        part = next((p for p in self.intervals if value <= p.high), self.intervals[-1])
        return part.winner, part.in_time


@dataclass(frozen=True, slots=True)
class RegionMap:
    """The whole map: what its sides cover, its columns from left to right, and the conditions that it is about."""

    across: Range
    up: Range
    columns: tuple[Column, ...]
    conditions: Conditions

    @property
    def winners(self) -> tuple[str, ...]:
        """Every way that wins somewhere on the map, by label; none twice."""
        found = [part.winner for column in self.columns for part in column.intervals]
        return tuple(dict.fromkeys(label for label in found if label))

    @property
    def all_in_time(self) -> bool:
        """Whether the winner is in time everywhere."""
        return all(part.in_time for column in self.columns for part in column.intervals)

    def column(self, across: float) -> Column:
        """The column that is nearest to a value of the horizontal axis."""
        share = self.across.share(across)
        right = min(bisect.bisect_left(self.columns, share, key=lambda column: column.x), len(self.columns) - 1)
        return min(self.columns[max(0, right - 1) : right + 1], key=lambda column: abs(column.x - share))

    def at(self, across: float, up: float) -> tuple[str, bool]:
        """Who wins in the column that is nearest to a place, and whether in time. Values in the axes' units."""
        return self.column(across).at(up)

    def runs(self) -> list[list[Column]]:
        """Neighbouring columns with the same winners in the same order, from left to right."""
        runs: list[list[Column]] = []
        for column in self.columns:
            if runs and runs[-1][-1].order == column.order:
                runs[-1].append(column)
            else:
                runs.append([column])
        return runs


def map_regions(contest: Contest, conditions: Conditions, across: Range, up: Range) -> RegionMap:
    """The map of winners over these ranges, all else as in `conditions`."""

    def column(x: float) -> Column:
        there = conditions.at(across.axis, across.value(x))
        return Column(x, contest.along(there, up.axis, up.low, up.high))

    def between(left: Column, right: Column) -> list[Column]:
        if right.x - left.x <= (NEAREST if left.order != right.order else SMOOTH if _steep(left, right, up) else 1.0):
            return []
        middle = column((left.x + right.x) / 2)
        return [*between(left, middle), middle, *between(middle, right)]

    columns = [column(0.0)]
    for step in range(1, COLUMNS + 1):
        right = column(step / COLUMNS)
        columns += [*between(columns[-1], right), right]
    return RegionMap(across, up, tuple(columns), conditions)


def _steep(left: Column, right: Column, up: Range) -> bool:
    pairs = zip(left.intervals[:-1], right.intervals[:-1], strict=True)
    return any(abs(up.share(a.high) - up.share(b.high)) > STEEP for a, b in pairs)
