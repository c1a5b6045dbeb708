"""The handful of plans to keep: the subset whose worst regret over a grid of conditions is least.

The *regret* of a family under some conditions is the time of its best plan over the least time of all plans, found anew by a
minimum cut: 1 where nothing was lost. The plan that stays on the device needs no cut, so it belongs to every family and
does not count. Subsets are tried all where there are at most `MOST_SUBSETS` of them; else plans are added one by one, each
time the one that lowers the worst regret most (then the mean), and then exchanged while that helps.

A *nested* family has cuts each of which contains the one before, so that every group lies in one segment of one chain.
Where two cuts cross, their intersection and their union are downward closed, too, and, minimum cuts being submodular,
together no dearer than the two at the same conditions; so these join the plans that are chosen from, and only chains are
chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from partitioner.search.conditions import NO_PINS, Conditions, Pins
from partitioner.search.flow import Bools
from partitioner.search.mincut import best_plan, on_device
from partitioner.search.network import Floats, Network
from partitioner.search.plans import Plan, plan_of
from shared.errors import UserError

MOST_SUBSETS = 50_000
MOST_REPAIRED = 200
"""Plans beyond which no intersections and unions are added."""

Method = Literal["exact", "greedy"]


@dataclass(frozen=True, slots=True)
class Family:
    """The plans that were kept, those through the cloud by rising work on the device, then the one without it where pins
    allow it; the regret over the grid, worst and mean (by the weights, where there are any), as ratios of times; and how
    they were chosen: the best of all subsets of the plans that there were to choose from (`exact`), or one by one
    (`greedy`)."""

    plans: tuple[Plan, ...]
    worst_regret: float
    mean_regret: float
    method: Method


def choose_family(
    network: Network,
    plans: Iterable[Plan],
    grid: Sequence[Conditions],
    most: int,
    pins: Pins = NO_PINS,
    *,
    nested: bool = False,
) -> Family:
    """At most `most` of these plans through the cloud for a grid of conditions. Raises `UserError` where the grid is empty,
    where `most` is negative, and where no plan at all is possible under some conditions of the grid."""
    if not grid or most < 0:
        raise UserError(f"a family is chosen for at least one set of conditions and a number of plans, not {most}")
    device = on_device(network, pins)
    away = list(dict.fromkeys(plan for plan in plans if plan.figures.uses_cloud))
    if nested:
        away = _with_repaired(network, away, grid)
    return pick_family(away, device, grid, least_costs(network, grid, pins), most, nested=nested)


def pick_family(
    away: Sequence[Plan],
    device: Plan | None,
    grid: Sequence[Conditions],
    least: Floats,
    most: int,
    *,
    nested: bool = False,
    weights: Floats | None = None,
) -> Family:
    """At most `most` of these plans through the cloud, all different, beside the one on the device, by their regret against
    the least times (floats, conditions; microseconds). `weights` (floats, conditions) count in the mean, alike where None.
    Where `nested`, of any two cuts one contains the other."""
    shares = np.full(len(grid), 1.0 / len(grid)) if weights is None else weights / weights.sum()
    regrets = _ratios(_costs(away, grid), least)
    always = _ratios(_costs([] if device is None else [device], grid), least).min(axis=0, initial=np.inf)
    fits = _nests(away) if nested else np.ones((len(away), len(away)), dtype=np.bool_)
    chosen, method = _choose(_Regrets(regrets, always, shares), fits, min(most, len(away)))
    kept = sorted((away[index] for index in chosen), key=lambda plan: (len(plan.cut), plan.figures.device_us))
    family = (*kept, *(() if device is None else (device,)))
    worst, mean = regret_of(family, grid, least, shares)
    return Family(family, worst, mean, method)


@dataclass(frozen=True, slots=True)
class _Regrets:
    """The regrets of the plans to choose from (floats, plans x conditions), of what is kept anyway (floats, conditions), and
    the conditions' shares in the mean (floats, conditions)."""

    table: Floats
    always: Floats
    shares: Floats

    def rank(self, rows: tuple[int, ...]) -> tuple[float, float, int]:
        """Worst regret, mean regret, and how many plans; differences by rounding are none."""
        best = np.minimum(self.table[list(rows)].min(axis=0, initial=np.inf), self.always)
        return round(float(best.max()), 9), round(float(best @ self.shares), 9), len(rows)


def least_costs(network: Network, grid: Sequence[Conditions], pins: Pins = NO_PINS) -> Floats:
    """The least time of all plans under each of the conditions (floats, conditions; microseconds), each by a solve of its
    own. Raises `UserError` where no plan is possible."""
    costs = np.empty(len(grid))
    for index, conditions in enumerate(grid):
        plan = best_plan(network, conditions, pins)
        if plan is None:
            raise UserError(f"no plan obeys the pins at a least agreement of {conditions.least_agreement:g}")
        costs[index] = plan.cost_us(conditions)
    return costs


def regret_of(
    plans: Sequence[Plan], grid: Sequence[Conditions], least: Floats, shares: Floats | None = None
) -> tuple[float, float]:
    """The worst and the mean regret of a family, with the least times (floats, conditions) and the conditions' shares in the
    mean (floats, conditions; alike where None); infinite without any plan."""
    best = _ratios(_costs(plans, grid), least).min(axis=0, initial=np.inf)
    return float(best.max()), float(best.mean() if shares is None else best @ shares)


def _costs(plans: Sequence[Plan], grid: Sequence[Conditions]) -> Floats:
    table = [[plan.cost_us(conditions) for conditions in grid] for plan in plans]
    return np.array(table, dtype=np.float64).reshape(len(plans), len(grid))


def _ratios(costs: Floats, least: Floats) -> Floats:
    """Costs over the least ones (floats, plans x conditions); where the least is nothing, 1 for nothing and else infinite."""
    free = least == 0.0
    return np.where(free, np.where(costs == 0.0, 1.0, np.inf), costs / np.where(free, 1.0, least))


def _nests(plans: Sequence[Plan]) -> Bools:
    """Whether one of two cuts contains the other (bools, plans x plans)."""
    table = [[one.cut <= other.cut or other.cut <= one.cut for other in plans] for one in plans]
    return np.array(table, dtype=np.bool_).reshape(len(plans), len(plans))


def _with_repaired(network: Network, plans: Sequence[Plan], grid: Sequence[Conditions]) -> list[Plan]:
    """The plans, and for each two that cross their intersection and union, each in the codings that win there somewhere on
    the grid."""
    found = dict.fromkeys(plans)
    prices = list(dict.fromkeys(replace(conditions, constant_us=0.0) for conditions in grid))
    for cut in repaired_cuts(plans):
        if len(found) >= MOST_REPAIRED:
            break
        repaired = (plan_of(network.problem, conditions, cut) for conditions in prices)
        found.update(dict.fromkeys(plan for plan in repaired if plan is not None and plan.figures.uses_cloud))
    return list(found)


def repaired_cuts(plans: Sequence[Plan]) -> list[frozenset[int]]:
    """The intersections and unions of each two cuts, as far as they are no plan's cut already; each once."""
    seen = {plan.cut for plan in plans}
    found: dict[frozenset[int], None] = {}
    for one, other in itertools.combinations(dict.fromkeys(plan.cut for plan in plans), 2):
        found.update(dict.fromkeys(cut for cut in (one & other, one | other) if cut not in seen))
    return list(found)


def _choose(regrets: _Regrets, fits: Bools, most: int) -> tuple[tuple[int, ...], Method]:
    """The rows to keep of the regrets' table."""
    count = len(regrets.table)
    if sum(math.comb(count, size) for size in range(most + 1)) > MOST_SUBSETS:
        return _choose_greedily(regrets, fits, most), "greedy"
    subsets = (rows for size in range(most + 1) for rows in itertools.combinations(range(count), size))
    return min((rows for rows in subsets if _fit(rows, fits)), key=regrets.rank), "exact"


def _choose_greedily(regrets: _Regrets, fits: Bools, most: int) -> tuple[int, ...]:
    rows: tuple[int, ...] = ()
    rank = regrets.rank(rows)
    while True:
        moves = [move for move in _moves(rows, len(regrets.table), most) if _fit(move, fits)]
        best = min(moves, key=regrets.rank, default=rows)
        if not regrets.rank(best) < rank:
            return rows
        rows, rank = best, regrets.rank(best)


def _moves(rows: tuple[int, ...], count: int, most: int) -> Iterator[tuple[int, ...]]:
    """One plan more, while there is room; else one exchanged for another."""
    others = [row for row in range(count) if row not in rows]
    if len(rows) < most:
        yield from ((*rows, row) for row in others)
    else:
        yield from ((*rows[:k], row, *rows[k + 1 :]) for k in range(len(rows)) for row in others)


def _fit(rows: tuple[int, ...], fits: Bools) -> bool:
    return all(fits[one, other] for one, other in itertools.combinations(rows, 2))
