"""The least cost of all downward-closed sets of a problem, and how many there are, by a method that knows nothing of flows.

The groups are decided one after the other, each once all that it depends on is decided. What is decided later depends on
few of those before: on which groups with users to come are in the cloud, and which values with users to come were paid
for. Of all sets that agree in these, the cheapest is kept and all are counted. That is dynamic programming over the cuts'
frontier (as in Held and Karp, "A dynamic programming approach to sequencing problems", 1962): every set is accounted for,
none is left out. The number of frontiers grows with the width of the graph and not with its length, which is small in real
models; where it exceeds the bound that is said, and nothing is returned.

Costs are summed as the docstring of `partitioner.search.plans` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partitioner.search.conditions import Conditions, Pins
from partitioner.search.problem import Problem, Value

Floats = NDArray[np.float64]

MOST_FRONTIERS = 200_000
"""Frontiers that may be open at once."""


@dataclass(frozen=True, slots=True)
class Least:
    """The least cost of all downward-closed sets under each of the conditions (floats, conditions; microseconds, infinite
    where the pins or the codings allow none), how many such sets obey the pins on groups, and the most frontiers that were
    open at once."""

    costs_us: Floats
    sets: int
    frontiers: int


@dataclass(frozen=True, slots=True)
class _Frontier:
    """The cheapest of the sets that end here (floats, conditions), and how many do."""

    costs: Floats
    sets: int

    def joined(self, other: _Frontier | None) -> _Frontier:
        """This one and another with the same future."""
        if other is None:
            return self
        return _Frontier(np.minimum(self.costs, other.costs), self.sets + other.sets)


def least_of_all(
    problem: Problem, cases: Sequence[tuple[Conditions, Pins]], most_frontiers: int = MOST_FRONTIERS
) -> Least | None:
    """The least cost for each pair of conditions and pins, whose pins on groups must all be the same; None where more than
    `most_frontiers` would be open at once. Raises `ValueError` where the pins on groups differ."""
    pins = cases[0][1]
    if any((other.edge, other.cloud) != (pins.edge, pins.cloud) for _, other in cases):
        raise ValueError("cases that are asked together have the same groups pinned")
    prices = _prices(problem, cases)
    walk = _Walk.of(problem, prices)
    nothing = np.zeros(len(cases))
    for index, value in enumerate(problem.values):
        if value.producer is None and value.output:
            nothing = nothing + prices[index]
    start = sum(1 << v for v, value in enumerate(problem.values) if value.producer is None and value.output)
    front = {(0, start & walk.told): _Frontier(nothing, 1)}
    widest = 1
    for group in walk.order:
        front = _decide(problem, walk, group, cases, pins, front)
        widest = max(widest, len(front))
        if widest > most_frontiers:
            return None
    (end,) = front.values() if front else (_Frontier(np.full(len(cases), np.inf), 0),)
    costs = end.costs + np.array([conditions.constant_us for conditions, _ in cases])
    if not pins.cloud:  # nothing crosses where nothing is left for the cloud
        work_us = sum(group.device_us for group in problem.groups)
        costs = np.minimum(costs, [conditions.slowdown * work_us for conditions, _ in cases])
    return Least(costs, end.sets, widest)


@dataclass(frozen=True, slots=True)
class _Walk:
    """How the groups are decided: their order, what each uses and makes, after which place a group or a value has no user to
    come, and the values of which it must be told whether they were paid for (those that cost anything), as bits."""

    order: tuple[int, ...]
    needs: tuple[int, ...]
    uses: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]
    groups_to_come: tuple[int, ...]
    values_to_come: tuple[int, ...]
    told: int
    prices: Floats

    @classmethod
    def of(cls, problem: Problem, prices: Floats) -> _Walk:
        order = narrow_order(problem)
        place = {group: at for at, group in enumerate(order)}
        count = len(order)
        uses: list[list[int]] = [[] for _ in order]
        makes: list[list[int]] = [[] for _ in order]
        groups_to_come, values_to_come = [0] * count, [0] * count
        for index, value in enumerate(problem.values):
            last = max((place[user] for user in value.consumers), default=-1)
            first = 0 if value.producer is None else place[value.producer]
            for at in range(first, last):
                values_to_come[at] |= 1 << index
                if value.producer is not None:
                    groups_to_come[at] |= 1 << value.producer
            for user in value.consumers:
                uses[user].append(index)
            if value.producer is not None:
                makes[value.producer].append(index)
        needs = tuple(sum(1 << group for group in needed) for needed in problem.depends_on())
        told = sum(1 << index for index in range(len(prices)) if prices[index].any())
        return cls(
            order,
            needs,
            tuple(map(tuple, uses)),
            tuple(map(tuple, makes)),
            tuple(groups_to_come),
            tuple(values_to_come),
            told,
            prices,
        )


def _decide(
    problem: Problem,
    walk: _Walk,
    group: int,
    cases: Sequence[tuple[Conditions, Pins]],
    pins: Pins,
    front: dict[tuple[int, int], _Frontier],
) -> dict[tuple[int, int], _Frontier]:
    """Every frontier with this group on the device, where what it needs is there, and in the cloud."""
    at = walk.order.index(group)
    groups_kept, values_kept = walk.groups_to_come[at], walk.values_to_come[at] & walk.told
    here = np.array([conditions.slowdown for conditions, _ in cases]) * problem.groups[group].device_us
    away = np.array([conditions.cloud_factor for conditions, _ in cases]) * problem.groups[group].cloud_us
    returned = [value for value in walk.makes[group] if problem.values[value].output]
    here = here + walk.prices[returned].sum(axis=0)
    paid_here = sum(1 << value for value in returned)
    found: dict[tuple[int, int], _Frontier] = {}

    def put(outside: int, paid: int, frontier: _Frontier) -> None:
        key = outside & groups_kept, paid & values_kept
        found[key] = frontier.joined(found.get(key))

    for (outside, paid), known in front.items():
        if not walk.needs[group] & outside and group not in pins.cloud:
            put(outside, paid | paid_here, _Frontier(known.costs + here, known.sets))
        if group not in pins.edge:
            sent = [v for v in walk.uses[group] if not paid >> v & 1 and _on_device(problem.values[v], outside)]
            costs = known.costs + away + walk.prices[sent].sum(axis=0)
            put(outside | 1 << group, paid | sum(1 << v for v in sent), _Frontier(costs, known.sets))
    return found


def _on_device(value: Value, outside: int) -> bool:
    return value.producer is None or not outside >> value.producer & 1


def _prices(problem: Problem, cases: Sequence[tuple[Conditions, Pins]]) -> Floats:
    """What each value costs to send in the cheapest of its codings (floats, values x cases), infinite where it has none."""
    table = np.full((len(problem.values), len(cases)), np.inf)
    for index, value in enumerate(problem.values):
        for case, (conditions, pins) in enumerate(cases):
            if value.producer is None and pins.private_input:
                continue
            table[index, case] = min(
                (
                    conditions.slowdown * choice.encode_us
                    + conditions.us_per_byte * choice.nbytes
                    + conditions.cloud_factor * choice.decode_us
                    for choice in value.choices
                    if choice.agreement >= conditions.least_agreement
                ),
                default=np.inf,
            )
    return table


def narrow_order(problem: Problem) -> tuple[int, ...]:
    """An order in which the groups can run, with few values that wait for users: of those that are ready, always the one
    that leaves the fewest, and of equals the first. Quadratic at worst."""
    needed = [set(groups) for groups in problem.depends_on()]
    left = {index: len(value.consumers) for index, value in enumerate(problem.values)}
    uses: list[list[int]] = [[] for _ in needed]
    makes = [0] * len(needed)
    users: list[set[int]] = [set() for _ in needed]
    for index, value in enumerate(problem.values):
        for user in value.consumers:
            uses[user].append(index)
            if value.producer is not None:
                users[value.producer].add(user)
        if value.producer is not None and value.consumers:
            makes[value.producer] += 1
    ready = {group for group, groups in enumerate(needed) if not groups}
    order: list[int] = []
    while ready:
        group = min(ready, key=lambda g: (makes[g] - sum(left[v] == 1 for v in uses[g]), g))
        ready.remove(group)
        order.append(group)
        for used in uses[group]:
            left[used] -= 1
        for user in users[group]:
            needed[user].discard(group)
            if not needed[user]:
                ready.add(user)
    return tuple(order)
