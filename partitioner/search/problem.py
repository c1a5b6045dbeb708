"""One model to be cut: what its parts cost on either side, and what can travel between them.

A *group* is what is never cut through: one or more operators that the runtime fuses. A *value* is a tensor that a group
makes (or that comes in) and groups use. Each value can travel in one of its *choices*, its codings. Everything here is a
measurement of one model; what it is weighed with is `partitioner.search.conditions`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shared.errors import ModelError


@dataclass(frozen=True, slots=True)
class Group:
    """One group: its time on the device and in the cloud in microseconds, the bytes of the weights that it needs, and what it
    counts when a share of the work is asked for (its time on the device where None)."""

    name: str
    device_us: float
    cloud_us: float
    weight_bytes: int = 0
    work: float | None = None

    @property
    def counts(self) -> float:
        """What it counts in a share of the work."""
        return self.device_us if self.work is None else self.work


@dataclass(frozen=True, slots=True)
class Choice:
    """One coding of one value: its bytes on the wire, microseconds to encode on the device and to decode in the cloud, and
    the agreement with the whole model when this value travels so (0 to 1)."""

    coding: str
    nbytes: int
    encode_us: float = 0.0
    decode_us: float = 0.0
    agreement: float = 1.0


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor. `producer` is the index of the group that makes it, None where it is an input of the model; `consumers` are
    the indices of the groups that use it; `output` is whether the model returns it. A value without choices never
    travels."""

    name: str
    producer: int | None
    consumers: tuple[int, ...]
    choices: tuple[Choice, ...]
    output: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """One model. Groups are named by their index, in any order; together with the values they must be free of cycles.

    Raises `ModelError` where an index, a cost or the order of the groups makes no sense.
    """

    groups: tuple[Group, ...]
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.groups:
            raise ModelError("a model to be cut has at least one group of operators, this one has none")
        for group in self.groups:
            _check_costs(f"group {group.name!r}", group.device_us, group.cloud_us, group.weight_bytes, group.counts)
        for value in self.values:
            _check_value(value, len(self.groups))
        find_order(self)

    def depends_on(self) -> tuple[frozenset[int], ...]:
        """For each group the groups whose values it uses."""
        needed: list[set[int]] = [set() for _ in self.groups]
        for value in self.values:
            if value.producer is not None:
                for consumer in value.consumers:
                    needed[consumer].add(value.producer)
        return tuple(frozenset(groups) for groups in needed)


def find_order(problem: Problem) -> tuple[int, ...]:
    """An order in which the groups can run. Raises `ModelError`, with the name of a group on it, where there is a cycle."""
    needed = problem.depends_on()
    users: list[list[int]] = [[] for _ in needed]
    for group, producers in enumerate(needed):
        for producer in producers:
            users[producer].append(group)
    waiting = [len(producers) for producers in needed]
    order = [group for group, count in enumerate(waiting) if not count]
    for group in order:  # it grows while it is walked
        for user in users[group]:
            waiting[user] -= 1
            if not waiting[user]:
                order.append(user)
    if len(order) < len(needed):
        stuck = next(group for group, count in enumerate(waiting) if count)
        raise ModelError(f"group {problem.groups[stuck].name!r} depends on itself, or on groups that do")
    return tuple(order)


def _check_value(value: Value, groups: int) -> None:
    for group in (*value.consumers, *(() if value.producer is None else (value.producer,))):
        if not 0 <= group < groups:
            raise ModelError(f"value {value.name!r} names group {group}, but the groups are 0 to {groups - 1}")
    if len(set(value.consumers)) < len(value.consumers):
        raise ModelError(f"value {value.name!r} names a consumer twice")
    for choice in value.choices:
        what = f"value {value.name!r} as {choice.coding}"
        _check_costs(what, choice.nbytes, choice.encode_us, choice.decode_us)
        if not 0.0 <= choice.agreement <= 1.0:
            raise ModelError(f"{what}: an agreement is a number from 0 to 1, not {choice.agreement}")


def _check_costs(what: str, *costs: float) -> None:
    for cost in costs:
        if not (math.isfinite(cost) and cost >= 0.0):
            raise ModelError(f"{what}: times and bytes are finite and not negative, not {cost}")
