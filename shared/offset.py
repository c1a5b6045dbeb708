"""The interval in which a peer's clock offset must lie.

offset = peer's clock - own clock, both CLOCK_MONOTONIC in nanoseconds. A message that left the peer at `sent` (peer's
clock) and came in at `received` (own clock) cannot have travelled in negative time, so offset >= sent - received; an own
message that the peer dated on receipt bounds it from above in the same way (Cristian 1989, intersected as by Marzullo
1984). Bounds are intersected as they come and widened with age, since quartz drifts.

An interval and not an estimate, because a decision needs to know which end is safe: the edge predicts with the end that
makes the answer late, the node drops a request only if even the other end says that it is late.
"""

from __future__ import annotations

DRIFT_PPM = 201
"""By how much two clocks may drift apart, in parts per million. Quartz is within 100 each, which makes 200.02."""


def _drift(span_ns: int) -> int:
    """What the offset may have changed by in this time, rounded up: the interval is widened in many small steps."""
    return -(-span_ns * DRIFT_PPM // 1_000_000) if span_ns > 0 else 0


class OffsetInterval:
    """Lower and upper bound of a peer's clock offset, in nanoseconds; either may be unknown (None)."""

    __slots__ = ("_at", "_high", "_low")

    def __init__(self) -> None:
        self._low: int | None = None
        self._high: int | None = None
        self._at = 0

    def _age(self, now: int) -> None:
        span_ns = now - self._at
        if span_ns <= 0:
            return
        widening = _drift(span_ns)
        self._at = now
        if self._low is not None:
            self._low -= widening
        if self._high is not None:
            self._high += widening

    def peer_sent(self, sent_ns: int, received_ns: int) -> int:
        """A message left the peer at `sent_ns` (its clock) and came in at `received_ns` (ours): the peer's clock reads
        at least `sent_ns` by then, so the offset is at least `sent_ns - received_ns`. Returns the lower bound by then."""
        self._age(received_ns)
        low, bound = self._low, sent_ns - received_ns
        if low is None or bound > low:
            low = self._low = bound
            high = self._high
            if high is not None and high < low:
                self._high = None
        return low

    def peer_received(self, sent_ns: int, received_ns: int, now: int) -> None:
        """Our message left at `sent_ns` (ours) and came in at the peer at `received_ns` (its clock): the offset was at most
        `received_ns - sent_ns` then, which is no earlier than `sent_ns`, and may have grown since."""
        self._age(now)
        bound = received_ns - sent_ns + _drift(now - sent_ns)
        if self._high is None or bound < self._high:
            self._high = bound
        if self._low is not None and self._low > self._high:
            self._low = None

    def reset(self) -> None:
        """Forget everything: the peer restarted, or one of the hosts was suspended."""
        self._low = self._high = None

    def bounds(self, now: int) -> tuple[int | None, int | None]:
        """(low, high) at `now`, widened by age; None where nothing is known."""
        self._age(now)
        return self._low, self._high
