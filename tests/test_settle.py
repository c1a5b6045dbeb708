from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hil.small_plans import Times, write_small
from partitioner.costs.cost import NOTHING, Candidate, Kind, Spread
from partitioner.costs.settle import settled
from shared.bundle import load_bundle
from shared.plan import Plan

ONE = Spread(10.0, 11.0)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    times = Times(whole_us=400.0, small_us=50.0, cloud_us=200.0)
    path = write_small(tmp_path, "small", rungs=("whole", "small"), routes=("raw", "split"), times=times)
    return load_bundle(path).plan


def way(kind: Kind, cut: str = "", rung: str = "", *, measured: bool = True) -> Candidate:
    head, tail = (NOTHING if kind == "input" else ONE), (NOTHING if kind == "device" else ONE)
    return Candidate(kind, cut, "raw", rung, head, ONE, ONE, tail, 100, 100, 1.0, measured)


def test_the_device_takes_what_the_whole_chain_of_segments_takes(plan: Plan) -> None:
    found = settled(way("device", rung="whole"), plan)
    assert (found.head.p50_us, found.tail) == (400.0, NOTHING)
    assert settled(way("device", rung="small"), plan).head.p50_us == 50.0


def test_the_cloud_takes_the_whole_chain_for_an_input_and_the_rest_of_it_for_a_split(plan: Plan) -> None:
    sent = settled(way("input", "image"), plan)
    assert (sent.head, sent.tail.p50_us) == (NOTHING, 200.0)
    split = settled(way("split", "middle"), plan)
    assert (split.head.p50_us, split.tail.p50_us) == (200.0, 100.0)


def test_a_side_that_another_device_was_measured_for_keeps_its_times(plan: Plan) -> None:
    split = settled(way("split", "middle"), plan, ("cloud",))
    assert (split.head, split.tail.p50_us) == (ONE, 100.0)
    assert settled(way("device", rung="whole"), plan, ("cloud",)).head == ONE
    assert settled(way("input", "image"), plan, ("edge",)).tail == ONE


def test_codings_bytes_and_agreement_stay_as_they_were_weighed(plan: Plan) -> None:
    before = way("split", "middle")
    after = settled(before, plan)
    assert (after.encode, after.decode, after.bytes_up, after.agreement) == (ONE, ONE, 100, 1.0)


def test_what_the_bundle_cannot_run_or_nobody_timed_stays(plan: Plan) -> None:
    elsewhere, dropped, guessed = (
        way("split", "elsewhere"),
        way("device", rung="gone"),
        way("split", "middle", measured=False),
    )
    assert [settled(one, plan) for one in (elsewhere, dropped, guessed)] == [elsewhere, dropped, guessed]
    bare = msgspec.structs.replace(plan, profiles=())
    for one in (way("device", rung="whole"), way("input", "image"), way("split", "middle")):
        assert settled(one, bare) == one
