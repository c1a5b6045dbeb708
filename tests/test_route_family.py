"""The routes that are kept for a grid of conditions, against brute force over all closed sets in every coding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from search_cases import Brute, chain, random_limits, random_problem

from partitioner.grids.family import (
    KeptRoute,
    conditions_at,
    crossing_names,
    find_route_family,
    without,
)
from partitioner.grids.grid import GridPoint
from partitioner.grids.regret import Regret, words
from partitioner.search import family as family_module
from partitioner.search.conditions import NO_LIMITS, NO_PINS, Limits, Pins
from partitioner.search.problem import Choice, Group, Problem, Value
from shared.errors import Unsatisfiable

HEADER = 300
GRID = tuple(
    GridPoint(rate, rtt, ratio, weight)
    for (rate, weight), rtt, ratio in itertools.product(((1.0, 1.0), (20.0, 3.0), (400.0, 1.0)), (0.0, 0.2), (1.0, 5.0))
)
Times = np.ndarray


def in_each_coding(problem: Problem) -> dict[str, Brute]:
    """All closed sets, once for each coding, in which every value has that coding or none."""
    codings = {choice.coding for value in problem.values for choice in value.choices}
    return {
        coding: Brute.of(
            Problem(
                problem.groups,
                tuple(replace(v, choices=tuple(c for c in v.choices if c.coding == coding)) for v in problem.values),
            )
        )
        for coding in codings
    }


def times(brute: Brute, pins: Pins = NO_PINS, limits: Limits = NO_LIMITS) -> Times:
    """The time of every set (floats, sets x points), infinite where it is not allowed."""
    table = np.stack([brute.costs(conditions_at(point, HEADER)) for point in GRID], axis=1)
    good = brute.allowed(pins)
    if limits.memory_bytes is not None:
        good &= brute.memory <= limits.memory_bytes
    if limits.least_share is not None:
        good &= brute.share >= limits.least_share - 1e-12
    if limits.bytes_up is not None:
        sizes = [value.choices[0].nbytes if value.choices else 0 for value in brute.problem.values]
        good &= brute.crosses @ np.array(sizes) <= limits.bytes_up
    table[~good] = np.inf
    return table


def kept_times(routes: Sequence[KeptRoute], all_of: dict[str, Brute], tables: dict[str, Times]) -> Times:
    """The least time of these routes and of the device (floats, points)."""
    rows = [table[brute.whole][0] for brute, table in zip(all_of.values(), tables.values(), strict=True)][:1]
    for route in routes:
        wanted = np.isin(np.arange(all_of[route.coding].inside.shape[1]), sorted(route.cut))
        rows.append(tables[route.coding][(all_of[route.coding].inside == wanted).all(axis=1)][0])
    return np.min(np.array(rows), axis=0)


@pytest.mark.parametrize("seed", range(30))
def test_the_stated_regret_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 9)
    pins = Pins(private_input=bool(seed % 3 == 2))
    limits = random_limits(rng, problem) if seed % 3 == 1 else NO_LIMITS
    all_of = in_each_coding(problem)
    tables = {coding: times(brute, pins, limits) for coding, brute in all_of.items()}
    least = np.min(np.concatenate(list(tables.values())), axis=0)
    if not np.isfinite(least).all():
        with pytest.raises(Unsatisfiable, match="no plan obeys"):
            find_route_family(problem, GRID, 0.02, HEADER, pins, limits)
        return
    family = find_route_family(problem, GRID, 0.02, HEADER, pins, limits)
    kept = kept_times(family.routes, all_of, tables)
    assert family.regret.kept_us == pytest.approx(kept.tolist())
    assert family.regret.least_us == pytest.approx(least.tolist(), rel=1e-8)
    regrets = kept / least - 1.0
    weights = np.array([point.weight for point in GRID])
    assert family.regret.worst == pytest.approx(regrets.max(), abs=1e-8)
    assert family.regret.mean == pytest.approx(regrets @ weights / weights.sum(), abs=1e-8)
    assert all(one.cut <= other.cut for one, other in itertools.pairwise(family.routes))
    for lost in family.routes:
        left = kept_times([route for route in family.routes if route != lost], all_of, tables)
        assert family.losing([lost]).kept_us == pytest.approx(left.tolist())


@pytest.mark.parametrize("seed", range(20))
def test_one_route_less_of_those_that_win_somewhere_loses_more_than_was_asked_for(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed), 8)
    family = find_route_family(problem, GRID, 0.05, HEADER)
    all_of = in_each_coding(problem)
    tables = {coding: times(brute) for coding, brute in all_of.items()}
    least = np.min(np.concatenate(list(tables.values())), axis=0)
    winners = {
        KeptRoute(frozenset(np.flatnonzero(all_of[coding].inside[row]).tolist()), coding)
        for coding, table in tables.items()
        for row in np.argmin(table, axis=0)
        if not all_of[coding].whole[row]
    }
    if not (family.regret.lost.within and 1 <= len(family.routes) <= 3):
        return
    for routes in itertools.combinations(sorted(winners, key=repr), len(family.routes) - 1):
        if all(a.cut <= b.cut or b.cut <= a.cut for a, b in itertools.combinations(routes, 2)):
            assert (kept_times(routes, all_of, tables) / least).max() - 1.0 > 0.05


def test_a_route_is_one_coding_for_all_that_crosses() -> None:
    """The dearer value is cheap as int8 and the other one cannot take it; mixed they would win, apart they do not."""
    a, b = (
        Value("a", None, (0,), (Choice("raw", 10_000), Choice("int8", 10))),
        Value("b", None, (0,), (Choice("raw", 10),)),
    )
    family = find_route_family(Problem((Group("g", 5000.0, 1.0),), (a, b)), [GridPoint(8.0, 0.0, 1.0)], 0.0, 0)
    assert family.routes == ()
    assert family.regret.least_us == (5000.0,)


def test_no_route_is_kept_where_the_device_loses_little_enough() -> None:
    problem = chain(100.0, 100.0, sizes=(20, 20, 20), cloud_us=1.0)
    point = GridPoint(8.0, 0.17, 1.0)
    wide, narrow = (find_route_family(problem, [point], bound, 0) for bound in (0.10, 0.01))
    assert wide.routes == ()
    assert wide.regret.worst == pytest.approx(200.0 / 192.0 - 1.0)
    assert narrow.routes == (KeptRoute(frozenset(), "raw"),)
    assert narrow.regret.worst == 0.0
    assert "lose nothing against" in words(narrow.regret.lost)


def test_a_bound_that_few_routes_cannot_keep_is_told() -> None:
    problem = random_problem(np.random.default_rng(3), 9)
    family = find_route_family(problem, GRID, 0.0, HEADER, most=0)
    assert not family.regret.lost.within
    assert "which no few routes keep" in words(family.regret.lost)
    assert str(family.regret.worst_at) in words(family.regret.lost)


def test_what_is_struck_travels_so_no_more() -> None:
    problem = Problem(
        (Group("g", 1e6, 1.0),),
        (Value("in", None, (0,), (Choice("raw", 1000), Choice("int8", 10), Choice("int4", 5))),),
    )
    point = [GridPoint(8.0, 0.0, 1.0)]
    (best,) = find_route_family(problem, point, 0.0, 0).routes
    assert (best.coding, crossing_names(problem, best)) == ("int4", ("in",))
    left = without(problem, frozenset({("int4", "in")}))
    assert [route.coding for route in find_route_family(left, point, 0.0, 0).routes] == ["int8"]


def test_many_plans_are_chosen_among_one_by_one_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(np.random.default_rng(1), 9)
    assert find_route_family(problem, GRID, 0.0, HEADER).regret.method == "exact"
    monkeypatch.setattr(family_module, "MOST_SUBSETS", 1)
    greedy = find_route_family(problem, GRID, 0.0, HEADER).regret
    assert greedy.method == "greedy"
    assert "one by one" in words(greedy.lost)


def test_the_mean_counts_by_weight_and_the_worst_does_not() -> None:
    points = (GridPoint(1.0, 0.0, 1.0, 3.0), GridPoint(2.0, 0.0, 1.0, 1.0))
    regret = Regret(0.02, "exact", points, (100.0, 100.0), (100.0, 120.0))
    assert (regret.worst, regret.mean) == (pytest.approx(0.2), pytest.approx(0.05))
    assert regret.worst_at == points[1]
    assert not regret.lost.within
    assert "at most 20 %" in words(regret.lost)
