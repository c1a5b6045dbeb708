"""When open requests are due, soonest first.

A heap from which nothing is taken out in the middle: a request that ends early leaves its times behind, and they are
dropped when they come to the front, or all at once where there are too many of them, so that the heap stays in proportion to
the requests that may be open, however far away their deadlines are.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from heapq import heapify, heappop, heappush

NEVER_NS = 1 << 62
"""When what is due at no time is due."""

TIMES_EACH = 8
"""Times that an open request has at most: its own, and one for each answer that is kept for it."""


class DueTimes:
    """Times in nanoseconds of the requests in `open_`, by their numbers; at most `max_open` are there at once."""

    def __init__(self, open_: Container[int], max_open: int) -> None:
        self._open = open_
        self._limit = TIMES_EACH * max_open
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_ns: int, number: int) -> None:
        """Request `number` is due at `at_ns`, beside what it is due at already."""
        if len(self._heap) >= self._limit:
            self._heap = [item for item in self._heap if item[1] in self._open]
            heapify(self._heap)
        heappush(self._heap, (at_ns, number))

    def due(self, now: int) -> Iterator[int]:
        """Open requests that are due by `now`, each time once. Requests may end and be added meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            number = heappop(self._heap)[1]
            if number in self._open:
                yield number

    def soonest(self) -> int:
        """The next time at which an open request is due; `NEVER_NS` where none is."""
        heap = self._heap
        while heap:
            at_ns, number = heap[0]
            if number in self._open:
                return at_ns
            heappop(heap)
        return NEVER_NS

    def numbers(self) -> set[int]:
        """Every request that has a time."""
        return {number for _, number in self._heap}
