"""`headtail tune`: what drifted, the plan made again, and the whole with a real agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import typer
from processes import ServiceProcess, edge_settings
from records import ASKED, away, device, record
from typer.testing import CliRunner

from hil.small_plans import Times, write_small
from hil.tune import main
from hil.tune_drift import LEAST_ANSWERS, Drift, Seen, drift_of, label_of, link_of, seen_in, told_apart
from hil.tune_replan import retimed, tune
from partitioner.costs.conditions import Conditions
from partitioner.explanations.explanation import stages_of
from partitioner.options import LinkGuess
from partitioner.records.file import read_record
from partitioner.records.record import RECORD_FILE, Record, encode_record
from shared.bundle import load_bundle, write_manifest
from shared.errors import UserError
from shared.plan import Plan, contract_digest
from shared.request import EXACT, Answer, Fidelity, Stages

PARTS = ("device", "codec", "link", "cloud", "overhead")


def seen_as_planned(made: Record, label: str, **ratios: float) -> Seen:
    """What answers by a way show where each part takes so many times as long as was predicted."""
    way = next(w.on(made.asked.edge_slowdown) for w in made.ways if w.on(1.0).label == label and w.measured)
    stages = stages_of(way, made.asked)
    parts = {
        "device": stages.head_us,
        "codec": stages.encode_us + stages.decode_us,
        "link": stages.uplink_us + stages.downlink_us,
        "cloud": stages.tail_us,
        "overhead": 0.0,
    }
    return Seen(label, 20, {part: parts[part] * ratios.get(part, 1.0) for part in PARTS})


def by_part(drift: Sequence[Drift]) -> dict[str, Drift]:
    return {d.part: d for d in drift}


def test_a_pair_that_is_as_planned_has_not_drifted() -> None:
    made = record()
    drift = by_part(drift_of(made, [seen_as_planned(made, "input as jpeg90", cloud=1.2)], 0.25))
    assert set(drift) == {"codec", "link", "cloud"}
    assert not any(d.drifted for d in drift.values())
    assert drift["cloud"].ratio == pytest.approx(1.2)


@pytest.mark.parametrize("ratio", [0.5, 2.0])
def test_what_is_beyond_the_bound_has_drifted_in_either_direction(ratio: float) -> None:
    made = record()
    drift = by_part(drift_of(made, [seen_as_planned(made, "input as jpeg90", cloud=ratio)], 0.25))
    assert [part for part, d in drift.items() if d.drifted] == ["cloud"]
    assert drift["cloud"].ratio == pytest.approx(ratio)


def test_a_way_that_the_record_does_not_know_is_not_compared() -> None:
    assert drift_of(record(), [Seen("elsewhere as raw", 20, dict.fromkeys(PARTS, 1000.0))], 0.25) == ()


def link_parts(nbytes: int, link: LinkGuess) -> float:
    return nbytes * 8.0 / link.rate_mbit + link.rtt_ms * 1000.0


def test_rate_and_round_trip_are_told_apart_by_ways_of_different_bytes() -> None:
    made = record()
    real = LinkGuess(12.0, 20.0)
    seen = []
    for label in ("input as raw", "input as jpeg90", "neck as int8"):
        way = next(w.on(1.0) for w in made.ways if w.on(1.0).label == label)
        one = seen_as_planned(made, label)
        link_us = link_parts(way.bytes_up + way.bytes_down, real)
        seen.append(Seen(label, 20, {**one.parts_us, "link": link_us}))
    found = link_of(made, seen, drift_of(made, seen, 0.25))
    assert found.rate_mbit == pytest.approx(12.0)
    assert found.rtt_ms == pytest.approx(20.0)
    assert told_apart(made, seen)
    assert not told_apart(made, seen[:1])
    alone = link_of(made, seen[:1], drift_of(made, seen[:1], 0.25))
    ratio = drift_of(made, seen[:1], 0.25)[1].ratio
    assert (alone.rate_mbit, alone.rtt_ms) == (pytest.approx(ASKED.link.rate_mbit / ratio), pytest.approx(6.0 * ratio))


def answer(cut: int | None, fidelity: Fidelity, rung: str = "whole", stages: Stages | None = None) -> Answer:
    return Answer({}, "edge" if cut is None else "cloud", None, rung, cut, fidelity, "c", stages=stages or {})


def small(folder: Path, *routes: str) -> Plan:
    return load_bundle(write_small(folder, "small", rungs=("whole", "small"), routes=routes)).plan


def test_answers_are_told_apart_by_their_ways_and_few_of_one_are_left_out(tmp_path: Path) -> None:
    plan = small(tmp_path, "raw", "jpeg", "split-int8")
    assert label_of(answer(None, Fidelity("rung", "small", 0.5), "small"), plan) == "device: small"
    assert label_of(answer(0, Fidelity("lossy", "jpeg90", 0.98)), plan) == "image as jpeg90"
    assert label_of(answer(0, EXACT), plan) == "image as raw"
    stages: Stages = {"uplink": 2_000_000, "downlink": 1_000_000, "tail": 500_000, "client": 10_000, "hold": 9_000_000}
    many = [answer(0, EXACT, stages=stages)] * LEAST_ANSWERS
    few = [answer(None, EXACT)] * (LEAST_ANSWERS - 1)
    (seen,) = seen_in([*many, *few], plan)
    assert (seen.label, seen.answers) == ("image as raw", LEAST_ANSWERS)
    assert seen.parts_us == {"device": 0.0, "codec": 0.0, "link": 3000.0, "cloud": 500.0, "overhead": 10.0}


def small_record(asked: Conditions, whole_ms: float, cloud_ms: float) -> Record:
    ways = (
        device("whole", whole_ms, 1.0),
        device("small", whole_ms / 2, 0.5),
        away("image", "raw", 0.0, cloud_ms, 1_068),
        away("middle", "raw", whole_ms / 2, cloud_ms / 2, 428),
    )
    return record(ways, asked=asked, name="small", best=2, routes=(2, 3), rungs=(0, 1))


FAST = Conditions(LinkGuess(1000.0, 0.1), 1.0, 1_000_000_000, 0.5)


def test_a_slow_cloud_moves_the_plan_to_the_device_and_keeps_the_contract(tmp_path: Path) -> None:
    plan = small(tmp_path, "raw", "split")
    made = small_record(FAST, 50.0, 10.0)
    tuning = tune(plan, made, [seen_as_planned(made, "image as raw", cloud=10.0)], 0.25)
    assert tuning.before.winner is not None
    assert tuning.after.winner is not None
    assert tuning.before.winner.label == "image as raw"
    assert tuning.after.winner.label == "device: whole"
    assert tuning.record.best == 0
    assert tuning.record.routes == (3, 2), "75 ms by the split are before 100 ms by the input"
    assert [route.cut for route in tuning.plan.routes] == [1, 0]
    assert contract_digest(tuning.plan) == contract_digest(plan)
    cloud, edge = tuning.plan.profile("cloud"), tuning.plan.profile("edge")
    before_cloud, before_edge = plan.profile("cloud"), plan.profile("edge")
    assert cloud is not None
    assert before_cloud is not None
    assert cloud.ranges[0].p50_us == pytest.approx(before_cloud.ranges[0].p50_us * 10.0)
    assert edge == before_edge


def test_with_no_drift_the_record_predicts_what_it_did(tmp_path: Path) -> None:
    plan = small(tmp_path, "raw", "split")
    made = small_record(FAST, 50.0, 10.0)
    tuning = tune(plan, made, [seen_as_planned(made, "image as raw")], 0.25)
    assert not tuning.drifted
    assert tuning.after.standings == tuning.before.standings
    assert tuning.plan.profiles == plan.profiles


def test_a_device_that_is_n_times_as_slow_is_predicted_n_times_as_slow() -> None:
    made = record()
    slower = retimed(made, {"device": 3.0})
    for before, after in zip(made.ways, slower.ways, strict=True):
        assert after.on(8.0).head.p50_us == pytest.approx(3.0 * before.on(8.0).head.p50_us)
        assert after.tail == before.tail


def test_a_winner_without_files_is_named(tmp_path: Path) -> None:
    plan = small(tmp_path, "split")
    made = msgspec.structs.replace(small_record(FAST, 50.0, 10.0), routes=(3,), best=2)
    tuning = tune(plan, made, [seen_as_planned(made, "middle as raw", device=0.9)], 0.25)
    assert tuning.beyond == "image as raw"


def test_a_plan_whose_best_way_is_through_the_cloud_is_not_judged_by_the_device_alone(tmp_path: Path) -> None:
    plan = small(tmp_path, "raw", "split")
    made = small_record(FAST, 50.0, 10.0)
    alone, through = seen_as_planned(made, "device: whole"), seen_as_planned(made, "middle as raw")
    assert tune(plan, made, [alone], 0.25).unheard == "image as raw"
    assert tune(plan, made, [alone, through], 0.25).unheard == ""
    on_device = small_record(FAST, 5.0, 10.0)
    assert tune(plan, on_device, [seen_as_planned(on_device, "device: whole")], 0.25).unheard == ""


def call(*arguments: object) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(main)
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, UserError):
        return 2, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def test_a_running_agent_is_measured_and_the_new_plan_takes_the_place_of_the_old(tmp_path: Path) -> None:
    # The record claims half a second for what takes less than a millisecond, so that any machine shows the drift.
    path = write_small(tmp_path, "small", rungs=("whole", "small"), routes=("raw", "split"), times=Times())
    (path / RECORD_FILE).write_bytes(encode_record(small_record(FAST, 500.0, 400.0)))
    write_manifest(path)
    before, _ = read_record(path)
    endpoint = f"ipc://{tmp_path}/agent"
    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [path])) as agent:
        status, said = call(path, "--agent", endpoint, "--requests", 20)
        assert status == 0, said
        assert "device: whole wins now, image as raw won before" in said
        assert "runs on the device" in said
        assert "DRIFTED" in said
        assert "not in this plan's record" in said
        assert "not pushed" in said
        assert load_bundle(path).files[RECORD_FILE].read_bytes() == encode_record(small_record(FAST, 500.0, 400.0))
        status, said = call(path, "--agent", endpoint, "--requests", 20, "--push")
        assert (status, "restart" in said) == (0, True), said
        after, made = read_record(path)
        assert after.contract == before.contract
        assert made.ways[0].head.p50_us < 250_000
        assert made.best == 0
        assert "device" in (path / "report.html").read_text(encoding="utf-8")
        assert [entry.name for entry in tmp_path.iterdir() if "plan" in entry.name] == ["small.plan"], (
            "no draft is left"
        )
        agent.end()
    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [path])) as again:
        assert again.end()[0] == 0


def test_without_a_node_a_plan_through_the_cloud_does_not_hold(tmp_path: Path) -> None:
    path = write_small(tmp_path, "small", rungs=("whole", "small"), routes=("raw", "split"), times=Times())
    (path / RECORD_FILE).write_bytes(encode_record(small_record(FAST, 5.0, 0.001)))
    write_manifest(path)
    endpoint = f"ipc://{tmp_path}/agent"
    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [path])) as agent:
        status, said = call(path, "--agent", endpoint, "--requests", 20, "--bound", 100, "--push")
        agent.end()
    assert status == 1, said
    assert "its best way is image as raw" in said
    assert "pushed" not in said
    assert load_bundle(path).files[RECORD_FILE].read_bytes() == encode_record(small_record(FAST, 5.0, 0.001))


def test_another_version_of_the_plan_is_refused(tmp_path: Path) -> None:
    served = write_small(tmp_path, "small", rungs=("whole",), routes=())
    other = write_small(tmp_path / "other", "small", rungs=("whole",), routes=(), seed=3)
    ways = (device("whole", 1.0, 1.0),)
    made = record(ways, asked=FAST, name="small", best=0, routes=(), rungs=(0,))
    (other / RECORD_FILE).write_bytes(encode_record(made))
    write_manifest(other)
    endpoint = f"ipc://{tmp_path}/agent"
    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [served])) as agent:
        status, said = call(other, "--agent", endpoint)
        agent.end()
    assert status == 2
    assert "another version of small" in said
