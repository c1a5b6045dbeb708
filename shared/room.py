"""Whether what is more important would still be in time if a launch of a lesser class began now.

A launch that has begun is not stopped, so that a lesser one may stand in the way of what comes next. What will come is not
known, but how much of it has come of late is (`shared.targets`). So its demand from now on is taken to be

    D(t) = rate * t + BURST * sqrt(rate * t) + 1   rows within t, the second term for arrivals that come in a cluster,

and each must be begun within its slack: its budget less the launch itself. The executors, once free, must have begun that
much work by then, as in a demand bound test for periodic work (Baruah, Mok, Rosier 1990) with a bound on arrivals in place of
periods. Nothing can be shown so for work that lasts longer than the slack on the only executor there is: it waits while the
more important class is active. That is the price of the class's promise, and why long work is better cut into segments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

BURST = 3.0
"""Deviations of a Poisson count that are allowed for."""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What comes of one kind of work. `rate`: rows a nanosecond; `first_ns`: a launch of one row; `row_ns`: a row of the
    launches that form while it has to wait; `slack_ns`: how long a row may wait before its launch begins."""

    rate: float
    first_ns: float
    row_ns: float
    slack_ns: float


def keeps_room(demands: Sequence[Demand], free_at: Sequence[int], now: int) -> bool:
    """Whether all of this work can be begun in time on executors that are free at these times (nanoseconds)."""
    if not demands:
        return True
    slack = min(demand.slack_ns for demand in demands)
    launch = min(demand.first_ns for demand in demands)
    free = sorted(max(at, now) - now for at in free_at)
    for until in [slack, *(at for at in free if at > slack)]:
        begun = sum(until - at + launch for at in free if at < until or at == until == slack)
        if begun < _work(demands, until - slack):
            return False
    return True


def _work(demands: Sequence[Demand], within: float) -> float:
    """Nanoseconds of work that come within a time."""
    work = 0.0
    for demand in demands:
        expected = demand.rate * within
        work += demand.first_ns + demand.row_ns * (expected + BURST * math.sqrt(expected))
    return work
