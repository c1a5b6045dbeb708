"""A host's CLOCK_MONOTONIC, as a function of the world's true time.

It starts anywhere, runs a little fast or slow, and stands still while the host is suspended. All arithmetic is in whole
numbers, so that the same run gives the same times on every machine.
"""

from __future__ import annotations

BILLION = 1_000_000_000


class HostClock:
    """`local_ns` is what it reads at true time `at`; `rate_ppb` is how much faster than true time it runs, in parts per
    billion (within +-100,000 for quartz)."""

    __slots__ = ("_at", "_local", "_rate", "suspended")

    def __init__(self, local_ns: int, at: int, rate_ppb: int) -> None:
        self._local = local_ns
        self._at = at
        self._rate = rate_ppb
        self.suspended = False

    def local(self, at: int) -> int:
        """What the clock reads at true time `at`, which is not before the last change of the clock."""
        if self.suspended:
            return self._local
        passed = at - self._at
        return self._local + passed + passed * self._rate // BILLION

    def true(self, local_ns: int) -> int:
        """The first true time at which the clock reads `local_ns` or more, if it is not suspended any more."""
        # It has run floor(passed * (1 + rate)) since then, so that the least `passed` is a quotient that is rounded up.
        return self._at - (self._local - local_ns) * BILLION // (BILLION + self._rate)

    def suspend(self, at: int) -> None:
        """The host stops, and its clock with it."""
        self._local = self.local(at)
        self._at = at
        self.suspended = True

    def resume(self, at: int) -> int:
        """The host goes on; for how long it stood still, in nanoseconds of true time."""
        stood = at - self._at
        self._at = at
        self.suspended = False
        return stood

    def drift(self, rate_ppb: int, at: int) -> None:
        """From now on the clock runs at another rate."""
        if not self.suspended:
            self._local = self.local(at)
            self._at = at
        self._rate = rate_ppb
