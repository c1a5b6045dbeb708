"""A shaped link, as pure arithmetic: bytes that go in at one time come out at another.

One `Shaper` is one direction of one link, shared by every connection that crosses it. Bytes enter a queue, leave it one
packet after the other at the link's rate, and arrive a fixed delay later. A queue has a bound: while it is full its
reader stops reading, so that a slow or stalled link fills the sender's TCP buffers as a real one would.

A stall freezes the link's own clock. What was queued or under way stays where it is and goes on when the stall ends, as
on a radio link that loses its cell; nothing is dropped, because TCP would send it again anyway.

The link is cut into packets of `PACKET` bytes rather than treated as a fluid, because a real receiver sees packets, and
because a packet is the smallest thing that a change of rate has to care about. Rejected: `tc netem` (needs root), one
sleeping thread for each connection (its lateness is the scheduler's), a token bucket (lets a burst through at once, which
no link does).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

PACKET = 1448
"""Payload bytes of a TCP segment on an Ethernet link."""

T = TypeVar("T")


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a direction of a link does to bytes.

    `rate_mbit`: 10^6 bits a second; 0 is unlimited. `delay_ms`: one way. `queue_kb`: the least bound of the queue in
    units of 1024 bytes; the bound is twice the bandwidth-delay product where that is more.
    """

    rate_mbit: float = 0.0
    delay_ms: float = 0.0
    queue_kb: int = 32

    @property
    def delay_ns(self) -> int:
        """One-way delay in nanoseconds."""
        return round(self.delay_ms * 1e6)

    def serialise_ns(self, nbytes: int) -> int:
        """Nanoseconds that `nbytes` bytes occupy the link."""
        return round(nbytes * 8000 / self.rate_mbit) if self.rate_mbit > 0 else 0

    @property
    def bound(self) -> int:
        """Bytes that may be in the link at once: queued or under way."""
        product = self.rate_mbit * 1e6 / 8 * (2 * self.delay_ms / 1e3)
        return max(self.queue_kb * 1024, round(2 * product))


class Shaper(Generic[T]):
    """One direction of a link. `T` names the connection that bytes belong to; order is kept across connections.

    Every method takes `now` in nanoseconds, which must never go back.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._queue: deque[tuple[T, bytes, int]] = deque()
        self._flight: deque[tuple[T, bytes, int]] = deque()
        self._held = 0
        self._free_ns = 0
        self._last_ns = 0
        self._frozen_ns = 0
        self._stalled_since: int | None = None

    @property
    def held(self) -> int:
        """Bytes queued or under way."""
        return self._held

    def room(self) -> int:
        """Bytes that may be put in now without passing the bound. Zero while it is full."""
        return max(0, self._shape.bound - self._held)

    def put(self, tag: T, data: bytes, now: int) -> None:
        """Let bytes in at `now`. Empty data is a mark (an end of stream) that keeps its place among the bytes."""
        entered = self._link_ns(now)
        for first in range(0, max(1, len(data)), PACKET):
            self._queue.append((tag, data[first : first + PACKET], entered))
        self._held += len(data)

    def take(self, now: int) -> list[tuple[T, bytes]]:
        """All that has come out by `now`, in order."""
        out: list[tuple[T, bytes]] = []
        if self._stalled_since is not None:
            return out
        link = self._link_ns(now)
        self._advance(link)
        while self._flight and self._flight[0][2] <= link:
            tag, data, _ = self._flight.popleft()
            self._held -= len(data)
            out.append((tag, data))
        return out

    def next_ns(self, now: int, grain_ns: int = 0) -> int | None:
        """When the next bytes come out, or None while there are none or the link is stalled.

        Packets that come out within `grain_ns` of the first count as one lump, whose last packet's time is returned: the
        end of a message stays exact, and a fast link does not wake its process for each packet.
        """
        if self._stalled_since is not None:
            return None
        self._advance(self._link_ns(now))
        first = next(self._arrivals(), None)
        if first is None:
            return None
        last = first
        for arrival in self._arrivals():
            if arrival > first + grain_ns:
                break
            last = arrival
        return last + self._frozen_ns

    def configure(self, shape: Shape, now: int) -> None:
        """Change rate and delay from `now` on. Packets under way keep their time; the packet on the wire starts again."""
        link = self._link_ns(now)
        self._advance(link)
        self._shape = shape
        self._free_ns = min(self._free_ns, link)

    def stall(self, stalled: bool, now: int) -> None:
        """Freeze or thaw the link. Doing it twice changes nothing."""
        if stalled and self._stalled_since is None:
            self._advance(self._link_ns(now))
            self._stalled_since = now
        elif not stalled and self._stalled_since is not None:
            self._frozen_ns += now - self._stalled_since
            self._stalled_since = None

    def drop(self, tag: T) -> None:
        """Forget everything that belongs to a connection."""
        self._queue = deque(item for item in self._queue if item[0] != tag)
        self._flight = deque(item for item in self._flight if item[0] != tag)
        self._held = sum(len(data) for _, data, _ in (*self._queue, *self._flight))

    def _link_ns(self, now: int) -> int:
        """The link's own clock: it stands still during a stall."""
        return (now if self._stalled_since is None else self._stalled_since) - self._frozen_ns

    def _advance(self, link: int) -> None:
        """Put on the wire whatever has left the queue by `link`."""
        while self._queue:
            tag, data, entered = self._queue[0]
            end = max(self._free_ns, entered) + self._shape.serialise_ns(len(data))
            if end > link:
                return
            self._queue.popleft()
            self._free_ns = end
            self._last_ns = max(self._last_ns, end + self._shape.delay_ns)
            self._flight.append((tag, data, self._last_ns))

    def _arrivals(self) -> Iterator[int]:
        """Times, on the link's clock, at which the packets now inside come out, in order."""
        for _, _, arrival in self._flight:
            yield arrival
        free, last = self._free_ns, self._last_ns
        for _, data, entered in self._queue:
            free = max(free, entered) + self._shape.serialise_ns(len(data))
            last = max(last, free + self._shape.delay_ns)
            yield last
