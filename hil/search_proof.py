"""The partitioner's search on real models, held against the least of all downward-closed sets (`hil.ideals`).

The groups, the values between them and the sizes of these are the model's own; times and codings, which change from machine
to machine, are drawn from a seed: each operator's time is its share of the compute times a random factor, one for either
side. Conditions range from a link that costs nothing to one that costs more than all work. A third of the cases has a
private input, and a third groups pinned to either side, which may contradict each other: then both must find that
nothing is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hil.ideals import MOST_FRONTIERS, least_of_all
from hil.model_zoo import ZooModel
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import Groups, find_groups
from partitioner.places import Speed, problem_of
from partitioner.search.conditions import Conditions, Pins
from partitioner.search.mincut import best_plan
from partitioner.search.network import Network
from partitioner.search.plans import obeys
from partitioner.search.problem import Choice, Problem, Value

CONDITIONS = 60
WHOLE_US = 10_000.0
SPEEDS = (Speed("int8", 1.0, 2e-3, 1e-3), Speed("int4", 0.35, 4e-3, 3e-3))
APART = 1e-9
"""The largest relative difference of two costs that are the same: rounding."""
PIN_SETS = 4
"""Draws of pinned groups for each model."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ModelProof:
    """One model: its groups and values, how many downward-closed sets of groups it has, the most frontiers that were open at
    once, in how many cases the search was asked, in how many of these the pins allow nothing, and the cases in which its cost
    was not the least, each in words. `sets` is None where the model is too wide: then nothing was compared."""

    model: str
    groups: int
    values: int
    sets: int | None
    frontiers: int
    cases: int
    impossible: int
    wrong: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether it was compared whole, and the search found the least cost in every case."""
        return self.sets is not None and not self.wrong


def prove_zoo(models: Sequence[ZooModel], cache: Path, conditions: int, progress: Progress) -> Iterator[ModelProof]:
    """Prove the search on each of these models that can be used. Raises `ModelError` where one cannot be had."""
    for model in models:
        progress(f"search on {model.name}")
        groups = find_groups(CutFinder(model.normal(cache)))
        yield prove_search(model.name, groups, conditions)


def prove_search(
    name: str, groups: Groups, conditions: int, seed: int = 0, most_frontiers: int = MOST_FRONTIERS
) -> ModelProof:
    """Compare the search's cost with the least of all downward-closed sets under so many random conditions."""
    rng = np.random.default_rng(seed)
    problem = dressed(groups, rng)
    network = Network.of(problem)
    open_cases = [(_conditions(rng), Pins(private_input=turn % 2 == 1)) for turn in range(conditions - conditions // 3)]
    batches = [open_cases]
    pinned = conditions // 3
    for draw in range(min(PIN_SETS, pinned)):
        pins = _pins(rng, problem)
        batches.append([(_conditions(rng), pins) for _ in range(draw, pinned, PIN_SETS)])
    found: list[str] = []
    sets: int | None = None
    frontiers, impossible = 0, 0
    for cases in batches:
        least = least_of_all(problem, cases, most_frontiers)
        if least is None:
            return ModelProof(name, len(problem.groups), len(problem.values), None, most_frontiers, 0, 0, ())
        sets = least.sets if cases is open_cases else sets
        frontiers = max(frontiers, least.frontiers)
        impossible += int(np.isinf(least.costs_us).sum())
        for (where, pins), cost_us in zip(cases, least.costs_us.tolist(), strict=True):
            found += _fault(network, where, pins, cost_us)
    return ModelProof(
        name, len(problem.groups), len(problem.values), sets, frontiers, conditions, impossible, tuple(found)
    )


def dressed(groups: Groups, rng: np.random.Generator) -> Problem:
    """The model's own groups and values, with random times and agreements."""
    finder = groups.finder
    times_us = {
        node: WHOLE_US * finder.share_of(node) * float(rng.lognormal(0.0, 0.7)) + float(rng.uniform(0.0, 2.0))
        for node in finder.order
    }
    problem = problem_of(groups, times_us, {}, SPEEDS)
    cloud = tuple(
        replace(group, cloud_us=group.cloud_us * float(rng.lognormal(-1.0, 0.7)), weight_bytes=0)
        for group in problem.groups
    )
    return Problem(cloud, tuple(_judged(value, rng) for value in problem.values))


def _judged(value: Value, rng: np.random.Generator) -> Value:
    def judged(choice: Choice) -> Choice:
        lossy = choice.coding.startswith("int")
        return replace(choice, agreement=float(rng.choice([0.6, 0.95]))) if lossy else choice

    return replace(value, choices=tuple(judged(choice) for choice in value.choices))


def _conditions(rng: np.random.Generator) -> Conditions:
    return Conditions(
        slowdown=float(rng.choice([1.0, rng.uniform(0.2, 16.0)])),
        us_per_byte=float(rng.choice([0.0, 8.0 / 10.0 ** rng.uniform(-1.0, 4.0)], p=[0.1, 0.9])),
        cloud_factor=float(rng.choice([1.0, rng.uniform(0.1, 3.0)])),
        constant_us=float(rng.choice([0.0, rng.uniform(0.0, 20_000.0)])),
        least_agreement=float(rng.choice([0.0, 0.9, 1.0])),
    )


def _pins(rng: np.random.Generator, problem: Problem) -> Pins:
    """One to three groups on either side, in half of the draws those of the cloud behind those of the device."""
    count = len(problem.groups)
    drawn = [int(group) for group in rng.integers(0, count, int(rng.integers(2, 5)))]
    if rng.random() < 0.5:
        drawn.sort()
    half = len(drawn) // 2
    return Pins(frozenset(drawn[:half]), frozenset(drawn[half:]))


def _fault(network: Network, conditions: Conditions, pins: Pins, least_us: float) -> list[str]:
    """What is wrong with the search's answer, in words; nothing where it is right."""
    plan = best_plan(network, conditions, pins)
    if plan is None:
        return [] if math.isinf(least_us) else [f"{conditions}: nothing found, where the least is {least_us}"]
    if not obeys(network.problem, plan, pins):
        return [f"{conditions}: the plan does not obey {pins}"]
    cost_us = plan.cost_us(conditions)
    if abs(cost_us - least_us) > APART * max(1.0, least_us):
        return [f"{conditions}: {cost_us} us found, where the least is {least_us}"]
    return []


def show(proofs: Sequence[ModelProof], console: Console) -> bool:
    """Show every model; whether the search was right on each, compared whole."""
    table = Table(title="The search against the least of all downward-closed sets")
    for column in ("model", "groups", "values", "closed sets", "frontiers", "cases", "of these none allowed", "wrong"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for proof in proofs:
        sets = "too many to compare" if proof.sets is None else f"{proof.sets:,}"
        counts = (str(proof.frontiers), str(proof.cases), str(proof.impossible), str(len(proof.wrong)))
        table.add_row(proof.model, str(proof.groups), str(proof.values), sets, *counts)
    console.print(table)
    for proof in proofs:
        for words in proof.wrong:
            console.print(f"WRONG: {proof.model}: {words}", style="bold red")
    good = all(proof.holds for proof in proofs)
    console.print(f"Rule: the search finds the least on every model, compared whole: {'kept' if good else 'BROKEN'}.")
    return good
