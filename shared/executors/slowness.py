"""How long a process waits after a run to stand for a device that is slower by a stated factor.

The wait is (factor - 1) times the *profiled* time of the range on this machine, so that the machine's own noise is not
multiplied: a run that was held up by 3 ms is 3 ms late, not 12. Profiles include the slowdown that was stated when they
were made, hence the division by it. Where the plan has no such time, the segments' sum is used, and where that is not
known either, what this very run took. Codecs are slowed by the same factor in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping

from shared.latency import US
from shared.plan import Plan, SegmentRange
from shared.slots import Side


class Slowness:
    """Waits of one process, by contract. A factor of 1 never waits. All times are nanoseconds."""

    def __init__(self, factor: float, plans: Mapping[str, Plan], side: Side) -> None:
        self.factor = factor
        self._ranges: dict[tuple[str, SegmentRange, int], float] = {}
        self._codecs: dict[tuple[str, int, str], tuple[float, float]] = {}
        for contract, plan in plans.items():
            profile = plan.profile("cloud" if side == "cloud" else "edge")
            if profile is None:
                continue
            for entry in profile.ranges:
                part = SegmentRange(entry.program, entry.first, entry.last)
                self._ranges[contract, part, entry.batch] = entry.p50_us * US / profile.slowdown
            for codec in profile.codecs:
                scale = US / profile.slowdown
                self._codecs[contract, codec.cut, codec.coding] = codec.encode_us * scale, codec.decode_us * scale

    def run_ns(self, contract: str, part: SegmentRange, rows: int, measured_ns: int) -> int:
        """The wait for running `part` on `rows` rows."""
        if self.factor <= 1.0 or part.empty:
            return 0
        known = self._ranges.get((contract, part, rows))
        if known is None:
            each = [
                self._ranges.get((contract, SegmentRange(part.program, i, i + 1), rows))
                for i in range(part.first, part.last)
            ]
            known = sum(time for time in each if time is not None) if None not in each else measured_ns
        return round((self.factor - 1.0) * known)

    def encode_ns(self, contract: str, cut: int, coding: str, rows: int, measured_ns: int) -> int:
        """The wait for encoding `rows` rows of a cut."""
        return self._codec_ns((contract, cut, coding), 0, rows, measured_ns)

    def decode_ns(self, contract: str, cut: int, coding: str, rows: int, measured_ns: int) -> int:
        """The wait for decoding `rows` rows of a cut. Where they came as arrays (`coding` is empty) they were only copied,
        which the range's own time holds."""
        if not coding:
            return 0
        return self._codec_ns((contract, cut, coding), 1, rows, measured_ns)

    def _codec_ns(self, key: tuple[str, int, str], which: int, rows: int, measured_ns: int) -> int:
        if self.factor <= 1.0:
            return 0
        known = self._codecs.get(key)
        return round((self.factor - 1.0) * (measured_ns if known is None else known[which] * rows))
