"""Work that is run in pieces, so that what is more important can go in between."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from plans import MID, Y, make_plan
from test_session import FRAMES, LINK, T0, hello, infer

from cloud.journal import NODE, build_session, node_setup
from hil.goodput.case import read_case
from hil.goodput.search import run
from hil.journals import journal
from shared.events import Abort, Action, Failed, Finished, Received, Row, RowResult, Run, Send, SendFailed, Tick, WakeAt
from shared.journal.recorder import Recorder
from shared.journal.replay import verify
from shared.latency import Latency, WorkKey
from shared.memory import Arena
from shared.plan import RAW, Plan, Profile, RangeTime, SegmentRange
from shared.queue import Job
from shared.scheduler import Scheduler
from shared.settings import CloudSettings, NodeBatching, NodeScheduling
from shared.slots import SlotClass
from shared.wire.messages import Bye, Cancel, Message, Refusal, Reply, Tensor

MS = 1_000_000
TIGHT, TIGHT_PLAN = make_plan(cloud_ms=0.5)
LONG, LONG_PLAN = make_plan(cloud_ms=5.0, ladder=False)
WHOLE, FIRST, REST = SegmentRange(0, 0, 2), SegmentRange(0, 0, 1), SegmentRange(0, 1, 2)


class Node:
    """A session with one executor, of which a tight class is known to be active."""

    def __init__(self, *, known: bool = True, long: Plan = LONG_PLAN, **scheduling: object) -> None:
        settings = CloudSettings(scheduling=NodeScheduling(**scheduling), batching=NodeBatching(max_batch_size=2))  # type: ignore[arg-type]
        setup = node_setup(settings, {TIGHT: TIGHT_PLAN, LONG: long}, "node", 7)
        self.session = build_session(setup)
        self.recorder = Recorder(self.session, NODE, setup, events=8)
        self.now = T0
        self.give(msgspec.structs.replace(hello(), contracts=(TIGHT, LONG)))
        if known:
            (first,) = self.runs(self.ask(1, TIGHT, priority=0, budget_ms=10))
            self.end(first, 1.0)

    def handle(self, event: object) -> list[Action]:
        actions = self.recorder.handle(event, self.now)  # type: ignore[arg-type]
        self.recorder.idle(1 << 40)
        self.session.validate()
        return [a for a in actions if not isinstance(a, WakeAt)]

    def give(self, message: Message, frames: tuple[bytes, ...] = ()) -> list[Action]:
        return self.handle(Received(LINK, message, frames))

    def ask(self, sequence: int, contract: str = LONG, priority: int = 2, budget_ms: int = 200) -> list[Action]:
        message = infer(sequence, contract=contract, priority=priority, budget_ns=budget_ms * MS, sent_ns=self.now)
        return self.give(message, FRAMES)

    def ask_at_the_cut(self, sequence: int, budget_ms: int = 200) -> list[Action]:
        frame = np.zeros(MID.shape, np.float32).tobytes()
        tensors = (Tensor("float32", MID.shape),)
        message = infer(
            sequence, contract=LONG, priority=2, budget_ns=budget_ms * MS, sent_ns=self.now, cut=1, tensors=tensors
        )
        return self.give(message, (frame,))

    def end(self, run: Run, took_ms: float) -> list[Action]:
        self.now += int(took_ms * MS)
        spec = Y if run.range.last == 2 else MID
        results = tuple(RowResult(r.job, (np.full(spec.at(r.rows), r.job, np.float32),)) for r in run.rows)
        return self.handle(Finished(run.run, results, self.now - int(took_ms * MS), self.now, MS // 10))

    @staticmethod
    def runs(actions: list[Action]) -> list[Run]:
        return [a for a in actions if isinstance(a, Run)]

    @staticmethod
    def said(actions: list[Action]) -> list[Message]:
        return [a.message for a in actions if isinstance(a, Send)]


def test_what_leaves_no_room_as_a_whole_is_run_in_pieces_and_answered_once() -> None:
    node = Node()
    began = node.now
    (piece,) = node.runs(node.ask(2))
    assert piece.range == FIRST
    assert piece.latest_ns == node.now + 190 * MS, "it could begin so late that all of it is in time"
    (rest,) = node.end(piece, 5.0)
    assert isinstance(rest, Run)
    assert rest.range == REST
    assert np.all(np.asarray(rest.rows[0].inputs[0]) == piece.rows[0].job), "it begins with what the piece gave"
    (reply,) = node.said(node.end(rest, 5.0))
    assert isinstance(reply, Reply)
    assert (reply.sequence, sum(reply.stages.values())) == (2, node.now - began)
    assert reply.stages["tail"] == 10 * MS - 2 * MS // 10
    assert node.session.counters["pieces"] == 1
    assert not node.session.busy()


def test_pieces_are_replayed_as_they_were_also_from_a_snapshot_between_them() -> None:
    node = Node()
    for sequence in range(2, 8):
        (piece,) = node.runs(node.ask(sequence))
        (rest,) = node.runs(node.end(piece, 5.0))
        node.end(rest, 5.0)
    recorded = journal(node.recorder)
    assert recorded.first > 0, "it begins with a snapshot"
    assert verify(recorded) is None


def test_what_is_more_important_goes_in_between() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2))
    node.now += 2 * MS
    assert not node.runs(node.ask(3, TIGHT, priority=0, budget_ms=10))
    (tight,) = node.runs(node.end(piece, 3.0))
    assert tight.contract == TIGHT
    (rest,) = node.runs(node.end(tight, 1.0))
    assert (rest.contract, rest.range) == (LONG, REST)


def test_the_rest_goes_along_with_what_entered_there() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2))
    node.ask_at_the_cut(3)
    (rest,) = node.runs(node.end(piece, 5.0))
    assert rest.range == REST
    assert len(rest.rows) == 2


@pytest.mark.parametrize("priority", [0, 1])
def test_where_nothing_more_important_comes_all_is_run_in_one(priority: int) -> None:
    node = Node(known=priority == 0)
    (whole,) = node.runs(node.ask(2, priority=priority))
    assert whole.range == WHOLE


def test_without_the_setting_it_waits_for_room() -> None:
    assert not Node(enable_preemption=False).ask(2)


def test_nothing_is_begun_of_which_a_segment_would_find_no_room() -> None:
    same, plan = make_plan(cloud_ms=9.0, ladder=False)
    assert same == LONG, "the same but for its times"
    assert not Node(long=plan).ask(2)


def test_a_request_that_is_cancelled_between_its_pieces_is_over() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2))
    node.ask(3, TIGHT, priority=0, budget_ms=10)
    (tight,) = node.runs(node.end(piece, 5.0))
    (refusal,) = node.said(node.give(Cancel(1, 2, 1)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "cancelled"
    assert not node.runs(node.end(tight, 1.0))
    assert not node.session.busy()


def test_a_request_that_is_cancelled_during_a_piece_is_not_gone_on_with() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2))
    assert [a for a in node.give(Cancel(1, 2, 1)) if isinstance(a, Abort)]
    assert not node.runs(node.end(piece, 5.0))
    assert not node.session.busy()


def test_a_peer_that_goes_between_pieces_leaves_nothing_behind() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2))
    node.ask(3, TIGHT, priority=0, budget_ms=10)
    (tight,) = node.runs(node.end(piece, 5.0))
    node.handle(SendFailed(LINK, Bye("")))
    node.end(tight, 1.0)
    assert not node.session.busy()
    assert node.session.scheduler.queued == 0


def test_a_piece_that_fails_ends_its_request() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2))
    (refusal,) = node.said(node.handle(Failed(piece.run, "error", "no memory")))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.detail) == ("failed", "no memory")
    assert not node.session.busy()


def test_the_place_of_what_is_left_is_kept_in_a_full_queue() -> None:
    node = Node(max_queued=1)
    (piece,) = node.runs(node.ask(2))
    (refusal,) = node.said(node.ask(3))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "overload"
    (rest,) = node.runs(node.end(piece, 5.0))
    assert rest.range == REST
    assert not node.said(node.ask(4)), "the place is free again"


def test_what_can_no_longer_be_in_time_after_a_piece_is_refused() -> None:
    node = Node()
    (piece,) = node.runs(node.ask(2, budget_ms=20))
    (refusal,) = node.said(node.end(piece, 17.0))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "expired"
    node.handle(Tick())
    assert not node.session.busy()


# Requests that entered at different cuts


def test_what_entered_at_different_cuts_shares_what_is_left() -> None:
    node = Node(known=False)
    (busy,) = node.runs(node.ask(1, TIGHT))
    node.ask(2)
    node.ask_at_the_cut(3)
    (piece,) = node.runs(node.end(busy, 1.0))
    assert piece.range == FIRST
    (rest,) = node.runs(node.end(piece, 5.0))
    assert rest.range == REST
    assert len(rest.rows) == 2
    assert len(node.said(node.end(rest, 6.0))) == 2


def test_what_could_not_be_in_time_together_is_run_apart() -> None:
    node = Node(known=False)
    (busy,) = node.runs(node.ask(1, TIGHT))
    node.ask(2)
    node.ask_at_the_cut(3, budget_ms=11)
    (alone,) = node.runs(node.end(busy, 1.0))
    assert alone.range == REST


def test_what_would_not_fit_into_one_launch_is_run_apart() -> None:
    node = Node(known=False)
    (busy,) = node.runs(node.ask(1, TIGHT))
    node.ask(2)
    node.ask_at_the_cut(3)
    node.ask_at_the_cut(4)
    (one,) = node.runs(node.end(busy, 1.0))
    assert one.range != FIRST


def test_where_batches_gain_nothing_all_is_run_apart() -> None:
    _, plan = make_plan(cloud_ms=5.0, ladder=False, batch_slope=1.0)
    node = Node(known=False, long=plan)
    (busy,) = node.runs(node.ask(1, TIGHT))
    node.ask(2)
    node.ask_at_the_cut(3)
    (one,) = node.runs(node.end(busy, 1.0))
    assert one.range != FIRST


def served(
    rate_per_s: float, *, sharing: bool, seed: int, count: int = 1500, each_us: int = 20, within_ms: int = 10
) -> float:
    """Share in time of requests that enter a plan of two segments at either cut, on one executor: a segment takes 2 ms and
    `each_us` for each row."""
    times = [RangeTime(0, i, i + 1, b, 2000 + each_us * b, 2000 + each_us * b) for i in (0, 1) for b in (1, 64)]
    profile = Profile("cloud", "", "", 1, 1.0, 0.0, tuple(times), ())
    latency = Latency.of_profiles([("m", profile)])
    arena = Arena(SlotClass("m", 0, first, 2, 64, 0) for first in (0, 1))
    scheduler = Scheduler(1, latency, arena, {"m": 64}, 10_000, of_many=True, in_pieces=sharing)
    rng = random.Random(seed)
    at, coming = 0.0, []
    for number in range(count):
        at += rng.expovariate(rate_per_s) * 1e9
        part = SegmentRange(0, rng.randrange(2), 2)
        coming.append(
            (
                int(at),
                Job(number, "m", part, Row(number, 1, (), RAW), int(at) + within_ms * MS, 1, False, WorkKey("m", part)),
            )
        )
    now = in_time = began = 0
    out: tuple[int, Run] | None = None
    while coming or out or scheduler.queued:
        wake = scheduler.next_wakeup(now) or 1 << 62
        now = max(now, min(coming[0][0] if coming else 1 << 62, out[0] if out else 1 << 62, wake))
        if out is not None and out[0] <= now:
            launch, _ = scheduler.ended(out[1].run, began, out[0])
            for job in launch.jobs:
                if launch.partial:
                    scheduler.go_on(job, launch, ())
                else:
                    in_time += now <= job.deadline_ns
            out = None
        while coming and coming[0][0] <= now:
            scheduler.submit(coming.pop(0)[1], now)
        scheduler.pass_time(now)
        decision = scheduler.schedule(now)
        for run_ in decision.runs:
            key = WorkKey("m", run_.range)
            began = now
            out = (now + latency.typical(key, len(run_.rows)), run_)
    return in_time / count


def test_sharing_serves_more() -> None:
    apart, together = (served(1500.0, sharing=sharing, seed=1) for sharing in (False, True))
    assert apart < 0.97
    assert together > 0.99


# What it is for


def test_a_tight_class_keeps_its_share_beside_long_work_that_gets_on() -> None:
    """One device, a class at 10 ms and work of 12 ms beside it: as a whole it starves, in four segments it does not."""
    which = read_case(Path(__file__).parents[1] / "configs" / "goodput" / "tight_and_long.toml")
    tight, long = which.models
    rate = 120.0
    alone = run(msgspec.structs.replace(which, models=(tight,)), "headtail", rate, 1500, 1)
    beside = run(which, "headtail", rate, 2000, 1)
    whole = (tight, msgspec.structs.replace(long, segments=1))
    starved = run(msgspec.structs.replace(which, models=whole), "headtail", rate, 2000, 1)
    assert alone.classes[0].share > 0.99
    assert beside.classes[0].share >= alone.classes[0].share - 0.001
    assert starved.classes[1].share < 0.01
    assert beside.classes[1].share > 0.5
