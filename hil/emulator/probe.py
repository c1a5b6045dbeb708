"""Numbered UDP packets over an emulated link, and which of them will come, in which order, by the emulator's arithmetic."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from hil.emulator.direction import Counts, Direction
from hil.emulator.fates import Fates
from hil.emulator.handle import Emulator
from hil.emulator.shape import Passing, Shape
from shared.errors import HeadtailError

HEADERS = 28
"""Bytes of the IP and UDP headers."""

PATIENCE_S = 30.0
RECEIVE_BYTES = 32 << 20

_HEAD = struct.Struct("!IQ")
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_QUICK_NS = 20_000
"""Two clocks that are read within so long were read at once."""

Side = Literal["up", "down"]


class Arrival(NamedTuple):
    """One packet that came: its number, and when it was sent and received, in nanoseconds of CLOCK_MONOTONIC."""

    number: int
    sent_ns: int
    came_ns: int

    @property
    def took_ms(self) -> float:
        """Milliseconds from before it was sent to after it was received."""
        return (self.came_ns - self.sent_ns) / 1e6


class Probe:
    """Sends from one end of a link and receives at the other. Use it as a context manager, or `close` it.

    Nothing else may use this direction meanwhile: what comes is held against the emulator's counts. Where it is `stamped`,
    the kernel says when a packet was received, else it counts as received when this process has read it. Raises
    `HeadtailError` where what is waited for does not come within `PATIENCE_S`.
    """

    def __init__(
        self, emulator: Emulator, link: str, near: str, far: str, side: Side = "up", stamped: bool = False
    ) -> None:
        self._emulator, self._link, self._side = emulator, link, side
        source, target = (near, far) if side == "up" else (far, near)
        self.out = emulator.socket_at(source, socket.SOCK_DGRAM)
        self.into = emulator.socket_at(target, socket.SOCK_DGRAM)
        self.into.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BYTES)
        self._stamped = stamped
        if stamped:
            self.into.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.into.settimeout(PATIENCE_S)
        self.into.bind((emulator.place(link, target).address, 0))
        self.out.connect(self.into.getsockname())
        self._before = self._totals()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the sockets."""
        self.out.close()
        self.into.close()

    def send(self, numbers: Sequence[int], size: int) -> list[int]:
        """Send packets of `size` bytes, headers included, one right after the other, and return when each was sent."""
        padding = bytes(size - HEADERS - _HEAD.size)
        sent_ns: list[int] = []
        for number in numbers:
            sent_ns.append(time.monotonic_ns())
            self.out.send(_HEAD.pack(number, sent_ns[-1]) + padding)
        return sent_ns

    def receive(self, count: int) -> list[Arrival]:
        """The next `count` packets, in the order in which they come."""
        arrivals: list[Arrival] = []
        try:
            for _ in range(count):
                if self._stamped:
                    arrivals.append(_stamped(*self.into.recvmsg(2048, socket.CMSG_SPACE(_TIMESPEC.size))[:2]))
                else:
                    data = self.into.recv(2048)
                    arrivals.append(_arrival(data, time.monotonic_ns()))
        except TimeoutError:
            raise HeadtailError(f"{len(arrivals)} packets of {count} came over the link {self._link!r}") from None
        return arrivals

    def settle(self, offered: int, inside: int = 0) -> Counts:
        """Wait until the emulator has read `offered` packets since the probe began or last settled, and no more than `inside`
        of all are left inside; counts since then."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            now = self._totals()
            if now.offered - self._before.offered >= offered and now.inside <= inside:
                counts = _difference(now, self._before)
                self._before = now
                return counts
            if time.monotonic() > end_s:
                read = now.offered - self._before.offered
                raise HeadtailError(f"the emulator read {read} packets of {offered}, and {now.inside} are inside")

    def _totals(self) -> Counts:
        counts = self._emulator.counts(self._link)
        return (counts.up if self._side == "up" else counts.down).packets


def foretell(shape: Shape, fates: Fates, count: int, size: int) -> list[int]:
    """The numbers of the packets that come, in order, where `count` packets of `size` bytes are sent into a stall that then
    ends. Without overflow and reordering it makes no difference whether there was a stall."""
    way = Direction(msgspec.structs.replace(shape, passing=Passing.STALLED), fates)
    for number in range(count):
        way.offer(number.to_bytes(4, "big") + bytes(size - 4), 0)
    way.configure(msgspec.structs.replace(shape, passing=Passing.OPEN), 1)
    came: list[int] = []
    now = 1
    while True:
        came += [int.from_bytes(packet[:4], "big") for packet in way.take(now)]
        following = way.next_ns(now)
        if following is None:
            return came
        now = following


def _arrival(data: bytes, came_ns: int) -> Arrival:
    number, sent_ns = _HEAD.unpack_from(data)
    return Arrival(number, sent_ns, came_ns)


def _stamped(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> Arrival:
    (stamp,) = (extra for level, kind, extra in ancillary if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS))
    seconds, nanoseconds = _TIMESPEC.unpack(stamp)
    return _arrival(data, seconds * 1_000_000_000 + nanoseconds + _monotonic_ahead_ns())


def _monotonic_ahead_ns() -> int:
    """What has to be added to a time of CLOCK_REALTIME, of which the kernel's stamps are."""
    while True:
        before_ns, real_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if after_ns - before_ns <= _QUICK_NS:
            return (before_ns + after_ns) // 2 - real_ns


def _difference(now: Counts, before: Counts) -> Counts:
    names = [name for name in Counts.__struct_fields__ if name != "inside"]
    return Counts(**{name: getattr(now, name) - getattr(before, name) for name in names}, inside=now.inside)
