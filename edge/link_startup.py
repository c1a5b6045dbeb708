"""What the start of a TCP connection costs: a sender may have only so much in flight before it hears from the other side.

A new connection has ten segments, about 14 KB, in flight (RFC 6928), twice as much after each round trip (slow start, RFC
5681), and an idle one falls back by half for each retransmission time-out that it was idle (RFC 2861, as Linux does with
`tcp_slow_start_after_idle`). So 100 KB at a round trip of 4 ms take three round trips more on a cold connection than on a
warm one. How much of that is really seen is learned: `share` of the model, the middle of the last few, since a proxy, a
kernel's settings or a receiver may be otherwise.
"""

from __future__ import annotations

from collections import deque

FIRST_BYTES = 14_600
MOST_BYTES = 1 << 23
RTO_NS = 200_000_000
"""Linux's least retransmission time-out."""

SHARES = 5


class Startup:
    """The congestion window of one connection, as its sender's kernel probably has it. Times in nanoseconds."""

    __slots__ = ("_sent_ns", "_shares", "_window")

    def __init__(self) -> None:
        self._window = FIRST_BYTES
        self._sent_ns = 0
        self._shares: deque[float] = deque(maxlen=SHARES)

    @property
    def share(self) -> float:
        """How much of the modelled wait is seen; 1 before any was."""
        return sorted(self._shares)[len(self._shares) // 2] if self._shares else 1.0

    def connected(self) -> None:
        """The connection is new."""
        self._window = FIRST_BYTES

    def window(self, now: int, rtt_ns: float) -> int:
        """Bytes that may be in flight at `now`."""
        idle_ns = now - self._sent_ns
        if idle_ns < RTO_NS:
            return self._window
        return max(FIRST_BYTES, self._window >> int(idle_ns // (RTO_NS + rtt_ns)))

    def wait_ns(self, nbytes: int, now: int, rtt_ns: float, per_byte_ns: float) -> float:
        """How long sending `nbytes` now would wait for acknowledgements, by the model."""
        waited, window = 0.0, self.window(now, rtt_ns)
        while nbytes > window:
            idle = rtt_ns - window * per_byte_ns
            if idle <= 0:
                break
            waited += idle
            nbytes -= window
            window *= 2
        return waited

    def sent(self, nbytes: int, now: int, rtt_ns: float) -> None:
        """So much is sent now. A window that is less than half filled does not grow (RFC 7661)."""
        window = self.window(now, rtt_ns)
        self._window = min(window + nbytes, MOST_BYTES) if 2 * nbytes >= window else window
        self._sent_ns = now

    def learn(self, waited_ns: float, modelled_ns: float) -> None:
        """An exchange whose start was modelled to wait `modelled_ns` (more than 0) waited `waited_ns`."""
        self._shares.append(min(2.0, max(0.0, waited_ns / modelled_ns)))
