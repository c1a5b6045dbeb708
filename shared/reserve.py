"""Forward schedule of promised work: can all that was promised still be kept?

Non-preemptive earliest deadline first over the executors of one process, in the worst case that is planned for: the
running jobs end at their pessimistic finish, each promise takes its pessimistic time. List scheduling in deadline order
is exact on one executor when all promises are ready now (Jackson 1955); on several it is sufficient but not necessary,
which errs on the side of the promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class Promise(msgspec.Struct, frozen=True, gc=False):
    """Work that must end by `deadline_ns` and takes up to `duration_ns`."""

    job: int
    duration_ns: int
    deadline_ns: int


def first_broken(free_at: Sequence[int], promises: Iterable[Promise]) -> Promise | None:
    """The first promise, in deadline order, that would end late; None where all are kept.

    `free_at` is when each executor is free at the latest, in nanoseconds; it is not changed.
    """
    free = list(free_at)
    for promise in sorted(promises, key=lambda p: (p.deadline_ns, p.job)):
        soonest = min(range(len(free)), key=free.__getitem__)
        free[soonest] += promise.duration_ns
        if free[soonest] > promise.deadline_ns:
            return promise
    return None
