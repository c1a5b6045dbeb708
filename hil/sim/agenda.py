"""What is to happen, by true time: a heap.

It is the innermost loop, so that what happens is a small slotted object with one method, and no closure. Things of one time
happen in the order in which they were put, timers after all others, as the real loop looks at its timer last.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

LAST = 1 << 60
"""Added to the order of what comes after everything else of its time."""


class Happening(Protocol):
    """Something that is to happen once."""

    def happen(self, at: int) -> None:
        """It happens, at true time `at`."""
        ...


class Agenda:
    """The heap, and the true time of what happens now (`at`, nanoseconds)."""

    __slots__ = ("_count", "_heap", "at")

    def __init__(self, at: int) -> None:
        self.at = at
        self._heap: list[tuple[int, int, Happening]] = []
        self._count = 0

    def put(self, at: int, what: Happening) -> None:
        """`what` happens at `at`."""
        self._count += 1
        heappush(self._heap, (at, self._count, what))

    def put_last(self, at: int, what: Happening) -> None:
        """As `put`, but after all others of the same time."""
        self._count += 1
        heappush(self._heap, (at, self._count + LAST, what))

    def play(self, until: int) -> None:
        """Let everything happen that is due by `until`."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            at, _, what = heappop(heap)
            self.at = at
            what.happen(at)
        self.at = until
