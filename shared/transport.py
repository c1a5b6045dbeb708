"""ZeroMQ behind the port `Transport`: a `Router` that many peers connect to, and `Dealers` that connect.

All sockets of a transport belong to the loop's thread and are watched through one epoll descriptor. ZeroMQ's own
descriptor tells only that *something* changed, and a send may swallow the change, so that a socket that was sent on is asked
again before the loop sleeps (`pending`).

Tensors of 64 KiB and more are received as views of the library's own message and kept alive by whoever holds the view;
smaller frames are copied, which is cheaper. Sends copy: the caller may reuse its memory at once, and up to 600 KB it is
faster, since a thread of pyzmq's would have to wake to give the memory back. A receive into buffers of ours was rejected
because it truncates silently and needs one more copy.

A bad message is counted by its reason in `counters` and dropped; the peers beside it notice nothing. What ZeroMQ itself
refuses (a frame over the limit, bytes that are not its protocol) ends that one connection.
"""

from __future__ import annotations

import errno
import os
import select
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from socket import socket as os_socket
from typing import cast

import zmq

from shared.endpoints import check_endpoint, is_address, source_fault, with_source
from shared.errors import InvariantBroken, PeerError, UserError
from shared.events import TOGETHER, Event, LinkDown, LinkUp, Received, Send
from shared.path_lock import PathLock
from shared.request import Buffer
from shared.wire.codec import encode
from shared.wire.messages import MAX_TENSORS, Message

Decode = Callable[[Sequence[Buffer], int], tuple[Message, tuple[Buffer, ...]]]
"""A decoder of `shared.wire.codec`: frames and the most bytes of a message, to the message and its tensors' frames."""

VIEW_BYTES = 1 << 16
"""Frames of this length and longer are handed on as views, shorter ones as copies."""

BURST = 64
"""Messages taken from one socket in a turn, so that a talkative peer cannot starve the others."""

MAX_ROUTING_ID = 255
"""Bytes of a routing id, by ZeroMQ's protocol."""

KEEPALIVE_S = (10, 2)
"""Idle connections to dead hosts are reaped by the kernel: the first probe after so long, the next so long after it.
ZeroMQ's own heartbeats (ZMTP PING) were rejected: where one is due on a connection that has failed while its input was held,
as after a hand-over of a routing id, the library ends the whole process ("Assertion failed: !_io_error", libzmq 4.3.5; libzmq
issues 3596, 3937 and 4767 are of the same kind). A node died of it once in some hundred connections that were made anew."""

HANDSHAKE_MS = 2_000
CONNECT_MS = 1_000
UNACKED_MS = 1_500
"""A connection whose bytes stay unacknowledged for so long is given up."""

RECONNECT_MS = (50, 2_000)
RECONNECT_LOCAL_MS = (20, 200)
"""First and longest pause between attempts to connect, over tcp and on the same host."""

EXPEDITED = 0xB8
"""Type of service: expedited forwarding."""

_send = zmq.backend.Socket.send
"""`Socket.send` without what nobody here asks for, which takes twice as long for a small frame."""

_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)
_MORE = int(zmq.SNDMORE) | int(zmq.NOBLOCK)
_LAST = int(zmq.NOBLOCK)
_MADE = int(zmq.EVENT_CONNECTED)
_UP = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)
_DOWN = int(zmq.EVENT_DISCONNECTED)
_MONITOR = struct.Struct("=hi")

_BIND_ERRORS = {
    errno.EADDRINUSE: "is in use by another process",
    errno.EADDRNOTAVAIL: "is not an address of this host",
    errno.EACCES: "may not be bound: no permission",
    errno.ENODEV: "is not an address of this host",
}


class _Peered:
    """One socket and, on the connecting side, its monitor."""

    __slots__ = ("link", "local", "monitor", "socket", "up")

    def __init__(self, link: str, socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes] | None = None) -> None:
        self.link = link
        self.socket = socket
        self.monitor = monitor
        self.up = False
        self.local = ""


class _Sockets:
    """What `Router` and `Dealers` share: one epoll over their sockets, receiving, decoding, sending."""

    def __init__(self, decode: Decode, max_message_mb: int) -> None:
        self._decode = decode
        self._max_total = max_message_mb << 20
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Peered] = {}
        self._monitored: dict[int, _Peered] = {}
        self._unsure: set[_Peered] = set()
        self._linger_ms = 0
        self.counters: dict[str, int] = {}
        """Messages that were dropped, by the reason of `PeerError`."""
        self.threads: frozenset[int] = frozenset()
        """Ids of ZeroMQ's own threads, which begin with the first socket."""

    def fileno(self) -> int:
        """Readable when any socket may have something."""
        return self._epoll.fileno()

    def pending(self) -> bool:
        """Whether a socket that was sent on, or not emptied, has something that the descriptor no longer shows."""
        while self._unsure:
            peered = self._unsure.pop()
            if _readable(peered.socket):
                self._unsure.add(peered)
                return True
        return False

    def drain(self) -> Iterable[Event]:
        """Connections made and lost, then messages, up to `BURST` from each socket."""
        ready = self._epoll.poll(0, 64)
        if not ready and not self._unsure:
            return ()
        events: list[Event] = []
        unsure, self._unsure = self._unsure, set()
        for fd, _ in ready:
            if fd in self._monitored:
                _watch(self._monitored[fd], events)
                # The socket takes a new connection in only when it is asked for its state.
                unsure.add(self._monitored[fd])
            else:
                unsure.add(self._by_fd[fd])
        for peered in unsure:
            self._receive(peered, events)
        return events

    def linger(self, ms: int) -> None:
        """Have `close` wait so long for what has not left yet."""
        self._linger_ms = ms

    def close(self) -> None:
        """Close all sockets. What has not left by then is lost, unless it is to linger."""
        for peered in tuple(self._by_fd.values()):
            self._remove(peered)
        self._epoll.close()
        self._context.term()

    def _add(self, peered: _Peered) -> None:
        fd = _fd(peered.socket)
        self._by_fd[fd] = peered
        self._epoll.register(fd, select.EPOLLIN)
        self._unsure.add(peered)
        if peered.monitor is not None:
            fd = _fd(peered.monitor)
            self._monitored[fd] = peered
            self._epoll.register(fd, select.EPOLLIN)
            # Its descriptor tells the truth only after the socket was asked once.
            _readable(peered.monitor)

    def _remove(self, peered: _Peered) -> None:
        self._unsure.discard(peered)
        fd = _fd(peered.socket)
        self._epoll.unregister(fd)
        del self._by_fd[fd]
        if peered.monitor is not None:
            fd = _fd(peered.monitor)
            self._epoll.unregister(fd)
            del self._monitored[fd]
            peered.socket.disable_monitor()
            peered.monitor.close(0)
        peered.socket.close(self._linger_ms)

    def _receive(self, peered: _Peered, events: list[Event]) -> None:
        socket = peered.socket
        came: list[tuple[str, Message, tuple[Buffer, ...]]] = []
        for _ in range(BURST):
            try:
                frames = _take(socket)
            except zmq.Again:  # the descriptor showed something else
                break
            try:
                link = self._link(peered, frames)
                came.append((link, *self._decode(frames, self._max_total)))
            except PeerError as error:
                self.counters[error.reason] = self.counters.get(error.reason, 0) + 1
            if not _readable(socket):
                break
        else:
            self._unsure.add(peered)
        last = len(came) - 1
        for place, (link, message, tensors) in enumerate(came):
            events.append(Received(link, message, tensors, place < last and (place + 1) % TOGETHER > 0))

    def _link(self, peered: _Peered, frames: list[Buffer]) -> str:
        """The connection that a message came on; what tells of it leaves the frames."""
        return peered.link

    def _hand_over(self, peered: _Peered, frames: Sequence[bytes | memoryview]) -> bool:
        socket = peered.socket
        self._unsure.add(peered)
        last = len(frames) - 1
        index = 0
        try:
            while index < last:
                _send(socket, frames[index], _MORE)
                index += 1
            _send(socket, frames[last], _LAST)
        except zmq.ZMQError as error:
            if error.errno not in (errno.EAGAIN, errno.EHOSTUNREACH):
                raise InvariantBroken(f"sending on {peered.link}: {error}") from error
            if 0 < index < last:
                # The connection died between two frames: the socket drops all up to the end of this message.
                socket.send(b"", _LAST)
            return False
        return True

    def _common(self, kind: int, *, local: bool) -> zmq.Socket[bytes]:
        before = frozenset[int]() if self.threads else _threads()
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        self.threads = self.threads or _threads() - before
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, self._max_total)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        if not local:
            socket.setsockopt(zmq.TCP_MAXRT, UNACKED_MS)
            socket.setsockopt(zmq.TOS, EXPEDITED)
            idle_s, again_s = KEEPALIVE_S
            socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
            socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, idle_s)
            socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, again_s)
        return socket


class Router(_Sockets):
    """The side that is connected to: a node over tcp, an agent over ipc. A `link` here is a peer's routing id (latin-1).

    `send_mark` bounds the messages that wait for one peer, `receive_mark` those that wait to be taken from one.

    Raises `UserError` where the endpoint is malformed, in use, or not to be bound.
    """

    def __init__(
        self,
        endpoint: str,
        decode: Decode,
        *,
        max_message_mb: int = 64,
        send_mark: int = 256,
        receive_mark: int = 64,
    ) -> None:
        check_endpoint(endpoint, binds=True)
        super().__init__(decode, max_message_mb)
        local = endpoint.startswith("ipc://")
        self._lock: PathLock | None = None
        socket = self._common(zmq.ROUTER, local=local)
        self._peered = _Peered("", socket)
        try:
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            socket.setsockopt(zmq.SNDHWM, send_mark)
            socket.setsockopt(zmq.RCVHWM, receive_mark)
            socket.setsockopt(zmq.IPV6, int("[" in endpoint))
            if local:
                self._lock = PathLock(endpoint.removeprefix("ipc://"))
            _bind(socket, endpoint)
        except UserError:
            self._add(self._peered)
            self.close()
            raise
        self.endpoint = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where it is bound, with the port that the system chose where it was asked to."""
        self._add(self._peered)

    def send(self, send: Send) -> bool:
        """Hand a message to the peer `send.link`; False where it is not connected or takes no more."""
        return self._hand_over(self._peered, [send.link.encode("latin-1"), *encode(send.message, send.frames)])

    def close(self) -> None:
        """Close and give the path up."""
        super().close()
        if self._lock is not None:
            self._lock.release()

    def _link(self, peered: _Peered, frames: list[Buffer]) -> str:
        return str(frames.pop(0), "latin-1")


class Dealers(_Sockets):
    """The side that connects: an edge to its nodes, or a client to its agent. Links are named by the caller.

    Each link is a connection of its own with the routing id `PEER:INCARNATION:LINK`. While a link is not connected a send
    is refused at once, and what had not left when it was lost is dropped. `send_mark` bounds what waits to leave.
    """

    def __init__(
        self,
        peer: str,
        incarnation: int,
        decode: Decode,
        *,
        max_message_mb: int = 64,
        send_buffer_kb: int = 256,
        send_mark: int = 4,
    ) -> None:
        super().__init__(decode, max_message_mb)
        self._identity = f"{peer}:{incarnation}:"
        self._send_buffer_bytes = send_buffer_kb << 10
        self._send_mark = send_mark
        self._by_link: dict[str, _Peered] = {}

    @property
    def links(self) -> tuple[str, ...]:
        """Names of the links, connected or not."""
        return tuple(self._by_link)

    def connect(self, link: str, endpoint: str, source: str = "") -> None:
        """Open a link and keep it connected: `LinkUp` and `LinkDown` tell how it fares. `source` is the local address or the
        interface that it leaves from; empty is as the system routes. Raises `UserError` where the endpoint is malformed,
        there can be no such source, or the names are too long for a routing id."""
        check_endpoint(endpoint, binds=False)
        expected = source_fault(source, endpoint)
        if expected is not None:
            raise UserError(f"source {source!r}: expected {expected}")
        if link in self._by_link:
            raise InvariantBroken(f"the link {link} is open already")
        identity = f"{self._identity}{link}".encode()
        if len(identity) > MAX_ROUTING_ID or identity.startswith(b"\0"):
            raise UserError(
                f"{self._identity}{link}: the names of peer and link are too long for {MAX_ROUTING_ID} bytes"
            )
        local = endpoint.startswith("ipc://")
        socket = self._common(zmq.DEALER, local=local)
        socket.setsockopt(zmq.ROUTING_ID, identity)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.SNDHWM, self._send_mark)
        socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        first_ms, longest_ms = RECONNECT_LOCAL_MS if local else RECONNECT_MS
        socket.setsockopt(zmq.RECONNECT_IVL, first_ms)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, longest_ms)
        if not local:
            socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
            socket.setsockopt(zmq.SNDBUF, self._send_buffer_bytes)
        if source and is_address(source):
            endpoint = with_source(endpoint, source)
        elif source:
            socket.setsockopt_string(zmq.BINDTODEVICE, source)
        monitor: zmq.Socket[bytes] = socket.get_monitor_socket(_MADE | _UP | _DOWN)
        peered = self._by_link[link] = _Peered(link, socket, monitor)
        self._add(peered)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.disconnect(link)
            raise UserError(f"{endpoint} cannot be connected to: {error.strerror}") from error

    def redial(self, link: str, endpoint: str, source: str = "") -> None:
        """Open a link as `connect` does, in place of the one of this name where there is one; no `LinkDown` is given for
        that."""
        if link in self._by_link:
            self.disconnect(link)
        self.connect(link, endpoint, source)

    def disconnect(self, link: str) -> None:
        """Close a link without lingering; no `LinkDown` is given."""
        self._remove(self._by_link.pop(link))

    def send(self, send: Send) -> bool:
        """Hand a message to the link `send.link`; False where it is not connected, is full, or is not open."""
        peered = self._by_link.get(send.link)
        # The library itself may take a message for a little longer than it says that a connection is up.
        return peered is not None and peered.up and self._hand_over(peered, encode(send.message, send.frames))


def _threads() -> frozenset[int]:
    tasks = Path("/proc/self/task")
    return frozenset(int(task.name) for task in tasks.iterdir()) if tasks.is_dir() else frozenset()


def _watch(peered: _Peered, events: list[Event]) -> None:
    """Turn what the socket's monitor reports into events: connected means that the greetings were exchanged."""
    monitor = peered.monitor
    while monitor is not None and _readable(monitor):
        what, value = _MONITOR.unpack(monitor.recv_multipart(_LAST)[0][: _MONITOR.size])
        if what == _MADE:
            peered.local = _own_address(value)
        elif what == _UP:
            if peered.up:
                events.append(LinkDown(peered.link))
            peered.up = True
            events.append(LinkUp(peered.link, peered.local))
        elif what == _DOWN and peered.up:
            peered.up = False
            events.append(LinkDown(peered.link))


def _own_address(fd: int) -> str:
    """The own address of a connection of ZeroMQ's, by its descriptor; empty where it has none, or is gone already."""
    try:
        with os_socket(fileno=os.dup(fd)) as connection:
            name: object = connection.getsockname()
    except OSError:
        return ""
    return str(cast("tuple[object, ...]", name)[0]) if isinstance(name, tuple) else ""


def _fd(socket: zmq.Socket[bytes]) -> int:
    return int(socket.getsockopt(zmq.FD))


def _readable(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(_EVENTS)) & _READABLE)


def _take(socket: zmq.Socket[bytes]) -> list[Buffer]:
    """One whole message. Frames beyond what any message may have are thrown away, one more kept as a sign of them. Raises
    `zmq.Again` where there is none."""
    frames: list[Buffer] = []
    more = True
    while more:
        frame: zmq.Frame = socket.recv(_LAST, copy=False)
        more = frame.more
        if len(frames) <= MAX_TENSORS + 2:
            frames.append(frame.buffer if len(frame) >= VIEW_BYTES else frame.bytes)
    return frames


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        reason = _BIND_ERRORS.get(error.errno or 0, f"cannot be bound: {error.strerror}")
        raise UserError(f"{endpoint} {reason}") from error
