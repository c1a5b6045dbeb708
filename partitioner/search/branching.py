"""The best plan within limits: the relaxation's bound, and branching on what it leaves undecided.

Where the best mixture of cuts is one cut, that is the answer. Else a group that lies on the device in part of the mixture is
sent to the device in one branch and to the cloud in the other (or, where only codings are mixed, one coding is forced and
forbidden), and the branch with the lowest bound is looked at next, until no bound is below the best plan found
(Land and Doig, 1960). Within the allowance of solves that proves most answers; where it is used up, the bound that is
left says how far the plan can be from the best.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from partitioner.search.conditions import Limits
from partitioner.search.lagrangian import Column, Relaxation, Relaxed, forms_of
from partitioner.search.network import Floats, Network, Prices
from partitioner.search.plans import Plan, plan_with, within

EVEN = 1e-6
"""A share of a mixture that is nothing, or all."""
CLOSED = 1e-9
"""A gap, relative, that is none: the accuracy of the relaxation."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is made small: the prices of a plan through the cloud (`prices`, plus `constant`), and `value`, the same from a
    plan's own figures. A difference of `step` or less is none."""

    prices: Prices
    constant: float
    value: Callable[[Plan], float]
    step: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The best plan found within the limits, the proven lower bound on the goal of all such plans (infinite where there are
    none), and the number of minimum cuts it took."""

    plan: Plan | None
    bound: float
    solves: int


@dataclass(slots=True)
class _Best:
    """The best plan so far, and the difference that is none."""

    step: float
    value: float = math.inf
    plan: Plan | None = None

    def offer(self, plan: Plan, goal: Goal, limits: Limits) -> None:
        """Keep it where it is within the limits and better."""
        value = goal.value(plan)
        if value < self.value and within(plan.figures, limits):
            self.value, self.plan = value, plan

    def closes(self, bound: float) -> bool:
        """Whether nothing above this bound can be better."""
        return bound >= self.value - CLOSED * abs(self.value) - self.step if self.plan else bound == math.inf


def find_least(network: Network, goal: Goal, limits: Limits, others: Sequence[Plan], most_solves: int) -> Outcome:
    """The plan of the least goal within the limits, of those through the cloud that the goal's prices allow and of
    `others`."""
    best = _Best(goal.step)
    for plan in others:
        best.offer(plan, goal, limits)
    relaxation = Relaxation(network, forms_of(network, limits))
    serial = itertools.count()
    heap: list[tuple[float, int, Prices, Relaxed]] = []
    _open(relaxation, goal.prices, (), -math.inf, heap, serial, most_solves)
    offered = 0
    while heap:
        for column in relaxation.seen[offered:]:
            best.offer(_plan(network, column), goal, limits)
        offered = len(relaxation.seen)
        bound, _, prices, relaxed = heap[0]
        if best.closes(bound + goal.constant) or relaxation.solves >= most_solves:
            break
        heapq.heappop(heap)
        for branch in _branches(network, prices, relaxed):
            kept = [column for column in relaxed.columns if _obeys(column, branch)]
            _open(relaxation, branch, kept, bound, heap, serial, most_solves)
    for column in relaxation.seen[offered:]:
        best.offer(_plan(network, column), goal, limits)
    left = heap[0][0] + goal.constant if heap else math.inf
    return Outcome(best.plan, min(left, best.value), relaxation.solves)


def _open(
    relaxation: Relaxation,
    prices: Prices,
    columns: Sequence[Column],
    floor: float,
    heap: list[tuple[float, int, Prices, Relaxed]],
    serial: Iterator[int],
    most_solves: int,
) -> None:
    """Relax a branch, and keep it where it may hold a plan. `floor` is the bound of the branch that it is part of."""
    relaxed = relaxation.solve(prices, columns, most_solves)
    bound = max(floor, relaxed.bound)
    if bound < math.inf:
        heapq.heappush(heap, (bound, next(serial), prices, relaxed))


def _plan(network: Network, column: Column) -> Plan:
    cut = frozenset(np.flatnonzero(column.inside).tolist())
    whole = len(cut) == len(column.inside)
    sent = [] if whole else np.flatnonzero(column.crosses).tolist()
    return plan_with(network.problem, cut, {value: int(column.codings[value]) for value in sent})


def _obeys(column: Column, prices: Prices) -> bool:
    """Whether a column of a branch is also one of this part of it."""
    if (prices.edge_pins & ~column.inside).any() or (prices.cloud_pins & column.inside).any():
        return False
    sent = np.flatnonzero(column.crosses)
    return bool(np.isfinite(prices.choices[sent, column.codings[sent]]).all())


def _branches(network: Network, prices: Prices, relaxed: Relaxed) -> list[Prices]:
    """The two halves of a branch; none where nothing is left to decide."""
    insides = np.array([column.inside for column in relaxed.columns], dtype=np.float64)
    doubt = _doubt(relaxed.shares @ insides)
    free = ~(prices.edge_pins | prices.cloud_pins)
    order = np.lexsort((network.device_us, doubt))
    group = next((int(g) for g in order[::-1] if free[g]), None)
    if group is not None and doubt[group] > EVEN:
        return _split_group(prices, group)
    coding = _mixed_coding(network, prices, relaxed)
    if coding is not None:
        return _split_coding(prices, *coding)
    return [] if group is None else _split_group(prices, group)


def _split_group(prices: Prices, group: int) -> list[Prices]:
    here = np.arange(len(prices.device)) == group
    return [
        replace(prices, edge_pins=prices.edge_pins | here),
        replace(prices, cloud_pins=prices.cloud_pins | here),
    ]


def _split_coding(prices: Prices, value: int, coding: int) -> list[Prices]:
    without, only = prices.choices.copy(), prices.choices.copy()
    without[value, coding] = np.inf
    only[value, np.arange(only.shape[1]) != coding] = np.inf
    return [replace(prices, choices=without), replace(prices, choices=only)]


def _mixed_coding(network: Network, prices: Prices, relaxed: Relaxed) -> tuple[int, int] | None:
    """The value and the coding about which the mixture, or else the prices, leave most doubt."""
    used = np.zeros(network.nbytes.shape)
    crossing = np.zeros(len(network.nbytes), dtype=np.bool_)
    for share, column in zip(relaxed.shares, relaxed.columns, strict=True):
        sent = np.flatnonzero(column.crosses)
        used[sent, column.codings[sent]] += share
        crossing |= column.crosses & (share > EVEN)
    doubt = _doubt(used)
    if doubt.size and doubt.max() > EVEN:
        value, coding = np.unravel_index(int(doubt.argmax()), doubt.shape)
        return int(value), int(coding)
    open_codings = np.isfinite(prices.choices)
    several = np.flatnonzero(crossing & (open_codings.sum(axis=1) > 1))
    return (int(several[0]), int(np.flatnonzero(open_codings[several[0]])[0])) if len(several) else None


def _doubt(shares: Floats) -> Floats:
    """How far a share is from nothing and from all."""
    return np.asarray(np.minimum(shares, 1.0 - shares), dtype=np.float64)
