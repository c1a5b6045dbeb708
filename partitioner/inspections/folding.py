"""A model's groups of operators as rows of a drawing: in an order to be read, with what is cheap folded together.

Groups that cost little are folded with their neighbours until no more rows are left than a reader can take in, but never
across a cut that is marked. Marked are all cuts where they are few, else the input and those that send less than every cut
before them, and of these the ones that send the least beside the one before: a cut that sends as much as an earlier one
leaves more to the device for nothing. What lives for longer than from one row to the next runs beside the rows in a lane of
its own.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_ROWS = 110
MOST_MARKS = 26


@dataclass(frozen=True, slots=True)
class Part:
    """A group of operators: its name, how often each operator is in it, what it costs (a share of the whole, or
    microseconds), and the groups that use what it makes, by their places."""

    name: str
    operators: Mapping[str, int]
    cost: float
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Border:
    """A cut after the first `before` parts. `number` is its place in the table of cuts, `nbytes` what it sends at least."""

    number: int
    before: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """Parts that are drawn as one: their operators together, the names of the first and the last, the sum of their costs."""

    first: str
    last: str
    parts: int
    operators: Mapping[str, int]
    cost: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A value that lives on beside the rows: from the row that makes it (-1: the input) to the last of the rows that use it
    (the number of rows: the output). `lane` 0 is the nearest to the rows."""

    start: int
    ends: tuple[int, ...]
    lane: int


@dataclass(frozen=True, slots=True)
class Fold:
    """The rows; `links`, those rows (-1: the input) that make something for the next one (after the last: the output); the
    values beside them; and the cuts by the row before which they fall: those that are marked, and for the others how many
    there are."""

    rows: tuple[Row, ...]
    links: frozenset[int]
    lanes: tuple[Lane, ...]
    marks: Mapping[int, Border]
    others: Mapping[int, int]

    @property
    def most_lanes(self) -> int:
        """How many lanes there are side by side."""
        return 1 + max((lane.lane for lane in self.lanes), default=-1)


def reading_order(first_nodes: Sequence[int], users: Sequence[Sequence[int]]) -> list[int]:
    """An order in which the groups can run that stays as near to the file's as it can: of those that are ready the one with
    the earliest operator (`first_nodes`) comes next. `users` are the groups that use each group."""
    waits = [0] * len(users)
    for using in users:
        for user in using:
            waits[user] += 1
    ready = [(first_nodes[group], group) for group, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, group = heapq.heappop(ready)
        order.append(group)
        for user in users[group]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, (first_nodes[user], user))
    return order


def fold(
    parts: Sequence[Part],
    inputs: Sequence[Sequence[int]],
    returned: Sequence[int],
    borders: Sequence[Border],
    most_rows: int = MOST_ROWS,
    most_marks: int = MOST_MARKS,
) -> Fold:
    """Fold the parts, which stand in an order in which they can run. `inputs` are the users of each input of the model,
    `returned` the parts whose values the model returns; `borders` are in the order of the parts."""
    marked = _marked(borders, most_marks)
    stops = {border.before for border in marked}
    ends = _ends([part.cost for part in parts], stops, max(most_rows, len(stops) + 1))
    row_of = [row for row, (a, b) in enumerate(_ranges(ends)) for _ in range(a, b)]
    rows = tuple(_row(parts[a:b]) for a, b in _ranges(ends))
    place = {0: 0, **{end: row + 1 for row, end in enumerate(ends)}}
    others: dict[int, int] = {}
    for border in borders:
        if border not in marked:
            here = place.get(border.before)
            if here is not None:
                others[here] = others.get(here, 0) + 1
    last = len(rows)
    reaches = [(-1, sorted({row_of[user] for user in using})) for using in inputs]
    for index, part in enumerate(parts):
        to = {row_of[user] for user in part.users} | ({last} if index in returned else set[int]())
        reaches.append((row_of[index], sorted(to - {row_of[index]})))
    links = frozenset(start for start, ends in reaches if start + 1 in ends)
    return Fold(rows, links, _lanes(reaches), {place[border.before]: border for border in marked}, others)


def _marked(borders: Sequence[Border], most: int) -> list[Border]:
    if len(borders) <= most:
        return list(borders)
    entry = [border for border in borders if not border.before]
    leading: list[Border] = []
    for border in borders:
        if border.before and (not leading or border.nbytes < leading[-1].nbytes):
            leading.append(border)
    drops = {after: before.nbytes / max(1, after.nbytes) for before, after in itertools.pairwise(leading)}
    largest = sorted(drops, key=lambda border: (-drops[border], border.before))[: most - 1]
    return [*entry, *leading[:1], *sorted(largest, key=lambda border: border.before)]


def _ends(costs: Sequence[float], stops: set[int], most: int) -> list[int]:
    """Where each row ends: with the least cost that a row of several parts may have and no more rows than `most`."""
    if len(costs) <= most:
        return list(range(1, len(costs) + 1))
    low, high = 0.0, sum(costs) + 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_rows_of(costs, stops, middle)) <= most else (middle, high)
    return _rows_of(costs, stops, high)


def _rows_of(costs: Sequence[float], stops: set[int], room: float) -> list[int]:
    ends: list[int] = []
    held = 0.0
    for index, cost in enumerate(costs):
        if index and (index in stops or held + cost > room):
            ends.append(index)
            held = 0.0
        held += cost
    return [*ends, len(costs)]


def _ranges(ends: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _row(parts: Sequence[Part]) -> Row:
    operators: dict[str, int] = {}
    for part in parts:
        for name, count in part.operators.items():
            operators[name] = operators.get(name, 0) + count
    by_count = dict(sorted(operators.items(), key=lambda pair: -pair[1])) if len(parts) > 1 else operators
    return Row(parts[0].name, parts[-1].name, len(parts), by_count, sum(part.cost for part in parts))


def _lanes(reaches: Sequence[tuple[int, Sequence[int]]]) -> tuple[Lane, ...]:
    """A lane for each value that is used beyond the next row; of those with the same rows one is drawn. Short ones come
    first, so that they lie inside of long ones."""
    long = {(start, tuple(ends)) for start, ends in reaches if ends and ends[-1] > start + 1}
    taken: list[list[tuple[int, int]]] = []
    found: list[Lane] = []
    for start, ends in sorted(long, key=lambda reach: (reach[1][-1] - reach[0], reach)):
        span = (start, ends[-1])
        free = next((n for n, spans in enumerate(taken) if all(span[1] <= a or b <= span[0] for a, b in spans)), None)
        if free is None:
            free = len(taken)
            taken.append([])
        taken[free].append(span)
        found.append(Lane(start, tuple(ends), free))
    return tuple(found)
