"""Work that waits: earliest deadline first inside a class, the more important class first, bounded.

Jobs that can share a launch (same contract and range) form a group; each group is a sorted list, so that the next launch
of a group is a prefix of it, and a removal in the middle is a search and not a scan. A heap with marks for the dead was
tried on paper: it keeps dead entries until they surface, which is unbounded when requesters come and go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

import msgspec

from shared.events import Row
from shared.latency import WorkKey
from shared.plan import SegmentRange


class Job(msgspec.Struct, frozen=True, gc=False):
    """One request's part of a launch, waiting for an executor.

    `priority` 0 is the most important class. `promised` jobs are in the reserve: nothing is launched that would make them
    late. `key` is what its time is looked up by. `earliest_ns` is when it may begin: insurance that is put off, in the hope
    that it will not be needed.
    """

    id: int
    contract: str
    range: SegmentRange
    row: Row
    deadline_ns: int
    priority: int
    promised: bool
    key: WorkKey
    earliest_ns: int = 0

    @property
    def rows(self) -> int:
        """Rows that it adds to a launch."""
        return self.row.rows

    @property
    def group(self) -> Group:
        """What jobs must have in common to share a launch."""
        return (self.contract, self.range)

    @property
    def order(self) -> Order:
        """Where it stands: class, then deadline, then arrival."""
        return (self.priority, self.deadline_ns, self.id)


Group = tuple[str, SegmentRange]
Order = tuple[int, int, int]


class DeadlineQueue:
    """Bounded queue of jobs by group, each in the order class, deadline, arrival."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: dict[int, Job] = {}
        self._groups: dict[Group, list[Order]] = {}
        self._promised: dict[int, Job] = {}
        self._deferred: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: int) -> bool:
        return job in self._jobs

    def push(self, job: Job) -> bool:
        """Add a job; False where the queue is full."""
        if len(self._jobs) >= self._limit:
            return False
        self._jobs[job.id] = job
        if job.promised:
            self._promised[job.id] = job
        if job.earliest_ns:
            self._deferred[job.id] = job
        insort(self._groups.setdefault(job.group, []), job.order)
        return True

    def remove(self, job: int) -> Job | None:
        """Take a job out wherever it stands; None where it is not here."""
        found = self._jobs.pop(job, None)
        if found is not None:
            self._promised.pop(job, None)
            self._deferred.pop(job, None)
            orders = self._groups[found.group]
            del orders[bisect_left(orders, found.order)]
            if not orders:
                del self._groups[found.group]
        return found

    def get(self, job: int) -> Job | None:
        """The job of this number, while it waits."""
        return self._jobs.get(job)

    def heads(self, now: int) -> list[Job]:
        """The first job of each group that may begin now, in order."""
        if self._deferred:
            firsts = [order for orders in self._groups.values() if (order := self._ready(orders, now)) is not None]
        else:
            firsts = [orders[0] for orders in self._groups.values()]
        firsts.sort()
        return [self._jobs[order[2]] for order in firsts]

    def _ready(self, orders: list[Order], now: int) -> Order | None:
        return next((order for order in orders if self._jobs[order[2]].earliest_ns <= now), None)

    def group(self, group: Group, now: int) -> Iterator[Job]:
        """The jobs of a group that may begin now, in order. The queue must not change meanwhile."""
        jobs = (self._jobs[o[2]] for o in self._groups.get(group, ()))
        return (job for job in jobs if job.earliest_ns <= now) if self._deferred else jobs

    def hasten(self, job: int) -> None:
        """A job that was put off may begin at once. One that is not here, or was not put off, is left as it is."""
        deferred = self._deferred.pop(job, None)
        if deferred is not None:
            ready = msgspec.structs.replace(deferred, earliest_ns=0)
            self._jobs[job] = ready
            if job in self._promised:
                self._promised[job] = ready

    def deferred(self) -> list[Job]:
        """Every job that was put off and waits."""
        return list(self._deferred.values())

    @property
    def promises(self) -> int:
        """How many jobs are promised."""
        return len(self._promised)

    def promised(self) -> Iterator[Job]:
        """Every promised job, in no order. The queue must not change meanwhile."""
        return iter(self._promised.values())

    def all(self) -> Iterator[Job]:
        """Every job, in no order. The queue must not change meanwhile."""
        return iter(self._jobs.values())
