"""How long the partitioner's exact search takes on graphs that look like models: residual blocks, and dense blocks in which
each group uses what up to a dozen before it made. For `headtail bench`; the shapes and costs are random, from a fixed
seed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from partitioner.search.conditions import Conditions
from partitioner.search.hull import find_hull
from partitioner.search.mincut import best_plan
from partitioner.search.network import Network
from partitioner.search.problem import Choice, Group, Problem, Value

SIZES = (800, 3000)
SOLVES = 20
LIMITED_GROUPS = 800
LIMIT_MS = 50.0
BLOCK = 4
DENSE = 12


@dataclass(frozen=True, slots=True)
class SearchFigures:
    """What was measured on one graph: its kind and size, milliseconds to lay it out, for one solve (median and worst), and
    for the whole hull, with its vertices and solves."""

    kind: str
    groups: int
    values: int
    lay_out_ms: float
    solve_ms: float
    worst_ms: float
    hull_ms: float
    vertices: int
    hull_solves: int

    @property
    def within(self) -> bool:
        """Whether the limit is kept, or there is none for this size."""
        return self.groups > LIMITED_GROUPS or self.solve_ms < LIMIT_MS


def measure(groups: int, solves: int, seed: int = 0) -> list[SearchFigures]:
    """Time both kinds of graph with about so many groups, each under so many random conditions."""
    return [_measure(kind, groups, solves, seed) for kind in ("residual", "dense")]


def make_problem(kind: str, groups: int, rng: np.random.Generator) -> Problem:
    """A model of `kind` "residual" or "dense": maps get smaller and work per byte grows, as in a convolutional network."""
    consumers: list[list[int]] = [[0], *([] for _ in range(groups))]
    for group in range(1, groups):
        for value in _used(kind, group):
            consumers[value].append(group)
    values = [
        Value(
            "input" if value == 0 else f"v{value}",
            value - 1 if value else None,
            tuple(users),
            _choices(float(150_000 * 8.0 ** (-2.0 * value / groups) * rng.lognormal(0.0, 0.5))),
            output=value == groups,
        )
        for value, users in enumerate(consumers)
    ]
    work_us = rng.lognormal(4.0, 1.0, groups)
    made = [Group(f"g{g}", float(4.0 * w), float(w), int(1000 * (g + 1))) for g, w in enumerate(work_us)]
    return Problem(tuple(made), tuple(values))


def _used(kind: str, group: int) -> list[int]:
    """The values that a group uses: value v is made by group v - 1."""
    if kind == "dense":
        begin = group - group % DENSE
        return list(range(max(begin, 1), group + 1)) if group > begin else [group]
    joins = group % BLOCK == BLOCK - 1 and group >= BLOCK
    return [group - BLOCK + 1, group] if joins else [group]


def _choices(nbytes: float) -> tuple[Choice, ...]:
    raw, small = int(4 * nbytes), int(nbytes)
    return Choice("raw", raw, 1e-4 * raw, 1e-4 * raw), Choice("int8", small, 2e-3 * small, 1e-3 * small, 0.98)


def _measure(kind: str, groups: int, solves: int, seed: int) -> SearchFigures:
    rng = np.random.default_rng(seed)
    problem = make_problem(kind, groups, rng)
    begin = time.perf_counter()
    network = Network.of(problem)
    laid_out = time.perf_counter()
    times = [_time_solve(network, rng) for _ in range(solves)]
    before = time.perf_counter()
    hull = find_hull(network)
    return SearchFigures(
        kind=kind,
        groups=len(problem.groups),
        values=len(problem.values),
        lay_out_ms=(laid_out - begin) * 1e3,
        solve_ms=median(times),
        worst_ms=max(times),
        hull_ms=(time.perf_counter() - before) * 1e3,
        vertices=len(hull.vertices),
        hull_solves=hull.solves,
    )


def _time_solve(network: Network, rng: np.random.Generator) -> float:
    """Milliseconds for one solve on a link from 1 Mbit/s to 1 Gbit/s."""
    conditions = Conditions(rng.uniform(0.5, 8.0), 8.0 / 10.0 ** rng.uniform(0.0, 3.0), 1.0, 4000.0)
    begin = time.perf_counter()
    best_plan(network, conditions)
    return (time.perf_counter() - begin) * 1e3


def show(figures: Sequence[SearchFigures], console: Console) -> bool:
    """Show every graph; whether the limit is kept."""
    table = Table(title="The exact search: milliseconds")
    for column in (
        "graph",
        "groups",
        "values",
        "laying out",
        "a solve, p50",
        "worst",
        "the hull",
        "vertices",
        "solves",
    ):
        table.add_column(column, justify="left" if column == "graph" else "right")
    for found in figures:
        times = (found.lay_out_ms, found.solve_ms, found.worst_ms, found.hull_ms)
        sizes = (str(found.groups), str(found.values))
        counts = (str(found.vertices), str(found.hull_solves))
        table.add_row(found.kind, *sizes, *(f"{time_ms:.1f}" for time_ms in times), *counts)
    console.print(table)
    good = all(found.within for found in figures)
    kept = "kept" if good else "EXCEEDED"
    console.print(f"Limit: a solve of {LIMITED_GROUPS} groups in less than {LIMIT_MS:g} ms (p50): {kept}.")
    return good
