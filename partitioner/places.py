"""Cuts of several tensors that may be worth a look, found by the exact search over the model's groups.

Cuts of one tensor lie in a line and are all weighed. Of the others there are too many: of those only the ones are looked
at that are the best of all cuts at some rate near the stated one, once with the input's codings among the ways and once
without. Times are those of the timed heads, shared out among the operators; what is not measured yet gets the benefit of
the doubt, as everywhere in weighing: codings of boundary tensors count as if they agreed fully.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from partitioner.graph.cuts import CandidateCut
from partitioner.graph.groups import Groups, GroupValue
from partitioner.search.answers import Found, find_plan
from partitioner.search.conditions import NO_LIMITS, NO_PINS, Conditions, Limits, Pins
from partitioner.search.mincut import least_away
from partitioner.search.network import Network
from partitioner.search.plans import Plan
from partitioner.search.problem import Choice, Group, Problem, Value

FREE = (Choice("made again", 0),)
"""How a value travels that both sides make for themselves."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What an untried coding of a float tensor is expected to do: bytes an element, and microseconds an element to encode and
    to decode."""

    coding: str
    element_bytes: float
    encode_us: float
    decode_us: float


@dataclass(frozen=True, slots=True)
class Places:
    """What the search found: cuts of several tensors, the number of groups, and how often a minimum cut was asked for."""

    cuts: tuple[CandidateCut, ...]
    groups: int
    solves: int


def problem_of(
    groups: Groups,
    times_us: Mapping[int, float],
    inputs: Mapping[str, Sequence[Choice]],
    speeds: Sequence[Speed],
    *,
    cloud_us: Mapping[int, float] | None = None,
    weights: Mapping[int, int] | None = None,
) -> Problem:
    """The model to be cut. `times_us` are the operators' times by their index, on the device and, without `cloud_us`, in the
    cloud alike; shares of the work are of the compute, as a cut's are; `inputs` the measured codings of the inputs by name
    (raw, where there are none); `speeds` the codings that float tensors may take beside raw; `weights`
    the bytes of each group's weights, by its index."""
    away_us = times_us if cloud_us is None else cloud_us
    return Problem(
        tuple(
            Group(
                groups.name_of(number),
                sum(times_us[node] for node in nodes),
                sum(away_us[node] for node in nodes),
                weight_bytes=0 if weights is None else weights[number],
                work=math.fsum(groups.finder.share_of(node) for node in nodes),
            )
            for number, nodes in enumerate(groups.nodes)
        ),
        tuple(
            Value(value.spec.name, value.producer, value.consumers, _choices(value, inputs, speeds), value.output)
            for value in groups.values
        ),
    )


def find_places(
    groups: Groups,
    problem: Problem,
    rates_mbit: Sequence[float],
    slowdown: float,
    header_bytes: int,
    *,
    pins: Pins = NO_PINS,
    limits: Limits = NO_LIMITS,
) -> Places:
    """The cuts of several tensors that are best at these rates on a device so many times slower, the likeliest first: within
    the limits and the pins."""
    network = Network.of(problem)
    found: dict[frozenset[int], CandidateCut] = {}
    solves = 0
    for rate_mbit in rates_mbit:
        us_per_byte = 8.0 / rate_mbit
        conditions = Conditions(slowdown, us_per_byte, 1.0, us_per_byte * header_bytes)
        for asked in dict.fromkeys((pins, replace(pins, private_input=True))):
            plan, more = _best(network, conditions, asked, limits)
            solves += more
            if plan is not None and 0 < len(plan.cut) < len(problem.groups) and plan.cut not in found:
                found[plan.cut] = groups.cut_of(plan.cut)
    several = tuple(cut for cut in found.values() if len(cut.tensors) > 1)
    return Places(several, len(problem.groups), solves)


def _best(network: Network, conditions: Conditions, pins: Pins, limits: Limits) -> tuple[Plan | None, int]:
    if not limits.any:
        return least_away(network, conditions, pins), 1
    found = find_plan(network, conditions, pins, limits)
    return (found.plan, found.solves) if isinstance(found, Found) else (None, 1)


def _choices(value: GroupValue, inputs: Mapping[str, Sequence[Choice]], speeds: Sequence[Speed]) -> tuple[Choice, ...]:
    if value.free:
        return FREE
    spec = value.spec
    measured = inputs.get(spec.name, ()) if value.producer is None else ()
    if measured:
        return tuple(measured)
    raw = Choice("raw", spec.nbytes())
    if "float" not in spec.dtype:
        return (raw,)
    elements = math.prod(spec.shape)
    return (
        raw,
        *(
            Choice(s.coding, round(s.element_bytes * elements), s.encode_us * elements, s.decode_us * elements)
            for s in speeds
        ),
    )
