"""When what runs where: the composition of queue, batcher, reserve, memory and latency that both sides own.

The scheduler never acts. Its owner (`edge.broker`, `cloud.session`) submits jobs, reports how launches ended, and calls
`schedule(now)` after each event: the result says what to launch and which jobs are given up. The two policies:

* `LeastPredictedFinish.pick` picks where a request goes. `edge.balance` asks it with one offer for each node that would give
  an equally good answer surely on time; it is what the setting `balance` names.
* `Scheduler.schedule` picks what goes next on a process's executors: the most important class first, earliest deadline first
  inside it, batched as `shared.batcher` says, unless that would break a promise of the reserve.

It never waits while an executor is idle and there is work that can still be on time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shared.batcher import form
from shared.errors import InvariantBroken
from shared.events import Run
from shared.latency import US, Latency
from shared.memory import Arena, Lease, PoolKey
from shared.plan import Plan
from shared.queue import DeadlineQueue, Job
from shared.reserve import Promise, first_broken
from shared.settings import Batching, Execution, Scheduling
from shared.slots import Side, rows_bound, slot_plan


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A place, by its name, that could take a piece of work, and when it is predicted to have it done (nanoseconds)."""

    place: str
    finish_ns: int


class LeastPredictedFinish:
    """The policy for choosing among places (nodes): the one that is predicted to finish first.

    Where published schedulers were simulated side by side (after Clockwork, Nexus, Shepherd and Symphony), a queue for each
    device with round robin did worst of all: one slow place then delays every n-th request. An edge has one policy for all
    its requests, so that one with a memory could keep it here.
    """

    def pick(self, offers: Sequence[Offer]) -> Offer | None:
        """The offer to take, of equal ones the first; None where there is none."""
        return min(offers, key=lambda offer: offer.finish_ns, default=None)


class Launch(msgspec.Struct, frozen=True, gc=False):
    """A run that is out on an executor: its jobs, its slot, when it began and is to end."""

    run: Run
    jobs: tuple[Job, ...]
    lease: Lease | None
    began_ns: int
    typical_ns: int
    pessimistic_ns: int

    @property
    def rows(self) -> int:
        """Rows of all its jobs."""
        return sum(job.rows for job in self.jobs)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What `schedule` found: runs to launch now, and jobs that can no longer be on time (they have left the queue)."""

    runs: tuple[Run, ...]
    expired: tuple[Job, ...]


NOTHING = Decision((), ())


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
    ) -> None:
        """`max_rows` is the largest launch by contract. `max_queued` bounds the waiting jobs. A launch that typically
        takes up to `in_place_ns` is to be carried out by the loop itself."""
        self.latency = latency
        self._arena = arena
        self._max_rows = max_rows
        self._in_place_ns = in_place_ns
        self._queue = DeadlineQueue(max_queued)
        self._launches: dict[int, Launch] = {}
        self._busy: list[int | None] = [None] * executors
        self._dead: set[int] = set()
        self._runs = 0

    # --- what comes in ----------------------------------------------------------------------------------------------

    def can_promise(self, now: int, work: Iterable[Promise]) -> bool:
        """Whether this work can be promised on top of all that is promised already."""
        return first_broken(self._free_at(now), [*self._promises(), *work]) is None

    def submit(self, job: Job) -> bool:
        """Queue a job; False where the queue is full. Admission is the owner's, by `can_promise`."""
        return self._queue.push(job)

    def cancel(self, job: int) -> Run | None:
        """Nobody wants this job any more. It leaves the queue, or is marked where it runs; the run is returned where all
        its jobs are unwanted and aborting it would reclaim the executor."""
        if self._queue.remove(job) is not None:
            return None
        for launch in self._launches.values():
            if any(j.id == job for j in launch.jobs):
                self._dead.add(job)
                return launch.run if all(j.id in self._dead for j in launch.jobs) else None
        return None

    def ended(self, run: int, elapsed_ns: int) -> tuple[Launch, frozenset[int]]:
        """A run ended by itself after `elapsed_ns`, which teaches the latency model: its slot and executor are free. Returns
        the launch and the jobs that nobody wanted any more."""
        launch = self._release(run)
        self.latency.observe(launch.jobs[0].key, launch.rows, elapsed_ns)
        return launch, self._unwanted(launch)

    def failed(self, run: int, now: int) -> tuple[Launch, frozenset[int]]:
        """A run came to nothing: as `ended`, but all that it teaches is that it was not over yet."""
        launch = self._release(run)
        self.latency.observe_aborted(launch.jobs[0].key, launch.rows, now - launch.began_ns)
        return launch, self._unwanted(launch)

    def _release(self, run: int) -> Launch:
        launch = self._launches.pop(run, None)
        if launch is None:
            raise InvariantBroken(f"run {run} ended, but none such is out")
        if launch.lease is not None:
            self._arena.release(launch.lease)
        self._busy[launch.run.executor] = None
        return launch

    def _unwanted(self, launch: Launch) -> frozenset[int]:
        unwanted = frozenset(j.id for j in launch.jobs if j.id in self._dead)
        self._dead -= unwanted
        return unwanted

    # --- what goes out ----------------------------------------------------------------------------------------------

    def schedule(self, now: int) -> Decision:
        """Launch what can be launched and give up what can no longer be on time."""
        if not self._queue:
            return NOTHING
        expired = self._give_up(now)
        runs: list[Run] = []
        for executor, busy in enumerate(self._busy):
            if busy is None and self._queue:
                run = self._next(executor, now)
                if run is None:
                    break
                runs.append(run)
        return Decision(tuple(runs), tuple(expired))

    def predicted_wait(self, now: int) -> int:
        """How long a new job of the least class would typically wait for an executor, in nanoseconds."""
        free = [now if run is None else max(now, self._launches[run].typical_ns) for run in self._busy]
        wait = min(free) - now
        if self._queue:
            wait += sum(self.latency.typical(job.key, job.rows) for job in self._queue.all()) // len(free)
        return wait

    def next_expiry(self) -> int | None:
        """When the next waiting job can no longer be on time, in nanoseconds: `schedule` must be called by then."""
        if not self._queue:
            return None
        return min((j.deadline_ns - self.latency.typical(j.key, j.rows) + 1 for j in self._queue.heads()), default=None)

    def max_rows(self, contract: str) -> int:
        """The most rows of one launch of this contract."""
        return self._max_rows[contract]

    @property
    def queued(self) -> int:
        """Jobs in the queue."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Launches that are out."""
        return len(self._launches)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _give_up(self, now: int) -> list[Job]:
        late = [j for j in self._queue.all() if now + self.latency.typical(j.key, j.rows) > j.deadline_ns]
        for job in late:
            self._queue.remove(job.id)
        return late

    def _next(self, executor: int, now: int) -> Run | None:
        for head in self._queue.heads():
            run = self._launch(executor, head, now)
            if run is not None:
                return run
        return None

    def _launch(self, executor: int, head: Job, now: int) -> Run | None:
        batch = form(self._queue.group(head.group), self.latency, now, self._max_rows[head.contract])
        rows = sum(j.rows for j in batch)
        pessimistic = now + self.latency.pessimistic(head.key, rows)
        if self._would_break(executor, batch, pessimistic, now):
            return None
        lease = None
        if not head.range.empty:
            lease = self._arena.acquire(PoolKey(head.contract, head.range.program, head.range.first))
            if lease is None:
                return None
        typical = self.latency.typical(head.key, rows)
        self._runs += 1
        run = Run(
            run=self._runs,
            executor=executor,
            contract=head.contract,
            range=head.range,
            rows=tuple(j.row for j in batch),
            slot=-1 if lease is None else lease.slot,
            latest_ns=min(j.deadline_ns for j in batch) - typical,
            in_place=typical <= self._in_place_ns,
        )
        for job in batch:
            self._queue.remove(job.id)
        self._launches[run.run] = Launch(run, tuple(batch), lease, now, now + typical, pessimistic)
        self._busy[executor] = run.run
        return run

    def _would_break(self, executor: int, batch: list[Job], pessimistic: int, now: int) -> bool:
        """Whether launching `batch` makes a promise late that would be kept without it."""
        taken = {j.id for j in batch}
        others = [p for p in self._promises() if p.job not in taken]
        if not others:
            return False
        free = self._free_at(now)
        if first_broken(free, [*others, *(self._promise(j) for j in batch if j.promised)]) is not None:
            return False
        free[executor] = pessimistic
        return first_broken(free, others) is not None

    def _promise(self, job: Job) -> Promise:
        return Promise(job.id, self.latency.pessimistic(job.key, job.rows), job.deadline_ns)

    def _promises(self) -> list[Promise]:
        return [self._promise(j) for j in self._queue.promised()]

    def _free_at(self, now: int) -> list[int]:
        return [now if run is None else max(now, self._launches[run].pessimistic_ns) for run in self._busy]

    def validate(self) -> None:
        """Raises `InvariantBroken` where executors, launches, leases and rows disagree."""
        out = {run for run in self._busy if run is not None}
        if out != set(self._launches):
            raise InvariantBroken(f"executors run {sorted(out)}, launches are {sorted(self._launches)}")
        jobs = [j.id for launch in self._launches.values() for j in launch.jobs]
        if len(set(jobs)) != len(jobs) or any(j in self._queue for j in jobs):
            raise InvariantBroken(f"a job is in two launches, or waits while it runs: {sorted(jobs)}")
        if not self._dead <= set(jobs):
            raise InvariantBroken(f"jobs {sorted(self._dead - set(jobs))} are unwanted but not out")
        leases = sum(launch.lease is not None for launch in self._launches.values())
        if self._arena.in_use() != leases:
            raise InvariantBroken(f"{self._arena.in_use()} slots are in use for {leases} launches")
        self._arena.validate()


def scheduler_of(
    plans: Mapping[str, Plan], side: Side, execution: Execution, batching: Batching, scheduling: Scheduling
) -> Scheduler:
    """The scheduler of a process that serves these plans (by contract digest) with these settings."""
    pools: dict[PoolKey, int] = {}
    for contract, plan in plans.items():
        for c in slot_plan(contract, plan, batching.max_batch_size, execution.executors, side):
            pools[PoolKey(c.contract, c.program, c.first)] = c.slots
    return Scheduler(
        executors=execution.executors,
        latency=Latency.of(plans.items(), side, execution.slowdown),
        arena=Arena(pools),
        max_rows={contract: rows_bound(plan, batching.max_batch_size) for contract, plan in plans.items()},
        max_queued=scheduling.max_queued,
        in_place_ns=int(execution.in_place_us * US) if execution.slowdown == 1.0 else 0,
    )
