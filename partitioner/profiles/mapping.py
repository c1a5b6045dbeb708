"""From the kernels that the runtime runs back to the groups of operators that a cut does not divide.

The runtime renames, joins and inserts operators. A kernel belongs to the group of

1. the operator that has its name, or that makes the value that it is named after (`VALUE_nchwc`);
2. the operator that makes one of its values, where that name survived;
3. the kernel that makes what it uses, where all of that comes from one group: layouts that are changed, joined operators;
4. the kernels that use what it makes, where those are of one group: what is done to an input of the model or to a weight.

What is left is not assigned. It is charged to all groups in proportion, and its share of the time is told (`guessed_share`).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from partitioner.graph.fusion import WIDE_PREFIX
from partitioner.graph.kernels import Kernel

FEW_RUNS = 8
_UNIQUE = re.compile(r"_token_\d+$")
_LAYOUT = "_nchwc"


@dataclass(frozen=True, slots=True)
class Origins:
    """The group of each operator by its name, and of each value by its name: that of the operator that makes it."""

    nodes: Mapping[str, int]
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Charged:
    """Time of each group in each run (microseconds, groups x runs), the middle time of all kernels together, and the share of
    that for which no group could be found (0 to 1)."""

    groups_us: tuple[tuple[float, ...], ...]
    kernels_us: float
    guessed_share: float


def assign(kernels: Sequence[Kernel], origins: Origins) -> list[int | None]:
    """The group of each kernel, None where it cannot be told. The kernels are in an order in which they can run."""
    found = [_by_name(kernel, origins) for kernel in kernels]
    made_by = {name: index for index, kernel in enumerate(kernels) for name in kernel.outputs}
    for index, kernel in enumerate(kernels):
        if found[index] is None:
            found[index] = _only(
                found[made_by[name]] if name in made_by else origins.values[name]
                for name in kernel.inputs
                if name in made_by or name in origins.values
            )
    users: dict[str, list[int]] = {}
    for index, kernel in enumerate(kernels):
        for name in kernel.inputs:
            users.setdefault(name, []).append(index)
    for index in reversed(range(len(kernels))):
        if found[index] is None:
            found[index] = _only(found[user] for name in kernels[index].outputs for user in users.get(name, ()))
    return found


def quiet_runs(kernels: Sequence[Kernel], runs: Sequence[int], disturbed: Set[int]) -> list[int]:
    """Those of the runs in which no other process took the processor; where they are fewer than `FEW_RUNS`, that many in
    which all kernels together took least. A kernel's time is the clock's, and a long kernel is hit in most runs of a busy
    machine."""
    quiet = [run for run in runs if run not in disturbed]
    if len(quiet) >= FEW_RUNS:
        return quiet
    totals = {run: sum(kernel.times_us[run] for kernel in kernels) for run in runs}
    return sorted(sorted(runs, key=lambda run: totals[run])[:FEW_RUNS])


def charge(kernels: Sequence[Kernel], assigned: Sequence[int | None], groups: int, runs: Sequence[int]) -> Charged:
    """The kernels' times by group in these runs, one or more, by their places.

    Middles are added up, not runs: another process takes the processor in one kernel of a run or another, and so in most runs
    of a busy machine, but seldom in most runs of one kernel.
    """
    totals = [[0.0] * len(runs) for _ in range(groups)]
    guessed = [0.0] * len(runs)
    for kernel, group in zip(kernels, assigned, strict=True):
        into = guessed if group is None else totals[group]
        for place, run in enumerate(runs):
            into[place] += kernel.times_us[run]
    guessed_us = statistics.median(guessed)
    kernels_us = guessed_us + sum(statistics.median(times) for times in totals)
    return Charged(tuple(map(tuple, totals)), kernels_us, guessed_us / kernels_us if kernels_us else 0.0)


def _by_name(kernel: Kernel, origins: Origins) -> int | None:
    if kernel.name in origins.nodes:
        return origins.nodes[kernel.name]
    base = _UNIQUE.sub("", kernel.name)
    if base.endswith(_LAYOUT) and base.removesuffix(_LAYOUT) in origins.values:
        return origins.values[base.removesuffix(_LAYOUT)]
    made = [name.removeprefix(WIDE_PREFIX) for name in kernel.outputs]
    return next((origins.values[name] for name in made if name in origins.values), None)


def _only(groups: Iterable[int | None]) -> int | None:
    """The one group among them, None where there are several, or one that is not known."""
    distinct = set(groups)
    return distinct.pop() if len(distinct) == 1 else None
