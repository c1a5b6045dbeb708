"""What the times of a plan hold: what a request costs, and what the bundle's own files take."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_plan import options, write_images, write_model

from partitioner.build import Made, make
from partitioner.costs.cost import NOTHING, predict
from partitioner.costs.overhead import OVERHEAD_FORMAT, Overhead
from partitioner.costs.overhead_file import write_overhead
from partitioner.explanations.explanation import stages_of
from partitioner.records.compared import compared
from partitioner.records.file import read_record
from shared.errors import UserError

SLOWDOWN = 4.0
HOST = Overhead(OVERHEAD_FORMAT, 1000.0, 3000.0, 200.0, 0.001, 0.002, 1.5, 30.0, "a processor", 100)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("overhead")
    write_model(folder / "small.onnx")
    write_images(folder / "images")
    write_overhead(HOST, folder / "host.overhead")
    return folder


@pytest.fixture(scope="module")
def made(place: Path) -> Made:
    asked = {"overhead": place / "host.overhead", "force_cuts": ("input", "r1"), "edge_slowdown": SLOWDOWN}
    return make(options(place, "with.plan", min_agreement=0.0, rungs=(), lower_rungs=False, **asked))


def test_every_way_holds_what_its_request_costs(made: Made) -> None:
    bundle, record = read_record(made.path)
    nbytes = sum(spec.nbytes() for spec in (*bundle.plan.inputs, *bundle.plan.outputs))
    for way in record.candidates(SLOWDOWN):
        fixed_us = {"device": 1000.0, "input": 3000.0, "split": 3200.0}[way.kind]
        fixed_us += 200.0 * (way.kind == "input" and way.coding != "raw")
        expected_us = fixed_us + 0.001 * nbytes + 0.002 * (way.bytes_up + way.bytes_down)
        assert way.overhead.p50_us == pytest.approx(expected_us)
        stages = stages_of(way, record.asked)
        assert sum(stages.parts()) == pytest.approx(predict(way, record.asked.link).total.p50_us)
    assert any("a processor" in note for note in record.notes)


def test_an_input_that_goes_as_it_came_is_not_encoded(made: Made) -> None:
    ways = {way.label: way for way in made.weighing.candidates}
    assert ways["input as raw"].encode == NOTHING
    assert ways["input as jpeg90"].encode.p50_us > 0.0
    assert ways["r1 as raw"].encode.p50_us > 0.0


def test_the_ways_of_a_bundle_take_what_its_own_files_take(made: Made) -> None:
    bundle, record = read_record(made.path)
    plan = bundle.plan
    edge, cloud = plan.profile("edge"), plan.profile("cloud")
    assert edge is not None
    assert cloud is not None
    whole = edge.time(0, 0, 2)
    assert whole is not None
    ways = {way.label: way for way in record.candidates(SLOWDOWN)}
    assert ways["device: whole"].head.p50_us == pytest.approx(whole.p50_us)
    head, tail = edge.time(0, 0, 1), cloud.time(0, 1, 2)
    assert head is not None
    assert tail is not None
    assert ways["r1 as raw"].head.p50_us == pytest.approx(head.p50_us)
    assert ways["r1 as raw"].tail.p50_us == pytest.approx(tail.p50_us)


def test_routes_and_choice_are_in_the_order_of_these_times(made: Made) -> None:
    _, record = read_record(made.path)
    link = record.asked.link
    times = [predict(record.ways[place].on(SLOWDOWN), link).total.p99_us for place in record.routes]
    late = [time_us * 1000.0 > record.asked.deadline_ns for time_us in times]
    assert late == sorted(late)
    assert record.best in {*record.routes, *record.rungs}
    labels = [route.label for route in made.weighing.routes]
    assert [record.ways[place].on(1.0).label for place in record.routes] == labels


def test_the_report_still_compares_with_what_was_expected_before(made: Made) -> None:
    bundle, record = read_record(made.path)
    before = {way.label: way for way in made.weighing.weighed}
    pairs = {pair.words: pair for pair in compared(record, bundle.plan)}
    assert pairs["whole on the device"].predicted_us == pytest.approx(before["device: whole"].head.p50_us)
    assert pairs["tail from r1"].predicted_us == pytest.approx(before["r1 as raw"].tail.p50_us)
    cloud = bundle.plan.profile("cloud")
    tail = cloud.time(0, 1, 2) if cloud else None
    assert tail is not None
    assert pairs["tail from r1"].measured_us == tail.p50_us


def test_a_plan_without_it_says_so(place: Path) -> None:
    made = make(options(place, "without.plan", rungs=(), lower_rungs=False))
    assert all(way.overhead == NOTHING for way in made.weighing.candidates)
    assert any("headtail overhead" in note for note in made.weighing.notes)


def test_a_file_that_is_none_is_refused_before_anything_is_written(place: Path) -> None:
    with pytest.raises(UserError, match=r"none\.overhead"):
        make(options(place, "never.plan", overhead=place / "none.overhead"))
    assert not (place / "never.plan").exists()
