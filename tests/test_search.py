"""The exact search against brute force over all downward-closed sets, and what a cut and its cost are."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from search_cases import Brute, chain, random_conditions, random_pins, random_problem

from partitioner.search.conditions import NO_PINS, Conditions, Limits, Pins
from partitioner.search.mincut import best_plan
from partitioner.search.network import Network
from partitioner.search.plans import cost_of, crossing, obeys, plan_of, plan_with
from partitioner.search.problem import Choice, Group, Problem, Value, find_order
from shared.errors import ModelError, UserError

GRAPHS = 500
# With 60 conditions for each graph it takes a minute.
CONDITIONS = int(os.environ.get("HEADTAIL_SEARCH_CONDITIONS", "12"))
RAW = (Choice("raw", 1000),)


def group(name: str = "g", device_us: float = 10.0, cloud_us: float = 1.0) -> Group:
    return Group(name, device_us, cloud_us)


@pytest.mark.parametrize("part", range(10))
def test_the_cost_found_is_the_least_of_all_downward_closed_sets(part: int) -> None:
    for seed in range(part, GRAPHS, 10):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, least_choices=int(seed % 5 > 0))
        brute, network = Brute.of(problem), Network.of(problem)
        for turn in range(CONDITIONS):
            conditions = random_conditions(rng)
            pins = random_pins(rng, problem) if turn % 3 == 2 else NO_PINS
            least, plan = brute.best(conditions, pins), best_plan(network, conditions, pins)
            if plan is None:
                assert math.isinf(least)
            else:
                assert plan.cost_us(conditions) == pytest.approx(least, rel=1e-9, abs=1e-9)
                assert obeys(problem, plan, pins)


def test_the_cost_of_every_closed_set_is_recomputed_as_brute_force_has_it() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        problem, conditions = random_problem(rng, 9, least_choices=0), random_conditions(rng)
        brute = Brute.of(problem)
        for inside, cost in zip(brute.inside, brute.costs(conditions), strict=True):
            assert cost_of(problem, conditions, set(np.flatnonzero(inside).tolist())) == pytest.approx(cost)


def test_a_value_with_many_consumers_crosses_once() -> None:
    users = tuple(range(1, 6))
    values = (Value("in", None, (0,), (Choice("raw", 10_000),)), Value("shared", 0, users, RAW))
    problem = Problem((group(device_us=1.0), *(group(device_us=500.0) for _ in users)), values)
    plan = best_plan(Network.of(problem), Conditions(us_per_byte=1.0))
    assert plan is not None
    assert plan.cut == {0}
    assert plan.figures.bytes_up == 1000
    assert plan.cost_us(Conditions(us_per_byte=1.0)) == 1.0 + 1000.0 + 5 * 1.0


def test_a_finished_output_travels_along_while_anything_is_left_for_the_cloud() -> None:
    values = (Value("in", None, (0,), RAW), Value("early", 0, (), RAW, output=True), Value("on", 0, (1,), RAW))
    problem = Problem((group(), group()), values)
    assert crossing(problem, {0}) == (1, 2)
    assert crossing(problem, set()) == (0,)
    assert crossing(problem, {0, 1}) == ()


def test_a_value_that_is_both_used_and_returned_crosses_once() -> None:
    values = (Value("in", None, (0,), RAW), Value("both", 0, (1, 2), RAW, output=True))
    problem = Problem((group(), group(), group()), values)
    plan = plan_of(problem, Conditions(us_per_byte=1.0), {0, 1})
    assert plan is not None
    assert plan.figures.bytes_up == 1000


def test_the_whole_model_on_the_device_asks_nothing_of_the_network() -> None:
    problem = chain(100.0, 100.0, sizes=(10, 10, 10))
    far = Conditions(us_per_byte=0.0, constant_us=1e6)
    plan = best_plan(Network.of(problem), far)
    assert plan is not None
    assert plan.cut == {0, 1}
    assert plan.cost_us(far) == 200.0
    assert not plan.figures.uses_cloud


def test_each_value_travels_in_the_cheapest_of_its_admissible_codings() -> None:
    choices = (Choice("raw", 1000), Choice("int8", 250, encode_us=10.0, agreement=0.9))
    problem = Problem((group(device_us=1e6),), (Value("in", None, (0,), choices),))
    network = Network.of(problem)
    for rate, least, expected in ((1.0, 0.0, 1), (1.0, 0.95, 0), (0.001, 0.0, 0)):
        plan = best_plan(network, Conditions(us_per_byte=rate, least_agreement=least))
        assert plan is not None
        assert plan.codings == ((0, expected),)


def test_a_plan_costs_endlessly_much_where_its_codings_agree_too_little() -> None:
    choices = (Choice("int8", 10, agreement=0.9),)
    plan = plan_of(Problem((group(),), (Value("in", None, (0,), choices),)), Conditions(), set())
    assert plan is not None
    assert plan.cost_us(Conditions(least_agreement=0.9)) < math.inf
    assert plan.cost_us(Conditions(least_agreement=0.91)) == math.inf


def test_cuts_that_differ_in_the_last_bits_of_their_cost_are_told_apart() -> None:
    # One part in 2**45 of the dearest: less than a step of 30 bits, more than the rounding of a float.
    problem = chain(0.0, 0.0, 1e9, sizes=(2**46 + 2, 2**46, 2**46 + 4, 1), cloud_us=0.0)
    plan = best_plan(Network.of(problem), Conditions(us_per_byte=1.0), Pins(cloud=frozenset({2})))
    assert plan is not None
    assert plan.cut == {0}


def test_an_optimum_far_below_all_other_costs_is_found_exactly() -> None:
    problem = chain(1e-3, 1e-3, 1e9, sizes=(10**15, 3, 2, 10**15), cloud_us=1e-4)
    conditions = Conditions(us_per_byte=1e-4)
    plan = best_plan(Network.of(problem), conditions)
    assert plan is not None
    assert plan.cost_us(conditions) == pytest.approx(Brute.of(problem).best(conditions), rel=1e-12)


def test_a_private_input_never_crosses() -> None:
    problem = chain(100.0, 100.0, 100.0, sizes=(1, 50, 20, 1))
    near = Conditions(us_per_byte=0.01)
    network = Network.of(problem)
    open_plan, private = best_plan(network, near), best_plan(network, near, Pins(private_input=True))
    assert open_plan is not None
    assert private is not None
    assert open_plan.cut == set()
    assert private.cut == {0}


def test_pins_that_contradict_each_other_allow_no_plan() -> None:
    network = Network.of(chain(1.0, 1.0, sizes=(1, 1, 1)))
    assert best_plan(network, Conditions(), Pins(frozenset({1}), frozenset({0}))) is None


@pytest.mark.parametrize("cut", [{1}, {0, 2}, {7}])
def test_a_set_that_is_not_downward_closed_is_refused(cut: set[int]) -> None:
    with pytest.raises(UserError, match="cut"):
        cost_of(chain(1.0, 1.0, 1.0, sizes=(1, 1, 1, 1)), Conditions(), cut)


def test_codings_must_be_those_of_what_crosses() -> None:
    with pytest.raises(UserError, match="crosses"):
        plan_with(chain(1.0, 1.0, sizes=(1, 1, 1)), {0}, {0: 0})


@pytest.mark.parametrize(
    ("groups", "values", "message"),
    [
        ((), (), "at least one group"),
        ((group(device_us=math.nan),), (), "finite"),
        ((group(device_us=-1.0),), (), "finite"),
        ((group(),), (Value("v", 0, (1,), RAW),), "names group 1"),
        ((group(),), (Value("v", None, (0, 0), RAW),), "twice"),
        ((group(),), (Value("v", None, (0,), (Choice("raw", 1, agreement=2.0),)),), "agreement"),
        ((group("a"), group("b")), (Value("v", 0, (1,), RAW), Value("w", 1, (0,), RAW)), "depends on itself"),
        ((group("a"),), (Value("v", 0, (0,), RAW),), "'a' depends on itself"),
    ],
)
def test_a_problem_without_sense_is_refused(groups: tuple[Group, ...], values: tuple[Value, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Problem(groups, values)


@pytest.mark.parametrize("number", [-1.0, math.inf, math.nan])
def test_conditions_and_limits_without_sense_are_refused(number: float) -> None:
    with pytest.raises(UserError, match="us_per_byte"):
        Conditions(us_per_byte=number)
    with pytest.raises(UserError, match="share"):
        Limits(least_share=number)
    with pytest.raises(UserError, match="memory"):
        Limits(memory_bytes=-1)


def test_groups_run_after_what_they_depend_on() -> None:
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed))
        rank = {group: place for place, group in enumerate(find_order(problem))}
        for user, needed in enumerate(problem.depends_on()):
            assert all(rank[producer] < rank[user] for producer in needed)
