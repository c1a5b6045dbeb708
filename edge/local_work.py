"""The device's jobs and whose they are: which request, and which of its attempts (0 is the rung)."""

from __future__ import annotations

from collections.abc import Iterator

from shared.events import Abort, Row
from shared.latency import WorkKey
from shared.plan import RAW, Coding
from shared.queue import Job
from shared.request import Request
from shared.scheduler import Scheduler

Owner = tuple[int, int]
"""Number of the open request and number of the attempt; 0 for the rung."""

NOBODY: Owner = (0, 0)


class LocalWork:
    """Jobs of the edge's scheduler with their owners."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owners: dict[int, Owner] = {}
        self._last = 0

    def queue(
        self,
        owner: Owner,
        request: Request,
        key: WorkKey,
        encode: Coding | None,
        deadline_ns: int,
        now: int,
        *,
        promised: bool,
        earliest_ns: int = 0,
    ) -> int:
        """Queue work on the request's inputs, to begin at `earliest_ns`; the job's number, or 0 where the queue is full."""
        self._last += 1
        row = Row(self._last, request.rows, request.inputs, RAW, encode)
        job = Job(row.job, key.contract, key.range, row, deadline_ns, request.priority, promised, key, earliest_ns)
        if not self._scheduler.submit(job, now):
            return 0
        self._owners[row.job] = owner
        return row.job

    def waits_ns(self, job: int) -> int:
        """How long a job that waits typically takes; 0 where it does not wait."""
        return self._scheduler.waiting_ns(job)

    def typical_ns(self, key: WorkKey, request: Request) -> int:
        """How long such work typically takes for a request."""
        return self._scheduler.latency.typical(key, request.rows)

    def owner(self, job: int) -> Owner:
        """Whose job this is; `NOBODY` where it is not wanted any more."""
        return self._owners.get(job, NOBODY)

    def settle(self, job: int) -> Owner:
        """The job is over: whose it was."""
        return self._owners.pop(job, NOBODY)

    def cancel(self, job: int) -> Abort | None:
        """The job is not wanted any more; the action that reclaims the executor, where it runs alone."""
        self._owners.pop(job, None)
        run = self._scheduler.cancel(job)
        return None if run is None else Abort(run.run, run.executor)

    def owners(self) -> Iterator[Owner]:
        """Every owner of a job that waits or runs."""
        return iter(self._owners.values())
