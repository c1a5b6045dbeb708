"""The handful of plans to keep, against brute force over subsets, and its regret against brute force over cuts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from search_cases import Brute, chain, random_problem

from partitioner.search import family as family_module
from partitioner.search.conditions import Conditions, Pins
from partitioner.search.family import choose_family
from partitioner.search.hull import find_hull
from partitioner.search.network import Network
from partitioner.search.plans import Plan
from partitioner.search.problem import Choice, Group, Problem, Value
from shared.errors import UserError

GRID = [
    Conditions(slowdown, us_per_byte, 1.0, constant_us)
    for slowdown in (1.0, 4.0)
    for us_per_byte in (0.01, 0.1, 0.4, 2.0)
    for constant_us in (0.0, 200.0)
]


def regrets(plans: tuple[Plan, ...], brute: Brute) -> list[float]:
    return [min(plan.cost_us(c) for plan in plans) / brute.best(c) for c in GRID]


@pytest.mark.parametrize("seed", range(10))
def test_the_stated_regret_is_that_of_brute_force_and_no_subset_has_less(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed), 8)
    brute, network = Brute.of(problem), Network.of(problem)
    hull = find_hull(network)
    assert hull.device is not None
    for most in (0, 1, 2, len(hull.vertices)):
        family = choose_family(network, hull.plans, GRID, most)
        assert most > 2 or family.method == "exact"
        assert family.plans[-1] == hull.device
        assert len(family.plans) - 1 <= most
        found = regrets(family.plans, brute)
        assert (family.worst_regret, family.mean_regret) == pytest.approx((max(found), np.mean(found)))
        away = [vertex.plan for vertex in hull.vertices]
        worsts = [max(regrets((*s, hull.device), brute)) for s in itertools.combinations(away, min(most, 2))]
        assert most > 2 or family.worst_regret <= min(worsts) + 1e-9
    assert family.worst_regret == pytest.approx(1.0)


def test_no_plan_is_kept_that_helps_nowhere() -> None:
    network = Network.of(chain(10.0, 10.0, sizes=(10**9, 10**9, 10**9)))
    family = choose_family(network, find_hull(network).plans, [Conditions(us_per_byte=1.0)], 5)
    assert [plan.cut for plan in family.plans] == [{0, 1}]
    assert family.worst_regret == 1.0


def test_many_subsets_are_searched_greedily_and_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network.of(random_problem(np.random.default_rng(0), 12))
    plans = find_hull(network).plans
    exact = choose_family(network, plans, GRID, 3)
    monkeypatch.setattr(family_module, "MOST_SUBSETS", 10)
    greedy = choose_family(network, plans, GRID, 3)
    alone = choose_family(network, plans, GRID, 1)
    assert (exact.method, greedy.method) == ("exact", "greedy")
    assert exact.worst_regret <= greedy.worst_regret + 1e-9
    assert greedy.worst_regret <= alone.worst_regret + 1e-9
    assert len(greedy.plans) <= 4


def two_branches() -> Problem:
    """Two branches side by side, each of a group that shrinks its input, for the second of which the cloud is far slower."""
    values = (
        Value("a", None, (0,), (Choice("raw", 1000),)),
        Value("b", None, (1,), (Choice("raw", 100),)),
        Value("c", 0, (2,), (Choice("raw", 10),)),
        Value("d", 1, (2,), (Choice("raw", 10),)),
    )
    return Problem((Group("x", 100.0, 1.0), Group("y", 20.0, 5.0), Group("z", 1e6, 1.0)), values)


CROSSED = [
    Conditions(0.2, 0.001, 1.0),
    Conditions(1.0, 0.15, 1.0),
    Conditions(1.0, 0.001, 30.0),
    Conditions(4.0, 9.0, 9.0),
]


def test_crossing_cuts_are_repaired_to_a_chain() -> None:
    network = Network.of(two_branches())
    plans = find_hull(network).plans
    assert {plan.cut for plan in plans} >= {frozenset({0}), frozenset({1})}
    free = choose_family(network, plans, CROSSED, 4)
    nested = choose_family(network, plans, CROSSED, 4, nested=True)
    assert not chained(free.plans)
    assert chained(nested.plans)
    assert 1.0 <= free.worst_regret <= nested.worst_regret < 1.5


@pytest.mark.parametrize("greedy", [False, True])
def test_a_nested_family_is_always_a_chain(greedy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family_module, "MOST_SUBSETS", 5 if greedy else 10**6)
    for seed in range(8):
        problem = random_problem(np.random.default_rng(seed), 8)
        network = Network.of(problem)
        nested = choose_family(network, find_hull(network).plans, GRID, 2, nested=True)
        assert chained(nested.plans)
        found = regrets(nested.plans, Brute.of(problem))
        assert nested.worst_regret == pytest.approx(max(found))


def chained(plans: tuple[Plan, ...]) -> bool:
    return all(one.cut <= other.cut for one, other in itertools.pairwise(plans))


def test_the_device_is_no_part_of_a_family_that_pins_forbid_it() -> None:
    network = Network.of(chain(1.0, 1.0, sizes=(5, 5, 5)))
    pins = Pins(cloud=frozenset({1}))
    family = choose_family(network, find_hull(network, pins).plans, [Conditions()], 3, pins)
    assert all(plan.figures.uses_cloud for plan in family.plans)
    assert family.worst_regret == 1.0


def test_a_family_for_nothing_is_refused() -> None:
    network = Network.of(chain(1.0, 1.0, sizes=(5, 5, 5)))
    with pytest.raises(UserError, match="at least one set of conditions"):
        choose_family(network, [], [], 1)
    with pytest.raises(UserError, match="no plan obeys"):
        choose_family(network, [], [Conditions()], 1, Pins(frozenset({1}), frozenset({0})))
