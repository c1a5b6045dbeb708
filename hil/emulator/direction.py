"""One direction of an emulated link, as pure arithmetic: packets go in at one time and come out at another, or never.

A packet meets, in this order: a blackout; a queue of so many bytes, which drops what does not fit; the link's rate; loss,
after it has used its time on the link; the delay with its jitter, or the hold of a packet that is to be overtaken. The rate
is a token bucket counted in whole bits times nanoseconds, so that no rounding adds up, and a change of rate counts from its
moment for the packet on the wire too: a trace that changes faster than a packet takes would otherwise starve it.

A stall stops the link's own clock. What was queued or under way stays where it is and goes on afterwards.

`hil.shaping` does the same for the bytes of a stream, which are never lost and whose reader can be held back; a packet link
cannot hold anybody back. Rejected: to work out each packet's arrival as it comes, which a change of rate makes wrong.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

import msgspec

from hil.emulator.fates import Fate, Fates
from hil.emulator.shape import Passing, Shape

FLIGHT_BYTES = 64 << 20
"""Bytes that may be under way at once. Beyond it packets count as overflowed: an unlimited rate with a long delay is no
reason to take all memory."""

_SECOND = 1_000_000_000


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Packets since the beginning. `offered` = `delivered` + `lost` + `overflowed` + `darkened` + `inside`.

    `lost`: by chance. `overflowed`: the queue was full. `darkened`: by a blackout. `inside`: queued or under way now.
    """

    offered: int = 0
    delivered: int = 0
    lost: int = 0
    overflowed: int = 0
    darkened: int = 0
    inside: int = 0
    bytes_offered: int = 0
    bytes_delivered: int = 0


class Direction:
    """One direction of one link. Every method takes `now` in nanoseconds, which must never go back."""

    def __init__(self, shape: Shape, fates: Fates) -> None:
        self._use(shape)
        self._fates = fates
        self._queue: deque[tuple[bytes, Fate]] = deque()
        self._queued = 0
        self._flight: list[tuple[int, int, bytes]] = []
        self._flying = 0
        self._tokens = 0
        self._filled_ns = 0
        self._last_ns = 0
        self._left = 0
        self._frozen_ns = 0
        self._stalled_since = 0 if shape.passing is Passing.STALLED else None
        self._offered = self._delivered = self._lost = self._overflowed = self._darkened = 0
        self._bytes_offered = self._bytes_delivered = 0

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the link, or are on it."""
        return self._queued

    def offer(self, packet: bytes, now: int) -> None:
        """A packet comes at `now`."""
        shape = self._shape
        fate = self._fates.draw(shape)
        size = len(packet)
        self._offered += 1
        self._bytes_offered += size
        if shape.passing is Passing.DARK:
            self._darkened += 1
            return
        link = self._link_ns(now)
        self._advance(link)
        if self._queued + size > shape.queue_bytes or self._flying + size > FLIGHT_BYTES:
            self._overflowed += 1
            return
        self._queue.append((packet, fate))
        self._queued += size
        self._advance(link)

    def take(self, now: int) -> list[bytes]:
        """All packets that have come out by `now`, in the order in which they do."""
        out: list[bytes] = []
        if self._stalled_since is not None:
            return out
        link = self._link_ns(now)
        self._advance(link)
        flight = self._flight
        while flight and flight[0][0] <= link:
            packet = heappop(flight)[2]
            self._flying -= len(packet)
            self._bytes_delivered += len(packet)
            out.append(packet)
        self._delivered += len(out)
        return out

    def next_ns(self, now: int) -> int | None:
        """When to `take` next: no packet comes out before. None while nothing is inside or the link is stalled."""
        if self._stalled_since is not None:
            return None
        self._advance(self._link_ns(now))
        times = [self._flight[0][0]] if self._flight else []
        if self._queue:
            packet, fate = self._queue[0]
            times.append(self._arrival(self._leave(packet), fate))
        return min(times) + self._frozen_ns if times else None

    def configure(self, shape: Shape, now: int) -> None:
        """Change what the link does from `now` on. Packets that have left the queue keep their time of arrival."""
        link = self._link_ns(now)
        self._advance(link)
        self._tokens += self._rate_bps * (link - self._filled_ns)
        self._filled_ns = link
        stalled = shape.passing is Passing.STALLED
        if self._stalled_since is not None and not stalled:
            self._frozen_ns += now - self._stalled_since
            self._stalled_since = None
        elif self._stalled_since is None and stalled:
            self._stalled_since = now
        self._use(shape)
        if shape.passing is Passing.DARK:
            self._darkened += len(self._queue) + len(self._flight)
            self._queue.clear()
            self._flight.clear()
            self._queued = self._flying = 0
        self._advance(link)

    def reseed(self, fates: Fates) -> None:
        """Draw the fates of the packets that come from now on from `fates`."""
        self._fates = fates

    def counts(self) -> Counts:
        """What has become of the packets."""
        return Counts(
            offered=self._offered,
            delivered=self._delivered,
            lost=self._lost,
            overflowed=self._overflowed,
            darkened=self._darkened,
            inside=len(self._queue) + len(self._flight),
            bytes_offered=self._bytes_offered,
            bytes_delivered=self._bytes_delivered,
        )

    def _use(self, shape: Shape) -> None:
        """Read the shape once: it is asked for at each packet."""
        self._shape = shape
        self._rate_bps = shape.rate_bps
        self._delay_ns = shape.delay_ns
        self._hold_ns = round(shape.reorder_ms * 1e6)
        self._most_tokens = shape.burst_bytes * 8 * _SECOND

    def _link_ns(self, now: int) -> int:
        """The link's own clock: it stands still during a stall."""
        return (now if self._stalled_since is None else self._stalled_since) - self._frozen_ns

    def _advance(self, link: int) -> None:
        """Let everything leave the queue that has left by `link`, and fill the bucket of an idle link."""
        if self._stalled_since is not None:
            return
        queue, rate = self._queue, self._rate_bps
        while queue:
            packet, fate = queue[0]
            leave = self._leave(packet)
            if leave > link:
                return
            queue.popleft()
            size = len(packet)
            self._queued -= size
            self._tokens += rate * (leave - self._filled_ns) - size * 8 * _SECOND
            self._filled_ns = leave
            self._depart(packet, fate, leave)
        filled = self._tokens + rate * (link - self._filled_ns)
        self._tokens = max(0, min(filled, self._most_tokens))
        self._filled_ns = link

    def _leave(self, packet: bytes) -> int:
        """When the packet at the head of the queue has left it."""
        missing = len(packet) * 8 * _SECOND - self._tokens
        if missing <= 0 or not self._rate_bps:
            return self._filled_ns
        return self._filled_ns - -missing // self._rate_bps

    def _depart(self, packet: bytes, fate: Fate, leave: int) -> None:
        if fate.lost:
            self._lost += 1
            return
        arrival = self._arrival(leave, fate)
        if fate.held:
            arrival += self._hold_ns
        else:
            self._last_ns = arrival
        self._left += 1
        self._flying += len(packet)
        heappush(self._flight, (arrival, self._left, packet))

    def _arrival(self, leave: int, fate: Fate) -> int:
        """When a packet that leaves the queue at `leave` arrives, not counting a hold."""
        arrival = leave + self._delay_ns + fate.jitter_ns
        return arrival if fate.held else max(arrival, self._last_ns)
