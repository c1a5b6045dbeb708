"""When put-off insurance must begin, so that its answer is still there in time.

As late as possible spares the device's energy, since most rungs are then never run; it pays with the risk of everything
that makes a run longer than it was seen: cold caches above all. So the start is set by the longest run of late and by a
margin that is learned from how much later than planned such runs ended, and a rung that has not run for a while is run at
once, to be warm and to be known.
"""

from __future__ import annotations

from collections import deque

from shared.latency import WorkKey

SAMPLES = 1024
LEAST_NS = 1_000_000
"""The margin is never less: a wake-up may come late, and a run that was put off has cold caches."""


class LateStart:
    """The policy of one edge. `warm_ns`: how long a rung stays warm."""

    def __init__(self, warm_ns: int) -> None:
        self._warm_ns = warm_ns
        self._ran: dict[WorkKey, int] = {}
        self._over: deque[int] = deque(maxlen=SAMPLES)
        self._margin_ns = LEAST_NS

    @property
    def margin_ns(self) -> int:
        """By how much earlier than the longest run of late would need a run begins."""
        return self._margin_ns

    def begins(self, key: WorkKey, longest_ns: int, due_ns: int, now: int) -> int:
        """When to begin work that takes up to `longest_ns` and is due at `due_ns`: 0 where at once."""
        ran = self._ran.get(key)
        if ran is None or now - ran > self._warm_ns:
            return 0
        begins = due_ns - longest_ns - self._margin_ns
        return begins if begins > now else 0

    def began(self, key: WorkKey, now: int) -> None:
        """Such work has begun: it is warm for a while."""
        self._ran[key] = now

    def ended(self, planned_ns: int, ended_ns: int) -> None:
        """A run that was put off ended, planned to end at `planned_ns` at the latest."""
        over = ended_ns - planned_ns
        oldest = self._over[0] if len(self._over) == SAMPLES else None
        self._over.append(over)
        if oldest is not None and oldest >= self._margin_ns:
            self._margin_ns = max(LEAST_NS, *self._over)
        else:
            self._margin_ns = max(self._margin_ns, over)
