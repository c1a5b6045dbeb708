"""Work that waits: earliest deadline first inside a class, the more important class first, bounded.

Jobs that can share a launch (same contract and range) form a group; the jobs of a group stand in a *lane*, a sorted list, so
that the next launch is a prefix of it, and a removal in the middle is a search and not a scan. A heap with marks for the dead
was tried on paper: it keeps dead entries until they surface, which is unbounded when requesters come and go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

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


class Seen(msgspec.Struct, frozen=True, gc=False):
    """What the scheduler found when it last looked at a lane: its head's class, the latest start of the head's batch, the
    head's number and the head; and until when that holds, as long as neither the lane nor what is `known` changes."""

    place: tuple[int, int, int, Job]
    known: int
    until_ns: int


class Lane:
    """The jobs of one group, in order. `rows` of all of them. `seen` is the scheduler's, and None after each change."""

    __slots__ = ("group", "orders", "rows", "seen")

    def __init__(self, group: Group, first: Job) -> None:
        self.group = group
        self.orders = [first.order]
        self.rows = first.rows
        self.seen: Seen | None = None

    @property
    def even(self) -> bool:
        """Whether all are of one row and one class: then the first of them is the first to be too late."""
        orders = self.orders
        return self.rows == len(orders) and orders[0][0] == orders[-1][0]


class DeadlineQueue:
    """Bounded queue of jobs by group, each in the order class, deadline, arrival."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: dict[int, Job] = {}
        self._lanes: dict[Group, Lane] = {}
        self._promised: dict[int, Job] = {}
        self._deferred: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: int) -> bool:
        return job in self._jobs

    def push(self, job: Job, reserved: int = 0) -> bool:
        """Add a job; False where the queue is full, but for `reserved` places."""
        if len(self._jobs) + reserved >= self._limit:
            return False
        self._jobs[job.id] = job
        if job.promised:
            self._promised[job.id] = job
        if job.earliest_ns:
            self._deferred[job.id] = job
        group = (job.contract, job.range)
        lane = self._lanes.get(group)
        if lane is None:
            self._lanes[group] = Lane(group, job)
            return True
        lane.rows += job.row.rows
        lane.seen = None
        order = (job.priority, job.deadline_ns, job.id)
        if lane.orders[-1] < order:
            lane.orders.append(order)
        else:
            insort(lane.orders, order)
        return True

    def remove(self, job: int) -> Job | None:
        """Take a job out wherever it stands; None where it is not here."""
        found = self._jobs.get(job)
        if found is not None:
            self.take((found,))
        return found

    def take(self, jobs: Sequence[Job]) -> None:
        """Take these jobs out, all of one group, which must be here; in order, but for the first."""
        lane = self._lanes[jobs[0].contract, jobs[0].range]
        lane.seen = None
        orders = lane.orders
        count = len(jobs)
        prefix = orders[0][2] == jobs[0].id and orders[count - 1][2] == jobs[-1].id
        if prefix:
            del orders[:count]
        for job in jobs:
            del self._jobs[job.id]
            lane.rows -= job.row.rows
            if job.promised:
                self._promised.pop(job.id, None)
            if self._deferred:
                self._deferred.pop(job.id, None)
            if not prefix:
                del orders[bisect_left(orders, job.order)]
        if not orders:
            del self._lanes[lane.group]

    def get(self, job: int) -> Job | None:
        """The job of this number, while it waits."""
        return self._jobs.get(job)

    def lanes(self) -> list[Lane]:
        """The lanes in which jobs wait, in no order."""
        return list(self._lanes.values())

    def head(self, lane: Lane, now: int) -> Job | None:
        """The first job of a lane that may begin now; None where there is none."""
        if not lane.orders:
            return None
        return next(self.ready(lane, now), None) if self._deferred else self._jobs[lane.orders[0][2]]

    def at(self, lane: Lane, place: int) -> Job:
        """The job at a place of a lane, put off or not; 0 is the first."""
        return self._jobs[lane.orders[place][2]]

    def ready(self, lane: Lane, now: int) -> Iterator[Job]:
        """The jobs of a lane that may begin now, in order. The queue must not change meanwhile."""
        jobs = (self._jobs[order[2]] for order in lane.orders)
        return (job for job in jobs if job.earliest_ns <= now) if self._deferred else jobs

    def prefix(self, lane: Lane, count: int) -> list[Job]:
        """The first jobs of a lane, put off or not."""
        jobs = self._jobs
        return [jobs[order[2]] for order in lane.orders[:count]]

    def lane(self, group: Group) -> Lane:
        """The lane of a group in which jobs wait."""
        return self._lanes[group]

    def hasten(self, job: int) -> None:
        """A job that was put off may begin at once. One that is not here, or was not put off, is left as it is."""
        deferred = self._deferred.pop(job, None)
        if deferred is not None:
            ready = msgspec.structs.replace(deferred, earliest_ns=0)
            self._lanes[ready.group].seen = None
            self._jobs[job] = ready
            if job in self._promised:
                self._promised[job] = ready

    def deferred(self) -> list[Job]:
        """Every job that was put off and waits."""
        return list(self._deferred.values())

    @property
    def waits_for_time(self) -> bool:
        """Whether there are jobs that were put off."""
        return bool(self._deferred)

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
