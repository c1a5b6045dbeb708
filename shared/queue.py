"""Work that waits: earliest deadline first inside a class, the more important class first, bounded.

Jobs that can share a launch (same contract and range) form a group; the jobs of a group stand in a *lane*, a sorted list, so
that the next launch is a prefix of it, and a removal in the middle is a search and not a scan. A heap with marks for the dead
was tried on paper: it keeps dead entries until they surface, which is unbounded when requesters come and go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from shared.events import Row
from shared.latency import Latency, WorkKey
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


class Offer(msgspec.Struct, frozen=True, gc=False):
    """What a lane offers to a free executor: its first job that may begin, as many `rows` as fit by that job's deadline, how
    long they take, and so when their launch must start at the latest. `place` is its place among offers: class, latest
    start, number. It holds until `until_ns`, as long as neither the lane nor what is `known` changes. `whole`: all rows of
    the lane are in it, or would be, so that one more may change it."""

    place: Order
    head: Job
    rows: int
    takes_ns: int
    latest_ns: int
    known: int
    until_ns: int
    whole: bool


class Lane:
    """The jobs of one group, in order, beside what they are ordered by. `rows` of all of them. `offer` is the scheduler's,
    and None after each change that matters to it. `alike`: all are timed by the same."""

    __slots__ = ("alike", "group", "jobs", "offer", "orders", "rows")

    def __init__(self, group: Group, first: Job) -> None:
        self.group = group
        self.orders = [first.order]
        self.jobs = [first]
        self.rows = first.row.rows
        self.offer: Offer | None = None
        self.alike = True

    @property
    def even(self) -> bool:
        """Whether all are of one row and one class: then the first of them is the first to be too late."""
        orders = self.orders
        return self.rows == len(orders) and orders[0][0] == orders[-1][0]

    def add(self, job: Job) -> None:
        """Put a job where it belongs."""
        orders, offer = self.orders, self.offer
        order = (job.priority, job.deadline_ns, job.id)
        self.rows += job.row.rows
        if self.alike and job.key != self.jobs[0].key:
            self.alike = False
        if orders[-1] < order:
            orders.append(order)
            self.jobs.append(job)
            if offer is not None and offer.whole:
                self.offer = None
            return
        place = bisect_left(orders, order)
        orders.insert(place, order)
        self.jobs.insert(place, job)
        self.offer = None

    def work_ns(self, latency: Latency, priority: int) -> int:
        """How long its jobs typically take one after the other, of those that are at least as important as this class."""
        first = self.jobs[0]
        if self.alike and self.even:
            return latency.typical(first.key) * len(self.jobs) if first.priority <= priority else 0
        return sum([latency.typical(job.key, job.rows) for job in self.jobs if job.priority <= priority])

    def place(self, job: Job) -> int:
        """Where a job stands, which must be here."""
        return bisect_left(self.orders, job.order)


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
        else:
            lane.add(job)
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
        lane.offer = None
        count = len(jobs)
        if lane.jobs[0] is jobs[0] and lane.jobs[count - 1] is jobs[-1]:
            del lane.orders[:count], lane.jobs[:count]
        else:
            for job in jobs:
                place = lane.place(job)
                del lane.orders[place], lane.jobs[place]
        for job in jobs:
            del self._jobs[job.id]
            lane.rows -= job.row.rows
        if self._promised:
            for job in jobs:
                self._promised.pop(job.id, None)
        if self._deferred:
            for job in jobs:
                self._deferred.pop(job.id, None)
        if not lane.jobs:
            del self._lanes[lane.group]

    def get(self, job: int) -> Job | None:
        """The job of this number, while it waits."""
        return self._jobs.get(job)

    def lanes(self) -> list[Lane]:
        """The lanes in which jobs wait, in no order."""
        return list(self._lanes.values())

    def head(self, lane: Lane, now: int) -> Job | None:
        """The first job of a lane that may begin now; None where there is none."""
        if self._deferred:
            return next(self.ready(lane, now), None)
        return lane.jobs[0] if lane.jobs else None

    def ready(self, lane: Lane, now: int) -> Iterator[Job]:
        """The jobs of a lane that may begin now, in order. The queue must not change meanwhile."""
        return (job for job in lane.jobs if job.earliest_ns <= now) if self._deferred else iter(lane.jobs)

    def lane(self, group: Group) -> Lane:
        """The lane of a group in which jobs wait."""
        return self._lanes[group]

    def hasten(self, job: int) -> None:
        """A job that was put off may begin at once. One that is not here, or was not put off, is left as it is."""
        deferred = self._deferred.pop(job, None)
        if deferred is not None:
            ready = msgspec.structs.replace(deferred, earliest_ns=0)
            lane = self._lanes[ready.group]
            lane.offer = None
            lane.jobs[lane.place(ready)] = ready
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

    def work_ns(self, latency: Latency, priority: int) -> int:
        """How long all jobs typically take one after the other, of those that are at least as important as this class."""
        return sum([lane.work_ns(latency, priority) for lane in self._lanes.values()])
