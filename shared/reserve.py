"""Forward schedule of promised work: can all that was promised still be kept?

Non-preemptive scheduling over the executors of one process, in the worst case that is planned for: the running jobs end at
their pessimistic finish, each promise takes its pessimistic time and cannot begin before its release, which for the next
frame of a stream is when that frame is expected. A set is *kept* where a schedule was constructed that keeps it:

* in deadline order, each promise at the earliest gap that it fits into. Where all are ready this is list scheduling, exact
  on one executor (Jackson 1955), sufficient on several, which errs on the side of the promise;
* where that fails and some are not ready yet, once more in the order of classes: an important frame that is expected gets
  its place first, and long work of a lesser class goes where it fits around it, so that the executor idles before the frame
  where it must. With releases the question is NP-hard (Garey and Johnson 1977), and both orders can fail where a third would
  not.

The schedule is found again at each decision, and a launch is allowed where the rest is kept after it. That is what makes the
promise hold: the first job of the schedule that was found is always such a launch.

Whether a *stream* can be promised, whose frames come at any phase, is decided by demand: `streams_fit`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import msgspec

NEVER_NS = (1 << 63) - 1

MOST_POINTS = 512
"""Points in time at which the demand of streams is looked at; a set that needs more is near full load, and not accepted."""


class Promise(msgspec.Struct, frozen=True, gc=False):
    """Work that must end by `deadline_ns`, takes up to `duration_ns`, and cannot begin before `release_ns`. `priority` 0 is
    the most important class. `job` is negative for work that has not come yet."""

    job: int
    duration_ns: int
    deadline_ns: int
    release_ns: int = 0
    priority: int = 0


class Periodic(msgspec.Struct, frozen=True, gc=False):
    """Work that comes at most every `period_ns`, takes up to `duration_ns` and must end `deadline_ns` after it came."""

    period_ns: int
    deadline_ns: int
    duration_ns: int


def first_broken(free_at: Sequence[int], promises: Iterable[Promise]) -> Promise | None:
    """The first promise, in deadline order, that would end late; None where all are kept.

    `free_at` is when each executor is free at the latest, in nanoseconds; it is not changed.
    """
    work = sorted(promises, key=_by_deadline)
    soonest = min(free_at)
    ready = all(p.release_ns <= soonest for p in work)
    broken = _listed(free_at, work) if ready else _fitted(free_at, work)
    if ready and len(free_at) == 1:
        return broken
    if broken is None or _fitted(free_at, sorted(work, key=_by_class)) is None:
        return None
    return broken


def keep(free_at: Sequence[int], certain: Iterable[Promise], others: Iterable[Promise]) -> list[Promise] | None:
    """Which of `others` can be kept beside all of `certain`, the important first; None where not even `certain` can be."""
    kept = list(certain)
    if first_broken(free_at, kept) is not None:
        return None
    count = len(kept)
    for promise in sorted(others, key=_by_class):
        kept.append(promise)
        if first_broken(free_at, kept) is not None:
            kept.pop()
    return kept[count:]


def streams_fit(streams: Sequence[Periodic], executors: int) -> bool:
    """Whether every frame of these streams can end in time on so many executors, whatever their phases.

    On one executor by processor demand (Jeffay, Stanat and Martel 1991; George, Rivierre and Spuri 1996): for each time t
    after a moment at which all come at once, what is due by t, and the longest job that may have begun just before, must fit
    into t. On several executors, streams are dealt out, the most demanding first, each to the first executor that it fits on.
    """
    shares: list[list[Periodic]] = [[] for _ in range(executors)]
    if not streams or _slack_enough(streams):
        return True
    for stream in sorted(streams, key=lambda s: (-s.duration_ns / s.period_ns, s.deadline_ns)):
        for share in shares:
            if _demand_met([*share, stream]):
                share.append(stream)
                break
        else:
            return False
    return True


def _by_deadline(promise: Promise) -> tuple[int, int]:
    return (promise.deadline_ns, promise.job)


def _by_class(promise: Promise) -> tuple[int, int, int]:
    return (promise.priority, promise.deadline_ns, promise.job)


def _listed(free_at: Sequence[int], work: Sequence[Promise]) -> Promise | None:
    """List scheduling of work that is ready: each to the executor that is free first."""
    free = list(free_at)
    for promise in work:
        soonest = min(range(len(free)), key=free.__getitem__)
        free[soonest] += promise.duration_ns
        if free[soonest] > promise.deadline_ns:
            return promise
    return None


def _fitted(free_at: Sequence[int], work: Sequence[Promise]) -> Promise | None:
    """Each to the earliest gap that it fits into, in the order given."""
    taken: list[list[tuple[int, int]]] = [[] for _ in free_at]
    for promise in work:
        duration, release = promise.duration_ns, promise.release_ns
        soonest, place = NEVER_NS, taken[0]
        for free, spans in zip(free_at, taken, strict=True):
            start = free if free > release else release
            for begins, ends in spans:
                if start + duration <= begins:
                    break
                start = max(start, ends)
            if start < soonest:
                soonest, place = start, spans
        if soonest + duration > promise.deadline_ns:
            return promise
        insort(place, (soonest, soonest + duration))
    return None


def _slack_enough(streams: Sequence[Periodic]) -> bool:
    """A quick test that accepts a light load on one executor: each job's share of the shorter of period and deadline, and the
    longest job's of the shortest deadline, add up to no more than the whole."""
    shares = sum(s.duration_ns / min(s.period_ns, s.deadline_ns) for s in streams)
    return shares + max(s.duration_ns for s in streams) / min(s.deadline_ns for s in streams) <= 1.0


def _demand_met(streams: Sequence[Periodic]) -> bool:
    if sum(s.duration_ns / s.period_ns for s in streams) > 1.0:
        return False
    longest = _busy_period(streams)
    if longest is None:
        return False
    points: set[int] = set()
    for s in streams:
        points.update(range(s.deadline_ns, longest + 1, s.period_ns))
        if len(points) > MOST_POINTS:
            return False
    return all(_due_by(streams, t) + _blocking(streams, t) <= t for t in points)


def _due_by(streams: Sequence[Periodic], t: int) -> int:
    return sum((1 + (t - s.deadline_ns) // s.period_ns) * s.duration_ns for s in streams if s.deadline_ns <= t)


def _blocking(streams: Sequence[Periodic], t: int) -> int:
    return max((s.duration_ns for s in streams if s.deadline_ns > t), default=0)


def _busy_period(streams: Sequence[Periodic]) -> int | None:
    """How long an executor is busy at most without a pause, the longest job having begun just before; None where it would
    take too many steps to find out, which is close to full load."""
    blocking = max(s.duration_ns for s in streams)
    busy = blocking
    for _ in range(MOST_POINTS):
        longer = blocking + sum(-(-busy // s.period_ns) * s.duration_ns for s in streams)
        if longer == busy:
            return busy
        busy = longer
    return None
