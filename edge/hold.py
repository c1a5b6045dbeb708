"""How long before a deadline a held answer must be let go, so that it is surely delivered in time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

SAMPLES = 1024


class HoldMargin:
    """p99.9 of how late wake-ups come, measured, between two bounds in nanoseconds."""

    def __init__(self, least_ns: int, most_ns: int) -> None:
        self._least = least_ns
        self._most = most_ns
        self._recent: deque[int] = deque(maxlen=SAMPLES)
        self._sorted: list[int] = []
        self._margin = min(max(0, least_ns), most_ns)

    def woke(self, late_ns: int) -> None:
        """A wake-up came this late."""
        if len(self._recent) == SAMPLES:
            del self._sorted[bisect_left(self._sorted, self._recent[0])]
        self._recent.append(late_ns)
        insort(self._sorted, late_ns)
        measured = self._sorted[-1 - len(self._sorted) // SAMPLES]
        self._margin = min(max(measured, self._least), self._most)

    def margin_ns(self) -> int:
        """The margin to use now, in nanoseconds."""
        return self._margin
