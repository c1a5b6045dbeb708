"""Whether what is promised can be kept, worked out from the books: list scheduling by deadline, each to the executor that is
free first. On one executor it is exact for work that is ready (Jackson 1955). On several it may miss a schedule that there
is: then every way to deal the work out is looked at, each executor taking its own by deadline, which is exact too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hil.sim.books import EdgeBook, WorkBook
from shared.queue import Job
from shared.running import NEVER_NS
from shared.scheduler import Scheduler

MOST_DEALS = 10_000
"""Ways to deal out work that are kept in mind. Where there are more, one of them is taken to do."""


def free_at(book: WorkBook, now: int) -> list[int]:
    """When each executor is free in the worst case that is planned for; never, where what is out is overdue."""
    free = [now] * book.scheduler.executors
    for out in book.out.values():
        when = NEVER_NS if now >= out.overdue_ns else max(now, out.due_ns)
        free[out.run.executor] = max(free[out.run.executor], when)
    return free


def unkept(book: WorkBook, free: Sequence[int], jobs: Iterable[Job]) -> Job | None:
    """One of these promised jobs that cannot be kept; None where all can."""
    promised = list(jobs)
    found = late(book.scheduler, free, promised)
    if found is None or len(free) == 1:
        return found
    longest = book.scheduler.latency.pessimistic
    work = [(longest(job.key, job.rows), job.deadline_ns) for job in sorted(promised, key=_order)]
    return None if can_be_dealt(free, work) else found


def can_be_dealt(free: Sequence[int], work: Iterable[tuple[int, int]]) -> bool:
    """Whether this work, each with its duration and deadline and in the order of deadlines, can be dealt out to executors
    that are free at these times so that all of it ends in time."""
    deals = {tuple(sorted(free))}
    for duration, deadline in work:
        deals = {
            tuple(sorted((*deal[:place], when + duration, *deal[place + 1 :])))
            for deal in deals
            for place, when in enumerate(deal)
            if when + duration <= deadline
        }
        if len(deals) > MOST_DEALS:
            return True
    return bool(deals)


def late(scheduler: Scheduler, free: Sequence[int], jobs: Iterable[Job]) -> Job | None:
    """The first of these jobs, by deadline, that would end late; None where none would."""
    executors = list(free)
    pessimistic = scheduler.latency.pessimistic
    for job in sorted(jobs, key=_order):
        soonest = executors.index(min(executors)) if len(executors) > 1 else 0
        executors[soonest] += pessimistic(job.key, job.rows)
        if executors[soonest] > job.deadline_ns:
            return job
    return None


def expects(book: EdgeBook, priority: int) -> bool:
    """Whether frames are expected of a stream that is at least as important."""
    return bool(book.streams) and min(book.streams.values()) <= priority


def _order(job: Job) -> tuple[int, int]:
    return (job.deadline_ns, job.id)
