"""The highest rate at which a share of the requests is on time: which rate to try next, and what was found. Pure.

Doubling until a rate fails, then halving the ratio between the highest that held and the lowest that did not. A run in which
the load generator was the bottleneck shows nothing and is repeated; a rate at which that happens `MOST_REPEATS` times more
bounds the search as a rate that failed does, and is told apart from one.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Verdict = Literal["held", "failed", "not judged"]
MOST_REPEATS = 2
LEAST_RATE = 0.1
MOST_RATE = 1e6
PRECISION = 0.05


class Try(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of a search."""

    rate_per_s: float
    share: float
    verdict: Verdict


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a search came to: the highest rate that held, 0 where none did, and the lowest above it that did not, None where
    none was tried. `bounded_by`: what the latter is due to."""

    share: float
    rate_per_s: float
    next_per_s: float | None
    bounded_by: Literal["target", "load generator", "nothing"]
    tries: tuple[Try, ...]


class RateSearch:
    """Ask `rate` for the next rate until it is None; say by `told` what came of it."""

    def __init__(
        self, start_per_s: float, share: float, precision: float = PRECISION, most_per_s: float = MOST_RATE
    ) -> None:
        """`precision`: the search ends where the bounds are this close, as a part of the lower one. No rate above
        `most_per_s` is tried."""
        self._share = share
        self._precision = precision
        self._most = most_per_s
        self._low = 0.0
        self._high: float | None = None
        self._by_generator = False
        self._repeats = 0
        self._tries: list[Try] = []
        self.rate: float | None = min(max(start_per_s, LEAST_RATE), most_per_s)

    def told(self, share: float, judged: bool) -> None:
        """A run at `rate` has ended with this share on time."""
        if self.rate is None:
            return
        verdict: Verdict = "not judged" if not judged else "held" if share >= self._share else "failed"
        self._tries.append(Try(self.rate, share, verdict))
        if verdict == "not judged" and self._repeats < MOST_REPEATS:
            self._repeats += 1
            return
        self._repeats = 0
        if verdict == "held":
            self._low = self.rate
        else:
            self._high = self.rate
            self._by_generator = verdict == "not judged"
        self.rate = self._next()

    def found(self) -> Found:
        """What it has come to so far."""
        by: Literal["target", "load generator"] = "load generator" if self._by_generator else "target"
        return Found(self._share, self._low, self._high, "nothing" if self._high is None else by, tuple(self._tries))

    def _next(self) -> float | None:
        if self._high is None:
            return None if self._low >= self._most else min(2.0 * self._low, self._most)
        if self._low == 0.0:
            return None if self._high <= LEAST_RATE else max(self._high / 2.0, LEAST_RATE)
        if self._high <= self._low * (1.0 + self._precision):
            return None
        return math.sqrt(self._low * self._high)
