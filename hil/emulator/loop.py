"""The emulator's process: it owns the devices and moves packets between them, told what to do on its standard input.

One thread, epoll, and a timer with the kernel's precision. Each turn reads what has come, up to a batch from each device,
then writes what is due. All that was read in a turn counts as come when the turn began, so that no packet is early; how late
packets leave is measured and reported.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time

import msgspec

from hil.emulator.fates import Fates
from hil.emulator.messages import (
    Build,
    Command,
    LinkCounts,
    Places,
    Play,
    PlayTrace,
    Reply,
    Report,
    Reseed,
    Reshape,
    WayCounts,
)
from hil.emulator.network import Network
from hil.emulator.shape import MTU, Shape, ShapeSource
from hil.emulator.sources import Constant, Schedule, Step
from hil.emulator.trace_chunks import Load, Loading
from hil.emulator.trace_source import trace_sources
from hil.emulator.tun import Tun
from hil.emulator.way import Way
from hil.weight import add_weight
from shared.errors import UserError
from shared.lateness import Lateness
from shared.timer import make_timer

BATCH = 64
"""Packets read from one device before it is the others' turn."""


class Lane:
    """One direction between two devices."""

    def __init__(self, source: Tun, target: Tun, way: Way) -> None:
        self.source, self.target, self.way = source, target, way
        self._from, self._to = source.fileno(), target.fileno()
        self._refused = 0

    def read(self) -> None:
        """Take in what waits at the source, up to a batch."""
        now = time.monotonic_ns()
        try:
            for _ in range(BATCH):
                self.way.offer(os.read(self._from, MTU), now)
        except BlockingIOError:
            pass

    def write(self) -> int | None:
        """Write what is due at the target; when the next will be."""
        for packet in self.way.take(time.monotonic_ns()):
            try:
                os.write(self._to, packet)
            except OSError:
                self._refused += 1
        return self.way.next_ns(time.monotonic_ns())

    def counts(self) -> WayCounts:
        """What has become of the packets."""
        return WayCounts(self.way.counts(), self.source.unread(), self._refused)


class EmulatorLoop:
    """The loop. `commands` and `replies` are descriptors of the control lines; their end, or `stop`, ends it."""

    def __init__(self, network: Network, commands: int, replies: int) -> None:
        self._network, self._commands, self._replies = network, commands, replies
        self._links: dict[str, tuple[Lane, Lane]] = {}
        self._places: dict[str, Places] = {}
        self._lanes: dict[int, Lane] = {}
        self._due_ns: int | None = None
        self._lateness = Lateness()
        self._loading = Loading()
        self._line = b""
        self._decoder = msgspec.json.Decoder(Command)
        self._timer = make_timer()
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(commands, select.EPOLLIN)
        self._epoll.register(self._stop, select.EPOLLIN)
        # Edge-triggered: setting the timer again clears it, so that it is never read.
        self._epoll.register(self._timer.fileno(), select.EPOLLIN | select.EPOLLET)

    def stop(self, *why: object) -> None:
        """End `run` after the turn under way. It may be the handler of a signal, which says `why`."""
        del why
        os.eventfd_write(self._stop, 1)

    def run(self) -> None:
        """Serve until the control lines end or `stop` is called."""
        while True:
            for fd, _ in self._epoll.poll():
                if fd == self._stop or (fd == self._commands and not self._control()):
                    return
                lane = self._lanes.get(fd)
                if lane is not None:
                    lane.read()
            self._deliver()

    def _deliver(self) -> None:
        if self._due_ns is not None:
            late_ns = time.monotonic_ns() - self._due_ns
            if late_ns >= 0:
                self._lateness.add(late_ns)
        due_ns = min((at for lane in self._lanes.values() if (at := lane.write()) is not None), default=None)
        if due_ns != self._due_ns:
            self._due_ns = due_ns
            self._timer.set(due_ns)

    # --- control -------------------------------------------------------------------------------------------------------

    def _control(self) -> bool:
        data = os.read(self._commands, 1 << 16)
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            try:
                reply = self._obey(self._decoder.decode(line), time.monotonic_ns())
            except (msgspec.MsgspecError, UserError) as error:
                reply = Reply(error=str(error))
            try:
                os.write(self._replies, msgspec.json.encode(reply) + b"\n")
            except BrokenPipeError:
                return False
        return bool(data)

    def _obey(self, command: Command, now: int) -> Reply:
        match command:
            case Build():
                self._build(command)
                return Reply(places=self._places)
            case Report():
                lateness = self._lateness.figures()
                self._lateness.clear()
                return Reply(links={name: _counts(lanes) for name, lanes in self._links.items()}, lateness=lateness)
            case Reshape():
                self._play(command.link, _constant(command.up), _constant(command.down), now)
            case Play():
                up, down = _schedule(command.up, command.repeat_ms), _schedule(command.down, command.repeat_ms)
                self._play(command.link, up, down, now)
                return Reply(began_ns=now)
            case Load():
                self._loading.add(command)
            case PlayTrace():
                sources = trace_sources(self._loading.take(command.step_us), command.queue_bytes)
                # Taken anew: putting a long trace together takes time, which the trace has not played.
                now = time.monotonic_ns()
                self._play(command.link, *sources, now)
                return Reply(began_ns=now)
            case Reseed():
                for name, lanes in self._chosen(command.link).items():
                    for lane, side in zip(lanes, ("up", "down"), strict=True):
                        lane.way.reseed(Fates(command.seed, name, side))
        return Reply()

    def _build(self, command: Build) -> None:
        if self._links:
            raise UserError("the emulator has its links already; start another one for others")
        now = time.monotonic_ns()
        for link, (near, far, places) in zip(command.links, self._network.build(command.links), strict=True):
            up = Lane(near, far, Way(Fates(command.seed, link.name, "up"), now))
            down = Lane(far, near, Way(Fates(command.seed, link.name, "down"), now))
            self._links[link.name] = up, down
            self._places[link.name] = places
            for lane in (up, down):
                self._lanes[lane.source.fileno()] = lane
                self._epoll.register(lane.source.fileno(), select.EPOLLIN)

    def _play(self, link: str | None, up: ShapeSource | None, down: ShapeSource | None, now: int) -> None:
        for lanes in self._chosen(link).values():
            for lane, source in zip(lanes, (up, down), strict=True):
                if source is not None:
                    lane.way.play(source, now)

    def _chosen(self, link: str | None) -> dict[str, tuple[Lane, Lane]]:
        if link is None and self._links:
            return self._links
        if link is None or link not in self._links:
            raise UserError(f"there is no link {link!r}; there are: {', '.join(self._links) or 'none yet'}")
        return {link: self._links[link]}


def _counts(lanes: tuple[Lane, Lane]) -> LinkCounts:
    up, down = lanes
    return LinkCounts(up.counts(), down.counts())


def _constant(shape: Shape | None) -> Constant | None:
    return None if shape is None else Constant(shape)


def _schedule(steps: tuple[Step, ...], repeat_ms: float) -> Schedule | None:
    return Schedule(steps, repeat_ms) if steps else None


def main() -> None:
    """Run an emulator on standard input and output. The end of the input and SIGTERM end it, and it removes what it made."""
    add_weight()
    with Network() as network:
        loop = EmulatorLoop(network, sys.stdin.fileno(), sys.stdout.fileno())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, loop.stop)
        gc.freeze()
        loop.run()


if __name__ == "__main__":
    main()
