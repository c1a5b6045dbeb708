"""One question, one answer: the best plan under given conditions and constraints, or which constraint allows none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from partitioner.search.branching import Goal, Outcome, find_least
from partitioner.search.conditions import NO_LIMITS, NO_PINS, Conditions, Limits, Pins
from partitioner.search.mincut import best_plan, least_cut, on_device
from partitioner.search.network import Network, Prices
from partitioner.search.plans import Figures, Plan

LimitName = Literal["share", "memory", "bytes"]
Constraint = Literal["pins", "private input", "codings", "agreement", "share", "memory", "bytes"]

MOST_SOLVES = 500
STEP_US = 1e-9


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan that was found, its time in microseconds, a time that no allowed plan is below (proven; equal where there
    are no limits), and the number of minimum cuts that it took."""

    plan: Plan
    cost_us: float
    bound_us: float
    solves: int

    @property
    def gap(self) -> float:
        """How far the plan may be from the best, as a share of its time; up to 1e-9, which is rounding, it is the best."""
        return max(0.0, (self.cost_us - self.bound_us) / self.cost_us) if self.cost_us else 0.0


@dataclass(frozen=True, slots=True)
class Impossible:
    """No plan obeys all constraints. `constraint` is the one that binds, `asked` its value and `nearest` the nearest value
    that would do with all other constraints as they are: a share (0 to 1), bytes, or an agreement. `nearest` is None where
    no single limit can give way enough, both are None for constraints that have no value. For pins, `groups` is a group
    pinned to the device and one pinned to the cloud that it depends on. `proven` is False where the allowance of solves
    ended first: then a plan may exist, or a nearer value do."""

    constraint: Constraint
    asked: float | None
    nearest: float | None
    groups: tuple[int, int] | None
    proven: bool


def find_plan(
    network: Network,
    conditions: Conditions,
    pins: Pins = NO_PINS,
    limits: Limits = NO_LIMITS,
    most_solves: int = MOST_SOLVES,
) -> Found | Impossible:
    """The plan of least time that obeys everything. Without limits it is exact in one solve; with limits it is the best found
    in `most_solves`, with a proven bound beside it. A value may then cross in a dearer coding to keep the limit on bytes."""
    free = best_plan(network, conditions, pins)
    if free is None:
        return _name_pins(network, conditions, pins)
    if not limits.any:
        return Found(free, free.cost_us(conditions), free.cost_us(conditions), 1)
    goal = Goal(
        network.prices(conditions, pins), conditions.constant_us, lambda plan: plan.cost_us(conditions), STEP_US
    )
    outcome = _least(network, goal, pins, limits, most_solves)
    if outcome.plan is None:
        return _name_limit(network, conditions, pins, limits, most_solves, proven=outcome.bound == math.inf)
    return Found(outcome.plan, outcome.plan.cost_us(conditions), outcome.bound, outcome.solves)


def _least(network: Network, goal: Goal, pins: Pins, limits: Limits, most_solves: int) -> Outcome:
    device = on_device(network, pins)
    return find_least(network, goal, limits, [] if device is None else [device], most_solves)


def _name_pins(network: Network, conditions: Conditions, pins: Pins) -> Impossible:
    """Why not even a plan without limits exists: pins against each other, the private input, or codings."""
    groups = _contradiction(network, pins)
    if groups is not None:
        return Impossible("pins", None, None, groups, proven=True)
    nearest = _best_agreement(network, pins)
    if nearest is not None:
        return Impossible("agreement", conditions.least_agreement, nearest, None, proven=True)
    public = replace(pins, private_input=False)
    if pins.private_input and best_plan(network, conditions, public) is not None:
        return Impossible("private input", None, None, None, proven=True)
    return Impossible("codings", None, None, None, proven=True)


def _contradiction(network: Network, pins: Pins) -> tuple[int, int] | None:
    """A group pinned to the device, and one pinned to the cloud that is the same or that it depends on."""
    needed = network.problem.depends_on()
    for group in sorted(pins.edge):
        below, waiting = {group}, [group]
        while waiting:
            fresh = needed[waiting.pop()] - below
            below |= fresh
            waiting += fresh
        if below & pins.cloud:
            return group, min(below & pins.cloud)
    return None


def _best_agreement(network: Network, pins: Pins) -> float | None:
    """The highest least agreement with which these pins can be obeyed, None where none can."""
    levels = np.unique(network.agreement[network.agreement >= 0.0])
    low, high = -1, len(levels) - 1
    while low < high:
        middle = (low + high + 1) // 2
        prices = network.prices(Conditions(least_agreement=float(levels[middle])), pins)
        if least_cut(network, prices) is None:
            high = middle - 1
        else:
            low = middle
    return None if low < 0 else float(levels[low])


def _name_limit(
    network: Network, conditions: Conditions, pins: Pins, limits: Limits, most_solves: int, *, proven: bool
) -> Impossible:
    """The limit that has to give way least, as a share of what was asked, with all others kept."""
    open_prices = network.prices(conditions, pins)
    named: list[tuple[float, Impossible]] = []
    for name, asked in _asked(limits):
        goal = _goal(network, open_prices, name)
        outcome = _least(network, goal, pins, _without(limits, name), most_solves)
        if outcome.plan is None:
            continue
        nearest = _figure(name, outcome.plan.figures)
        exact = goal.value(outcome.plan) - outcome.bound <= goal.step
        answer = Impossible(name, asked, nearest, None, proven=proven and exact)
        named.append((abs(nearest - asked) / max(asked, 1e-9), answer))
    if named:
        return min(named, key=lambda pair: pair[0])[1]
    name, asked = _asked(limits)[0]
    return Impossible(name, asked, None, None, proven=proven)


def _asked(limits: Limits) -> list[tuple[LimitName, float]]:
    """The limits that are set, with their values."""
    asked: list[tuple[LimitName, float | None]] = [
        ("share", limits.least_share),
        ("memory", limits.memory_bytes),
        ("bytes", limits.bytes_up),
    ]
    return [(name, float(value)) for name, value in asked if value is not None]


def _without(limits: Limits, name: LimitName) -> Limits:
    return Limits(
        None if name == "share" else limits.least_share,
        None if name == "memory" else limits.memory_bytes,
        None if name == "bytes" else limits.bytes_up,
    )


def _figure(name: LimitName, figures: Figures) -> float:
    """The figure that a limit bounds."""
    match name:
        case "share":
            return figures.share
        case "memory":
            return float(figures.memory_bytes)
        case "bytes":
            return float(figures.bytes_up)


def _goal(network: Network, prices: Prices, name: LimitName) -> Goal:
    """The least of what a limit bounds; of the share, the least of what is missing to all."""
    nothing = np.zeros(len(network.device_us))
    priced = replace(
        prices,
        device=network.weight_bytes if name == "memory" else nothing,
        cloud=network.work / (float(network.work.sum()) or 1.0) if name == "share" else nothing,
        choices=np.where(np.isinf(prices.choices), np.inf, network.nbytes if name == "bytes" else 0.0),
    )
    if name == "share":
        return Goal(priced, 0.0, lambda plan: 1.0 - plan.figures.share, 1e-9)
    return Goal(priced, 0.0, lambda plan: _figure(name, plan.figures), 0.5)
