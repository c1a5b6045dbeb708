"""What the best way is best in: each objective's order, by itself, where it changes, and in a plan's words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from records import ASKED, SEVERAL, away, device, random_conditions, random_ways, record
from test_explain import CONTINUOUS, check_against_a_grid
from test_plan import options, write_images, write_model

from partitioner.build import make, make_plan
from partitioner.choose import rank
from partitioner.costs.conditions import Conditions
from partitioner.costs.cost import Candidate, Spread
from partitioner.demands.objective import LATENCY, SURE, Objective, ObjectiveName, margin, objective_of
from partitioner.explanations import words
from partitioner.explanations.explanation import explain
from partitioner.options import LinkGuess
from partitioner.records.file import read_record
from partitioner.records.record import Way
from partitioner.reports.page import render
from shared.errors import UserError

LINK = LinkGuess(8.0, 0.0)
"""A byte a microsecond."""
DEADLINE_NS = 20_000_000
ENERGY = Objective("energy", compute_watts=10.0, radio_watts=2.0)
COST = Objective("cost", cloud_price=3600.0, traffic_price=1000.0)
ON_TIME = Objective("on-time")


def best(objective: Objective, *ways: Way, deadline_ns: int = DEADLINE_NS) -> str:
    candidates = [way.on(1.0) for way in ways]
    return rank(candidates, LINK, deadline_ns, 0.0, objective)[0].label


HERE = device("whole", 8.0, 1.0, excess_ms=4.0)
SENT = away("input", "raw", 0.0, 4.0, 2000)
SMALL = device("small", 3.0, 0.8, excess_ms=1.0)


def candidate(way: Way) -> Candidate:
    return way.on(1.0)


def test_energy_is_the_devices_work_and_what_its_radio_sends_and_hears() -> None:
    assert ENERGY.amount(candidate(HERE), LINK) == pytest.approx(10.0 * 8.0e-3)
    sent = candidate(SENT)
    joules = 10.0 * sent.encode.p50_us * 1e-6 + 2.0 * (sent.bytes_up + sent.bytes_down) * 1e-6
    assert ENERGY.amount(sent, LINK) == pytest.approx(joules)
    assert best(ENERGY, HERE, SENT, SMALL) == "input as raw"
    thirsty = Objective("energy", compute_watts=1.0, radio_watts=100.0)
    assert best(thirsty, HERE, SENT, SMALL) == "device: small"


def test_cost_is_the_clouds_work_and_every_byte_so_that_the_device_is_free() -> None:
    sent = candidate(SENT)
    money = (sent.decode.p50_us + sent.tail.p50_us) * 1e-6 + (sent.bytes_up + sent.bytes_down) * 1e-6
    assert COST.amount(sent, LINK) == pytest.approx(money)
    assert best(COST, HERE, SENT, SMALL) == "device: whole"


def test_what_is_late_comes_last_however_cheap_it_is() -> None:
    for objective in (ENERGY, COST, ON_TIME):
        assert best(objective, HERE, SMALL, deadline_ns=5_000_000) == "device: small"
    assert best(ENERGY, device("slow", 30.0, 1.0), away("input", "raw", 0.0, 40.0, 300)) == "device: slow"


def test_on_time_takes_the_margin_until_there_is_enough_of_it_then_agreement() -> None:
    shaky, steady = device("shaky", 10.0, 1.0, excess_ms=8.0), device("steady", 12.0, 0.8, excess_ms=4.0)
    assert margin(Spread(10_000.0, 18_000.0), DEADLINE_NS) == pytest.approx(1.25)
    assert best(ON_TIME, shaky, steady) == "device: steady"
    assert best(LATENCY, shaky, steady) == "device: shaky"
    calm = device("calm", 10.0, 1.0, excess_ms=10.0 / SURE)
    assert best(ON_TIME, calm, device("calmer", 1.0, 0.8, excess_ms=0.1)) == "device: calm"
    assert margin(Spread(1.0, 1.0), DEADLINE_NS) == math.inf


objectives = pytest.mark.parametrize("objective", [ON_TIME, ENERGY, COST], ids=lambda o: o.name)


@objectives
@settings(max_examples=10, deadline=None)
@given(ways=random_ways(), conditions=random_conditions)
def test_where_the_winner_changes_is_exact_for_every_objective(
    objective: Objective, ways: tuple[Way, ...], conditions: Conditions
) -> None:
    found = record(ways, best=0, routes=(), objective=objective)
    for axis in CONTINUOUS:
        check_against_a_grid(found, conditions, axis)


@objectives
def test_words_say_what_was_aimed_at_and_why_the_winner_wins(objective: Objective) -> None:
    found = record(SEVERAL, objective=objective)
    told = explain(found, ASKED)
    assert f"The objective is {objective.name}:" in words.sources(told)
    reasons = {standing.reason for standing in told.standings}
    if objective.adds_up:
        assert "amount" in reasons
    if objective.name == "energy":  # of the device's rungs, which cost the cloud nothing, the second takes as little
        assert "mJ of the device against" in words.why(told)
    assert "objective" not in words.sources(explain(record(SEVERAL), ASKED))


@pytest.mark.parametrize(
    ("name", "numbers", "said"),
    [
        ("speed", (None, None, None, 0.0, 0.0), "expected one of latency, on-time, energy, cost"),
        ("energy", (None, 1.0, None, 0.0, 0.0), "give --compute-watts"),
        ("energy", (-1.0, 1.0, None, 0.0, 0.0), "compute watts -1: expected 0 or more"),
        ("cost", (None, None, None, math.nan, 0.0), "cloud price nan: expected 0 or more"),
    ],
)
def test_an_objective_that_cannot_be_counted_is_refused(
    name: str, numbers: tuple[float | None, float | None, float | None, float, float], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        objective_of(name, *numbers)


def test_a_stated_power_comes_before_that_of_the_profile() -> None:
    assert objective_of("energy", None, None, 7.0, 0.0, 0.0).compute_watts == 7.0
    assert objective_of("energy", 3.0, 1.0, 7.0, 0.0, 0.0) == Objective("energy", 3.0, 1.0)


@pytest.mark.parametrize("name", ["energy", "cost"])
def test_a_plan_for_an_objective_says_so_everywhere(tmp_path: Path, name: ObjectiveName) -> None:
    write_model(tmp_path / "small.onnx")
    write_images(tmp_path / "images")
    watts = {"compute_watts": 5.0} if name == "energy" else {}
    made = make(options(tmp_path, "aimed.plan", objective=name, deadline_ns=10**9, **watts))
    bundle, found = read_record(made.path)
    assert found.objective.name == name
    assert f"chosen for {name}" in bundle.plan.chosen
    assert f"{name}: on time first" in render(found, bundle.plan)
    if name == "cost":
        assert made.weighing.best is not None
        assert made.weighing.best.kind == "device"  # it costs the cloud nothing
    else:
        assert any("no --radio-watts" in note for note in found.notes)


def test_energy_without_any_power_leaves_no_bundle(tmp_path: Path) -> None:
    write_model(tmp_path / "small.onnx")
    told: list[str] = []
    with pytest.raises(UserError, match="give --compute-watts"):
        make_plan(options(tmp_path, "never.plan", objective="energy", calibration=None), told.append)
    assert not (tmp_path / "never.plan").exists()
    assert not any("timing" in words for words in told)
