"""A scheduler whose batches are formed in one of the classical ways (`shared.forming`)."""

from __future__ import annotations

from collections.abc import Mapping

from shared.errors import InvariantBroken
from shared.events import Run
from shared.forming import Forming
from shared.latency import Latency
from shared.memory import Arena
from shared.queue import Job
from shared.running import NEVER_NS, Launch
from shared.scheduler import Scheduler

WAKE_NS = 1_000_000
"""So much sooner than its latest start a launch begins that waited for more rows, since a timer comes late."""


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
        """When each waiting job came, and some that left."""
        self._noted = 2 * max_queued
        """So many are kept at most."""
        self._opens_ns = NEVER_NS
        """When the first of the launches that wait for more rows may begin."""

    def submit(self, job: Job, now: int) -> bool:
        """Queue a job, as ever."""
        taken = super().submit(job, now)
        if taken:
            self._came[job.id] = now
        if len(self._came) > self._noted:
            self._came = {waits: came for waits, came in self._came.items() if waits in self._queue.jobs}
        return taken

    def ended(self, run: int, began_ns: int, ended_ns: int, now: int = 0) -> tuple[Launch, frozenset[int]]:
        """A run ended, of which the way of forming may learn as well."""
        launch, unwanted = super().ended(run, began_ns, ended_ns, now)
        self._forming.ended(launch.run.contract, launch.rows, ended_ns - began_ns)
        return launch, unwanted

    def next_wakeup(self, now: int) -> int | None:
        """As ever, and when a launch that waits for more rows may begin."""
        at = super().next_wakeup(now)
        if self._opens_ns == NEVER_NS or not self._running.spare or not self._queue.jobs:
            return at
        return self._opens_ns if at is None else min(at, self._opens_ns)

    def validate(self) -> None:
        """As ever, and raises `InvariantBroken` where it is not known when a waiting job came, or of too many that left."""
        super().validate()
        unknown = [job.id for lane in self._queue.lanes() for job in lane.jobs if job.id not in self._came]
        if unknown or len(self._came) > self._noted:
            raise InvariantBroken(f"of {len(self._queue)} waiting jobs {len(self._came)} came, {unknown} are not known")

    def _release(self, run: int) -> tuple[Launch, frozenset[int]]:
        self._opens_ns = NEVER_NS  # how late a launch is that waited behind a run says nothing of the timer
        return super()._release(run)

    def _give_up(self, now: int) -> list[Job]:
        """As ever, and learn from a timer that came too late: where every one does, nothing would run to learn from."""
        late = super()._give_up(now)
        if late and self._opens_ns < now:
            self.latency.observe_lead(now - self._opens_ns)
        return late

    def _next(self, executor: int, now: int, dropped: list[Job]) -> Run | None:
        self._opens_ns = NEVER_NS
        return super()._next(executor, now, dropped)

    def _launch(self, executor: int, head: Job, now: int) -> Run | None:
        lane = self._queue.lane((head.contract, head.range))
        oldest = min(self._came[job.id] for job in lane.jobs)
        most = self._max_rows[head.contract]
        takes = self.latency.pessimistic(head.key, min(lane.rows, most))
        # What is less important stands behind the head, and may have less time.
        latest = min(job.deadline_ns for job in lane.jobs) - self.latency.lead_ns - takes - WAKE_NS
        opens = self._forming.opens_ns(lane.rows, oldest, latest, most)
        if opens > now:
            self._opens_ns = min(self._opens_ns, opens)
            return None
        return super()._launch(executor, head, now)

    def _batch(self, head: Job, now: int) -> list[Job]:
        """The jobs from the head on, up to as many rows as the way of forming says, the last of which may go beyond, and as
        end by the earliest deadline among them. Whether a row more pays is not asked: that is headtail's own."""
        fits, wanted = self._max_rows[head.contract], self._forming.most(head.contract, self._max_rows[head.contract])
        begins = now + self.latency.lead_ns
        batch = [head]
        rows, due = head.rows, head.deadline_ns
        for job in self._queue.lane((head.contract, head.range)).jobs[1:]:
            due = min(due, job.deadline_ns)
            together = rows + job.rows
            if rows >= wanted or together > fits or begins + self.latency.typical(head.key, together) > due:
                break
            batch.append(job)
            rows = together
        return batch
