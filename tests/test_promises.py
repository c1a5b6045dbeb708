"""Streams, classes, revocation, put-off insurance and overdue executors, on virtual time."""

from __future__ import annotations

import msgspec
import pytest
from plans import RAW_ROUTE, make_input, make_plan

from hil.pair import MS, Pair
from shared.events import Granted
from shared.plan import Plan
from shared.request import Answer, Rejected
from shared.settings import EdgeLimits, EdgeSettings, Execution, Insurance, NodeAddress, Scheduling
from shared.streams import FRAMES_AHEAD

A = (NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),)


def one_rung(ms: float) -> Plan:
    """A plan that the device has one way to answer, of `ms` milliseconds."""
    _, plan = make_plan(edge_ms=(ms, ms), routes=(), max_batch=1)
    return msgspec.structs.replace(plan, ladder=plan.ladder[1:])


def two_plans(strict_ms: float, long_ms: float) -> tuple[dict[str, Plan], str, str]:
    """Two contracts of one rung each."""
    return {"s" * 64: one_rung(strict_ms), "l" * 64: one_rung(long_ms)}, "s" * 64, "l" * 64


def play_two_streams(slow: float = 1.0, seconds: float = 2.0) -> tuple[Pair, list[int], list[int]]:
    """30 Hz at 10 ms in the high class (3.4 ms), 60 Hz at 50 ms best effort (10.6 ms): 80 % of one executor."""
    plans, strict, long = two_plans(3.4, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.edge.slow = slow
    pair.open_stream(1, 100 / 3, 10, priority=0, plan=strict)
    pair.open_stream(2, 50 / 3, 50, priority=2, plan=long)
    x = make_input()
    high: list[int] = []
    low: list[int] = []
    times = sorted(
        [(n * 100 / 3, 1) for n in range(int(30 * seconds))] + [(n * 50 / 3 + 1.7, 2) for n in range(int(60 * seconds))]
    )
    for at_ms, stream in times:
        pair.run(pair_ms(pair, at_ms))
        if stream == 1:
            high.append(pair.ask(x, 10, plan=strict, stream=1, priority=0))
        else:
            low.append(pair.ask(x, 50, plan=long, stream=2, priority=2))
    pair.run(100)
    return pair, high, low


def pair_ms(pair: Pair, at_ms: float) -> float:
    return max(0.0, at_ms - (pair.now - 1_000 * MS) / MS)


def answered(pair: Pair, sequences: list[int]) -> list[int]:
    return [s for s in sequences if isinstance(outcome := pair.outcome(s), Answer) and outcome.on_time]


# --- streams -----------------------------------------------------------------------------------------------------------


def test_every_frame_of_a_strict_stream_is_kept_beside_long_work_of_a_lesser_class() -> None:
    pair, high, low = play_two_streams()
    assert pair.granted[1][-1] == Granted("client", 1, "small")
    assert answered(pair, high) == high
    assert len(answered(pair, low)) == len(low)


def test_without_the_announcement_the_same_long_work_blocks_strict_frames() -> None:
    plans, strict, long = two_plans(3.4, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.ask(make_input(), 50, plan=long, priority=2)
    pair.run(1)
    blocked = pair.ask(make_input(), 10, plan=strict, priority=0)
    pair.run(60)
    assert isinstance(pair.outcome(blocked), Rejected)


def test_the_device_idles_before_a_frame_that_is_expected_and_no_longer_when_it_does_not_come() -> None:
    plans, strict, long = two_plans(3.4, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.open_stream(1, 100 / 3, 10, priority=0, plan=strict)
    pair.ask(make_input(), 10, plan=strict, stream=1, priority=0)
    pair.run(30)
    pair.ask(make_input(), 50, plan=long, priority=2)
    pair.run(100 / 3 - 30 + 6.0)
    assert [run.contract for run in pair.edge.launched] == [strict]
    pair.run(0.2)
    assert [run.contract for run in pair.edge.launched] == [strict, long]


def test_an_important_frame_is_not_refused_for_lesser_work_that_waits() -> None:
    plans, strict, long = two_plans(8.7, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.run(1)
    pair.ask(make_input(), 90, plan=long, priority=2)
    pair.ask(make_input(), 90, plan=long, priority=2)
    pair.ask(make_input(), 90, plan=long, priority=2)
    pair.run(10.7)
    frame = pair.ask(make_input(), 20.5, plan=strict, priority=0)
    assert pair.broker.scheduler.predicted_wait(pair.now, 0) < pair.broker.scheduler.predicted_wait(pair.now)
    pair.run(40)
    assert pair.answer(frame).on_time


def test_a_stream_that_stays_away_is_not_waited_for() -> None:
    plans, strict, long = two_plans(3.4, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.open_stream(1, 100 / 3, 10, priority=0, plan=strict)
    pair.ask(make_input(), 10, plan=strict, stream=1, priority=0)
    pair.run(4 * 100 / 3 + 32)
    pair.ask(make_input(), 50, plan=long, priority=2)
    assert pair.edge.launched[-1].contract == long


def test_slowing_the_device_by_half_revokes_best_effort_first() -> None:
    pair, high, low = play_two_streams(slow=1.5)
    settled = high[15:]
    assert answered(pair, settled) == settled
    assert len(answered(pair, low)) < len(low)
    assert pair.broker.counters["revoked"] > 0 or any(isinstance(pair.outcome(s), Rejected) for s in low)


def test_a_stream_that_does_not_fit_is_told_so_and_one_of_more_importance_takes_its_place() -> None:
    plans, strict, _ = two_plans(3.4, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.open_stream(1, 5, 5, priority=1, plan=strict)
    assert pair.granted[1] == [Granted("client", 1, "small")]
    pair.open_stream(2, 5, 5, priority=1, plan=strict)
    assert pair.granted[2] == [Granted("client", 2, "", "overload")]
    pair.open_stream(3, 5, 5, priority=0, plan=strict)
    assert pair.granted[3] == [Granted("client", 3, "small")]
    assert pair.granted[1][-1] == Granted("client", 1, "", "overload")
    pair.close_stream(3)
    assert pair.granted[1][-1] == Granted("client", 1, "small")


def test_a_stream_is_granted_the_best_rung_that_fits_and_a_cheaper_one_when_another_comes() -> None:
    contract, plan = make_plan(edge_ms=(3.0, 2.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    pair.open_stream(1, 20, 18)
    pair.open_stream(2, 20, 18)
    assert [pair.granted[n][-1].rung for n in (1, 2)] == ["whole", "whole"]
    pair.open_stream(3, 20, 18, priority=0)
    assert [pair.granted[n][-1].rung for n in (1, 2, 3)] == ["whole", "small", "whole"]


def test_streams_of_an_unknown_contract_and_beyond_the_limit_are_told_why() -> None:
    contract, plan = make_plan(edge_ms=(3.0, 2.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings(limits=EdgeLimits(max_streams=1)))
    pair.open_stream(1, 20, 18, plan="f" * 64)
    pair.open_stream(2, 20, 18)
    pair.open_stream(3, 20, 18)
    assert [pair.granted[n][-1].reason for n in (1, 2, 3)] == ["no-route", "", "full"]


def test_when_the_device_slows_down_the_lesser_stream_loses_its_promise_and_gets_it_back() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    for stream, priority in ((1, 0), (2, 2)):
        pair.open_stream(stream, 12, 10, priority=priority)
    assert [pair.granted[n][-1].rung for n in (1, 2)] == ["small", "small"]
    pair.edge.slow = 2.6
    run_frames(pair, 80)
    assert [pair.granted[n][-1].rung for n in (1, 2)] == ["small", ""]
    pair.edge.slow = 1.0
    run_frames(pair, 120)
    assert [pair.granted[n][-1].rung for n in (1, 2)] == ["small", "small"]


def run_frames(pair: Pair, frames: int) -> None:
    for _ in range(frames):
        for stream, priority in ((1, 0), (2, 2)):
            pair.ask(make_input(), 10, stream=stream, priority=priority)
        pair.run(12)


def test_no_more_frames_are_looked_ahead_than_the_bound() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    pair.open_stream(1, 5, 5)
    pair.ask(make_input(), 5, stream=1)
    streams = pair.broker.scheduler.streams
    assert len(streams.expected(pair.broker.scheduler.latency, 1, pair.now + 10_000 * MS, pair.now)) == FRAMES_AHEAD


# --- classes -----------------------------------------------------------------------------------------------------------


def test_a_promise_of_a_lesser_class_is_revoked_for_a_more_important_request() -> None:
    contract, plan = make_plan(edge_ms=(9.0, 4.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    pair.ask(make_input(), 9, priority=2)
    waiting = pair.ask(make_input(), 9.6, priority=2)
    pair.run(0.5)
    important = pair.ask(make_input(), 9.6, priority=0)
    pair.run(30)
    assert pair.answer(important).on_time
    assert pair.broker.counters["revoked"] == 1
    assert isinstance(pair.outcome(waiting), Rejected)


def test_a_request_that_displaces_a_promise_takes_its_place_in_a_full_queue() -> None:
    contract, plan = make_plan(edge_ms=(9.0, 4.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings(scheduling=Scheduling(max_queued=1)))
    pair.ask(make_input(), 9, priority=2)
    displaced = pair.ask(make_input(), 9.6, priority=2)
    important = pair.ask(make_input(), 9.6, priority=0)
    pair.run(30)
    assert pair.answer(important).on_time
    assert pair.outcome(displaced) == Rejected("revoked", pair.outcome(displaced).detail)


def test_a_request_for_which_the_queue_has_no_room_is_rejected_at_once() -> None:
    contract, plan = make_plan(edge_ms=(9.0, 4.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings(scheduling=Scheduling(max_queued=1)))
    for _ in range(2):
        pair.ask(make_input(), 50)
    assert pair.outcome(pair.ask(make_input(), 50)) == Rejected("overload", "the device's queue is full")


def test_equals_do_not_revoke_each_other() -> None:
    contract, plan = make_plan(edge_ms=(9.0, 4.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    first = [pair.ask(make_input(), 9, priority=1), pair.ask(make_input(), 9.6, priority=1)]
    late = pair.ask(make_input(), 9.6, priority=1)
    pair.run(30)
    assert [type(pair.outcome(s)) for s in (*first, late)] == [Answer, Answer, Rejected]
    assert pair.broker.counters["revoked"] == 0


def test_a_revoked_promise_gets_a_cheaper_rung_where_one_fits() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 1.5), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    pair.ask(make_input(), 20, priority=1)
    lesser = pair.ask(make_input(), 20, priority=2)
    important = pair.ask(make_input(), 13, priority=0)
    pair.run(30)
    assert pair.answer(lesser).on_time
    assert pair.answer(important).on_time


# --- insurance put off -------------------------------------------------------------------------------------------------


def late_pair(**fields: object) -> Pair:
    contract, plan = make_plan(edge_ms=(20.0, 4.0), cloud_ms=1.0, routes=(RAW_ROUTE,))
    pair = Pair({contract: plan}, EdgeSettings(nodes=A, insurance=Insurance(mode="late", **fields)))  # type: ignore[arg-type]
    pair.run(50)
    return pair


def test_insurance_that_is_put_off_is_never_run_where_the_cloud_answers_first() -> None:
    pair = late_pair()
    for _ in range(10):
        sequence = pair.ask(make_input(), 20)
        pair.run(25)
        assert pair.answer(sequence).source == "cloud"
    assert len(pair.edge.launched) == 1, "only the first, to be warm"


def test_insurance_that_is_put_off_answers_in_time_where_the_cloud_is_silent() -> None:
    pair = late_pair()
    pair.ask(make_input(), 20)
    pair.run(25)
    pair.stall("a")
    began = pair.now
    sequence = pair.ask(make_input(), 20)
    pair.run(25)
    assert pair.answer(sequence).source == "edge"
    assert pair.answer(sequence).on_time
    assert pair.edge.launched[-1].latest_ns > began + 10 * MS


def test_insurance_that_is_put_off_begins_at_once_when_the_cloud_has_refused() -> None:
    pair = late_pair()
    pair.ask(make_input(), 20)
    pair.run(25)
    sequence = pair.ask(make_input(), 20)
    before = len(pair.edge.launched)
    pair.run(0.5)
    assert len(pair.edge.launched) == before
    pair.kill("a")
    assert len(pair.edge.launched) == before + 1
    pair.run(25)
    assert pair.answer(sequence).source == "edge"


def test_a_rung_that_has_not_run_for_a_while_is_run_at_once() -> None:
    pair = late_pair(warm_ms=100.0)
    for _ in range(12):
        pair.ask(make_input(), 20)
        pair.run(25)
    assert len(pair.edge.launched) == pytest.approx(12 * 25 / 100, abs=1)


def test_a_put_off_rung_makes_room_for_a_promise_that_comes_meanwhile() -> None:
    pair = late_pair()
    pair.ask(make_input(), 20)
    pair.run(25)
    pair.stall("a")
    first = pair.ask(make_input(), 20)
    pair.run(1)
    second = pair.ask(make_input(), 19.5)
    third = pair.ask(make_input(), 19.5)
    pair.run(30)
    assert [pair.answer(s).on_time for s in (first, second, third)] == [True] * 3


# --- overdue executors -------------------------------------------------------------------------------------------------


def hang(pair: Pair) -> None:
    """Whatever is running now never ends."""
    pair.edge.running.clear()


def test_work_of_an_overdue_executor_is_run_again_on_another() -> None:
    contract, plan = make_plan(edge_ms=(20.0, 4.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings(execution=Execution(executors=2)))
    sequence = pair.ask(make_input(), 25)
    hang(pair)
    pair.run(30)
    assert pair.answer(sequence).on_time
    assert pair.broker.counters["overdue"] == 1
    assert [run.executor for run in pair.edge.launched] == [0, 1]


def test_an_overdue_executor_is_waited_for_where_the_queue_has_no_room() -> None:
    settings = EdgeSettings(execution=Execution(executors=2), scheduling=Scheduling(max_queued=1))
    pair = Pair({"s" * 64: one_rung(4.0)}, settings)
    pair.edge.slow = 3.0
    first = pair.ask(make_input(), 60)
    pair.run(1)
    for _ in range(2):
        pair.ask(make_input(), 200)
    pair.run(100)
    assert pair.broker.counters["overdue"] > 0
    assert isinstance(pair.outcome(first), Answer)


def test_nothing_is_promised_on_an_overdue_executor() -> None:
    contract, plan = make_plan(edge_ms=(20.0, 4.0), routes=())
    pair = Pair({contract: plan}, EdgeSettings())
    pair.ask(make_input(), 40)
    hang(pair)
    pair.run(35)
    pair.open_stream(1, 50, 40)
    refused = pair.ask(make_input(), 10)
    assert isinstance(pair.outcome(refused), Rejected)


def test_a_frame_that_stays_away_is_not_expected_before_an_executor_is_free() -> None:
    plans, strict, _ = two_plans(3.4, 10.6)
    pair = Pair(plans, EdgeSettings())
    pair.open_stream(1, 20, 10, priority=1, plan=strict)
    pair.ask(make_input(), 10, plan=strict, stream=1, priority=1)
    pair.run(20)
    streams, latency = pair.broker.scheduler.streams, pair.broker.scheduler.latency
    busy_until = pair.now + 9 * MS
    frame = streams.expected(latency, 1, pair.now + 10 * MS, pair.now, busy_until)[0]
    assert frame.release_ns == busy_until
    assert frame.release_ns + frame.duration_ns <= frame.deadline_ns


def test_what_is_promised_in_a_step_is_not_revoked_in_it() -> None:
    plans = {"a" * 64: one_rung(4.0), "b" * 64: one_rung(6.0)}
    pair = Pair(plans, EdgeSettings(execution=Execution(executors=2)))
    pair.ask(make_input(), 30, plan="a" * 64)
    pair.run(2.2)
    pair.ask(make_input(), 30, plan="a" * 64)
    pair.ask(make_input(), 9.9, plan="a" * 64)
    pair.ask(make_input(), 9.9, plan="b" * 64)
    assert pair.broker.counters["revoked"] == 0
