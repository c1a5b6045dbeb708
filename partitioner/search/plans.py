"""A cut, what crosses it, and what it costs: the definitions that every search answers to.

A cut is a downward-closed set of groups: with each group all that it depends on. The device runs it. A value crosses when the
device has it (an input, or made by a group of the cut) and a group in the cloud uses it; and, while anything remains in
the cloud, when it is an output of the model, since the cloud's answer returns all outputs. It crosses once, however many
groups use it. With every group on the device nothing crosses, and the cloud is not asked at all.

Costs are computed here from the partition alone, in plain loops that know nothing of flows: whatever a search finds,
this is the number that is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from partitioner.search.conditions import NO_PINS, Conditions, Limits, Pins
from partitioner.search.problem import Choice, Group, Problem, Value
from shared.errors import UserError


@dataclass(frozen=True, slots=True)
class Figures:
    """What a plan takes, whatever the conditions: microseconds on the device (encoding included), bytes sent, microseconds in
    the cloud (decoding included), bytes of weights on the device, the share of all work that lies before the cut (0 to
    1), the least agreement of the codings used, and whether the cloud is asked at all."""

    device_us: float
    bytes_up: int
    cloud_us: float
    memory_bytes: int
    share: float
    agreement: float
    uses_cloud: bool

    def cost_us(self, conditions: Conditions) -> float:
        """The time of a request under these conditions in microseconds, infinite where the codings agree too little."""
        if self.agreement < conditions.least_agreement:
            return math.inf
        device_us = conditions.slowdown * self.device_us
        if not self.uses_cloud:
            return device_us
        away_us = conditions.us_per_byte * self.bytes_up + conditions.cloud_factor * self.cloud_us
        return math.fsum((device_us, away_us, conditions.constant_us))


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to run a model: the groups on the device, and for each value that crosses (by index, rising) the index of its
    choice. `figures` follow from both."""

    cut: frozenset[int]
    codings: tuple[tuple[int, int], ...]
    figures: Figures

    def cost_us(self, conditions: Conditions) -> float:
        """The time of a request under these conditions in microseconds, infinite where the codings agree too little."""
        return self.figures.cost_us(conditions)


def plan_of(problem: Problem, conditions: Conditions, cut: Set[int]) -> Plan | None:
    """The plan of a cut, each crossing value in the cheapest of its admissible codings; None where one has no such coding.
    Of equally cheap codings the first is taken. Raises `UserError` where the cut is not downward closed."""
    codings: dict[int, int] = {}
    for index in crossing(problem, cut):
        choices = problem.values[index].choices
        admissible = [k for k, choice in enumerate(choices) if choice.agreement >= conditions.least_agreement]
        if not admissible:
            return None
        codings[index] = min(admissible, key=lambda k: price_us(choices[k], conditions))
    return plan_with(problem, cut, codings)


def plan_with(problem: Problem, cut: Set[int], codings: Mapping[int, int]) -> Plan:
    """The plan of a cut with the given choices, by value. Raises `UserError` where the cut is not downward closed, and where
    the codings are not exactly those of the values that cross."""
    crosses = crossing(problem, cut)
    if set(crosses) != set(codings):
        raise UserError(f"codings are given for values {sorted(codings)}, but what crosses is {list(crosses)}")
    chosen = tuple((index, codings[index]) for index in crosses)
    return Plan(frozenset(cut), chosen, _figures(problem, cut, [problem.values[v].choices[k] for v, k in chosen]))


def cost_of(problem: Problem, conditions: Conditions, cut: Set[int]) -> float:
    """The time of a request by this cut in microseconds, recomputed from the partition; infinite where a value would have to
    cross that has no admissible coding. Raises `UserError` where the cut is not downward closed."""
    plan = plan_of(problem, conditions, cut)
    return math.inf if plan is None else plan.cost_us(conditions)


def crossing(problem: Problem, cut: Set[int]) -> tuple[int, ...]:
    """The values that cross, by rising index. Raises `UserError` where the cut is not downward closed."""
    inside = frozenset(cut)
    if not all(0 <= group < len(problem.groups) for group in inside):
        raise UserError(f"a cut names groups 0 to {len(problem.groups) - 1}, this one names others as well")
    if len(inside) == len(problem.groups):
        return ()
    found: list[int] = []
    for index, value in enumerate(problem.values):
        if value.producer is not None and value.producer not in inside:
            _check_closed(problem, value, inside)
        elif value.output or not inside.issuperset(value.consumers):
            found.append(index)
    return tuple(found)


def price_us(choice: Choice, conditions: Conditions) -> float:
    """What it takes to send a value so, in microseconds."""
    device_us = conditions.slowdown * choice.encode_us
    return device_us + conditions.us_per_byte * choice.nbytes + conditions.cloud_factor * choice.decode_us


def obeys(problem: Problem, plan: Plan, pins: Pins = NO_PINS) -> bool:
    """Whether a plan keeps all pins."""
    inputs_cross = any(problem.values[value].producer is None for value, _ in plan.codings)
    return pins.edge <= plan.cut and not pins.cloud & plan.cut and not (pins.private_input and inputs_cross)


def within(figures: Figures, limits: Limits) -> bool:
    """Whether a plan's figures keep all limits."""
    return (
        (limits.least_share is None or figures.share >= limits.least_share)
        and (limits.memory_bytes is None or figures.memory_bytes <= limits.memory_bytes)
        and (limits.bytes_up is None or figures.bytes_up <= limits.bytes_up)
    )


def share_of(groups: Iterable[Group], problem: Problem) -> float:
    """The part of all work that these groups do (`Group.counts`); 1 where there is none."""
    total = math.fsum(group.counts for group in problem.groups)
    return math.fsum(group.counts for group in groups) / total if total else 1.0


def _figures(problem: Problem, cut: Set[int], sent: list[Choice]) -> Figures:
    inside = [group for index, group in enumerate(problem.groups) if index in cut]
    outside = [group for index, group in enumerate(problem.groups) if index not in cut]
    return Figures(
        device_us=math.fsum([*(group.device_us for group in inside), *(choice.encode_us for choice in sent)]),
        bytes_up=sum(choice.nbytes for choice in sent),
        cloud_us=math.fsum([*(group.cloud_us for group in outside), *(choice.decode_us for choice in sent)]),
        memory_bytes=sum(group.weight_bytes for group in inside),
        share=share_of(inside, problem),
        agreement=min((choice.agreement for choice in sent), default=1.0),
        uses_cloud=bool(outside),
    )


def _check_closed(problem: Problem, value: Value, inside: frozenset[int]) -> None:
    early = inside.intersection(value.consumers)
    if early:
        name = problem.groups[min(early)].name
        raise UserError(f"a cut that runs group {name!r} on the device must make {value.name!r} there, too")
