"""The plans that win under some conditions, against brute force over a dense grid."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from search_cases import Brute, chain, random_pins, random_problem

from partitioner.search.conditions import Conditions, Pins
from partitioner.search.hull import find_hull
from partitioner.search.network import Network
from partitioner.search.plans import Plan, obeys
from partitioner.search.problem import Choice, Group, Problem, Value

SLOWDOWNS, RATES, CONSTANTS = np.geomspace(0.1, 10.0, 9), np.geomspace(1e-3, 1e3, 13), (0.0, 300.0)
GRID = [Conditions(s, r, 1.0, c) for s, r, c in itertools.product(SLOWDOWNS, RATES, CONSTANTS)]


def figures(plan: Plan) -> tuple[float, int, float]:
    return plan.figures.device_us, plan.figures.bytes_up, plan.figures.cloud_us


@pytest.mark.parametrize("seed", range(12))
def test_the_vertices_are_the_optima_of_a_dense_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 10)
    brute, hull = Brute.of(problem), find_hull(Network.of(problem))
    for conditions in GRID:
        costs = [plan.cost_us(conditions) for plan in hull.plans]
        assert min(costs) == pytest.approx(brute.best(conditions), rel=1e-9)
    for vertex in hull.vertices:
        costs = brute.costs(vertex.typical)
        assert vertex.plan.cost_us(vertex.typical) == pytest.approx(costs.min(), rel=1e-9)
        others = [plan.cost_us(vertex.typical) for plan in hull.plans if plan != vertex.plan]
        assert vertex.plan.cost_us(vertex.typical) < min(others)


@pytest.mark.parametrize("seed", range(12))
def test_a_vertex_wins_in_all_of_its_corners_and_between_them(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    problem = random_problem(rng, 10)
    brute = Brute.of(problem)
    for vertex in find_hull(Network.of(problem)).vertices:
        shares = rng.dirichlet(np.ones(len(vertex.corners)))
        mixed = np.array([(c.slowdown, c.us_per_byte, c.cloud_factor) for c in vertex.corners]).T @ shares
        for conditions in (*vertex.corners, Conditions(*(float(weight) for weight in mixed))):
            size = max(1e-9, brute.costs(conditions).max())
            assert vertex.plan.cost_us(conditions) - brute.best(conditions) <= 1e-8 * size


def test_pins_and_the_least_agreement_hold_for_every_vertex() -> None:
    for seed in range(25):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, 9)
        pins, brute = random_pins(rng, problem), Brute.of(problem)
        hull = find_hull(Network.of(problem), pins, 0.9)
        assert (hull.device is None) == bool(pins.cloud)
        assert all(obeys(problem, plan, pins) and plan.figures.agreement >= 0.9 for plan in hull.plans if hull.vertices)
        for slowdown, rate in itertools.product((0.5, 4.0), (0.01, 0.3, 10.0)):
            conditions = Conditions(slowdown, rate, 1.0, 100.0, 0.9)
            found = min((plan.cost_us(conditions) for plan in hull.plans), default=np.inf)
            assert found == pytest.approx(brute.best(conditions, pins), rel=1e-9)


def test_plans_that_lie_in_a_line_have_two_ends() -> None:
    # Three cuts through the cloud; the middle one is the mean of the others in every figure.
    problem = chain(10.0, 10.0, 500.0, sizes=(300, 200, 100, 300), cloud_us=10.0)
    hull = find_hull(Network.of(problem), Pins(cloud=frozenset({2})))
    assert [figures(vertex.plan) for vertex in hull.vertices] == [(0.0, 300, 30.0), (20.0, 100, 10.0)]


def test_one_possible_plan_is_the_only_vertex() -> None:
    hull = find_hull(Network.of(chain(10.0, sizes=(5, 5))), Pins(cloud=frozenset({0})))
    assert [figures(vertex.plan) for vertex in hull.vertices] == [(0.0, 5, 1.0)]


def test_a_model_of_which_nothing_can_travel_has_the_device_alone() -> None:
    problem = Problem((Group("g", 1.0, 1.0),), (Value("in", None, (0,), ()),))
    hull = find_hull(Network.of(problem))
    assert hull.vertices == ()
    assert hull.device is not None


def test_every_coding_that_wins_somewhere_is_a_plan_of_its_own() -> None:
    choices = (
        Choice("raw", 1000),
        Choice("int8", 250, encode_us=20.0),
        Choice("slow", 240, encode_us=90.0, decode_us=90.0),
    )
    problem = Problem((Group("g", 1e6, 10.0),), (Value("in", None, (0,), (*choices, Choice("bad", 1001, 1.0))),))
    hull = find_hull(Network.of(problem))
    assert {vertex.plan.codings for vertex in hull.vertices} == {((0, 0),), ((0, 1),), ((0, 2),)}
