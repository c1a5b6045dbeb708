"""How late something came (wake-ups, outcomes): a histogram of fixed size, so that measuring never grows.

Its steps are fine where lateness is small and wider where it is large, never more than 1/64 of the value, from a nanosecond
to a minute: 2,000 counters, and about a microsecond for each value. Keeping samples and sorting was rejected: the
processes that measure lateness must not cause it. So were steps of one width: a microsecond and a second both matter.
"""

from __future__ import annotations

import math

import msgspec

FINE_BITS = 6
"""Each doubling has this many bits of steps."""

MOST_NS = (1 << 36) - 1
"""Later than this (a minute) counts as this; the worst is kept as it was."""

DEFAULT_LIMIT_NS = 1_000_000


class LatenessFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A summary: how many there were, the quantiles and the worst in milliseconds, and the share that came as late as the
    limit or later."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0
    late_share: float = 0.0


class Lateness:
    """Counts lateness in nanoseconds. What came early counts as punctual."""

    __slots__ = ("_bins", "_count", "_late", "_limit_ns", "_worst_ns")

    def __init__(self, limit_ns: int = DEFAULT_LIMIT_NS) -> None:
        """`limit_ns` is what `late_share` is asked about."""
        self._limit_ns = limit_ns
        self._bins: list[int] = []
        self._count = self._late = self._worst_ns = 0
        self.clear()

    def add(self, late_ns: int) -> None:
        """Count one."""
        late_ns = late_ns if late_ns > 0 else 0
        self._bins[_step(late_ns) if late_ns else 0] += 1
        self._count += 1
        self._worst_ns = max(self._worst_ns, late_ns)
        if late_ns >= self._limit_ns:
            self._late += 1

    def add_period(self, late_ns: int, period_ns: int) -> None:
        """Count one wake-up of a periodic timer and all those that it swallowed, each as late as it would have been.

        A machine that stands still for 20 ms delays twenty wake-ups of a 1 ms timer although only one of them is seen;
        counting one would hide the stall (coordinated omission).
        """
        self.add(late_ns)
        for missed in range(late_ns - period_ns, 0, -period_ns):
            self.add(missed)

    def figures(self) -> LatenessFigures:
        """Summary of what was counted since the last `clear`."""
        if not self._count:
            return LatenessFigures()
        p50, p99, p999 = self._quantiles(0.5, 0.99, 0.999)
        return LatenessFigures(self._count, p50, p99, p999, self._worst_ns / 1e6, self._late / self._count)

    def clear(self) -> None:
        """Start counting anew."""
        self._bins = [0] * (_step(MOST_NS) + 1)
        self._count = self._late = self._worst_ns = 0

    def _quantiles(self, *shares: float) -> list[float]:
        """Milliseconds, of the upper end of the step that holds each quantile; never more than the worst seen."""
        found: list[float] = []
        ranks = [math.ceil(share * self._count) for share in shares]
        below = 0
        for step, count in enumerate(self._bins):
            below += count
            while len(found) < len(ranks) and below >= ranks[len(found)]:
                found.append(min(_end(step), self._worst_ns) / 1e6)
            if len(found) == len(ranks):
                break
        return found


def _step(late_ns: int) -> int:
    late_ns = min(late_ns, MOST_NS)
    shift = max(0, late_ns.bit_length() - FINE_BITS - 1)
    return (shift << FINE_BITS) + (late_ns >> shift)


def _end(step: int) -> int:
    """The largest value that counts in this step."""
    shift = max(0, (step >> FINE_BITS) - 1)
    return ((step - (shift << FINE_BITS) + 1) << shift) - 1
