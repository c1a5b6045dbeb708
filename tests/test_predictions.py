from __future__ import annotations

import dataclasses
from io import StringIO
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hil.link_fit import Echo, fit_link
from hil.one_way import only_route, only_rung, write_variant
from hil.phases import LinkShape
from hil.prediction_cases import CASES
from hil.predictions import Report, show
from hil.predictions_rules import LEAST_MODELS, LEAST_ROUTES, Compared, Parts, judge, middle_stages
from hil.predictions_turns import Turns, ranges_of
from hil.small_plans import write_small
from hil.way_rig import BLOCK, Asked, play
from partitioner.costs.cost import NOTHING, Candidate, Spread
from partitioner.costs.overhead import OVERHEAD_FORMAT, Overhead
from partitioner.options import LinkGuess
from shared.bundle import load_bundle
from shared.errors import HeadtailError, UserError
from shared.lateness import LatenessFigures
from shared.request import EXACT, Answer, Array

OVERHEAD = Overhead(OVERHEAD_FORMAT, 1000.0, 2000.0, 300.0, 0.001, 0.001, 1.5, 30.0, "a processor", 48)


def compared(
    error: float, *, model: str = "a", routed: bool = True, rounds: tuple[float, ...] = (10.0,), planned: float = 0.3
) -> Compared:
    predicted = Parts(1.0, 2.0, 3.0, 1.0, 10.0 * (1.0 + error) - 7.0)
    return Compared(model, "a way", routed, 10.0 * (1.0 + planned), predicted, 10.0, 100, {}, rounds)


def enough(*errors: float) -> list[Compared]:
    """So many models and routes that a verdict is given, all with the errors in turn."""
    count = max(LEAST_ROUTES, LEAST_MODELS)
    return [compared(errors[n % len(errors)], model=f"m{n}") for n in range(count * len(errors))]


def test_the_error_is_a_share_of_what_was_measured_and_says_which_way() -> None:
    assert compared(0.2).error == pytest.approx(0.2)
    assert compared(-0.2).error == pytest.approx(-0.2)


def test_errors_in_both_directions_do_not_cancel() -> None:
    assert judge(enough(0.2, -0.2)).median == pytest.approx(0.2)


def test_what_the_plan_said_before_is_told_and_not_judged() -> None:
    found = judge([*enough(0.01), compared(0.01, planned=-0.9)])
    assert found.planned_median == pytest.approx(0.3)
    assert found.within
    assert compared(0.0, planned=-0.25).planned_error == pytest.approx(-0.25)


@pytest.mark.parametrize(("error", "within"), [(0.0, True), (0.0499, True), (-0.0499, True), (0.0501, False)])
def test_the_median_has_a_limit(error: float, within: bool) -> None:
    assert judge(enough(error)).within is within


@pytest.mark.parametrize(("worst", "within"), [(0.14, True), (0.16, False), (-0.16, False)])
def test_the_95th_percentile_has_a_limit(worst: float, within: bool) -> None:
    found = judge([*enough(0.01), *enough(0.01), compared(worst), compared(worst)])
    assert found.median == pytest.approx(0.01)
    assert found.within is within


def test_too_few_routes_or_models_are_not_within_however_good() -> None:
    one_model = [compared(0.0) for _ in range(2 * LEAST_ROUTES)]
    on_devices = [compared(0.0, model=f"m{n}", routed=False) for n in range(2 * LEAST_ROUTES)]
    assert not judge(one_model).within
    assert not judge(on_devices).within


def test_the_drift_is_how_far_rounds_lie_apart() -> None:
    assert compared(0.0, rounds=(10.0, 10.0, 10.0)).drift == 0.0
    assert compared(0.0, rounds=(8.0, 9.0, 10.0, 11.0, 12.0)).drift == pytest.approx(0.1)


def test_a_stage_that_an_answer_lacks_took_nothing() -> None:
    assert middle_stages([{"head": 2_000_000}, {}, {"head": 4_000_000, "tail": 1}]) == {"head": 2.0, "tail": 0.0}


@given(st.floats(1.0, 1000.0), st.floats(0.1, 100.0))
def test_a_link_is_found_from_the_echoes_that_it_gives(rate: float, rtt_ms: float) -> None:
    sizes = (Echo(256, 256), Echo(30_000, 256), Echo(256, 100_000))
    extra = {size: rtt_ms * 1000.0 + (size.bytes_up + size.bytes_down) * 8.0 / rate for size in sizes}
    found = fit_link(extra)
    assert found.rate_mbit == pytest.approx(rate, rel=0.06)  # rounded to a tenth
    assert found.rtt_ms == pytest.approx(rtt_ms, abs=0.002)


@pytest.mark.parametrize("extra", [{Echo(10, 10): 5.0, Echo(0, 20): 6.0}, {Echo(10, 10): 5.0, Echo(1000, 10): 4.0}])
def test_echoes_that_say_nothing_of_a_rate_are_refused(extra: dict[Echo, float]) -> None:
    with pytest.raises(HeadtailError):
        fit_link(extra)


def test_a_bundle_of_one_way_has_no_other_and_a_contract_of_its_own(tmp_path: Path) -> None:
    bundle = load_bundle(write_small(tmp_path, "all", rungs=("whole", "small"), routes=("raw", "jpeg", "split-int8")))
    only = {
        "split": only_route(bundle.plan, "split", "middle", "int8"),
        "sent": only_route(bundle.plan, "sent", "image", "jpeg90"),
        "own": only_rung(bundle.plan, "own", "small"),
    }
    made = {name: load_bundle(write_variant(bundle, plan, tmp_path / "ways")) for name, plan in only.items()}
    assert [(r.cut, r.coding) for r in made["split"].plan.routes] == [(1, "int8")]
    assert [(r.cut, r.coding) for r in made["sent"].plan.routes] == [(0, "jpeg90")]
    assert (made["split"].plan.ladder, made["own"].plan.routes) == ((), ())
    assert [rung.name for rung in made["own"].plan.ladder] == ["small"]
    assert len({bundle.contract, *(one.contract for one in made.values())}) == 4
    assert load_bundle(bundle.path).contract == bundle.contract


def test_a_way_that_a_plan_lacks_is_refused_by_name(tmp_path: Path) -> None:
    plan = load_bundle(write_small(tmp_path, "few", rungs=("small",), routes=("raw",))).plan
    with pytest.raises(UserError, match="no route that sends 'middle' as raw"):
        only_route(plan, "x", "middle", "raw")
    with pytest.raises(UserError, match="no rung 'whole'"):
        only_rung(plan, "x", "whole")


class Answering:
    """Answers everything at once and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, model: str, inputs: dict[str, Array], source: Literal["edge", "cloud"]) -> Answer:
        self.asked.append(model)
        return Answer({}, source, None, "whole", None, EXACT, "contract", 1, {"rung": len(self.asked)})


def test_models_take_turns_in_blocks_whose_first_request_is_not_counted() -> None:
    rig = Answering()
    taken = play(rig, [Asked("a", "edge", ({},)), Asked("b", "cloud", ({},))], 2, 1e9)
    block = BLOCK + 1
    assert rig.asked == (["a"] * block + ["b"] * block) * 2
    assert {model: len(times) for model, times in taken.items()} == {"a": 2 * BLOCK, "b": 2 * BLOCK}
    assert [one.stages["rung"] for one in taken["a"]] == [*range(2, block + 1), *range(2 * block + 2, 3 * block + 1)]


def test_something_else_may_take_its_turn_after_each_block() -> None:
    rig, seen = Answering(), list[int]()
    play(rig, [Asked("a", "edge", ({},)), Asked("b", "cloud", ({},))], 2, 1e9, lambda: seen.append(len(rig.asked)))
    block = BLOCK + 1
    assert seen == [block, 2 * block, 3 * block, 4 * block]


def test_a_way_is_predicted_anew_from_the_ranges_that_it_runs(tmp_path: Path) -> None:
    bundle = load_bundle(write_small(tmp_path, "turns", rungs=("small",), routes=("raw", "split-int8")))
    time = Spread(1e6, 2e6)
    device = Candidate("device", "", "", "small", time, NOTHING, NOTHING, NOTHING, 0, 0, 1.0, True)
    sent = Candidate("input", "image", "raw", "", NOTHING, NOTHING, NOTHING, time, 9, 9, 1.0, True)
    cut = Candidate("split", "middle", "int8", "", time, NOTHING, NOTHING, time, 9, 9, 1.0, True)
    last = len(bundle.plan.cuts) - 1
    assert ranges_of(bundle.plan, device) == ((1, 0, 1, 1),)
    assert ranges_of(bundle.plan, sent) == ((0, 0, last, 1),)
    assert ranges_of(bundle.plan, cut) == ((0, 0, 1, 1), (0, 1, last, 1))

    rng = np.random.default_rng(3)
    tensors = {s.name: rng.integers(0, 9, s.at(1)).astype(s.dtype) for s in bundle.plan.cuts[0].tensors}
    turns = Turns(bundle, [tensors], 1e6, [sent, cut])
    for _ in range(3):
        turns.step()
    assert turns.settled(device).head == time, "it was not asked for, and stays as it was"
    assert 0.0 < turns.settled(sent).tail.p50_us < 1e6
    found = turns.settled(cut)
    assert 0.0 < found.head.p50_us < 1e6
    assert 0.0 < found.tail.p50_us < 1e6


def test_a_plan_for_a_slower_machine_is_not_timed_here(tmp_path: Path) -> None:
    bundle = load_bundle(write_small(tmp_path, "slow", rungs=("whole",), routes=("raw",)))
    slowed = tuple(msgspec.structs.replace(profile, slowdown=4.0) for profile in bundle.plan.profiles)
    slower = dataclasses.replace(bundle, plan=msgspec.structs.replace(bundle.plan, profiles=slowed))
    with pytest.raises(HeadtailError, match="for a slower machine"):
        Turns(slower, [{}], 30.0, [])


@pytest.mark.parametrize(
    ("found", "word", "good"),
    [
        (enough(0.01), "kept", True),
        (enough(0.06), "EXCEEDED", False),
        ([compared(0.01)], "too little was compared", False),
    ],
)
def test_what_is_shown_ends_with_the_verdict(found: list[Compared], word: str, good: bool) -> None:
    link, machine = LinkGuess(198.0, 2.3), LatenessFigures()
    report = Report(tuple(found), judge(found), LinkShape(200.0, 2.0), link, OVERHEAD, machine)
    text = StringIO()
    assert show(report, Console(file=text, width=200)) is good
    assert word in text.getvalue().splitlines()[-1]
    assert "198 Mbit/s, 2.3 ms round trip" in text.getvalue()


def test_the_cases_are_enough_for_a_verdict() -> None:
    routes = [way for case in CASES for way in case.ways if not way.startswith("device")]
    assert len(routes) >= LEAST_ROUTES
    assert len({case.name for case in CASES}) >= LEAST_MODELS
    assert all(len(set(case.ways)) == len(case.ways) for case in CASES)
