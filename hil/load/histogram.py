"""Full histograms of times: every value is counted, in steps of at most 1/256 of it, so that far quantiles are real ones.

The steps are those of HdrHistogram (Gil Tene): of one width within each doubling. A library was rejected, since a run's
values are in arrays already, and numpy sorts them into steps in one go.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
FINE_BITS = 8
"""Each doubling has this many bits of steps."""

QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999)


class Histogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`steps`: the largest value in nanoseconds that counts in a step, and how many did, rising, empty ones left out.
    `most_ns`: the largest value there was."""

    steps: tuple[tuple[int, int], ...] = ()
    most_ns: int = 0

    @property
    def count(self) -> int:
        """How many values there are."""
        return sum(count for _, count in self.steps)

    def quantile_ms(self, share: float) -> float | None:
        """Milliseconds that `share` of the values do not exceed, at the upper end of their step; None where there are too
        few to tell: one in 10,000 takes 10,000 values."""
        total = self.count
        if total == 0 or total * (1.0 - share) < 1.0 - 1e-6:
            return None
        rank = math.ceil(share * total - 1e-6)
        below = 0
        for end_ns, count in self.steps:
            below += count
            if below >= rank:
                return min(end_ns, self.most_ns) / 1e6
        return self.most_ns / 1e6


def histogram(values: Whole) -> Histogram:
    """Count `values`, which are nanoseconds; what is below 0 counts as 0."""
    if values.size == 0:
        return Histogram()
    kept = np.maximum(values, 0)
    _, bits = np.frexp(kept.astype(np.float64))
    shift = np.maximum(bits.astype(np.int64) - FINE_BITS - 1, 0)
    ends, counts = np.unique((((kept >> shift) + 1) << shift) - 1, return_counts=True)
    return Histogram(tuple(zip(ends.tolist(), counts.tolist(), strict=True)), int(kept.max()))


def together(parts: tuple[Histogram, ...]) -> Histogram:
    """One histogram of all values."""
    sums: dict[int, int] = {}
    for part in parts:
        for end_ns, count in part.steps:
            sums[end_ns] = sums.get(end_ns, 0) + count
    return Histogram(tuple(sorted(sums.items())), max((part.most_ns for part in parts), default=0))
