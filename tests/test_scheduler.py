"""Queue, batching, promises and placement of one process, on virtual time."""

from __future__ import annotations

import pytest
from plans import make_plan

from shared.errors import InvariantBroken
from shared.events import Row
from shared.latency import WorkKey
from shared.memory import Arena
from shared.placement import LeastPredictedFinish, Offer
from shared.plan import RAW, SegmentRange
from shared.queue import Job
from shared.reserve import Promise
from shared.scheduler import Scheduler
from shared.scheduler_setup import scheduler_of
from shared.settings import Batching, Execution, Scheduling
from shared.slots import SlotClass

MS = 1_000_000
CONTRACT, PLAN = make_plan(edge_ms=(5.0, 2.0))
WHOLE = SegmentRange(0, 0, 2)
SMALL = SegmentRange(1, 0, 1)


def scheduler(executors: int = 1, max_batch: int = 8, max_queued: int = 16) -> Scheduler:
    return scheduler_of(
        {CONTRACT: PLAN},
        "edge",
        Execution(executors=executors),
        Batching(max_batch_size=max_batch),
        Scheduling(max_queued=max_queued),
    )


def job(
    number: int,
    deadline_ms: float,
    *,
    part: SegmentRange = SMALL,
    priority: int = 1,
    promised: bool = False,
    rows: int = 1,
) -> Job:
    row = Row(number, rows, (), RAW)
    return Job(number, CONTRACT, part, row, int(deadline_ms * MS), priority, promised, WorkKey(CONTRACT, part))


def launched(s: Scheduler, now_ms: float = 0) -> list[list[int]]:
    return [[row.job for row in run.rows] for run in s.schedule(int(now_ms * MS)).runs]


# --- the policy for choosing among places ------------------------------------------------------------------------------


def test_the_place_that_is_predicted_to_finish_first_is_chosen_every_time() -> None:
    policy = LeastPredictedFinish()
    offers = [Offer("a", 9 * MS), Offer("b", 4 * MS), Offer("c", 6 * MS)]
    assert [policy.pick(offers) for _ in range(3)] == [Offer("b", 4 * MS)] * 3


def test_a_slow_place_is_never_chosen_while_a_faster_one_is_there() -> None:
    policy = LeastPredictedFinish()
    cost = {"fast": 1 * MS, "slow": 50 * MS}
    busy_until = dict.fromkeys(cost, 0)
    chosen = []
    for arrival in range(0, 40 * MS, 2 * MS):
        offer = policy.pick([Offer(name, max(busy_until[name], arrival) + cost[name]) for name in cost])
        assert offer is not None
        busy_until[offer.place] = offer.finish_ns
        chosen.append(offer.place)
    assert chosen == ["fast"] * 20, f"the place that takes 50 ms was chosen {chosen.count('slow')} times of 20"


def test_of_equal_places_the_first_is_chosen_and_of_none_none() -> None:
    policy = LeastPredictedFinish()
    assert policy.pick([Offer("b", 5), Offer("a", 5)]) == Offer("b", 5)
    assert policy.pick([]) is None


# --- what goes next ----------------------------------------------------------------------------------------------------


def test_the_earliest_deadline_of_the_most_important_class_goes_first() -> None:
    s = scheduler(max_batch=1)
    for j in (job(1, 30), job(2, 20), job(3, 40, priority=0)):
        assert s.submit(j, 0)
    order = []
    while s.queued:
        (run,) = s.schedule(0).runs
        order.append(run.rows[0].job)
        s.ended(run.run, 0, 1 * MS)
    assert order == [3, 2, 1]


def test_a_launch_begins_the_moment_there_is_work_and_takes_all_that_pays() -> None:
    s = scheduler()
    s.submit(job(1, 50), 0)
    assert launched(s) == [[1]]
    for n in (2, 3, 4):
        s.submit(job(n, 50), 0)
    assert launched(s) == [], "one executor, one launch"
    s.ended(1, 0, 2 * MS)
    assert launched(s) == [[2, 3, 4]]


def test_a_batch_grows_only_as_far_as_its_earliest_deadline_allows() -> None:
    s = scheduler()
    for n in range(1, 9):
        s.submit(job(n, 2.6 if n == 1 else 50), 0)
    assert launched(s) == [[1, 2]]


def test_a_batch_leaves_the_time_that_a_launch_takes_to_begin() -> None:
    def rows(lead_ms: float) -> int:
        s = scheduler()
        if lead_ms:
            s.latency.observe_lead(int(lead_ms * MS))
        fits = s.latency.typical(job(1, 0).key, 4)
        for number in range(1, 7):
            assert s.submit(job(number, fits / MS + 0.001), 0)
        return len(launched(s)[0])

    assert rows(0.0) == 4
    assert rows(0.3) == 3


def test_the_lead_is_that_of_most_launches_and_not_of_the_slowest() -> None:
    s = scheduler()
    assert s.latency.lead_ns == 0
    for _ in range(19):
        s.latency.observe_lead(MS // 10)
    s.latency.observe_lead(8 * MS)
    assert s.latency.lead_ns == MS // 10
    for _ in range(20):
        s.latency.observe_lead(2 * MS)
    assert s.latency.lead_ns == 2 * MS


def test_a_batch_that_does_not_pay_is_not_formed() -> None:
    contract, plan = make_plan(edge_ms=(5.0, 2.0), batch_slope=1.5)
    s = scheduler_of({contract: plan}, "edge", Execution(), Batching(), Scheduling())
    for n in (1, 2):
        s.submit(Job(n, contract, SMALL, Row(n, 1, (), RAW), 50 * MS, 1, False, WorkKey(contract, SMALL)), 0)
    assert launched(s) == [[1]]


def test_rows_are_counted_not_messages() -> None:
    s = scheduler(max_batch=4)
    for n in (1, 2, 3):
        s.submit(job(n, 50, rows=2), 0)
    assert launched(s) == [[1, 2]]


def test_jobs_of_different_ranges_never_share_a_launch() -> None:
    s = scheduler(executors=2)
    s.submit(job(1, 50, part=WHOLE), 0)
    s.submit(job(2, 60, part=SMALL), 0)
    assert launched(s) == [[1], [2]]


def test_what_can_no_longer_be_on_time_is_given_up_and_never_launched() -> None:
    s = scheduler()
    s.submit(job(1, 1.5), 0)
    s.submit(job(2, 9), 0)
    decision = s.schedule(0)
    assert [j.id for j in decision.expired] == [1]
    assert [row.job for run in decision.runs for row in run.rows] == [2]


def test_the_next_wake_up_is_when_waiting_work_no_longer_fits() -> None:
    s = scheduler()
    s.submit(job(1, 50, part=WHOLE), 0)
    s.schedule(0)
    s.submit(job(2, 9), 0)
    assert s.next_wakeup(0) == 7 * MS + 1
    assert s.schedule(7 * MS).expired == ()
    assert [j.id for j in s.schedule(7 * MS + 1).expired] == [2]


def test_the_next_wake_up_is_for_a_job_behind_a_more_important_one_as_well() -> None:
    s = scheduler()
    s.submit(job(1, 50, part=WHOLE), 0)
    s.schedule(0)
    s.submit(job(2, 90, priority=1), 0)
    s.submit(job(3, 9, priority=2), 0)
    s.schedule(0)
    assert s.next_wakeup(0) == 7 * MS + 1


def test_a_run_may_begin_no_later_than_it_can_still_be_on_time() -> None:
    s = scheduler()
    s.submit(job(1, 9), 0)
    (run,) = s.schedule(0).runs
    assert run.latest_ns == 7 * MS


def test_only_what_is_shorter_than_waking_a_thread_is_run_in_place_and_never_on_a_slowed_device() -> None:
    def in_place(small_ms: float, **execution: float) -> bool:
        contract, plan = make_plan(edge_ms=(5.0, small_ms))
        s = scheduler_of({contract: plan}, "edge", Execution(**execution), Batching(), Scheduling())  # type: ignore[arg-type]
        s.submit(Job(1, contract, SMALL, Row(1, 1, (), RAW), 50 * MS, 1, False, WorkKey(contract, SMALL)), 0)
        return s.schedule(0).runs[0].in_place

    assert in_place(0.05)
    assert not in_place(0.3)
    assert not in_place(0.05, in_place_us=0.0)
    assert not in_place(0.05, slowdown=2.0)


# --- promises ----------------------------------------------------------------------------------------------------------


def test_a_promise_is_refused_where_it_would_break_another() -> None:
    s = scheduler()
    s.submit(job(1, 10, promised=True), 0)
    assert s.can_promise(0, Promise(2, 7 * MS, 10 * MS))
    assert not s.can_promise(0, Promise(2, 8 * MS, 10 * MS))


def test_the_running_job_counts_until_its_pessimistic_finish() -> None:
    s = scheduler()
    s.submit(job(1, 50, part=WHOLE), 0)
    s.schedule(0)
    assert s.can_promise(0, Promise(2, 2 * MS, 14 * MS))
    assert not s.can_promise(0, Promise(2, 2 * MS, 12 * MS))


def test_best_effort_work_is_not_launched_across_a_promise() -> None:
    s = scheduler()
    s.submit(job(1, 40, part=WHOLE, priority=0), 0)
    s.submit(job(2, 5, promised=True), 0)
    assert launched(s) == [[2]]
    s.ended(1, 0, 2 * MS)
    assert launched(s, 2) == [[1]]


def test_two_executors_keep_two_promises_at_once() -> None:
    one, two = scheduler(), scheduler(executors=2)
    for s in (one, two):
        s.submit(job(1, 3, promised=True), 0)
    assert not one.can_promise(0, Promise(2, 2 * MS, 3 * MS))
    assert two.can_promise(0, Promise(2, 2 * MS, 3 * MS))


# --- cancel, slots, books ----------------------------------------------------------------------------------------------


def test_a_cancelled_job_leaves_the_queue() -> None:
    s = scheduler()
    s.submit(job(1, 50), 0)
    assert s.cancel(1) is None
    assert launched(s) == []


def test_a_run_is_aborted_only_when_nobody_in_it_is_wanted() -> None:
    s = scheduler()
    s.submit(job(1, 50), 0)
    s.submit(job(2, 50), 0)
    (run,) = s.schedule(0).runs
    assert s.cancel(1) is None
    assert s.cancel(2) == run
    _, unwanted = s.failed(run.run, 1 * MS)
    assert unwanted == {1, 2}
    s.validate()


def test_a_full_queue_refuses() -> None:
    s = scheduler(max_queued=2)
    assert [s.submit(job(n, 50), 0) for n in (1, 2, 3)] == [True, True, False]


def test_each_launch_has_a_slot_of_its_own_until_it_ends() -> None:
    s = scheduler(executors=2, max_batch=1)
    s.submit(job(1, 50), 0)
    s.submit(job(2, 50), 0)
    first, second = s.schedule(0).runs
    assert first.slot != second.slot
    s.validate()
    s.ended(first.run, 0, 2 * MS)
    with pytest.raises(InvariantBroken, match="none such is out"):
        s.ended(first.run, 0, 2 * MS)


def test_the_predicted_wait_counts_what_runs_and_what_waits() -> None:
    s = scheduler()
    assert s.predicted_wait(0) == 0
    s.submit(job(1, 50), 0)
    s.schedule(0)
    s.submit(job(2, 50), 0)
    assert s.predicted_wait(1 * MS) == 1 * MS + 2 * MS


def test_a_device_that_becomes_slow_is_believed_after_a_few_runs() -> None:
    s = scheduler()
    key = WorkKey(CONTRACT, SMALL)
    before = s.latency.pessimistic(key)
    for _ in range(8):
        s.latency.observe(key, 1, 6 * MS)
    assert before <= 2.3 * MS
    assert s.latency.pessimistic(key) == 6 * MS


def test_a_device_whose_runs_are_all_aborted_late_is_found_out() -> None:
    s = scheduler()
    key = WorkKey(CONTRACT, SMALL)
    for n in range(1, 40):
        s.submit(job(n, 50), 0)
        (run,) = s.schedule(0).runs
        s.failed(run.run, 9 * MS)
    assert s.latency.typical(key) == 9.9 * MS


def test_a_run_that_is_aborted_early_teaches_nothing() -> None:
    s = scheduler()
    for n in range(1, 40):
        s.submit(job(n, 50), 0)
        (run,) = s.schedule(0).runs
        s.failed(run.run, 1 * MS)
    assert s.latency.typical(WorkKey(CONTRACT, SMALL)) == 2 * MS


def test_nobody_joins_the_launch_of_a_promise_at_its_expense() -> None:
    s = scheduler()
    s.submit(job(1, 2.6, promised=True, part=SMALL), 0)
    s.submit(job(2, 50), 0)
    assert launched(s) == [[1]]
    roomy = scheduler()
    roomy.submit(job(1, 2.8, promised=True, part=SMALL), 0)
    roomy.submit(job(2, 50), 0)
    assert launched(roomy) == [[1, 2]]


def test_a_batch_that_would_break_a_promise_is_launched_with_fewer_rows() -> None:
    s = scheduler()
    s.submit(job(1, 13, part=WHOLE, promised=True), 0)
    s.submit(job(2, 60, part=WHOLE, promised=True), 0)
    s.submit(job(3, 13.3, promised=True), 0)
    assert launched(s) == [[1]]


def test_a_promise_that_goes_ahead_takes_an_earlier_job_along_where_that_fits() -> None:
    s = scheduler(max_batch=3)
    s.submit(job(1, 40, rows=1), 0)
    s.submit(job(2, 41, rows=2), 0)
    s.submit(job(3, 43, rows=1, priority=2, promised=True), 0)
    s.submit(job(4, 5.6, part=WHOLE, rows=1), 0)
    assert launched(s) == [[1, 2]]
    tight = scheduler(max_batch=3)
    tight.submit(job(1, 40, rows=1), 0)
    tight.submit(job(2, 41, rows=2), 0)
    tight.submit(job(3, 2.9, rows=1, priority=2, promised=True), 0)
    assert launched(tight) == [[3, 1]]


# --- what is dropped for what waits behind it, and what waits for what is more important -------------------------------


def of_many(max_batch: int) -> Scheduler:
    """The scheduler of a process that many ask: every kind of work has a pool here."""
    like = scheduler(max_batch=max_batch)
    slots = [SlotClass(CONTRACT, part.program, part.first, 2, max_batch, 0) for part in (WHOLE, SMALL)]
    return Scheduler(1, like.latency, Arena(slots), {CONTRACT: max_batch}, 10_000, of_many=True)


def crowd(s: Scheduler, per_ms: int, until_ms: int, budget_ms: float) -> tuple[int, int, int]:
    """Requests at an even rate, launches that take what they typically do: how many were launched, dropped, and launches."""
    launches = served = dropped = number = 0
    ends: dict[int, int] = {}
    rows: dict[int, int] = {}
    for now in range(0, until_ms * MS, MS // 4):
        for which in [which for which, at in ends.items() if at <= now]:
            s.ended(which, 0, s.latency.typical(WorkKey(CONTRACT, SMALL), rows[which]))
            del ends[which]
        if now % MS == 0:
            for _ in range(per_ms):
                number += 1
                s.submit(job(number, now / MS + budget_ms), now)
        decision = s.schedule(now)
        dropped += len(decision.expired)
        for run in decision.runs:
            launches += 1
            served += len(run.rows)
            rows[run.run] = len(run.rows)
            ends[run.run] = now + s.latency.typical(WorkKey(CONTRACT, SMALL), len(run.rows))
    return served, dropped, launches


def test_under_overload_the_oldest_give_way_so_that_launches_stay_large() -> None:
    s = of_many(max_batch=8)
    served, dropped, launches = crowd(s, per_ms=4, until_ms=3_000, budget_ms=12)
    most = 8 / (s.latency.typical(WorkKey(CONTRACT, SMALL), 8) / MS)
    assert dropped > 0
    assert served / 3_000 > 0.85 * most, "as many a millisecond as launches of the largest size give, nearly"
    assert served / launches > 6


def test_while_the_executor_keeps_up_nothing_is_dropped() -> None:
    s = of_many(max_batch=8)
    _, dropped, _ = crowd(s, per_ms=1, until_ms=1_000, budget_ms=12)
    assert dropped == 0


def test_long_work_of_a_lesser_class_leaves_room_for_what_comes_of_a_more_important_one() -> None:
    s = of_many(max_batch=1)
    for now_ms in range(0, 500, 10):
        s.submit(job(now_ms + 1, now_ms + 6, priority=0), now_ms * MS)
        (run,) = s.schedule(now_ms * MS).runs
        s.ended(run.run, 0, 2 * MS)
    s.submit(job(1000, 3_000, part=WHOLE, priority=2), 500 * MS)
    assert s.schedule(500 * MS).runs == (), "5 ms on the only executor, and a frame with 6 ms may come at any time"
    wakes = s.next_wakeup(500 * MS)
    assert wakes is not None
    assert wakes < 560 * MS, "it is looked at again"
    later = 540 * MS
    while not s.schedule(later).runs:
        later = max(later + 1, s.next_wakeup(later) or 0)
        assert later < 1_700 * MS, "it begins once frames of that class have stopped coming"


def test_short_work_of_a_lesser_class_does_not_wait() -> None:
    s = of_many(max_batch=1)
    s.submit(job(1, 6, priority=0), 0)
    (run,) = s.schedule(0).runs
    s.ended(run.run, 0, 2 * MS)
    s.submit(job(2, 90, priority=2), 3 * MS)
    assert [row.job for run in s.schedule(3 * MS).runs for row in run.rows] == [2]


def test_in_a_class_the_batch_that_must_start_soonest_goes_first() -> None:
    s = scheduler(max_batch=8)
    s.submit(job(1, 20, part=WHOLE), 0)
    s.submit(job(2, 19, part=SMALL), 0)
    assert launched(s) == [[1]], "5 ms before 20 comes before 2 ms before 19"
