"""Work that waits: earliest deadline first inside a class, the more important class first, bounded.

Jobs that can share a launch (same contract and range) form a group; the jobs of a group stand in a *lane*, a sorted list, so
that the next launch is a prefix of it, and a removal in the middle is a search and not a scan. A heap with marks for the dead
was tried on paper: it keeps dead entries until they surface, which is unbounded when requesters come and go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

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


ROWS = attrgetter("row.rows")
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
        self.orders = [(first.priority, first.deadline_ns, first.id)]
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

    def remove(self, jobs: Sequence[Job]) -> None:
        """Take these jobs out, which must be here; in order, but for the first."""
        own, orders, count = self.jobs, self.orders, len(jobs)
        self.offer = None
        if count == len(own):
            own.clear()
            orders.clear()
            self.rows = 0
            return
        if own[0] is jobs[0] and own[count - 1] is jobs[-1]:
            del own[:count], orders[:count]
        else:
            for job in jobs:
                place = self.place(job)
                del own[place], orders[place]
        self.rows -= sum(map(ROWS, jobs))

    def place(self, job: Job) -> int:
        """Where a job stands, which must be here."""
        return bisect_left(self.orders, job.order)


class DeadlineQueue:
    """Bounded queue of jobs by group, each in the order class, deadline, arrival. Its books are there to be looked at, since
    they are asked for several times at each event, and are changed here alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lanes: dict[Group, Lane] = {}
        self.jobs: dict[int, Job] = {}
        """Every job that waits, by number;"""
        self.promised: dict[int, Job] = {}
        """of these, those that are promised,"""
        self.deferred: dict[int, Job] = {}
        """and those that were put off."""

    def __len__(self) -> int:
        return len(self.jobs)

    def __contains__(self, job: int) -> bool:
        return job in self.jobs

    def push(self, job: Job, reserved: int = 0) -> bool:
        """Add a job; False where the queue is full, but for `reserved` places."""
        if len(self.jobs) + reserved >= self._limit:
            return False
        self.jobs[job.id] = job
        if job.promised:
            self.promised[job.id] = job
        if job.earliest_ns:
            self.deferred[job.id] = job
        group = (job.contract, job.range)
        lane = self._lanes.get(group)
        if lane is None:
            self._lanes[group] = Lane(group, job)
        else:
            lane.add(job)
        return True

    def remove(self, job: int) -> Job | None:
        """Take a job out wherever it stands; None where it is not here."""
        found = self.jobs.get(job)
        if found is not None:
            self.take((found,))
        return found

    def take(self, jobs: Sequence[Job]) -> None:
        """Take these jobs out, all of one group, which must be here; in order, but for the first."""
        first, waiting = jobs[0], self.jobs
        lane = self._lanes[first.contract, first.range]
        lane.remove(jobs)
        if not lane.jobs:
            del self._lanes[lane.group]
        for job in jobs:
            del waiting[job.id]
        if self.promised:
            for job in jobs:
                self.promised.pop(job.id, None)
        if self.deferred:
            for job in jobs:
                self.deferred.pop(job.id, None)

    def get(self, job: int) -> Job | None:
        """The job of this number, while it waits."""
        return self.jobs.get(job)

    def alone(self) -> Job | None:
        """The job that waits, where it is the only one, is of one row and was not put off."""
        if len(self.jobs) != 1 or self.deferred:
            return None
        (job,) = self.jobs.values()
        return job if job.row.rows == 1 else None

    def lanes(self) -> list[Lane]:
        """The lanes in which jobs wait, in no order."""
        return list(self._lanes.values())

    def head(self, lane: Lane, now: int) -> Job | None:
        """The first job of a lane that may begin now; None where there is none."""
        if self.deferred:
            return next(self.ready(lane, now), None)
        return lane.jobs[0] if lane.jobs else None

    def ready(self, lane: Lane, now: int) -> Iterator[Job]:
        """The jobs of a lane that may begin now, in order. The queue must not change meanwhile."""
        return (job for job in lane.jobs if job.earliest_ns <= now) if self.deferred else iter(lane.jobs)

    def lane(self, group: Group) -> Lane:
        """The lane of a group in which jobs wait."""
        return self._lanes[group]

    def hasten(self, job: int) -> None:
        """A job that was put off may begin at once. One that is not here, or was not put off, is left as it is."""
        deferred = self.deferred.pop(job, None)
        if deferred is not None:
            ready = msgspec.structs.replace(deferred, earliest_ns=0)
            lane = self._lanes[ready.group]
            lane.offer = None
            lane.jobs[lane.place(ready)] = ready
            self.jobs[job] = ready
            if job in self.promised:
                self.promised[job] = ready

    def work_ns(self, latency: Latency, priority: int) -> int:
        """How long all jobs typically take one after the other, of those that are at least as important as this class."""
        return sum([lane.work_ns(latency, priority) for lane in self._lanes.values()])
