"""The search on the models of the tests and on real architectures, against the least of all downward-closed sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from graphs import centre_detector, classifier
from search_cases import Brute, random_conditions, random_pins, random_problem
from test_cut_everywhere import branches
from test_graph_odd import bert, ladder, looped, resnet

from hil.fetch import cache_folder
from hil.ideals import least_of_all, narrow_order
from hil.model_zoo import zoo_model
from hil.search_proof import dressed, prove_search, prove_zoo
from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.model import Model
from partitioner.search import mincut
from partitioner.search.conditions import NO_PINS, Conditions, Pins
from partitioner.search.network import Network
from partitioner.search.plans import Plan
from partitioner.search.problem import find_order

CONDITIONS = int(os.environ.get("HEADTAIL_SEARCH_CONDITIONS", "12"))
WORDS = tuple(f"{name}=1,8" for name in ("input_ids", "attention_mask", "token_type_ids"))

MODELS: dict[str, Callable[[], Model]] = {
    "classifier": lambda: classifier().normal("1,3,16,16"),
    "centre detector": lambda: centre_detector().normal("1,3,32,32"),
    "branches": branches,
    "loop": lambda: looped().normal(),
    "bert of 24 layers": lambda: bert(24, 32, 4, 8).normal(*WORDS),
    "resnet of 50 layers": lambda: resnet((3, 4, 6, 3), 4, 32).normal("1,3,32,32"),
    "ladder of 300": lambda: ladder(100).normal(),
}


@pytest.mark.parametrize("part", range(4))
def test_the_least_of_all_sets_and_their_number_are_those_of_brute_force(part: int) -> None:
    for seed in range(part, 200, 4):
        rng = np.random.default_rng(seed)
        problem = random_problem(rng, 10, least_choices=int(seed % 5 > 0))
        brute = Brute.of(problem)
        for pins in (NO_PINS, random_pins(rng, problem)):
            cases = [(random_conditions(rng), replace(pins, private_input=bool(turn % 2))) for turn in range(6)]
            least = least_of_all(problem, cases)
            assert least is not None
            assert least.costs_us == pytest.approx([brute.best(*case) for case in cases], rel=1e-9, abs=1e-9)
            assert least.sets == int(brute.allowed(Pins(pins.edge, pins.cloud)).sum())


@pytest.mark.parametrize("name", MODELS)
def test_on_every_model_of_the_tests_the_search_finds_the_least_of_all_cuts(name: str) -> None:
    proof = prove_search(name, find_groups(CutFinder(MODELS[name]())), CONDITIONS)
    assert proof.wrong == ()
    assert proof.cases == CONDITIONS
    assert proof.sets is not None
    assert proof.sets > proof.groups


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_on_an_architecture_that_comes_with_onnx_the_search_finds_the_least_of_all_cuts(name: str) -> None:
    (proof,) = prove_zoo([zoo_model(name)], cache_folder(), CONDITIONS, lambda _: None)
    assert proof.holds
    assert proof.wrong == ()


def test_a_search_that_errs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = find_groups(CutFinder(branches()))
    right = mincut.least_away

    def coarse(network: Network, conditions: Conditions, pins: Pins = NO_PINS) -> Plan | None:
        return right(network, replace(conditions, us_per_byte=round(conditions.us_per_byte, 1)), pins)

    monkeypatch.setattr(mincut, "least_away", coarse)
    assert prove_search("branches", groups, 60).wrong


def test_a_model_that_is_too_wide_is_told_and_not_compared() -> None:
    proof = prove_search("branches", find_groups(CutFinder(branches())), 12, most_frontiers=3)
    assert proof.sets is None
    assert proof.cases == 0
    assert not proof.holds


def test_groups_are_decided_after_what_they_depend_on_and_branches_one_by_one() -> None:
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed))
        rank = {group: place for place, group in enumerate(narrow_order(problem))}
        assert sorted(rank) == sorted(find_order(problem))
        for user, needed in enumerate(problem.depends_on()):
            assert all(rank[producer] < rank[user] for producer in needed)
    problem = dressed(find_groups(CutFinder(branches())), np.random.default_rng(0))
    least = least_of_all(problem, [(Conditions(), NO_PINS)])
    assert least is not None
    assert least.sets == 3**3 + 3  # each branch untouched, begun or done; before the stem, and behind the sum twice
    assert least.frontiers < 3**3


def test_cases_with_other_groups_pinned_are_not_asked_together() -> None:
    problem = random_problem(np.random.default_rng(0))
    with pytest.raises(ValueError, match="same groups"):
        least_of_all(problem, [(Conditions(), NO_PINS), (Conditions(), Pins(edge=frozenset({0})))])
