"""Execution times that nothing has confirmed for a while: a device that was hot and has cooled is found out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from plans import make_input, make_plan

from hil.pair import MS, Pair
from shared.latency import Latency, WorkKey
from shared.plan import SegmentRange
from shared.request import Answer
from shared.settings import EdgeSettings

S = 1_000_000_000


def two_rungs() -> tuple[Latency, WorkKey, WorkKey]:
    """The whole of 4 ms and a rung of 2 ms."""
    contract, plan = make_plan(edge_ms=(2.0, 2.0))
    latency = Latency.of([(contract, plan)], "edge")
    whole = WorkKey(contract, SegmentRange(0, 0, len(plan.programs[0].segments)))
    rung = WorkKey(contract, SegmentRange(1, 0, len(plan.programs[1].segments)))
    return latency, whole, rung


def run(latency: Latency, keys: tuple[WorkKey, ...], slow: float, start_s: float, end_s: float) -> None:
    """Each of these runs every 100 ms, `slow` times as long as its profile says."""
    for at in range(int(start_s * 10), int(end_s * 10)):
        latency.age(at * S // 10)
        for key in keys:
            latency.observe(key, 1, int(latency._curves[key].base(1) * slow))


def warm(latency: Latency, *keys: WorkKey) -> None:
    latency.age(0)
    for key in keys:
        latency.typical(key)


def test_a_rung_that_is_not_run_any_more_ages_to_what_the_device_does_now() -> None:
    latency, whole, rung = two_rungs()
    warm(latency, whole, rung)
    cool = latency.worst(whole)
    run(latency, (whole, rung), 3.0, 0, 10)
    assert latency.typical(whole) == 12 * MS
    run(latency, (rung,), 3.0, 10, 20)
    assert latency.typical(whole) == pytest.approx(12 * MS, rel=0.02), "the device is as hot as it was"
    run(latency, (rung,), 1.0, 20, 26)
    assert latency.typical(whole) == pytest.approx(4 * MS, rel=0.05)
    assert latency.worst(whole) == pytest.approx(cool, rel=0.1)


def test_what_is_not_run_while_the_device_heats_is_not_promised_on_the_strength_of_a_cool_one() -> None:
    latency, whole, rung = two_rungs()
    warm(latency, whole, rung)
    run(latency, (whole, rung), 1.0, 0, 5)
    run(latency, (rung,), 3.0, 5, 12)
    assert latency.typical(whole) == pytest.approx(12 * MS, rel=0.05)


def test_where_nothing_runs_at_all_a_device_is_believed_to_have_cooled_after_longer() -> None:
    latency, whole, rung = two_rungs()
    warm(latency, whole, rung)
    run(latency, (whole, rung), 3.0, 0, 10)
    for at in range(10, 17):
        latency.age(at * S)
    assert latency.typical(whole) == 12 * MS
    for at in range(17, 30):
        latency.age(at * S)
    assert latency.typical(whole) == pytest.approx(4 * MS, rel=0.05)


def test_one_look_after_a_long_time_is_as_good_as_many() -> None:
    latency, whole, rung = two_rungs()
    warm(latency, whole, rung)
    run(latency, (whole, rung), 3.0, 0, 10)
    latency.age(60 * S)
    assert latency.typical(whole) == pytest.approx(4 * MS, rel=0.05)


def test_a_try_that_was_as_slow_as_ever_is_not_repeated_soon() -> None:
    """Only the whole is slow on this device: what else runs says nothing of it."""
    latency, whole, rung = two_rungs()
    warm(latency, whole, rung)
    run(latency, (whole,), 3.0, 0, 8)
    tries: list[float] = []
    for tenth in range(80, 1280):
        latency.age(tenth * S // 10)
        latency.observe(rung, 1, 2 * MS)
        if latency.worst(whole) < 8 * MS:
            tries.append(tenth / 10)
            latency.observe(whole, 1, 12 * MS)
    pauses = [b - a for a, b in pairwise(tries)]
    assert len(tries) <= 8
    assert pauses == sorted(pauses)
    assert pauses[-1] > 20


def test_what_has_no_profile_does_not_age() -> None:
    latency, _, rung = two_rungs()
    unknown = WorkKey("nobody's", SegmentRange(0, 0, 1))
    warm(latency, unknown, rung)
    run(latency, (unknown,), 0.2, 0, 10)
    run(latency, (rung,), 1.0, 10, 20)
    assert latency.typical(unknown) == pytest.approx(1 * MS)


def test_work_that_is_begun_and_aborted_does_not_age() -> None:
    latency, whole, rung = two_rungs()
    warm(latency, whole, rung)
    run(latency, (whole, rung), 3.0, 0, 10)
    for tenth in range(100, 200):
        latency.age(tenth * S // 10)
        latency.observe(rung, 1, 2 * MS)
        latency.observe_aborted(whole, 1, 1 * MS)
    assert latency.typical(whole) == 12 * MS


def test_an_agent_goes_back_to_the_better_rung_when_its_device_has_cooled() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0))
    pair = Pair({contract: plan}, EdgeSettings())
    inputs = make_input()

    def rungs(seconds: float) -> list[str]:
        found: list[int] = []
        for _ in range(int(seconds * 20)):
            found.append(pair.ask(inputs, 10.0))
            pair.run(50)
        outcomes = [pair.outcome(sequence) for sequence in found]
        return [outcome.rung if isinstance(outcome, Answer) else "" for outcome in outcomes]

    best, cheapest = plan.ladder[0].name, plan.ladder[-1].name
    assert set(rungs(2)) == {best}
    pair.edge.slow = 2.5
    assert rungs(4)[-1] == cheapest
    pair.edge.slow = 1.0
    assert rungs(6)[-1] == best
