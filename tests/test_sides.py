"""The times of a side by a profile of another machine, by themselves and in a plan."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from test_plan import SIDE, options, write_images, write_model

from partitioner.build import Made, make, make_plan
from partitioner.costs.cost import Spread
from partitioner.costs.sides import Here, Known, Side
from partitioner.explanations.explanation import explain
from partitioner.explanations.words import sources
from partitioner.graph.recipe import Recipe
from partitioner.profiles.estimate import estimate_profile
from partitioner.profiles.file import load_profile, save_profile
from partitioner.profiles.record import CodecSpeed, DeviceProfile, Origin, Power, Quantiles
from partitioner.profiles.roofline import Roof
from partitioner.profiles.scaling import scaled
from partitioner.records.file import read_record
from partitioner.records.record import HERE, Source
from partitioner.reports.page import render
from shared.cli import run
from shared.commands import Command
from shared.errors import UserError

PREPROCESS = "image:mean=128,std=64"
KNOWN = Known(
    whole_us=4000.0,
    operators_us={0: 1000.0, 1: 0.0, 2: 3000.0},
    codecs={("jpeg", "encode"): 0.02},
    batches_us={1: 4000.0, 2: 6000.0},
    excess=1.5,
    threads=2,
    provider="Far",
    cadence_hz=30.0,
    watts=None,
)
THERE = Side(Source("measured", "far.profile", "far", "there"), 1.0, KNOWN)
NEAR = Here(Spread(1000.0, 1100.0), {("jpeg", "encode"): 0.01})


def test_without_a_profile_a_side_is_this_machine_slowed() -> None:
    side = Side(slowdown=3.0)
    assert side.source == HERE
    assert side.whole(NEAR) == NEAR.whole.slowed(3.0)
    assert side.part([0], Spread(400.0, 500.0), NEAR, 100.0) == Spread(400.0, 500.0).slowed(3.0)
    assert side.coded(Spread(10.0, 12.0), "jpeg", "encode", NEAR) == Spread(10.0, 12.0).slowed(3.0)
    assert side.batch_ratio(2, 1.9) == 1.9


def test_a_part_takes_its_groups_there_and_its_borders_scaled_by_the_wholes() -> None:
    assert THERE.whole(NEAR) == Spread(4000.0, 6000.0)
    head = THERE.part([0, 1], Spread(700.0, 900.0), NEAR, 50.0)
    assert head == Spread(1000.0 + 50.0 * 4.0, 1200.0 * 1.5)


def test_a_rung_is_scaled_by_the_wholes_and_batches_follow_the_profile_where_it_has_them() -> None:
    assert THERE.like_whole(Spread(500.0, 600.0), NEAR) == Spread(2000.0, 3000.0)
    assert THERE.batch_ratio(2, 1.9) == 1.5
    assert THERE.batch_ratio(4, 3.7) == 3.7


def test_a_coding_is_scaled_by_its_own_speeds_and_where_there_are_none_by_the_wholes() -> None:
    assert THERE.coded(Spread(10.0, 12.0), "jpeg", "encode", NEAR) == Spread(20.0, 24.0)
    assert THERE.coded(Spread(10.0, 12.0), "int8", "encode", NEAR) == Spread(40.0, 48.0)


def test_where_p99_was_not_measured_there_it_lies_as_it_does_here() -> None:
    estimated = Side(THERE.source, 1.0, Known(**{**{f: getattr(KNOWN, f) for f in KNOWN.__slots__}, "excess": None}))
    assert estimated.whole(NEAR).p99_us == pytest.approx(4400.0)


# In a plan


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, pictures, and profiles of it: `slow` of a device that takes a second, `fast` of a cloud that takes no time."""
    folder = tmp_path_factory.mktemp("sides")
    write_model(folder / "small.onnx")
    write_images(folder / "images")
    recipe = Recipe(folder / "small.onnx", (f"1,3,{SIDE},{SIDE}",), PREPROCESS)
    guess = estimate_profile(folder / "small.onnx", "edge", [recipe], Roof(1e9, 1e9, 1.0), "board", (1, 2))
    slow = as_measured(scaled(guess, "guess", 1_000_000.0 / guess.buckets[0].at(1).whole.p50_us), 1.25)  # type: ignore[union-attr]
    save_profile(slow, folder / "slow.profile")
    save_profile(scaled(guess, "guess.profile", 0.001), folder / "fast.profile")
    return folder


def as_measured(profile: DeviceProfile, excess: float) -> DeviceProfile:
    """As if it had been measured, at one row, with this p99 over the middle and a coding that takes a microsecond a byte."""
    replace = msgspec.structs.replace
    [bucket] = profile.buckets
    one = bucket.batches[0]
    whole = Quantiles(one.whole.p50_us, one.whole.p50_us, one.whole.p50_us * excess)
    return replace(
        profile,
        origin=Origin("measured", "on this machine, with seeded synthetic input"),
        machine=replace(profile.machine, device="A board", cadence_hz=30.0, threads=1, power=(Power("rail", 5.0),)),
        buckets=(replace(bucket, batches=(replace(one, whole=whole, runs=50, stable=True),)),),
        codecs=(CodecSpeed("jpeg90", "jpeg", 1.0, 1.0, 1000),),
    )


@pytest.fixture(scope="module")
def planned(place: Path) -> Made:
    """Forced to cut once, by profiles of both sides."""
    return make(
        options(
            place,
            "far.plan",
            edge=place / "slow.profile",
            cloud=place / "fast.profile",
            force_cuts=("r1",),
            deadline_ns=2_000_000_000,
        )
    )


def test_heads_are_the_devices_and_tails_the_clouds(place: Path, planned: Made) -> None:
    ways = {c.label: c for c in planned.weighing.candidates}
    whole = ways["device: whole"].head
    assert whole.p50_us == pytest.approx(1_000_000.0)
    assert whole.p99_us == pytest.approx(1_250_000.0)
    cut = ways["r1 as raw"]
    groups = load_profile(place / "slow.profile").buckets[0].batches[0].groups
    names = [group.name for group in groups]
    before_us = sum(group.time.p50_us for group in groups[: names.index("r1") + 1])
    border_us = planned.weighing.here.borders_us["r1"]
    ratio = whole.p50_us / planned.weighing.here.whole.p50_us
    assert cut.head.p50_us == pytest.approx(before_us + ratio * border_us / 2, rel=1e-6)
    fast_us = load_profile(place / "fast.profile").buckets[0].batches[0].whole.p50_us
    assert ways["input as raw"].tail.p50_us == pytest.approx(fast_us)
    assert cut.tail.p50_us <= fast_us * (1 + border_us / planned.weighing.here.whole.p50_us)


def test_the_bundle_holds_the_times_of_both_machines(planned: Made) -> None:
    edge, cloud = planned.plan.profile("edge"), planned.plan.profile("cloud")
    assert edge is not None
    assert cloud is not None
    assert (edge.device, cloud.device, edge.slowdown) == ("A board", "board", 1.0)
    last = len(planned.plan.cuts) - 1
    head, tail, both = edge.time(0, 0, 1), edge.time(0, 1, last), edge.time(0, 0, last)
    assert head is not None
    assert tail is not None
    assert both is not None
    assert head.p50_us + tail.p50_us == pytest.approx(both.p50_us, rel=1e-3)
    assert both.p50_us >= 1_000_000.0
    assert next(c.head.p50_us for c in planned.weighing.candidates if c.label == "r1 as raw") == pytest.approx(
        head.p50_us, rel=1e-3
    )
    tail_there = cloud.time(0, 1, last)
    assert tail_there is not None
    assert tail_there.p50_us < 100.0


def test_explain_and_report_say_whose_times_they_are(planned: Made) -> None:
    bundle, record = read_record(planned.path)
    told = sources(explain(record, record.asked))
    assert "from slow.profile: measured on A board" in told
    assert "from fast.profile: NOT MEASURED, ESTIMATED on board" in told
    page = render(record, bundle.plan)
    assert "the device of slow.profile" in page
    assert "NOT MEASURED, ESTIMATED" in page
    assert ">estimated profile<" in page
    assert any("fast.profile is estimated" in note for note in record.notes)


def test_one_side_alone_may_have_a_profile(place: Path) -> None:
    made = make(options(place, "edge.plan", edge=place / "slow.profile", rungs=(), lower_rungs=False))
    ways = {c.label: c for c in made.weighing.candidates}
    assert ways["device: whole"].head.p50_us == pytest.approx(1_000_000.0)
    cloud = made.plan.profile("cloud")
    assert cloud is not None
    whole = cloud.time(0, 0, len(made.plan.programs[0].segments))
    assert whole is not None
    assert ways["input as raw"].tail.p50_us == whole.p50_us  # of the bundle's own files, which were timed here
    assert ways["input as jpeg90"].encode.p50_us > 10 * ways["input as jpeg90"].decode.p50_us


def refused(place: Path, **changes: object) -> str:
    """What is said, and that nothing was begun or left."""
    before = sorted(place.iterdir())
    told: list[str] = []
    with pytest.raises(UserError) as caught:
        make_plan(options(place, "refused.plan", **changes), told.append)
    assert sorted(place.iterdir()) == before
    assert not any("timing" in words for words in told)
    return str(caught.value)


def test_a_profile_that_is_not_of_this_model_is_one_clear_error(place: Path) -> None:
    slow = place / "slow.profile"
    assert "slow.profile: the profile is of another model" in refused(place, edge=slow, shapes=("1,3,32,32",))
    assert "the profile is of another model" in refused(place, cloud=slow, preprocess="none", calibration=None)
    assert "there is no such file" in refused(place, edge=place / "none.profile")
    assert "leave out --edge-slowdown" in refused(place, edge=slow, edge_slowdown=2.0)
    profile = load_profile(slow)
    two = msgspec.structs.replace(profile.buckets[0].batches[0], batch=2)
    bucket = msgspec.structs.replace(profile.buckets[0], batches=(two,))
    path = place.parent / f"{place.name}-two.profile"
    save_profile(msgspec.structs.replace(profile, buckets=(bucket,)), path)
    assert "has no times at batch 1, only at 2" in refused(place, edge=path)


def test_such_a_profile_ends_the_command_with_status_two(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    verb = Command("plan", "Decide.", "partitioner.plan_cli:main")
    arguments = [str(place / "small.onnx"), "--shape", "1,3,32,32", "--edge", str(place / "slow.profile")]
    with pytest.raises(SystemExit) as ended:
        run(["plan", *arguments, "-o", str(place / "no.plan")], [verb])
    said = re.sub(r"\s+", " ", capfd.readouterr().err)
    assert ended.value.code == 2
    assert "slow.profile: the profile is of another model" in said
    assert not (place / "no.plan").exists()
