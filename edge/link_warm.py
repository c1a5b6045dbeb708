"""When a data connection that is idle is sent padding, and how much.

A connection that was idle for as long as TCP's time-out begins anew with about 14 KB in flight, and a radio goes to sleep. So
a connection that was used of late is sent a padded probe now and then: as many bytes as the last request had, no more often
than `EVERY_NS`, and no more in all than a budget of bytes a second allows. Its answer teaches the link estimate, so that the
first request after a pause is predicted by what the link is like now. After `LASTS_NS` without a request nothing is sent any
more: nobody pays for a link that nobody uses.

What it cannot do: Linux lets a window that is not used fall by half in each time-out, so that only payloads of up to about
the budget times 0.2 s stay entirely warm. `net.ipv4.tcp_slow_start_after_idle = 0` on both hosts does better, for nothing.
"""

from __future__ import annotations

EVERY_NS = 150_000_000
"""Less than Linux's least retransmission time-out, after which a window counts as idle."""

LASTS_NS = 10_000_000_000
LEAST_BYTES = 256
"""Less padding than this is not worth a message."""

MOST_BYTES = 1 << 18


class KeepWarm:
    """One connection. Times in nanoseconds."""

    __slots__ = ("_at", "_enough", "_held", "_rate", "_sent_ns", "_size", "_used_ns")

    def __init__(self, bytes_per_s: float) -> None:
        """0 is off. Up to a second's budget may be sent at once."""
        self._rate = bytes_per_s
        self._enough = max(LEAST_BYTES, bytes_per_s * EVERY_NS / 1e9)
        self._held = bytes_per_s
        self._at = 0
        self._size = 0
        self._used_ns = 0
        self._sent_ns = 0

    def used(self, nbytes: int, now: int) -> None:
        """A request of `nbytes` was sent, or is out."""
        self._size = min(nbytes, MOST_BYTES)
        self._used_ns = self._sent_ns = now

    def busy(self, now: int) -> None:
        """Something is out on the connection: it is not idle."""
        self._sent_ns = now

    def off(self) -> None:
        """No padding until the next request."""
        self._size = 0

    def next_at(self) -> int | None:
        """When padding is due next, which may have passed; None where none is."""
        if not self._rate or not self._size:
            return None
        at = self._sent_ns + EVERY_NS
        need = min(self._size, self._enough)
        if self._held < need:
            at = max(at, self._at + int((need - self._held) * 1e9 / self._rate) + 1)
        return None if at > self._used_ns + LASTS_NS else at

    def due(self, now: int) -> int:
        """Bytes of padding to be sent now, 0 where none are due. What is told counts as sent."""
        at = self.next_at()
        if at is None or now < at:
            return 0
        if now > self._used_ns + LASTS_NS:
            self.off()
            return 0
        self._held = min(self._rate, self._held + self._rate * (now - self._at) / 1e9)
        self._at = now
        nbytes = int(min(self._size, self._held))
        self._held -= nbytes
        self._sent_ns = now
        return nbytes
