"""Limits on sums against constrained brute force, and what is said where nothing is allowed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from search_cases import Brute, chain, random_conditions, random_limits, random_pins, random_problem

from partitioner.search.answers import Found, Impossible, find_plan
from partitioner.search.conditions import NO_LIMITS, NO_PINS, Conditions, Limits, Pins
from partitioner.search.network import Network
from partitioner.search.plans import obeys, within
from partitioner.search.problem import Choice, Group, Problem, Value

FIELDS = {"share": "least_share", "memory": "memory_bytes", "bytes": "bytes_up"}


@pytest.mark.parametrize("seed", range(60))
def test_what_is_found_is_allowed_and_never_below_the_optimum_nor_the_bound_above_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 10, least_choices=seed % 2)
    brute, network = Brute.of(problem), Network.of(problem)
    for turn in range(5):
        conditions, limits = random_conditions(rng), random_limits(rng, problem)
        pins = random_pins(rng, problem) if turn % 2 else NO_PINS
        answer = find_plan(network, conditions, pins, limits)
        least = brute.best_within(conditions, pins, limits)
        if isinstance(answer, Impossible):
            assert math.isinf(least)
            check_nearest(answer, brute, conditions, pins, limits)
        else:
            assert obeys(problem, answer.plan, pins)
            assert within(answer.plan.figures, limits)
            assert answer.bound_us <= least * (1 + 1e-12) + 1e-9
            # 500 solves close every gap at this size.
            assert answer.cost_us == pytest.approx(least, rel=1e-9, abs=1e-9)
            assert answer.bound_us == pytest.approx(least, rel=2e-9, abs=2e-9)


def check_nearest(answer: Impossible, brute: Brute, conditions: Conditions, pins: Pins, limits: Limits) -> None:
    """The nearest value of a limit would do, and none nearer."""
    if answer.constraint not in FIELDS or answer.nearest is None:
        return
    assert answer.proven
    name = FIELDS[answer.constraint]
    share = answer.constraint == "share"
    nearest = answer.nearest if share else int(answer.nearest)
    assert brute.best_within(conditions, pins, replace(limits, **{name: nearest})) < math.inf
    nearer = nearest + 1e-6 if share else nearest - 1
    if nearer >= 0 and not (share and nearer > 1.0):
        assert math.isinf(brute.best_within(conditions, pins, replace(limits, **{name: nearer})))


def test_a_short_allowance_leaves_a_gap_but_nothing_untrue() -> None:
    gaps: list[float] = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, 10)
        conditions, limits = random_conditions(rng), random_limits(rng, problem)
        least = Brute.of(problem).best_within(conditions, NO_PINS, limits)
        answer = find_plan(Network.of(problem), conditions, NO_PINS, limits, most_solves=4)
        if isinstance(answer, Found):
            assert answer.bound_us <= least * (1 + 1e-12) + 1e-9
            assert answer.cost_us >= least * (1 - 1e-12) - 1e-9
            gaps.append(answer.gap)
        else:
            assert math.isinf(least) or not answer.proven
    assert min(gaps) <= 1e-9 < max(gaps)


def test_without_limits_the_answer_is_proven_in_one_solve() -> None:
    answer = find_plan(Network.of(chain(5.0, 5.0, sizes=(9, 9, 9))), Conditions(us_per_byte=1.0))
    assert isinstance(answer, Found)
    assert (answer.cost_us, answer.bound_us, answer.gap, answer.solves) == (10.0, 10.0, 0.0, 1)


def test_a_limit_on_bytes_takes_a_dearer_coding_where_that_is_the_best() -> None:
    choices = (Choice("raw", 1000), Choice("int8", 250, encode_us=50.0))
    network = Network.of(Problem((Group("g", 1e6, 1.0),), (Value("in", None, (0,), choices),)))
    conditions = Conditions(us_per_byte=0.001)
    free = find_plan(network, conditions)
    tight = find_plan(network, conditions, limits=Limits(bytes_up=500))
    assert isinstance(free, Found)
    assert isinstance(tight, Found)
    assert (free.plan.codings, tight.plan.codings) == (((0, 0),), ((0, 1),))


@pytest.mark.parametrize("much", [10**14, 10**16, 10**31])
def test_limits_far_beyond_all_that_there_is_change_nothing(much: int) -> None:
    network = Network.of(chain(10.0, 10.0, 20.0, sizes=(50, 20, 40, 10)))
    conditions = Conditions(us_per_byte=0.1)
    free = find_plan(network, conditions, limits=Limits(least_share=0.5))
    loose = find_plan(network, conditions, limits=Limits(least_share=0.5, memory_bytes=much, bytes_up=much))
    assert isinstance(free, Found)
    assert isinstance(loose, Found)
    assert (loose.plan, loose.cost_us) == (free.plan, free.cost_us)


@pytest.mark.parametrize(
    ("pins", "limits", "constraint", "nearest"),
    [
        (Pins(edge=frozenset({1}), cloud=frozenset({2})), Limits(memory_bytes=150), "memory", 200.0),
        (Pins(cloud=frozenset({1})), Limits(least_share=0.5), "share", 0.25),
        (Pins(cloud=frozenset({2})), Limits(bytes_up=15), "bytes", 20.0),
        # Two of three groups are in memory at most, so the third and its share stay away.
        (NO_PINS, Limits(least_share=0.8, memory_bytes=250), "memory", 300.0),
        (Pins(private_input=True), Limits(memory_bytes=50), "memory", 100.0),
    ],
)
def test_the_limit_that_binds_is_named_with_the_nearest_value(
    pins: Pins, limits: Limits, constraint: str, nearest: float
) -> None:
    network = Network.of(chain(10.0, 10.0, 20.0, sizes=(50, 20, 40, 10)))
    answer = find_plan(network, Conditions(), pins, limits)
    assert isinstance(answer, Impossible)
    assert (answer.constraint, answer.nearest, answer.proven) == (constraint, nearest, True)


def test_pins_that_contradict_each_other_are_named() -> None:
    network = Network.of(chain(1.0, 1.0, 1.0, sizes=(1, 1, 1, 1)))
    answer = find_plan(network, Conditions(), Pins(frozenset({2}), frozenset({0})))
    assert answer == Impossible("pins", None, None, (2, 0), proven=True)


def test_a_private_input_that_only_the_cloud_may_use_is_named() -> None:
    network = Network.of(chain(1.0, 1.0, sizes=(1, 1, 1)))
    answer = find_plan(network, Conditions(), Pins(cloud=frozenset({0}), private_input=True))
    assert answer == Impossible("private input", None, None, None, proven=True)


def test_an_agreement_that_no_coding_reaches_is_named_with_the_best_there_is() -> None:
    choices = (Choice("int8", 10, agreement=0.9), Choice("int4", 5, agreement=0.6))
    network = Network.of(Problem((Group("g", 1.0, 1.0),), (Value("in", None, (0,), choices),)))
    pins = Pins(cloud=frozenset({0}))
    answer = find_plan(network, Conditions(least_agreement=0.95), pins)
    assert answer == Impossible("agreement", 0.95, 0.9, None, proven=True)
    assert isinstance(find_plan(network, Conditions(least_agreement=0.9), pins), Found)


def test_a_value_that_must_cross_and_has_no_coding_is_told() -> None:
    network = Network.of(Problem((Group("g", 1.0, 1.0),), (Value("in", None, (0,), ()),)))
    answer = find_plan(network, Conditions(), Pins(cloud=frozenset({0})), NO_LIMITS)
    assert answer == Impossible("codings", None, None, None, proven=True)
