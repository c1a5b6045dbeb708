"""How many bytes each stream may still send through the cloud, where the link is paid for by volume.

A token bucket for each stream: it holds what a sixtieth of an hour's budget is, and refills so that in no hour more than the
budget is spent. A stream that pauses does not save up for a burst that would fill the link.
"""

from __future__ import annotations

from collections import OrderedDict

HOUR_NS = 3_600_000_000_000
PARTS = 60
"""A full bucket is this part of an hour's budget."""

Stream = tuple[str, int]
"""A client and its number of a stream; 0 is all of its single requests."""


class Budget:
    """Buckets of all streams of an edge. Times in nanoseconds, sizes in bytes."""

    def __init__(self, per_hour: float, most: int) -> None:
        """`per_hour` bytes for each stream, 0 is without a limit. `most` streams are remembered: of more, the one that sent
        nothing for the longest is forgotten."""
        self._full = per_hour / PARTS
        self._rate = (per_hour - self._full) / HOUR_NS
        self._most = most
        self._buckets: OrderedDict[Stream, tuple[float, int]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self._full > 0.0

    def left(self, stream: Stream, now: int) -> float:
        """What this stream may send now."""
        held, at = self._buckets.get(stream, (self._full, now))
        return min(self._full, held + self._rate * max(0, now - at))

    def spend(self, stream: Stream, nbytes: int, now: int) -> None:
        """A stream sends so much, or asks for so much to be sent to it."""
        if not self._full:
            return
        left = self.left(stream, now)
        self._buckets[stream] = (left - nbytes, now)
        self._buckets.move_to_end(stream)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
