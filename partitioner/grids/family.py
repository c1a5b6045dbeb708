"""The fewest routes that lose little under any of a grid of conditions.

A route is a cut and one coding in which all that crosses it travels, since that is what a bundle can take. So each coding
makes a problem of its own, in which values have that choice or none; the plans that can win are the vertices of the hulls
of all of these, those that win on the grid itself, and, since segments are the parts of a chain of cuts, the intersections
and unions of these cuts. The least time under each condition is the least of all codings' minimum cuts and of the device,
found anew. Families of these plans grow by one route until the regret is within the bound, so that the first that is has
the fewest.

Limits on sums are not part of a hull: with them plans come from the grid alone, and where a search does not close its gap
the bound that it proves counts as the least time, so that a regret is never understated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from partitioner.choose import MAX_ROUTES
from partitioner.grids.grid import GridPoint
from partitioner.grids.regret import CLOSE, Regret
from partitioner.places import FREE
from partitioner.search.branching import Goal, find_least
from partitioner.search.conditions import NO_LIMITS, NO_PINS, Conditions, Limits, Pins
from partitioner.search.family import MOST_REPAIRED, pick_family, repaired_cuts
from partitioner.search.hull import find_hull
from partitioner.search.mincut import least_away, on_device
from partitioner.search.network import Floats, Network
from partitioner.search.plans import Plan, obeys, plan_of, within
from partitioner.search.problem import Problem
from shared.errors import Unsatisfiable

LIMITED_SOLVES = 60
"""Minimum cuts under each condition and coding where there are limits."""
STEP_US = 1e-6

Struck = frozenset[tuple[str, str]]
"""Pairs of a coding and a value's name that agree too little."""


@dataclass(frozen=True, slots=True)
class KeptRoute:
    """A route: the groups that run on the device (none where the input is sent), and the coding of all that crosses."""

    cut: frozenset[int]
    coding: str


@dataclass(frozen=True, slots=True)
class RouteFamily:
    """The routes by rising work on the device, each cut within the next, and what they and the device lose. `times_us` are
    the times of each route under each combination, `device_us` those of the whole model on the device, infinite where it
    may not run there alone."""

    routes: tuple[KeptRoute, ...]
    regret: Regret
    times_us: tuple[tuple[float, ...], ...]
    device_us: tuple[float, ...]

    def losing(self, lost: Collection[KeptRoute]) -> Regret:
        """What the device and the routes but for the `lost` ones lose."""
        left = [times for route, times in zip(self.routes, self.times_us, strict=True) if route not in lost]
        kept_us = tuple(min(times) for times in zip(self.device_us, *left, strict=True))
        return msgspec.structs.replace(self.regret, kept_us=kept_us)


def find_route_family(
    problem: Problem,
    points: Sequence[GridPoint],
    max_regret: float,
    header_bytes: int,
    pins: Pins = NO_PINS,
    limits: Limits = NO_LIMITS,
    most: int = MAX_ROUTES,
) -> RouteFamily:
    """The fewest routes, at most `most`, whose worst regret is at most `max_regret`; those of the least worst regret where no
    such few are within it. `header_bytes` cross beside the values, in either direction. Raises `Unsatisfiable` where no
    plan obeys the pins and limits."""
    grid = [conditions_at(point, header_bytes) for point in points]
    networks = {coding: Network.of(in_one_coding(problem, coding)) for coding in codings_of(problem)}
    device = on_device(Network.of(problem), pins) if not networks else on_device(next(iter(networks.values())), pins)
    if device is not None and not within(device.figures, limits):
        device = None
    found, least = _least(networks, device, grid, pins, limits)
    if not limits.any:
        hulls = ((c, v.plan) for c, network in networks.items() for v in find_hull(network, pins).vertices)
        found = {**found, **{plan: coding for coding, plan in hulls if plan not in found}}
    found |= _repaired(networks, found, pins, limits)
    weights = np.array([point.weight for point in points])
    family = pick_family(list(found), device, grid, least, 0, nested=True, weights=weights)
    for count in range(1, most + 1):
        if family.worst_regret <= 1.0 + max_regret + CLOSE:
            break
        family = pick_family(list(found), device, grid, least, count, nested=True, weights=weights)
    away = [plan for plan in family.plans if plan.figures.uses_cloud]
    times_us = tuple(tuple(plan.cost_us(conditions) for conditions in grid) for plan in away)
    device_us = tuple(np.inf if device is None else device.cost_us(conditions) for conditions in grid)
    kept_us = tuple(min(times) for times in zip(device_us, *times_us, strict=True))
    regret = Regret(max_regret, family.method, tuple(points), tuple(least.tolist()), kept_us)
    return RouteFamily(tuple(KeptRoute(plan.cut, found[plan]) for plan in away), regret, times_us, device_us)


def conditions_at(point: GridPoint, header_bytes: int) -> Conditions:
    """A combination as the search's conditions, in microseconds."""
    us_per_byte = 8.0 / point.rate_mbit
    return Conditions(point.device_ratio, us_per_byte, 1.0, point.rtt_ms * 1000.0 + us_per_byte * header_bytes)


def codings_of(problem: Problem) -> tuple[str, ...]:
    """The names of all codings in which some value can travel, but for what both sides make."""
    names = dict.fromkeys(choice.coding for value in problem.values for choice in value.choices)
    return tuple(name for name in names if name != FREE[0].coding)


def in_one_coding(problem: Problem, coding: str) -> Problem:
    """The same model where everything travels in this coding or not at all."""
    return replace(
        problem,
        values=tuple(
            replace(value, choices=tuple(c for c in value.choices if c.coding == coding or c in FREE))
            for value in problem.values
        ),
    )


def without(problem: Problem, struck: Struck) -> Problem:
    """The same model without some codings of some values."""
    return replace(
        problem,
        values=tuple(
            replace(value, choices=tuple(c for c in value.choices if (c.coding, value.name) not in struck))
            for value in problem.values
        ),
    )


def crossing_names(problem: Problem, route: KeptRoute) -> tuple[str, ...]:
    """The names of the values that cross by a route, but for those that both sides make."""
    plan = plan_of(in_one_coding(problem, route.coding), Conditions(), route.cut)
    sent = plan.codings if plan else ()
    return tuple(problem.values[v].name for v, _ in sent if problem.values[v].choices != FREE)


def _least(
    networks: Mapping[str, Network], device: Plan | None, grid: Sequence[Conditions], pins: Pins, limits: Limits
) -> tuple[dict[Plan, str], Floats]:
    """The plans through the cloud that win on the grid, each with its coding, and the least times (floats, conditions). What
    any use of the cloud takes is alike for all of these plans, so that conditions that differ in it alone share a solve."""
    found: dict[Plan, str] = {}
    asked: dict[tuple[str, float, float], tuple[Plan | None, float]] = {}
    least = np.full(len(grid), np.inf)
    for index, conditions in enumerate(grid):
        if device is not None:
            least[index] = device.cost_us(conditions)
        for coding, network in networks.items():
            key = coding, conditions.slowdown, conditions.us_per_byte
            if key not in asked:
                asked[key] = _solve(network, replace(conditions, constant_us=0.0), pins, limits)
            plan, bound_us = asked[key]
            if plan is not None:
                found.setdefault(plan, coding)
            least[index] = min(least[index], bound_us + conditions.constant_us)
    if not np.isfinite(least).all():
        raise Unsatisfiable("no plan obeys all that is asked for under the conditions of the grid")
    return found, least


def _solve(network: Network, conditions: Conditions, pins: Pins, limits: Limits) -> tuple[Plan | None, float]:
    """The best plan through the cloud, and a time that none is below: its own where there are no limits; infinite where there
    is no plan."""
    if not limits.any:
        plan = least_away(network, conditions, pins)
        if plan is None or not plan.figures.uses_cloud:
            return None, np.inf
        return plan, plan.cost_us(conditions)
    goal = Goal(network.prices(conditions, pins), 0.0, lambda plan: plan.cost_us(conditions), STEP_US)
    outcome = find_least(network, goal, limits, [], LIMITED_SOLVES)
    if outcome.plan is None or not outcome.plan.figures.uses_cloud:
        return None, outcome.bound
    return outcome.plan, min(outcome.bound, outcome.plan.cost_us(conditions))


def _repaired(networks: Mapping[str, Network], plans: Iterable[Plan], pins: Pins, limits: Limits) -> dict[Plan, str]:
    """The intersections and unions of the plans' cuts in every coding, as far as they obey pins and limits."""
    found: dict[Plan, str] = {}
    for cut in repaired_cuts(list(plans))[:MOST_REPAIRED]:
        for coding, network in networks.items():
            plan = plan_of(network.problem, Conditions(), cut)
            if plan is None or not plan.figures.uses_cloud:
                continue
            if obeys(network.problem, plan, pins) and within(plan.figures, limits):
                found.setdefault(plan, coding)
    return found
