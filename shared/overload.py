"""Which group of requests gives way when executors cannot serve all that wait in time.

What waits is a launch of each group, with the time by which it must start. Begun in that order, some would start too late
when bursts of several groups meet. Whose turn it then is should not be left to chance: it costs the fewest requests to do
without the launch that serves the fewest for its time. That is the rule of Moore and Hodgson for the fewest late jobs
(Moore, Management Science 1968; optimal on one machine where all jobs count the same), with requests for a launch's time as
its worth, and executors that become free one after the other in place of the one machine.

A group that gives way stays in the queue: more of it may come, and executors become free earlier than was thought.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapreplace

from shared.queue import Offer

GIVES = 0.2
"""A launch that starts late by up to this part of its time is not given up: with some rows less it still is in time."""


def goes_first(offers: Sequence[Offer], free_at: Sequence[int]) -> Offer:
    """Of offers in the order of class and latest start, the first that does not give way. `free_at`: when each executor will
    be free (nanoseconds)."""
    return served(offers, free_at)[0]


def served(offers: Sequence[Offer], free_at: Sequence[int]) -> list[Offer]:
    """Of offers in the order of class and latest start, those of the first class that do not give way to others of it: one
    at least."""
    free = sorted(free_at)
    kept = [offer for offer in offers if offer.place[0] == offers[0].place[0]]
    while late := _first_late(kept, free):
        worth = [offer.rows / offer.takes_ns for offer in kept[: late + 1]]
        del kept[worth.index(min(worth))]
    return kept


def _first_late(offers: Sequence[Offer], free: Sequence[int]) -> int:
    """Which of these launches is the first that starts too late, on executors that are free at these times, in order; 0 where
    none is: there is one that is free for the first."""
    at = list(free)
    for place, offer in enumerate(offers):
        start, takes = at[0], offer.takes_ns
        if start > offer.latest_ns and start > offer.latest_ns + GIVES * takes and place:
            return place
        heapreplace(at, start + takes)
    return 0
