"""One direction of a link that follows a source of shapes."""

from __future__ import annotations

from hil.emulator.direction import Counts, Direction
from hil.emulator.fates import Fates
from hil.emulator.shape import Shape, ShapeSource
from hil.emulator.sources import Constant


class Way:
    """A direction that follows a source: each change counts from its own moment, however late the process wakes for it.

    Every method takes `now` in nanoseconds, which must never go back. A way begins as an open link that does nothing.
    """

    def __init__(self, fates: Fates, now: int) -> None:
        self._change_ns: int | None = None
        self._direction = Direction(Shape(), fates)
        self._follow(Constant(Shape()), now)

    def play(self, source: ShapeSource, now: int) -> None:
        """Follow `source`, whose time begins now."""
        self.turn(now)
        self._follow(source, now)
        self._direction.configure(source.at(0), now)

    def reseed(self, fates: Fates) -> None:
        """Draw the fates of the packets that come from now on from `fates`."""
        self._direction.reseed(fates)

    def offer(self, packet: bytes, now: int) -> None:
        """A packet comes at `now`."""
        self.turn(now)
        self._direction.offer(packet, now)

    def take(self, now: int) -> list[bytes]:
        """All packets that have come out by `now`, in order."""
        self.turn(now)
        return self._direction.take(now)

    def next_ns(self, now: int) -> int | None:
        """When to `take` next; None where nothing will happen by itself."""
        self.turn(now)
        packet_ns = self._direction.next_ns(now)
        if packet_ns is None or self._change_ns is None:
            return self._change_ns if packet_ns is None else packet_ns
        return min(packet_ns, self._change_ns)

    def turn(self, now: int) -> None:
        """Make the changes that are due by `now`."""
        while self._change_ns is not None and self._change_ns <= now:
            at = self._change_ns
            elapsed = at - self._began_ns
            self._direction.configure(self._source.at(elapsed), at)
            self._change_ns = self._next_change(elapsed)

    def counts(self) -> Counts:
        """What has become of the packets."""
        return self._direction.counts()

    def _follow(self, source: ShapeSource, now: int) -> None:
        self._source = source
        self._began_ns = now
        self._change_ns = self._next_change(0)

    def _next_change(self, elapsed_ns: int) -> int | None:
        change = self._source.next_ns(elapsed_ns)
        return None if change is None else self._began_ns + change
