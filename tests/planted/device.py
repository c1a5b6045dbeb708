"""Faults of what both sides have: scheduler, batcher, reserve, queue, memory, running."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

import msgspec

import shared.scheduler
from planted.plant import Bug, bug
from shared.memory import Arena, Lease
from shared.queue import DeadlineQueue, Job
from shared.running import NEVER_NS, Running
from shared.scheduler import Scheduler


@bug("lease freed early", "A run's slot is free from its launch on", Scheduler, "_launch")
def lease_freed_early(right: Any, self: Any, *args: Any) -> Any:
    run = right(self, *args)
    if run is not None:
        lease = self._running._launches[run.run].lease
        if lease is not None:
            self.arena.release(lease)
    return run


@bug("lease never freed", "The slot of a run that came to nothing stays taken", Scheduler, "failed", "executor")
def lease_never_freed(right: Any, self: Any, run: int, now: int) -> Any:
    return self._running.end(run)


@bug("slot given twice", "A slot is handed out while it is held", Arena, "acquire")
def slot_given_twice(right: Any, self: Any, key: Any, rows: int) -> Any:
    pool = self._pools.get(key)
    if pool is None or not any(pool.held):
        return right(self, key, rows)
    slot = pool.held.index(True)
    return Lease(key, slot, pool.generations[slot])


@bug("launch across a promise", "A launch that makes a promise late is begun", Scheduler, "_would_break")
def launch_across_a_promise(right: Any, self: Any, *args: Any) -> bool:
    return False


@bug("everything promised", "A promise is given to whoever asks", Scheduler, "can_promise")
def everything_promised(right: Any, self: Any, *args: Any) -> bool:
    return True


@bug(
    "deadlines upside down",
    "The reserve schedules the latest deadline first",
    shared.scheduler,
    "first_broken",
    "clock",
)
def deadlines_upside_down(right: Any, free_at: Any, promises: Any) -> Any:
    free = list(free_at)
    for promise in sorted(promises, key=lambda p: -p.deadline_ns):
        soonest = min(range(len(free)), key=free.__getitem__)
        free[soonest] += promise.duration_ns
        if free[soonest] > promise.deadline_ns:
            return promise
    return None


@bug("queue without an end", "The queue takes more than it may hold", DeadlineQueue, "push")
def queue_without_an_end(right: Any, self: Any, job: Any, *reserved: int) -> bool:
    limit, self._limit = self._limit, 1 << 30
    try:
        return right(self, job, *reserved)
    finally:
        self._limit = limit


@bug("batch across contracts", "Jobs of two contracts share a launch", Job, "group")
def batch_across_contracts(right: Any, self: Any) -> Any:
    return ("any", self.range)


@bug("batch across cuts", "Jobs that enter at two cuts share a launch", Job, "group")
def batch_across_cuts(right: Any, self: Any) -> Any:
    return (self.contract, "any")


@bug("batch of one", "Jobs are left behind that would fit", shared.scheduler, "form")
def batch_of_one(right: Any, jobs: Any, latency: Any, now: int, max_rows: int) -> Any:
    *_, last = right(jobs, latency, now, max_rows)
    return [last]


@bug("two runs on one executor", "An executor is taken for idle while a run is out on it", Running, "begin")
def two_runs(right: Any, self: Any, launch: Any) -> None:
    self._launches[launch.run.run] = launch


@bug("expired work launched", "What can no longer be in time is not given up", Scheduler, "_give_up")
def expired_work_launched(right: Any, self: Any, now: int) -> Any:
    self.expiry_ns = NEVER_NS
    return []


@bug("window without an end", "A run may begin as late as its first row is due", Scheduler, "_launch")
def window_without_an_end(right: Any, self: Any, executor: int, head: Any, now: int) -> Any:
    run = right(self, executor, head, now)
    return run and msgspec.structs.replace(run, latest_ns=run.latest_ns + 50_000_000)


@bug("overdue run trusted", "A run that hangs is taken to end any moment", Running, "free_at", "executor")
def overdue_run_trusted(right: Any, self: Any, now: int) -> Any:
    return [now if at == NEVER_NS else at for at in right(self, now)]


DEVICE: tuple[Bug, ...] = tuple(value for value in globals().values() if isinstance(value, Bug))
