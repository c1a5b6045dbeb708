"""The best cut of a model under given conditions: a minimum s-t cut, exact.

Prices become integers in steps of a *tick*, which is chosen so that the weight of a cut that is known to be possible takes
58 bits; what is dearer than that cut is as good as forbidden. The chosen cut is therefore at most `edges * tick` dearer
than the best, below 1e-12 of the known cut's weight for 100,000 edges. Where the chosen cut is a thousand times cheaper
than the known one, it becomes the known one and the search is repeated, so that the stated error stays below 1e-9 of the
optimum. Of all minimum cuts the least and the largest are compared by their recomputed cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from partitioner.search.conditions import NO_PINS, Conditions, Pins
from partitioner.search.flow import ENDLESS, Bools, minimum_cuts, reach
from partitioner.search.network import Floats, Network, Prices, cheapest
from partitioner.search.plans import Plan, plan_of

TICK_BITS = 58
MUCH_CHEAPER = 1024.0


@dataclass(frozen=True, slots=True)
class LeastCut:
    """A cut of least price: the groups on the device (bools, groups), its price, and by how much a better one may be cheaper
    at most, both in the unit of the prices."""

    inside: Bools
    price: float
    error: float


def best_plan(network: Network, conditions: Conditions, pins: Pins = NO_PINS) -> Plan | None:
    """The plan of least time among all downward-closed cuts that obey the pins, the whole model on the device and everything
    in the cloud included; None where no cut obeys them with the codings that are admissible."""
    ways = [least_away(network, conditions, pins), on_device(network, pins)]
    return min((plan for plan in ways if plan is not None), key=lambda plan: plan.cost_us(conditions), default=None)


def least_away(network: Network, conditions: Conditions, pins: Pins = NO_PINS) -> Plan | None:
    """The plan of least time among those that use the cloud, None where none obeys the pins. Where the best of these is no
    better than the whole model on the device, whatever the constant, that may be returned in its place."""
    found = least_cut(network, network.prices(conditions, pins))
    if found is None:
        return None
    return plan_of(network.problem, conditions, frozenset(np.flatnonzero(found.inside).tolist()))


def on_device(network: Network, pins: Pins = NO_PINS) -> Plan | None:
    """The plan that never asks the cloud, None where a group is pinned there."""
    if pins.cloud:
        return None
    return plan_of(network.problem, Conditions(), frozenset(range(len(network.problem.groups))))


def least_cut(network: Network, prices: Prices) -> LeastCut | None:
    """The cut of least price as `Network.weigh` has it, None where none obeys the pins."""
    capacities = _capacities(network, prices)
    known = _known_cuts(network, capacities)
    if not known:
        return None
    capacities = _without_common(network, capacities)
    best = min(known, key=lambda inside: network.weigh(prices, inside))
    while True:
        bound = _weight(network, capacities, best)
        tick = _tick(bound)
        cuts = _cut_by_ticks(network, capacities, bound, tick)
        best = min([best, *cuts], key=lambda inside: network.weigh(prices, inside))
        if _weight(network, capacities, best) * MUCH_CHEAPER >= bound:
            return LeastCut(best, network.weigh(prices, best), len(capacities) * tick if bound else 0.0)


def _cut_by_ticks(network: Network, capacities: Floats, bound: float, tick: float) -> list[Bools]:
    """The least and the largest minimum cut (bools, groups) at this resolution."""
    if not bound:
        return []
    dear = capacities > bound
    ticks = np.where(dear, ENDLESS, np.rint(np.where(dear, 0.0, capacities) / tick)).astype(np.int64)
    most = math.ceil(bound / tick) + len(ticks)
    least, largest, _ = minimum_cuts(network.pattern, ticks, most, network.source, network.sink)
    groups = network.source
    return [least[:groups], largest[:groups]]


def _tick(bound: float) -> float:
    """The power of two that has this weight take the wanted number of bits."""
    return math.ldexp(1.0, max(math.frexp(bound)[1] - TICK_BITS, -1000))


def _capacities(network: Network, prices: Prices) -> Floats:
    """The capacity of every edge, of the groups' edges both (floats, edges). Negative prices move to the other side."""
    capacities = np.zeros(len(network.pattern.targets))
    capacities[network.endless] = np.inf
    values = cheapest(prices.choices)
    if prices.private_input:
        values = np.where(network.is_input, np.inf, values)
    paid = network.crossing >= 0
    np.add.at(capacities, network.crossing[paid], values[paid])
    lifted = np.minimum(np.minimum(prices.device, prices.cloud), 0.0)
    capacities[network.from_source] += np.where(prices.edge_pins, np.inf, prices.cloud - lifted)
    capacities[network.to_sink] += np.where(prices.cloud_pins, np.inf, prices.device - lifted)
    return capacities


def _known_cuts(network: Network, capacities: Floats) -> list[Bools]:
    """The least and the largest cut (bools, groups) that cut no edge without end; none where there is no such cut."""
    pattern, open_edges = network.pattern, np.isinf(capacities)
    forced = reach(pattern, open_edges, network.source)
    if forced[network.sink]:
        return []
    barred = reach(pattern, open_edges[pattern.back], network.sink)
    return [forced[: network.source], ~barred[: network.source]]


def _without_common(network: Network, capacities: Floats) -> Floats:
    """The capacities less what every cut pays for a group, wherever it runs, and less the edge from source to sink."""
    left = capacities.copy()
    source, sink = left[network.from_source], left[network.to_sink]
    common = np.minimum(source, sink)
    left[network.from_source] = np.where(np.isinf(source), np.inf, source - common)
    left[network.to_sink] = np.where(np.isinf(sink), np.inf, sink - common)
    left[network.across] = 0.0
    return left


def _weight(network: Network, capacities: Floats, inside: Bools) -> float:
    """The capacity of a cut that cuts no edge without end."""
    side, pattern = network.sides(inside), network.pattern
    return float(capacities[side[pattern.sources] & ~side[pattern.targets]].sum())
