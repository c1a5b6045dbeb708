"""How late wake-ups came: a histogram of fixed size, so that measuring never grows and never allocates.

Steps of 10 µs up to 200 ms are finer than any judgement made from them. Keeping every sample and sorting was rejected:
the processes that measure lateness must not cause it.
"""

from __future__ import annotations

import math

import msgspec

STEP_NS = 10_000
STEPS = 20_000


class LatenessFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A summary: how many wake-ups, the quantiles and the worst in milliseconds, and the share that came later than the
    limit that was asked about."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    late_share: float = 0.0


class Lateness:
    """Counts lateness in nanoseconds. Wake-ups that came early count as punctual."""

    def __init__(self) -> None:
        self._bins = [0] * (STEPS + 1)
        self._count = 0
        self._worst_ns = 0

    def add(self, late_ns: int) -> None:
        """Count one wake-up."""
        late_ns = max(0, late_ns)
        self._bins[min(late_ns // STEP_NS, STEPS)] += 1
        self._count += 1
        self._worst_ns = max(self._worst_ns, late_ns)

    def add_period(self, late_ns: int, period_ns: int) -> None:
        """Count one wake-up of a periodic timer and all those that it swallowed, each as late as it would have been.

        A machine that stands still for 20 ms delays twenty wake-ups of a 1 ms timer although only one of them is seen;
        counting one would hide the stall (coordinated omission).
        """
        self.add(late_ns)
        for missed in range(late_ns - period_ns, 0, -period_ns):
            self.add(missed)

    def figures(self, late_ms: float = 1.0) -> LatenessFigures:
        """Summary of what was counted since the last `clear`."""
        if not self._count:
            return LatenessFigures()
        first_late = min(math.ceil(late_ms * 1e6 / STEP_NS), STEPS)
        return LatenessFigures(
            count=self._count,
            p50_ms=self._quantile(0.5),
            p99_ms=self._quantile(0.99),
            max_ms=self._worst_ns / 1e6,
            late_share=sum(self._bins[first_late:]) / self._count,
        )

    def clear(self) -> None:
        """Start counting anew."""
        self._bins = [0] * (STEPS + 1)
        self._count = 0
        self._worst_ns = 0

    def _quantile(self, share: float) -> float:
        """Upper edge, in milliseconds, of the step that holds the quantile; never more than the worst seen."""
        rank = math.ceil(share * self._count)
        below = 0
        for step, count in enumerate(self._bins):
            below += count
            if below >= rank:
                return min((step + 1) * STEP_NS, self._worst_ns) / 1e6
        return self._worst_ns / 1e6
