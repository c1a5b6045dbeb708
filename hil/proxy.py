"""An unprivileged proxy that stands for a network: `python -m hil.proxy`, told what to do on its standard input.

It takes connections on loopback, connects each to its target, and lets the bytes of both directions through a
`hil.shaping.Shaper`, one for each route and direction, so that all connections of a route share its link. It reads no
more than the link has room for: a stalled link fills the sender's socket as a real one does. The end of one side ends the
pair, once what it had sent before has arrived. A connection whose target is not there is reset at once.

One thread, epoll, and a timer with the kernel's precision; asyncio rounds its timers to milliseconds, and a link of 2 ms
round trip cannot be made from those. Its own lateness is measured and reported.
"""

from __future__ import annotations

import errno
import gc
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

import msgspec

from hil.proxy_control import Command, Reply, Report, Reshape, RouteAddress, RouteCounts, Routes, Stall
from hil.shaping import Shape, Shaper
from hil.weight import add_weight
from shared.lateness import Lateness
from shared.timer import make_timer

GRAIN_NS = 200_000
READ_BYTES = 16 * 1024
OUTBOX_BYTES = 256 * 1024
SOCKET_BYTES = 64 * 1024
CONNECT_S = 0.2
RESET = struct.pack("ii", 1, 0)

_READY = select.EPOLLIN
_BROKEN = select.EPOLLERR | select.EPOLLHUP


class End:
    """One socket of a pair. What is read here enters `shaper`; what comes out of the other direction waits in `outbox`."""

    def __init__(self, route: Route, sock: socket.socket, shaper: Shaper[End]) -> None:
        self.route = route
        self.sock = sock
        self.shaper = shaper
        self.other: End = self
        self.outbox = bytearray()
        self.ended = False
        self.interest = 0


class Route:
    """A listening socket and the two directions of its link."""

    def __init__(self, address: RouteAddress) -> None:
        self.address = address
        self.up: Shaper[End] = Shaper(Shape())
        self.down: Shaper[End] = Shaper(Shape())
        self.ends: set[End] = set()
        self.accepted = self.refused = self.bytes_up = self.bytes_down = 0
        self.listener = socket.create_server((address.host, address.listen), backlog=64)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        self.listener.setblocking(False)

    def counts(self) -> RouteCounts:
        """Traffic since the last call."""
        counts = RouteCounts(
            listen=self.listener.getsockname()[1],
            accepted=self.accepted,
            refused=self.refused,
            open=len(self.ends) // 2,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
        )
        self.accepted = self.refused = self.bytes_up = self.bytes_down = 0
        return counts


class ProxyLoop:
    """The loop. `commands` and `replies` are descriptors of the control lines; the end of `commands` ends it."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies = commands, replies
        self._epoll = select.epoll()
        self._timer = make_timer()
        self._due_ns: int | None = None
        self._routes: dict[str, Route] = {}
        self._listeners: dict[int, Route] = {}
        self._ends: dict[int, End] = {}
        self._lateness = Lateness()
        self._line = b""
        self._decoder = msgspec.json.Decoder(Command)
        os.set_blocking(commands, False)
        self._epoll.register(commands, _READY)
        self._epoll.register(self._timer.fileno(), _READY)

    def run(self) -> None:
        """Serve until the control lines end."""
        while True:
            events = self._epoll.poll()
            now = time.monotonic_ns()
            for fd, mask in events:
                if fd == self._commands:
                    if not self._control(now):
                        return
                elif fd == self._timer.fileno():
                    self._timer.ack()
                elif fd in self._listeners:
                    self._accept(self._listeners[fd])
                elif fd in self._ends:
                    self._serve(self._ends[fd], mask, now)
            self._deliver()
            self._rearm()

    # --- connections ---------------------------------------------------------------------------------------------------

    def _accept(self, route: Route) -> None:
        try:
            client, _ = route.listener.accept()
        except OSError:
            return
        route.accepted += 1
        target = socket.socket()
        target.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
        target.settimeout(CONNECT_S)
        try:
            target.connect((route.address.host, route.address.target))
        except OSError:
            route.refused += 1
            target.close()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            return
        near, far = End(route, client, route.up), End(route, target, route.down)
        near.other, far.other = far, near
        for end in (near, far):
            end.sock.setblocking(False)
            end.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends[end.sock.fileno()] = end
            route.ends.add(end)

    def _serve(self, end: End, mask: int, now: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush(end)
        if mask & (_READY | _BROKEN) and not end.ended:
            self._read(end, now, broken=bool(mask & _BROKEN))

    def _read(self, end: End, now: int, broken: bool) -> None:
        room = min(READ_BYTES, end.shaper.room())
        if not room and not broken:
            return
        try:
            data = end.sock.recv(room or READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        end.shaper.put(end.other, data, now)
        if end.shaper is end.route.up:
            end.route.bytes_up += len(data)
        else:
            end.route.bytes_down += len(data)
        end.ended = not data

    def _flush(self, end: End) -> None:
        try:
            while end.outbox:
                del end.outbox[: end.sock.send(end.outbox)]
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise
            self._close(end)

    def _close(self, end: End) -> None:
        for side in (end, end.other):
            fd = side.sock.fileno()
            if fd < 0:
                continue
            if side.interest:
                self._epoll.unregister(fd)
                side.interest = 0
            self._ends.pop(fd, None)
            side.route.ends.discard(side)
            side.route.up.drop(side)
            side.route.down.drop(side)
            side.sock.close()

    # --- time ----------------------------------------------------------------------------------------------------------

    def _shapers(self) -> Iterator[Shaper[End]]:
        for route in self._routes.values():
            yield route.up
            yield route.down

    def _deliver(self) -> None:
        now = time.monotonic_ns()
        if self._due_ns is not None and now >= self._due_ns:
            self._lateness.add(now - self._due_ns)
            self._due_ns = None
        for shaper in self._shapers():
            for end, data in shaper.take(now):
                if end.sock.fileno() < 0:
                    continue
                if not data:
                    self._flush(end)
                    self._close(end)
                    continue
                end.outbox += data
                self._flush(end)

    def _rearm(self) -> None:
        now = time.monotonic_ns()
        times = [at for shaper in self._shapers() if (at := shaper.next_ns(now, GRAIN_NS)) is not None]
        self._due_ns = min(times, default=None)
        self._timer.set(self._due_ns)
        for end in self._ends.values():
            self._watch(end)

    def _watch(self, end: End) -> None:
        """Tell the kernel what this socket waits for; one that waits for nothing is taken out, or a hang-up would spin."""
        reads = not end.ended and end.shaper.room() > 0 and len(end.other.outbox) < OUTBOX_BYTES
        interest = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if end.outbox else 0)
        if interest == end.interest:
            return
        if not interest:
            self._epoll.unregister(end.sock.fileno())
        elif end.interest:
            self._epoll.modify(end.sock.fileno(), interest)
        else:
            self._epoll.register(end.sock.fileno(), interest)
        end.interest = interest

    # --- control -------------------------------------------------------------------------------------------------------

    def _control(self, now: int) -> bool:
        data = os.read(self._commands, 65536)
        if not data:
            return False
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            try:
                reply = self._obey(self._decoder.decode(line), now)
            except (msgspec.MsgspecError, KeyError, OSError) as error:
                reply = Reply(error=str(error))
            os.write(self._replies, msgspec.json.encode(reply) + b"\n")
        return True

    def _obey(self, command: Command, now: int) -> Reply:
        if isinstance(command, Routes):
            for address in command.routes:
                route = self._routes[address.name] = Route(address)
                self._listeners[route.listener.fileno()] = route
                self._epoll.register(route.listener.fileno(), _READY)
            return Reply(routes={name: route.counts() for name, route in self._routes.items()})
        if isinstance(command, Report):
            lateness = self._lateness.figures()
            self._lateness.clear()
            return Reply(lateness=lateness, routes={name: route.counts() for name, route in self._routes.items()})
        for route in self._routes.values() if command.route is None else (self._routes[command.route],):
            if isinstance(command, Reshape):
                route.up.configure(command.up, now)
                route.down.configure(command.down, now)
            elif isinstance(command, Stall):
                route.up.stall(command.stalled, now)
                route.down.stall(command.stalled, now)
            else:
                for end in tuple(route.ends):
                    self._close(end)
        return Reply()


def main() -> None:
    """Run the proxy on standard input and output."""
    add_weight()
    gc.freeze()
    ProxyLoop(sys.stdin.fileno(), sys.stdout.fileno()).run()


if __name__ == "__main__":
    main()
