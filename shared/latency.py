"""How long a segment range will take: the plan's profile, corrected by what was seen.

For each (contract, range, codec) the profile gives a base curve over batch sizes. What runs is kept as ratios to that
curve, in a short window, so that throttling shows after a few runs at whatever batch size they had. Two readings are
used: `typical` (median) to predict, `pessimistic` (97 %: one in the window is let pass) to promise. Before anything ran,
the window holds the profile's own spread. A range without a profile starts from a stated pessimistic guess: blind trust in
an unknown time would break promises, and refusing to run would never learn it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

import msgspec

from shared.plan import Plan, Profile, SegmentRange

WINDOW = 64
PESSIMISTIC = 0.97
COLD_NS = 5_000_000
"""Guess for a segment range that has no profile."""
COLD_CODEC_NS = 500_000
"""Guess for a codec that has no profile."""
US = 1000


class WorkKey(msgspec.Struct, frozen=True, gc=False):
    """What is timed: a segment range of a contract, entered from `decode` and left through `encode` (coding names; raw
    codings cost a copy, which the range's own time holds, and are written as an empty string)."""

    contract: str
    range: SegmentRange
    decode: str = ""
    encode: str = ""


class _Curve:
    """Base time by batch size, piecewise linear, and the window of ratios to it."""

    __slots__ = ("batches", "high", "median", "recent", "sorted", "times")

    def __init__(self, points: list[tuple[int, float]], spread: float) -> None:
        self.batches = [b for b, _ in points]
        self.times = [t for _, t in points]
        seeds = [1.0] * 14 + [max(1.0, spread)] * 2
        self.recent: deque[float] = deque(seeds, maxlen=WINDOW)
        self.sorted = sorted(seeds)
        self.median = self._quantile(0.5)
        self.high = self._quantile(PESSIMISTIC)

    def base(self, rows: int) -> float:
        batches, times = self.batches, self.times
        if rows == batches[0]:
            return times[0]
        if len(batches) == 1 or rows < batches[0]:
            return times[0] * max(1.0, rows / batches[0])
        i = min(max(1, bisect_left(batches, rows)), len(batches) - 1)
        slope = (times[i] - times[i - 1]) / (batches[i] - batches[i - 1])
        return max(times[0], times[i - 1] + slope * (rows - batches[i - 1]))

    def _quantile(self, q: float) -> float:
        return self.sorted[min(len(self.sorted) - 1, int(q * len(self.sorted)))]

    def observe(self, ratio: float) -> None:
        if len(self.recent) == WINDOW:
            oldest = self.recent[0]
            del self.sorted[bisect_left(self.sorted, oldest)]
        self.recent.append(ratio)
        insort(self.sorted, ratio)
        self.median = self._quantile(0.5)
        self.high = self._quantile(PESSIMISTIC)


class Latency:
    """Online execution-time model of one process. All times in nanoseconds."""

    def __init__(self) -> None:
        self._curves: dict[WorkKey, _Curve] = {}
        self._ranges: dict[tuple[str, SegmentRange], dict[int, tuple[float, float]]] = {}
        self._codecs: dict[tuple[str, int, str], tuple[float, float]] = {}

    @classmethod
    def of(cls, plans: Iterable[tuple[str, Plan]], side: str, slowdown: float = 1.0) -> Latency:
        """Model seeded from each plan's own profile of `side` (`edge` or `cloud`), scaled where this process is slowed
        by another factor than the profile states."""
        model = cls()
        for contract, plan in plans:
            for profile in plan.profiles:
                if profile.side == side:
                    model._take(contract, profile, slowdown / profile.slowdown if side == "edge" else 1.0)
        return model

    def _take(self, contract: str, profile: Profile, scale: float) -> None:
        for r in profile.ranges:
            key = (contract, SegmentRange(r.program, r.first, r.last))
            self._ranges.setdefault(key, {})[r.batch] = (r.p50_us * US * scale, r.p99_us * US * scale)
        for c in profile.codecs:
            self._codecs[contract, c.cut, c.coding] = (c.encode_us * US * scale, c.decode_us * US * scale)

    def _segments(self, contract: str, part: SegmentRange) -> tuple[list[tuple[int, float]], float]:
        """Base points and spread (p99 / p50) of a range, from its own profile or the sum of its segments'."""
        if part.empty:
            return [(1, 0.0)], 1.0
        known = self._ranges.get((contract, part))
        if known is None:
            singles = [
                self._ranges.get((contract, SegmentRange(part.program, i, i + 1))) for i in range(part.first, part.last)
            ]
            if any(s is None for s in singles):
                return [(1, float(COLD_NS))], 2.0
            found = [s for s in singles if s is not None]
            shared = set(found[0]).intersection(*found[1:])
            known = {b: (sum(s[b][0] for s in found), sum(s[b][1] for s in found)) for b in shared}
            if not known:
                return [(1, float(COLD_NS))], 2.0
        points = [(b, known[b][0]) for b in sorted(known)]
        first = known[points[0][0]]
        return points, first[1] / max(first[0], 1.0)

    def _curve(self, key: WorkKey) -> _Curve:
        curve = self._curves.get(key)
        if curve is None:
            points, spread = self._segments(key.contract, key.range)
            codec = 0.0
            if key.decode:
                codec += self._codecs.get((key.contract, key.range.first, key.decode), (0.0, float(COLD_CODEC_NS)))[1]
            if key.encode:
                codec += self._codecs.get((key.contract, key.range.last, key.encode), (float(COLD_CODEC_NS), 0.0))[0]
            curve = _Curve([(b, max(1.0, t + codec * b)) for b, t in points], spread)
            self._curves[key] = curve
        return curve

    def typical(self, key: WorkKey, rows: int = 1) -> int:
        """Median time of a launch with `rows` rows."""
        curve = self._curves.get(key) or self._curve(key)
        return int(curve.base(rows) * curve.median)

    def pessimistic(self, key: WorkKey, rows: int = 1) -> int:
        """Time that a launch with `rows` rows stays under with 97 %."""
        curve = self._curves.get(key) or self._curve(key)
        return int(curve.base(rows) * curve.high)

    def worst(self, key: WorkKey, rows: int = 1) -> int:
        """The longest time that a launch with `rows` rows took of late (or the profile's p99, before any ran)."""
        curve = self._curves.get(key) or self._curve(key)
        return int(curve.base(rows) * curve.sorted[-1])

    def observe(self, key: WorkKey, rows: int, elapsed_ns: int) -> None:
        """Learn from a launch that ended by itself."""
        curve = self._curve(key)
        curve.observe(elapsed_ns / curve.base(rows))

    def observe_aborted(self, key: WorkKey, rows: int, elapsed_ns: int) -> None:
        """Learn from a launch that was not over after `elapsed_ns`: a censored sample, kept where it says that the launch is
        slower than thought, and as a tenth more than was seen, since it was not over. Without it a device that overruns
        every deadline would never be found out."""
        if elapsed_ns > self.typical(key, rows):
            self.observe(key, rows, elapsed_ns * 11 // 10)
