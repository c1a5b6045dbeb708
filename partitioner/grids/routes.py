"""The routes of a bundle that is asked to be good under a grid of conditions, each cut, timed and judged.

The search gives the fewest that lose little (`partitioner.grids.family`), taking it that every coding agrees enough. What it
gives is cut, loaded and judged like every other way; a coding that agrees too little at a cut is taken from all that crosses
there, and the search is asked again, until all of its routes stand. After some turns the codings whose agreement was only
hoped for are left out altogether, so that this ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partitioner.choose import acceptable
from partitioner.costs.cost import Candidate
from partitioner.grids.family import KeptRoute, RouteFamily, Struck, crossing_names, find_route_family, without
from partitioner.grids.regret import Regret
from partitioner.search.problem import Problem
from partitioner.study import Progress, Study
from partitioner.table import SAMPLES, Table
from shared.errors import ModelError

MOST_TURNS = 4


@dataclass(frozen=True, slots=True)
class Kept:
    """The routes by the name of their cut and their coding, what they lose, the problem in which they lose it, and notes for
    the report."""

    ways: Mapping[tuple[str, str], KeptRoute]
    family: RouteFamily
    problem: Problem
    notes: tuple[str, ...]

    def regret(self, routes: Iterable[Candidate]) -> Regret | None:
        """What the routes lose that a bundle really has of these; None where nothing is left that could answer."""
        there = {(route.cut, route.coding) for route in routes}
        left = self.family.losing([route for way, route in self.ways.items() if way not in there])
        return left if math.isfinite(left.worst) else None


def keep_routes(study: Study, table: Table, progress: Progress) -> Kept:
    """Find, cut and judge the routes for the options' grid; the input must have been looked at. Raises `Unsatisfiable` where
    no plan obeys the options under the conditions of the grid."""
    options = study.options
    problem = table.problem()
    struck: Struck = frozenset()
    hoped = frozenset((coding, value.name) for coding in SAMPLES for value in problem.values)
    turn = 0
    while True:
        left = without(problem, struck if turn < MOST_TURNS else struck | hoped)
        progress(f"choosing the fewest routes for {len(options.grid)} conditions")
        family = find_route_family(left, options.grid, options.max_regret, table.header_bytes, study.pins, table.limits)
        wrong = _wrong(left, family, study, table, progress)
        if not wrong:
            break
        if wrong <= struck:
            raise ModelError(f"{study.model.name}: no route could be kept for the conditions of the grid")
        struck |= wrong
        turn += 1
    ways = {(table.cut_of(route.cut).name, route.coding): route for route in family.routes}
    return Kept(ways, family, left, tuple(_left_out(struck, turn)))


def _wrong(problem: Problem, family: RouteFamily, study: Study, table: Table, progress: Progress) -> Struck:
    """What must not travel so: the codings of routes that, once looked at, cannot be taken."""
    for route in family.routes:
        cut = table.cut_of(route.cut)
        if cut.name not in table.loaded:
            progress(f"cutting and timing at {cut.name}")
            table.look(cut)
    least = study.options.min_agreement
    usable = {(c.cut, c.coding) for c in table.candidates() if c.measured and acceptable(c, least)}
    return frozenset(
        (route.coding, name)
        for route in family.routes
        if (table.cut_of(route.cut).name, route.coding) not in usable
        for name in crossing_names(problem, route)
    )


def _left_out(struck: Struck, turn: int) -> list[str]:
    """What was not considered for the routes, in words."""
    if turn >= MOST_TURNS:
        return [f"for the routes, {' and '.join(SAMPLES)} were left out in the end: too many cuts agreed too little so"]
    if not struck:
        return []
    told = ", ".join(f"{name} as {coding}" for coding, name in sorted(struck))
    return [f"left out of the routes, since it agreed too little or weighed too much: {told}"]
