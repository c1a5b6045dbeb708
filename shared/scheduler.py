"""When what runs where: the composition of queue, batcher, reserve, memory and latency that both sides own.

The scheduler never acts. Its owner (`edge.broker`, `cloud.session`) submits jobs, reports how launches ended, and calls
`schedule(now)` after each event: the result says what to launch and which jobs are given up. `docs/scheduling.md` says why:

* the most important class first; in it the group whose batch must start soonest, batched as `shared.batcher` says, unless
  not all can be in time and others serve more (`shared.overload`), or that would break a promise of the reserve
  (`shared.reserve`) or leave no room for what is more important (`shared.room`);
* what makes launches too small for the executors to keep up gives way to what waits behind it (`shared.targets`).

An executor is left idle while there is work that can still be on time only where beginning any of it would make a promise
late, or a frame that is expected of a stream with a promise (`shared.streams`). Where not all that was promised can be kept
any more, since the device has slowed down, the least important promises are revoked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from operator import attrgetter

from shared.batcher import form
from shared.decision import NOTHING, Decision
from shared.errors import InvariantBroken
from shared.events import Run
from shared.latency import Latency
from shared.memory import Arena, PoolKey
from shared.offers import Offers
from shared.overload import goes_first
from shared.pieces import Piece, find_meeting, longest_piece, rest_of
from shared.queue import ROWS, DeadlineQueue, Job
from shared.request import Array, Buffer
from shared.reserve import Promise, first_broken, keep
from shared.room import keeps_room
from shared.running import NEVER_NS, Launch, Running
from shared.streams import Streams
from shared.targets import Targets

ROW = attrgetter("row")
DEADLINE = attrgetter("deadline_ns")
LEAST = 1 << 30
"""A class below all others."""


class Scheduler:
    """Queue, reserve and executors of one process. Pure: `now` is always an argument."""

    def __init__(
        self,
        executors: int,
        latency: Latency,
        arena: Arena,
        max_rows: Mapping[str, int],
        max_queued: int,
        in_place_ns: int = 0,
        max_streams: int = 0,
        *,
        of_many: bool = False,
        in_pieces: bool = False,
    ) -> None:
        """`max_rows` is the largest launch by contract. `max_queued` bounds the waiting jobs, `max_streams` the announced
        streams. A launch that typically takes up to `in_place_ns` is to be carried out by the loop itself. `of_many`: the
        work is that of many, who promise nothing, so that rates decide what is aimed at and what leaves room
        (`shared.targets`). `in_pieces`: where there is no room for the whole of it, a first part is launched."""
        self.latency = latency
        self.arena = arena
        self.streams = Streams(max_streams)
        self._max_rows = max_rows
        self._in_place_ns = in_place_ns
        self._queue = DeadlineQueue(max_queued)
        self.targets = Targets(executors, latency, max_rows)
        self._offers = Offers(self._queue, self.targets, latency, max_rows)
        self._of_many = of_many
        self._in_pieces = in_pieces and of_many
        self._running = Running(executors)
        self._runs = 0
        self._held = False
        """Whether something waits, at an idle executor, for less of what is more important to come."""
        self._version = latency.version
        self.expiry_ns = NEVER_NS
        """When the next waiting job can no longer be on time; too early where that job has left."""

    # --- what comes in ----------------------------------------------------------------------------------------------

    def pass_time(self, now: int) -> None:
        """To be called first of all at each event: what is known of execution times ages."""
        self.latency.age(now)

    def can_promise(self, now: int, work: Promise) -> bool:
        """Whether this work can be promised on top of all that is promised already, and of the frames that are expected of
        streams as important."""
        if not self._queue.promised and not self.streams:
            return self._running.soonest_free(now) + work.duration_ns <= work.deadline_ns
        return (
            first_broken(self._running.free_at(now), [*self._with_expected(self._promises(), work, now), work]) is None
        )

    def displaced(self, now: int, work: Promise) -> list[int] | None:
        """The promised jobs of lesser classes that would have to be revoked for this work to be promised; None where not
        even that would do."""
        promises = self._promises()
        lesser = [p for p in promises if p.priority > work.priority]
        certain = [p for p in promises if p.priority <= work.priority]
        kept = keep(self._running.free_at(now), [*self._with_expected(certain, work, now), work], lesser)
        if kept is None:
            return None
        jobs = {p.job for p in kept}
        return [p.job for p in lesser if p.job not in jobs]

    def submit(self, job: Job, now: int) -> bool:
        """Queue a job; False where the queue is full. Admission is the owner's, by `can_promise`."""
        if not self._queue.push(job, self._running.to_go_on):
            return False
        too_late = job.deadline_ns - self.latency.typical(job.key, job.row.rows) + 1
        self.expiry_ns = too_late if too_late < self.expiry_ns else self.expiry_ns
        if self._of_many:
            self.targets.came(job, now)
        return True

    def go_on(self, job: Job, launch: Launch, outputs: tuple[Array | Buffer, ...]) -> None:
        """A first part of a job's work has run and gave `outputs`: the rest waits. To be called before anything else is
        submitted: its place in the queue was kept only until the launch ended."""
        self.latency.learn()
        rest = rest_of(job, launch, outputs)
        if not self._queue.push(rest):
            raise InvariantBroken(f"there is no place for the rest of job {job.id}")
        self.expiry_ns = min(self.expiry_ns, self._too_late(rest))

    def waiting_ns(self, job: int) -> int:
        """How long a job that waits typically takes; 0 where it does not wait."""
        found = self._queue.get(job)
        return 0 if found is None else self.latency.typical(found.key, found.rows)

    def hasten(self, job: int) -> None:
        """A job that was put off may begin at once."""
        self._queue.hasten(job)

    def cancel(self, job: int) -> Run | None:
        """Nobody wants this job any more. It leaves the queue, or is marked where it runs; the run is returned where all
        its jobs are unwanted and aborting it would reclaim the executor."""
        return None if self._queue.remove(job) is not None else self._running.drop(job)

    def ended(self, run: int, began_ns: int, ended_ns: int, now: int = 0) -> tuple[Launch, frozenset[int]]:
        """A run ended by itself, which teaches the latency model: its slot and executor are free. `now` is when that is heard
        of, where that is later. Returns the launch and the jobs that nobody wanted any more. Where the work is that of many
        and nothing waits, the model learns later, so that those who asked need not wait for that."""
        launch, unwanted = self._release(run)
        latency, took_ns = self.latency, ended_ns - began_ns
        if not self._of_many:
            latency.observe(launch.key, launch.rows, took_ns)
            return launch, unwanted
        latency.ran(launch.key, launch.rows, took_ns, max(launch.typical_ns, ended_ns, now) - launch.typical_ns)
        if self._queue.jobs:
            latency.learn()
        return launch, unwanted

    def failed(self, run: int, now: int, *, late: bool = False) -> tuple[Launch, frozenset[int]]:
        """A run came to nothing: as `ended`, but all that it teaches is that it was not over yet, or, where it would have
        begun too `late`, that it had not begun."""
        launch, unwanted = self._release(run)
        self.latency.observe_aborted(launch.key, launch.rows, now - launch.began_ns)
        if late and self._of_many:
            self.latency.observe_lead(now - launch.began_ns)
        return launch, unwanted

    def _release(self, run: int) -> tuple[Launch, frozenset[int]]:
        launch, unwanted = self._running.end(run)
        if launch.lease is not None:
            self.arena.release(launch.lease)
        return launch, unwanted

    # --- what goes out ----------------------------------------------------------------------------------------------

    def schedule(self, now: int) -> Decision:
        """Launch what can be launched, and give up what can no longer be on time or no longer be promised."""
        running, queue = self._running, self._queue
        if self.latency.version != self._version:
            # What was found of waiting jobs rests on other times.
            self._version = self.latency.version
            self._offers.known += 1
            self.expiry_ns = 0 if queue.jobs else NEVER_NS
        if now < self.expiry_ns and not running.spare and not queue.promised and now < running.overdue_ns:
            return NOTHING
        overdue = running.overdue(now) if now >= running.overdue_ns else ()
        if not queue.jobs:
            return Decision(overdue=overdue) if overdue else NOTHING
        revoked = self._shed(now) if queue.promised else ()
        if overdue or revoked:
            return Decision(revoked=revoked, overdue=overdue)
        expired = self._give_up(now) if now >= self.expiry_ns else []
        runs: list[Run] = []
        self._held = False
        while running.spare and queue.jobs:
            run = self._next(running.idle(), now, expired)
            if run is None:
                break
            runs.append(run)
        return Decision(tuple(runs), tuple(expired)) if runs or expired else NOTHING

    def predicted_wait(self, now: int, priority: int = LEAST) -> int:
        """How long a new job of this class would typically wait for an executor, behind what runs and what waits and is as
        important, in nanoseconds."""
        running = self._running
        wait = 0 if running.spare else min(running.likely_free_at(now)) - now
        if self._queue.jobs:
            wait += self._queue.work_ns(self.latency, priority) // running.executors
        return wait

    def next_wakeup(self, now: int) -> int | None:
        """When `schedule` must be called at the latest although nothing happens, in nanoseconds: a waiting job can no longer
        be on time, one that was put off may begin, a frame is expected no longer, a run is overdue, less of what is more
        important may have come."""
        queue, spare, at = self._queue, self._running.spare, self._running.overdue_ns
        if queue.jobs:
            at = min(at, self.expiry_ns)
            if queue.deferred:
                at = min([at, *(j.earliest_ns for j in queue.deferred.values() if j.earliest_ns > now)])
            if spare and self._held:
                at = min(at, max(self.targets.due_ns, now + 1))
            if spare and self.streams:
                lapse = self.streams.next_lapse(self.latency, now)
                at = at if lapse is None else min(at, lapse)
        return at if at < NEVER_NS else None

    def _too_late(self, job: Job) -> int:
        """From when on a job can no longer be on time."""
        return job.deadline_ns - self.latency.typical(job.key, job.row.rows) + 1

    def broken_promise(self, now: int) -> Promise | None:
        """The first promise that cannot be kept as things stand; after `schedule` there is none."""
        free = self._running.free_at(now)
        broken = first_broken(free, self._promises())
        if broken is None:
            return None
        # On several executors a schedule may be found with more work, or with work put off, that is not found without.
        promises = self._promises(put_off=True)
        return None if first_broken(free, [*promises, *self._beside(promises, now)]) is None else broken

    def max_rows(self, contract: str) -> int:
        """The most rows of one launch of this contract."""
        return self._max_rows[contract]

    @property
    def executors(self) -> int:
        """How many executors there are."""
        return self._running.executors

    @property
    def promises(self) -> int:
        """Promised jobs in the queue."""
        return len(self._queue.promised)

    @property
    def queued(self) -> int:
        """Jobs in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Launches that are out."""
        return len(self._running)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _shed(self, now: int) -> tuple[Job, ...]:
        """Take out of the queue what was promised and cannot be kept, the least important first. Work that was put off is
        rather begun now."""
        if len(self._queue.promised) == 1 and not self.streams:
            (only,) = self._queue.promised.values()
            begins = max(only.earliest_ns, self._running.soonest_free(now))
            if begins + self.latency.pessimistic(only.key, only.row.rows) <= only.deadline_ns:
                return ()
        promises = self._promises(put_off=True)
        free = self._running.free_at(now)
        expected = self._beside(promises, now)
        if first_broken(free, [*promises, *expected]) is None:
            return ()
        for put_off in list(self._queue.deferred):
            self._queue.hasten(put_off)
        kept = {p.job for p in keep(free, (), [*self._promises(), *expected]) or ()}
        lost = [p.job for p in promises if p.job not in kept]
        return tuple(job for number in lost if (job := self._queue.remove(number)) is not None)

    def _give_up(self, now: int) -> list[Job]:
        """Take out of the queue what can no longer be in time."""
        late: list[Job] = []
        soonest = NEVER_NS
        for lane in self._queue.lanes():
            even, place = lane.even, 0
            while place < len(lane.jobs):
                job = lane.jobs[place]
                too_late = self._too_late(job)
                if now >= too_late:
                    self._queue.remove(job.id)
                    late.append(job)
                    continue
                soonest = min(soonest, too_late)
                if even:
                    break
                place += 1
        self.expiry_ns = soonest
        return late

    def _next(self, executor: int, now: int, dropped: list[Job]) -> Run | None:
        """The launch for an idle executor, if any. Adds to `dropped` what left the queue for it."""
        if self.targets.due_ns <= now:
            self._offers.known += self.targets.find(now)
        alone = self._queue.alone()
        heads = self._heads(now, dropped) if alone is None else [alone]
        for head in heads:
            run = self._launch(executor, head, now)
            if run is not None:
                return run
        if not heads or not self._queue.promised:
            return None
        # A group's first job may have to wait for a promise further back in the same group.
        behind = [job for job in self._queue.promised.values() if job not in heads and job.earliest_ns <= now]
        for job in sorted(behind, key=lambda job: (job.deadline_ns, job.id)):
            run = self._launch(executor, job, now)
            if run is not None:
                return run
        return None

    def _heads(self, now: int, dropped: list[Job]) -> list[Job]:
        """The first jobs of the groups that may begin now, in the order in which they are to be launched."""
        offers = self._offers.look(now, dropped)
        if len(offers) > 1 and self._of_many:
            first = goes_first(offers, self._running.likely_free_at(now))
            if first is not offers[0]:
                offers.remove(first)
                offers.insert(0, first)
        return [offer.head for offer in offers]

    def _batch(self, head: Job, now: int) -> list[Job]:
        queue, latency = self._queue, self.latency
        if len(queue.jobs) == 1:
            return [head]
        lane = queue.lane((head.contract, head.range))
        most = self._max_rows[head.contract]
        if lane.even and not queue.promised and not queue.deferred:
            # The common case of `form`: all alike, so that the batch is a prefix whose length can be looked up.
            budget = head.deadline_ns - now - latency.lead_ns
            rows, _ = latency.batch_within(head.key, budget, min(most, lane.rows))
            return lane.jobs[: min(rows, latency.paying(head.key))]
        others = (j for j in self._queue.ready(lane, now) if j.id != head.id)
        return form(chain((head,), others), self.latency, now + latency.lead_ns, most)

    def _launch(self, executor: int, head: Job, now: int) -> Run | None:
        piece = self._meeting(head, now) if self._in_pieces and head.range.last > 1 else None
        if piece is None or self._would_break(executor, piece.jobs, now + piece.longest_ns, now):
            batch, key = self._batch(head, now), head.key
            rows = sum(map(ROWS, batch))
            pessimistic = now + self.latency.pessimistic(key, rows)
        else:
            batch, key, rows, pessimistic = piece.jobs, piece.key, piece.rows, now + piece.longest_ns
            head = batch[0]
        while self._would_break(executor, batch, pessimistic, now):
            if len(batch) == 1:
                piece = self._piece(executor, head, now) if self._in_pieces else None
                if piece is None:
                    return None
                batch, key, rows, pessimistic = piece.jobs, piece.key, piece.rows, now + piece.longest_ns
                break
            rows -= batch.pop().rows
            pessimistic = now + self.latency.pessimistic(head.key, rows)
        lease, entered = None, head.range
        if not entered.empty:
            lease = self.arena.acquire(PoolKey(head.contract, entered.program, entered.first), rows)
            if lease is None:
                return None
        typical = self.latency.typical(key, rows)
        partial = key is not head.key
        whole = self.latency.typical(head.key, rows) if partial else typical
        self._runs += 1
        run = Run(
            run=self._runs,
            executor=executor,
            contract=head.contract,
            range=key.range,
            rows=tuple(map(ROW, batch)),
            slot=-1 if lease is None else lease.slot,
            latest_ns=min(map(DEADLINE, batch)) - whole,
            in_place=typical <= self._in_place_ns,
            generation=0 if lease is None else lease.generation,
        )
        self._queue.take(batch)
        self._running.begin(Launch(run, tuple(batch), rows, lease, now, now + typical, pessimistic, key, partial))
        return run

    def _meeting(self, head: Job, now: int) -> Piece | None:
        """A first part of the work of those who entered before others, up to where these wait. Only on the last idle
        executor: where there is another, nobody has to wait for anybody."""
        if self._running.spare > 1 or len(self._queue.jobs) == 1:
            return None
        most, begins = self._max_rows[head.contract], now + 2 * self.latency.lead_ns
        return find_meeting(head, self._queue, lambda first: self._batch(first, now), self.latency, begins, most)

    def _piece(self, executor: int, head: Job, now: int) -> Piece | None:
        """A first part of the head's work that leaves the room that the whole does not."""

        def fits(jobs: list[Job], takes_ns: int) -> bool:
            return self._keeps_room(executor, jobs, now + takes_ns, now)

        return longest_piece(head, self._batch(head, now), self.latency, fits) if head.priority else None

    def _would_break(self, executor: int, batch: list[Job], pessimistic: int, now: int) -> bool:
        """Whether launching `batch` makes a promise late, or an expected frame as important, that else would be kept; or
        leaves no room for what comes of more important classes."""
        lesser = self._of_many and batch[0].priority > self.targets.first
        if lesser and not self._keeps_room(executor, batch, pessimistic, now):
            return True
        promised = self._queue.promised
        if not self.streams and (not promised or len(promised) == sum(j.promised for j in batch)):
            return False
        taken = {j.id for j in batch}
        others = [p for p in self._promises() if p.job not in taken]
        before = self._running.free_at(now)
        after = list(before)
        after[executor] = pessimistic
        broken = first_broken(after, others) is not None
        if not self.streams:
            return broken
        until = max([pessimistic, *(p.deadline_ns for p in others)])
        expected = self._expected(batch[0].priority, until, now)
        if first_broken(after, [*others, *expected]) is None:
            return False
        # A frame that could not be kept anyhow holds nothing up.
        own = [self._promise(j) for j in batch if j.promised]
        return broken or first_broken(before, [*others, *own, *expected]) is None

    def _keeps_room(self, executor: int, batch: list[Job], pessimistic: int, now: int) -> bool:
        demands = self.targets.demands(min(j.priority for j in batch), now)
        if not demands:
            return True
        free = self._running.free_at(now)
        free[executor] = pessimistic + self.latency.lead_ns
        if keeps_room(demands, free, now):
            return True
        self._held = True
        return False

    def _promise(self, job: Job, release_ns: int = 0) -> Promise:
        duration = self.latency.pessimistic(job.key, job.row.rows)
        return Promise(job.id, duration, job.deadline_ns, release_ns, job.priority)

    def _promises(self, *, put_off: bool = False) -> list[Promise]:
        """What is promised and waits; work that was put off counts as ready, since it can be, unless `put_off`."""
        return [self._promise(j, j.earliest_ns if put_off else 0) for j in self._queue.promised.values()]

    def _with_expected(self, promises: list[Promise], work: Promise, now: int) -> list[Promise]:
        if not self.streams:
            return promises
        until = max([work.deadline_ns, *(p.deadline_ns for p in promises)])
        return [*promises, *self._expected(work.priority, until, now)]

    def _beside(self, promises: list[Promise], now: int) -> list[Promise]:
        """The frames that are expected while these promises wait and are as important as the least of them."""
        if not promises:
            return []
        return self._expected(max(p.priority for p in promises), max(p.deadline_ns for p in promises), now)

    def _expected(self, priority: int, until_ns: int, now: int) -> list[Promise]:
        if not self.streams:
            return []
        free = self._running.soonest_free(now)
        return self.streams.expected(self.latency, priority, until_ns, now, free if free < NEVER_NS else 0)

    def validate(self) -> None:
        """Raises `InvariantBroken` where executors, launches, leases and rows disagree."""
        self._running.validate()
        both = [job for job in self._running.jobs() if job in self._queue.jobs]
        if both:
            raise InvariantBroken(f"jobs {both} wait while they run")
        if self.arena.in_use() != self._running.leases():
            raise InvariantBroken(f"{self.arena.in_use()} slots are in use for {self._running.leases()} launches")
        self.arena.validate()
