"""The network: connections of a dealer to a router, as `shared.transport` makes them, and what can happen to them.

What is sent is encoded once and decoded where it is taken, by the real codec; what is damaged on the way is refused there and
counted, as the real transport does. A connection that is lost takes with it what was under way; the dealer hears of it and
tries again by itself. Between an edge and a node the network is worse than TCP would be: messages may be lost, doubled, put
out of order and damaged. Between a client and its agent they keep their order and none is lost while both live.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol
from zlib import crc32

from hil.sim.agenda import Agenda
from hil.sim.echoes import Past
from hil.sim.hosts import Process
from hil.sim.net_path import Path, damaged
from hil.sim.trace import Trace
from shared.errors import PeerError
from shared.events import Address, AddressesChanged, Event, LinkDown, LinkUp, Received, Send
from shared.request import Buffer
from shared.wire.codec import encode
from shared.wire.messages import Message

MS = 1_000_000
UNACKED_NS = 1_500 * MS
"""After so long a stall a connection that has something to carry is given up, as TCP does."""

BACKLOG_NS = 60 * MS
"""So much may wait before the network until the queue counts as full."""

FULL = 16
"""Messages that may wait for a peer that does not take them, beside the sender's own mark."""

Decode = Callable[[Sequence[Buffer], int], tuple[Message, tuple[Buffer, ...]]]


class Loop(Protocol):
    """What the network needs of the world."""

    def turn(self, process: Process, event: Event, at: int) -> None:
        """Let a process take an event now."""
        ...

    def router(self, name: str) -> Process | None:
        """The living process of this name."""
        ...


class Way:
    """One direction of a connection. `open`: the sender believes that it is connected. `dead`: what is sent is lost."""

    __slots__ = (
        "decode",
        "free",
        "generation",
        "last",
        "link",
        "most",
        "open",
        "past",
        "path",
        "receiver",
        "room",
        "waiting",
    )

    def __init__(self, path: Path, link: str, decode: Decode, most: int, room: int, past: Past | None) -> None:
        self.path = path
        self.past = past
        self.link = link
        """How the receiver calls it."""
        self.decode = decode
        self.most = most
        self.room = room
        self.receiver: Process | None = None
        self.open = False
        self.generation = 0
        self.last = 0
        self.free = 0
        self.waiting = 0


class Connection:
    """From a dealer's link to a router. `id` is the dealer's routing id there."""

    __slots__ = (
        "dealer",
        "down",
        "id",
        "link",
        "net",
        "path",
        "pause_ns",
        "pauses",
        "router",
        "target",
        "up",
        "wanted",
    )

    def __init__(
        self, net: Net, path: Path, dealer: Process, link: str, target: str, up: Way, down: Way, pauses: tuple[int, int]
    ) -> None:
        self.net = net
        self.path = path
        self.dealer = dealer
        self.link = link
        self.target = target
        self.id = up.link
        self.router: Process | None = None
        self.up = up
        self.down = down
        self.pauses = pauses
        """First and longest pause between two attempts to connect, in nanoseconds."""
        self.pause_ns = pauses[0]
        self.wanted = True
        """Whether the dealer keeps it."""

    def happen(self, at: int) -> None:
        """An attempt to connect."""
        self.net.attempt(self, at)


class Loss:
    """The dealer hears that its connection is gone."""

    __slots__ = ("connection", "generation")

    def __init__(self, connection: Connection, generation: int) -> None:
        self.connection = connection
        self.generation = generation

    def happen(self, at: int) -> None:
        """It hears it now."""
        self.connection.net.heard(self.connection, self.generation, at)


class Delivery:
    """A message under way."""

    __slots__ = ("frames", "generation", "net", "way")

    def __init__(self, net: Net, way: Way, frames: list[Buffer]) -> None:
        self.net = net
        self.way = way
        self.generation = way.generation
        self.frames = frames

    def happen(self, at: int) -> None:
        """It has come."""
        way = self.way
        if self.generation != way.generation:
            self.net.count("lost-with-connection")
            return
        path = way.path
        if path.stalled:
            path.held.append(self)
            way.waiting += 1
            return
        receiver = way.receiver
        if receiver is None:
            return
        if receiver.frozen or receiver.busy:
            receiver.messages.append((way, self.generation, self.frames))
            way.waiting += 1
            return
        self.net.take(receiver, way, self.frames, at)


class GiveUp:
    """A stall has lasted so long that TCP gives up."""

    __slots__ = ("net", "path", "stall")

    def __init__(self, net: Net, path: Path) -> None:
        self.net = net
        self.path = path
        self.stall = path.stalls

    def happen(self, at: int) -> None:
        """It has, if it is still the same one and something waits."""
        path = self.path
        if path.stalled and path.stalls == self.stall and path.held:
            self.net.count("given-up")
            self.net.sever_path(path, at)


class Net:
    """All paths and connections."""

    def __init__(self, agenda: Agenda, loop: Loop, trace: Trace, counters: dict[str, int]) -> None:
        self._agenda = agenda
        self._loop = loop
        self._trace = trace
        self._counters = counters
        self._connections: dict[str, list[Connection]] = {}

    def count(self, what: str, amount: int = 1) -> None:
        """Count something that happened."""
        self._counters[what] = self._counters.get(what, 0) + amount

    # --- connections ------------------------------------------------------------------------------------------------

    def connect(
        self,
        path: Path,
        dealer: Process,
        link: str,
        target: str,
        *,
        decode: tuple[Decode, Decode],
        most: tuple[int, int],
        marks: tuple[int, int],
        pauses: tuple[int, int],
        routing_id: str,
        at: int,
    ) -> None:
        """A dealer opens a link to the router of process `target`, and keeps it connected while it lives. Of the pairs the
        first is for the way to the router, the second for the way back."""
        past = (None, None) if path.local else (path.remember(link, True), path.remember(link, False))
        up = Way(path, routing_id, decode[0], most[0], marks[0] + FULL, past[0])
        down = Way(path, link, decode[1], most[1], marks[1] + FULL, past[1])
        connection = Connection(self, path, dealer, link, target, up, down, pauses)
        dealer.dealers[link] = connection
        dealer.out[link] = up
        self._connections.setdefault(path.name, []).append(connection)
        self._agenda.put(at + 3 * next(path.draw), connection)

    def attempt(self, connection: Connection, at: int) -> None:
        """Connect, or try again later."""
        dealer, path = connection.dealer, connection.path
        if not dealer.alive or connection.up.open or not connection.wanted:
            return
        router = self._loop.router(connection.target)
        if router is None or router.frozen or dealer.frozen or path.cut or path.stalled:
            self._agenda.put(at + connection.pause_ns, connection)
            connection.pause_ns = min(2 * connection.pause_ns, connection.pauses[1])
            return
        connection.pause_ns = connection.pauses[0]
        connection.router = router
        for way, receiver in ((connection.up, router), (connection.down, dealer)):
            way.receiver = receiver
            way.open = True
            way.generation += 1
            way.last = way.free = at
            way.waiting = 0
        router.peers[connection.id] = connection
        router.out[connection.id] = connection.down
        if path.echo:
            self._echo(connection, at)
        self._tell(dealer, LinkUp(connection.link, path.own_address), at)

    def _echo(self, connection: Connection, at: int) -> None:
        """What earlier connections of this link carried comes once more, some of it."""
        for way in (connection.up, connection.down):
            if way.past is not None:
                for later, frames in way.past.echoes(connection.path.rng):
                    self.count("echoed")
                    self._agenda.put(at + later, Delivery(self, way, frames))

    def heard(self, connection: Connection, generation: int, at: int) -> None:
        """The dealer hears that the connection of this generation is gone."""
        dealer = connection.dealer
        if not dealer.alive or connection.up.generation != generation:
            return
        connection.up.open = False
        self._agenda.put(at + connection.pauses[0], connection)
        self._tell(dealer, LinkDown(connection.link), at)

    def sever(self, connection: Connection, at: int, *, heard: bool) -> None:
        """A connection is gone with all that is under way on it. Its router notices where `heard`, else it goes on
        believing in it until the dealer is back."""
        if not connection.up.open or connection.up.receiver is None:
            return
        self.count("connections-lost")
        for way in (connection.up, connection.down):
            way.generation += 1
            way.receiver = None
        router = connection.router
        if heard and router is not None and router.out.get(connection.id) is connection.down:
            del router.out[connection.id]
            del router.peers[connection.id]
        if connection.dealer.alive:
            later = at + next(connection.path.draw)
            self._agenda.put(later, Loss(connection, connection.up.generation))

    def sever_path(self, path: Path, at: int, links: str = "") -> None:
        """All connections of a path are gone, or those whose links have `links` in their names. Half of the routers
        notice."""
        for connection in self._connections.get(path.name, ()):
            if links in connection.link:
                self.sever(connection, at, heard=path.rng.random() < 0.5)

    def move(self, path: Path, at: int) -> None:
        """The dealer's host has another address on this path: what was connected from the old one is gone."""
        before = Address(path.name, path.own_address)
        path.address += 1
        self.sever_path(path, at)
        change = AddressesChanged((Address(path.name, path.own_address),), (before,))
        dealers = {connection.dealer.number: connection.dealer for connection in self._connections.get(path.name, ())}
        for dealer in dealers.values():
            self._tell(dealer, change, at)

    def redial(self, dealer: Process, link: str, at: int) -> None:
        """A dealer makes a connection anew, at once."""
        connection = dealer.dealers.get(link)
        if connection is not None:
            self.sever(connection, at, heard=False)
            # What the dealer would hear of the old connection is nothing to the new one.
            connection.up.generation += 1
            connection.up.open = False
            connection.wanted = True
            connection.pause_ns = connection.pauses[0]
            self._agenda.put(at + next(connection.path.draw), connection)

    def hang_up(self, dealer: Process, link: str, at: int) -> None:
        """A dealer ends a connection, and hears nothing more of it."""
        connection = dealer.dealers.get(link)
        if connection is not None:
            self.sever(connection, at, heard=True)
            connection.up.generation += 1
            connection.up.open = False
            connection.wanted = False

    def died(self, process: Process, at: int) -> None:
        """A process is gone: so are its connections."""
        for connection in process.dealers.values():
            self.sever(connection, at, heard=True)
            self._connections[connection.path.name].remove(connection)
        for connection in list(process.peers.values()):
            self.sever(connection, at, heard=True)

    def _tell(self, dealer: Process, event: LinkUp | LinkDown | AddressesChanged, at: int) -> None:
        if dealer.frozen or dealer.busy:
            dealer.links.append(event)
        else:
            self._loop.turn(dealer, event, at)

    # --- messages ---------------------------------------------------------------------------------------------------

    def send(self, sender: Process, send: Send, at: int) -> bool:
        """Hand a message over; False where it is refused: not connected, or the queue is full."""
        way = sender.out.get(send.link)
        if way is None or not way.open:
            self.count("refused-unconnected")
            return False
        path = way.path
        if way.waiting >= way.room or way.free - at > BACKLOG_NS:
            self.count("refused-full")
            return False
        encoded = encode(send.message, send.frames)
        # Small tensors are copied out of a message, as the real transport does.
        frames: list[Buffer] = [bytes(frame) for frame in encoded]
        nbytes = checksum = 0
        for frame in frames:
            nbytes += len(frame)
            checksum = crc32(frame, checksum)
        self._trace.add((at, sender.number, checksum))
        if way.receiver is None:
            self.count("lost-unheard")
            return True
        if way.past is not None:
            way.past.carry(frames)
        left = at
        if path.per_byte_ns:
            left = max(at, way.free) + int(nbytes * path.per_byte_ns)
            way.free = left
        if path.troubled:
            self._send_in_trouble(way, frames, left)
            return True
        arrives = left + next(path.draw)
        if arrives <= way.last:
            arrives = way.last + 1
        way.last = arrives
        self._agenda.put(arrives, Delivery(self, way, frames))
        return True

    def _send_in_trouble(self, way: Way, frames: list[Buffer], left: int) -> None:
        path, rng = way.path, way.path.rng
        copies = 1
        if rng.random() < path.loss:
            self.count("lost")
            copies -= 1
        if rng.random() < path.duplicate:
            self.count("doubled")
            copies += 1
        for copy in range(copies):
            arrives = left + int(next(path.draw) * path.slow)
            if copy or rng.random() < path.disorder:
                self.count("disordered")
                arrives += int(next(path.draw) * rng.uniform(0.0, 8.0))
                if rng.random() < 0.1:
                    self.count("very-late")
                    arrives += rng.randrange(400 * MS)
            elif arrives <= way.last:
                arrives = way.last + 1
            way.last = max(way.last, arrives) if not path.disorder else way.last
            sent = frames
            if rng.random() < path.corrupt:
                self.count("damaged")
                sent = damaged(frames, rng)
            self._agenda.put(arrives, Delivery(self, way, sent))

    def take(self, receiver: Process, way: Way, frames: list[Buffer], at: int) -> None:
        """A process takes a message out of its socket."""
        event = self.decoded(receiver, way, frames)
        if event is not None:
            self._loop.turn(receiver, event, at)

    def decoded(self, receiver: Process, way: Way, frames: list[Buffer]) -> Received | None:
        """The message as an event; None where it is none, which is counted."""
        try:
            message, tensors = way.decode(frames, way.most)
        except PeerError as error:
            receiver.wire[error.reason] = receiver.wire.get(error.reason, 0) + 1
            self.count("refused-by-codec")
            return None
        return Received(way.link, message, tensors)

    # --- troubles ---------------------------------------------------------------------------------------------------

    def stall(self, path: Path, at: int) -> None:
        """From now on nothing passes, and nothing is lost, unless it takes too long."""
        path.stalled += 1
        path.stalls += 1
        if not path.local:
            self._agenda.put(at + UNACKED_NS, GiveUp(self, path))

    def unstall(self, path: Path, at: int) -> None:
        """What waited passes now, in its order."""
        path.stalled -= 1
        if path.stalled:
            return
        held, path.held = path.held, deque()
        for delivery in held:
            if delivery.generation == delivery.way.generation:
                delivery.way.waiting -= 1
            delivery.happen(at)
