"""A scheduler whose batches are formed in one of the classical ways (`shared.forming`)."""

from __future__ import annotations

from collections.abc import Mapping

from shared.events import Run
from shared.forming import Forming
from shared.latency import Latency
from shared.memory import Arena
from shared.queue import Job
from shared.running import NEVER_NS, Launch
from shared.scheduler import Scheduler


class FormedScheduler(Scheduler):
    """The scheduler of a node whose launches wait, or are bounded, as `forming` says. Nothing is launched in pieces."""

    def __init__(
        self,
        forming: Forming,
        executors: int,
        latency: Latency,
        arena: Arena,
        max_rows: Mapping[str, int],
        max_queued: int,
        in_place_ns: int = 0,
    ) -> None:
        super().__init__(executors, latency, arena, max_rows, max_queued, in_place_ns, of_many=True)
        self._forming = forming
        self._came: dict[int, int] = {}
        """When each waiting job came, the first to come first; some that left are here for a while."""
        self._opens_ns = NEVER_NS
        """When the first of the launches that wait for more rows may begin."""

    def submit(self, job: Job, now: int) -> bool:
        """Queue a job, as ever."""
        taken = super().submit(job, now)
        if taken:
            self._came[job.id] = now
        while self._came and (first := next(iter(self._came))) not in self._queue:
            del self._came[first]
        return taken

    def ended(self, run: int, began_ns: int, ended_ns: int, now: int = 0) -> tuple[Launch, frozenset[int]]:
        """A run ended, of which the way of forming may learn as well."""
        launch, unwanted = super().ended(run, began_ns, ended_ns, now)
        self._forming.ended(launch.run.contract, launch.rows, ended_ns - began_ns)
        return launch, unwanted

    def next_wakeup(self, now: int) -> int | None:
        """As ever, and when a launch that waits for more rows may begin."""
        at = super().next_wakeup(now)
        if self._opens_ns == NEVER_NS or self._running.full or not self._queue:
            return at
        return self._opens_ns if at is None else min(at, self._opens_ns)

    def _next(self, executor: int, now: int, dropped: list[Job]) -> Run | None:
        self._opens_ns = NEVER_NS
        return super()._next(executor, now, dropped)

    def _launch(self, executor: int, head: Job, now: int) -> Run | None:
        lane = self._queue.lane((head.contract, head.range))
        oldest = min(self._came[job.id] for job in lane.jobs)
        most = self._max_rows[head.contract]
        takes = self.latency.pessimistic(head.key, min(lane.rows, most))
        latest = head.deadline_ns - self.latency.lead_ns - takes
        opens = self._forming.opens_ns(lane.rows, oldest, latest, most)
        if opens > now:
            self._opens_ns = min(self._opens_ns, opens)
            return None
        return super()._launch(executor, head, now)

    def _batch(self, head: Job, now: int) -> list[Job]:
        batch = super()._batch(head, now)
        most = self._forming.most(head.contract, self._max_rows[head.contract])
        rows = sum(job.rows for job in batch)
        while rows > most and len(batch) > 1:
            rows -= batch.pop().rows
        return batch
