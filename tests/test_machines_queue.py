"""The queue against a plain list that is sorted anew for each question."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shared.events import Row
from shared.latency import Latency, WorkKey
from shared.plan import RAW, SegmentRange
from shared.queue import DeadlineQueue, Job

CONTRACTS = ("a", "b")
RANGES = (SegmentRange(0, 0, 2), SegmentRange(0, 1, 2), SegmentRange(1, 0, 1))

LATENCY = Latency()


class QueueMachine(RuleBasedStateMachine):
    """Jobs of a few groups, classes and deadlines come in and are taken out anywhere; some are put off, some hastened."""

    @initialize(limit=st.integers(1, 12))
    def start(self, limit: int) -> None:
        self.limit = limit
        self.queue = DeadlineQueue(limit)
        self.model: list[Job] = []
        self.last = 0
        self.now = 100

    @rule(
        contract=st.sampled_from(CONTRACTS),
        part=st.sampled_from(RANGES),
        rows=st.integers(1, 3),
        wait=st.integers(0, 30),
        priority=st.integers(0, 2),
        promised=st.booleans(),
        put_off=st.one_of(st.just(0), st.integers(-10, 30)),
        coding=st.sampled_from(["", "fp16"]),
    )
    def push(
        self,
        contract: str,
        part: SegmentRange,
        rows: int,
        wait: int,
        priority: int,
        promised: bool,
        put_off: int,
        coding: str,
    ) -> None:
        self.last += 1
        earliest = self.now + put_off if put_off else 0
        row = Row(self.last, rows, (), RAW)
        key = WorkKey(contract, part, coding)
        job = Job(self.last, contract, part, row, self.now + wait, priority, promised, key, earliest)
        taken = self.queue.push(job)
        assert taken == (len(self.model) < self.limit)
        if taken:
            self.model.append(job)

    @rule(which=st.integers(0, 20))
    def remove(self, which: int) -> None:
        found = self.model[which] if which < len(self.model) else None
        number = self.last + 1 if found is None else found.id
        assert self.queue.remove(number) == found
        assert self.queue.remove(number) is None
        self.model = [job for job in self.model if job.id != number]

    @rule(group=st.integers(0, 5), count=st.integers(1, 4), first=st.integers(0, 3), passed=st.integers(0, 1))
    def take(self, group: int, count: int, first: int, passed: int) -> None:
        lanes = self.queue.lanes()
        if group < len(lanes):
            own = list(lanes[group].jobs)
            head = own[min(first, len(own) - 1)]
            others = [job for job in own if job is not head][passed:]
            taken = [head, *others[: count - 1]]
            self.queue.take(taken)
            gone = {job.id for job in taken}
            self.model = [job for job in self.model if job.id not in gone]

    @rule(which=st.integers(0, 20))
    def hasten(self, which: int) -> None:
        number = self.model[which].id if which < len(self.model) else self.last + 1
        self.queue.hasten(number)
        self.model = [msgspec.structs.replace(j, earliest_ns=0) if j.id == number else j for j in self.model]

    @rule(ns=st.integers(0, 20))
    def time_passes(self, ns: int) -> None:
        self.now += ns

    def ready(self) -> list[Job]:
        return sorted((j for j in self.model if j.earliest_ns <= self.now), key=lambda j: j.order)

    @invariant()
    def it_holds_what_the_list_holds(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue, by_id = self.queue, {job.id: job for job in self.model}
        assert len(queue) == len(self.model)
        assert {job.id: job for lane in queue.lanes() for job in lane.jobs} == by_id
        assert queue.promised == {i: j for i, j in by_id.items() if j.promised}
        assert queue.deferred == {i: j for i, j in by_id.items() if j.earliest_ns}
        assert all((number in queue) == (number in by_id) for number in range(self.last + 2))
        assert all(queue.get(number) == by_id.get(number) for number in range(self.last + 2))

    @invariant()
    def it_is_in_the_lists_order(self) -> None:
        if not hasattr(self, "queue"):
            return
        ready = self.ready()
        lanes = {lane.group: lane for lane in self.queue.lanes()}
        assert set(lanes) == {job.group for job in self.model}
        for group, lane in lanes.items():
            own = sorted((job for job in self.model if job.group == group), key=lambda job: job.order)
            assert self.queue.lane(group) is lane
            assert lane.jobs == own
            assert lane.orders == [job.order for job in own]
            assert not lane.alike or len({job.key for job in own}) == 1
            assert lane.rows == sum(job.rows for job in own)
            assert lane.even == (len({job.priority for job in own}) == 1 and all(job.rows == 1 for job in own))
            able = [job for job in ready if job.group == group]
            assert list(self.queue.ready(lane, self.now)) == able
            assert self.queue.head(lane, self.now) == (able[0] if able else None)
        for priority in range(3):
            ahead = [job for job in self.model if job.priority <= priority]
            alone = sum(LATENCY.typical(job.key, job.rows) for job in ahead)
            assert self.queue.work_ns(LATENCY, priority) == alone
        only = self.model[0] if len(self.model) == 1 else None
        assert self.queue.alone() == (only if only and only.rows == 1 and not only.earliest_ns else None)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=80, stateful_step_count=40)
