"""The nodes as this edge sees them: greeting, liveness, credit, and the return of a lost one (`edge.paths` has the diagram).

A node that was started anew is used again after a short random pause, so that a fleet of edges does not fall upon it in one
instant. One that was only out of reach still has what it had: it is used at once, and trusted again by and by. It is greeted
from the loss on, since what waits in the connection is there as soon as the link is back. A node is lost with the last of
its paths.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from edge.due import NEVER_NS
from edge.outliers import Outliers
from edge.paths import STALLED, UP, Connection, Kind, Path, Sent, State, connections, ways_of
from edge.redial import to_redial
from edge.subset import ranked
from shared.directory import Directory, as_own
from shared.events import Action, AddressesChanged, Dial, HangUp, Keep, Send
from shared.offset import OffsetInterval
from shared.settings import EdgeSettings, Link, NodeAddress
from shared.wire.messages import PROTOCOL, Drain, Hello, Load, Pressure, Probe, ProbeReply, Welcome

MS = 1_000_000
HELLO_EVERY_NS = 250 * MS
"""How often an unanswered greeting is repeated, and the least pause after one that was turned down."""

FORGET_NS = 5_000 * MS
"""An attempt that is overdue for so long will not be answered: its credit is taken back, so that a node that owes a few
answers for ever is not shut out for ever."""

REPLACED = "replaced"
"""The good-bye of a node that serves a newer process of this edge's name."""

LEAVE_NS = 2_000 * MS
"""How long answers of a node are waited for that is in the directory no more."""


class Node:
    """One cloud node. Mutable state, changed by `Nodes` and, for `out`, by the broker's attempts."""

    def __init__(self, name: str, link: Link, ways: Sequence[int] = (0,)) -> None:
        """`ways`: of each path which of the node's addresses it goes to."""
        self.name = name
        self.incarnation = 0
        self.contracts: frozenset[str] = frozenset()
        self.credits = 0
        self.wait_ns = 0
        self.pressure: Pressure = ()
        self.draining = False
        """Whether this incarnation is about to leave."""
        self.offset = OffsetInterval()
        self.out: dict[tuple[int, int], Sent] = {}
        """Attempts that are out and not answered on any path: each holds one credit."""
        self.paths = tuple(Path(self, number, link, way) for number, way in enumerate(ways))

    def load(self, load: Load, pressure: Pressure = ()) -> None:
        """Take the state that rode on a reply."""
        self.wait_ns = load.wait_ns
        self.credits = load.credits
        self.pressure = pressure

    def carries(self, key: tuple[int, int]) -> bool:
        """Whether a copy of this attempt is out on some path."""
        return any(key in path.out for path in self.paths)

    def forget_clock(self) -> None:
        """Nothing is known of the node's clock any more, and nothing that a probe said of clocks may be told."""
        self.offset.reset()
        for path in self.paths:
            path.last_probe = (0, 0)


class Nodes:
    """All nodes of an edge, and the paths to them. Methods return the messages to send, and the paths on which what was
    sent is hopeless by what came."""

    def __init__(self, settings: EdgeSettings, contracts: Sequence[str], incarnation: int, rng: random.Random) -> None:
        self._link = settings.link
        self._stall_ns = int(settings.link.stall_ms * MS)
        self._peer = settings.agent.name
        self._contracts = tuple(contracts)
        self._incarnation = incarnation
        self._rng = rng
        self._jumped_ns = 0
        self.by_name: dict[str, Node] = {}
        self._paths: tuple[Path, ...] = ()
        self._own = {address.name: address for address in settings.nodes}
        self._addresses: dict[str, NodeAddress] = {}
        self._leaves_at: dict[str, int] = {}
        """Nodes that are no longer in the directory, and until when what is out there is waited for."""
        self._by_link: dict[str, Path] = {}
        self.epoch = settings.fleet.epoch
        self._subset = settings.fleet.subset
        self._orders: dict[str, tuple[Node, ...]] = {}
        self.outliers = Outliers(settings.outliers, rng)
        self._connections: dict[str, Connection] = {}
        self._local: dict[str, str] = {}
        """The own addresses of connections that are up, by link."""
        for address in settings.nodes:
            self._add(address)

    def paths(self) -> Sequence[Path]:
        """All paths to all nodes."""
        return self._paths

    def of_link(self, link: str) -> Path | None:
        """The path that a connection belongs to."""
        return self._by_link.get(link)

    def usable(self, contract: str, now: int) -> list[Path]:
        """Paths on which a request for `contract` may be sent now. Of a large fleet only to the first nodes of this edge's
        order that can be used. Nodes that are to be left alone are asked only where there are no others."""
        limit = self._link.max_outstanding
        found: list[Path] = []
        left_alone: list[Path] = []
        nodes = 0
        order = self._orders.get(contract)
        for node in self._order_for(contract) if order is None else order:
            if contract not in node.contracts or node.draining or len(node.out) >= node.credits:
                continue
            if node.name in self._leaves_at:
                continue
            paths = [p for p in node.paths if p.state is UP and len(p.out) < limit]
            if self.outliers.ejected(node.name, now):
                left_alone += paths
                continue
            found += paths
            nodes += bool(paths)
            if nodes and nodes == self._subset:
                break
        return found or left_alone

    def _order_for(self, contract: str) -> Sequence[Node]:
        names = ranked(self._peer, contract, self.by_name) if self._subset else self.by_name
        order = self._orders[contract] = tuple(self.by_name[name] for name in names)
        return order

    def connected(self, link: str, now: int, local: str = "") -> list[Action]:
        """A connection was made, from this own address: greet."""
        path = self.of_link(link)
        if path is not None:
            self._local[link] = local
        if path is None or path.shut:
            return []
        if not self._jumped_ns:
            # Probes of before were of an earlier process, and its host may have been suspended since.
            self._jumped_ns = now - 1
        if link == path.probe:
            path.probe_up = True
            path.probes_out = 0
            path.probe_at = now
            return [Send(link, self._hello(path, "probe"))]
        path.estimate.connected()
        path.pad = None
        return self._greet(path, now)

    def disconnected(self, link: str) -> Path | None:
        """A connection was lost; the path on which what was sent is hopeless by that, if any."""
        path = self.of_link(link)
        self._local.pop(link, None)
        if path is None:
            return None
        path.shut = False
        if link == path.probe:
            path.probe_up = False
            path.last_probe = (0, 0)
            return None
        return self._lose(path, State.DOWN)

    def welcomed(self, path: Path, message: Welcome, now: int) -> tuple[list[Action], list[Path]]:
        """The node answered a greeting on this path's data connection. Returns greetings, and the paths that are lost since
        it turned out to be another incarnation, or to take fewer paths."""
        node = path.node
        if path.number >= max(1, message.paths):
            path.shut = True
            path.probe_up = False
            first = node.paths[0]
            # It has taken this connection in place of the first one.
            again = self._greet_both(first, now) if first.state is not State.DOWN else []
            return again, [self._lose(path, State.DOWN)]
        greetings: list[Action] = []
        lost: list[Path] = []
        restarted = node.incarnation not in (0, message.incarnation)
        if restarted:
            node.draining = False
            node.pressure = ()
            self.outliers.restarted(node.name)
            lost = [self._lose(other, other.state) for other in node.paths if other.greeted]
            for other in lost:
                if other is not path and other.state in (UP, STALLED, State.PAUSED):
                    greetings += self._greet_both(other, now)
        node.incarnation = message.incarnation
        node.contracts = frozenset(message.contracts)
        node.credits = message.credits
        node.forget_clock()  # as the node has forgotten that of this edge
        path.greeted = True
        started_anew = path.greeted_by not in (0, message.incarnation)
        path.greeted_by = message.incarnation
        if path.state is State.GREETING or restarted:
            self._return(path, now, started_anew=started_anew)
        elif path.state is STALLED:
            self._recover(path, now)
        return greetings, lost

    def spare(self, node: Node, contract: str, taken: Sequence[Path]) -> list[Path]:
        """Paths to a node, beside those taken, on which a further copy of an attempt for `contract` may be sent now: it needs
        no credit. None where the node has said since that it does not serve it."""
        limit = self._link.max_outstanding
        if node.draining or node.name in self._leaves_at or contract not in node.contracts:
            return []
        return [p for p in node.paths if p.state is UP and len(p.out) < limit and p not in taken]

    def follow(self, directory: Directory, now: int) -> tuple[list[Action], list[Path]]:
        """Take the nodes of a newer directory: connections to be made and ended, and the paths that are lost with a node
        whose address has changed. A node that is in it no more is asked nothing more, and left when what is out there is
        answered. What is not newer changes nothing."""
        if directory.epoch <= self.epoch:
            return [], []
        self.epoch = directory.epoch
        actions: list[Action] = [Keep(directory)]
        lost: list[Path] = []
        told = {address.name: self._own_view(address) for address in directory.nodes}
        for name in list(self.by_name):
            if name not in told:
                self._leaves_at.setdefault(name, now + LEAVE_NS)
            elif told[name] != self._addresses[name]:
                lost += self.by_name[name].paths
                actions += self._remove(name)
            else:
                self._leaves_at.pop(name, None)
        for name, address in told.items():
            if name not in self.by_name:
                self._add(address)
                actions += [Dial(made.link, made.endpoint, made.source) for made in connections(address)]
        return actions, lost

    def _own_view(self, told: NodeAddress) -> NodeAddress:
        """How this edge reaches a node: its own settings say from where, if they name the node."""
        own = self._own.get(told.name)
        return own if own is not None and as_own(own, told) else told

    def _add(self, address: NodeAddress) -> None:
        node = self.by_name[address.name] = Node(address.name, self._link, ways_of(address))
        self._addresses[address.name] = address
        self._connections |= {made.link: made for made in connections(address)}
        self._by_link |= {link: path for path in node.paths for link in (path.data, path.probe)}
        self._list_anew()

    def _remove(self, name: str) -> list[Action]:
        node = self.by_name.pop(name)
        for path in node.paths:
            self._lose(path, State.DOWN)
        links = [link for path in node.paths for link in (path.data, path.probe)]
        for link in links:
            del self._by_link[link], self._connections[link]
            self._local.pop(link, None)
        del self._addresses[name]
        self._leaves_at.pop(name, None)
        self._list_anew()
        return [HangUp(link) for link in links]

    def _list_anew(self) -> None:
        """There are other nodes now."""
        self._paths = tuple(path for node in self.by_name.values() for path in node.paths)
        self._orders.clear()
        self.outliers.know(self.by_name)

    def drains(self, node: Node, message: Drain) -> None:
        """The node is about to leave: it is asked nothing more, and what is out there is waited for."""
        node.draining = node.draining or message.incarnation == node.incarnation

    def moved_house(self, change: AddressesChanged) -> tuple[list[Action], list[Path]]:
        """Addresses of this host have changed: the connections to be made anew, and the paths that are lost with them."""
        dials: list[Action] = []
        lost: list[Path] = []
        for made in to_redial(self._connections.values(), self._local, change):
            path = self.disconnected(made.link) if made.link in self._local else None
            if path is not None:
                path.estimate.reset()
                lost.append(path)
            dials.append(Dial(made.link, made.endpoint, made.source))
        return dials, lost

    def moved(self, path: Path, now: int) -> None:
        """The data connection carried something: it is not stalled."""
        if path.state is STALLED:
            self._recover(path, now)

    def probed(self, path: Path, message: ProbeReply, now: int) -> list[Action]:
        """A probe came back."""
        node = path.node
        path.probes_out = 0
        node.load(message.load, message.pressure)
        if message.probe_sent_ns > self._jumped_ns:
            path.last_probe = (message.sent_ns, now)
            rtt_ns = (now - message.probe_sent_ns) - (message.sent_ns - message.received_ns)
            path.estimate.probed(rtt_ns, message.probe_sent_ns, now)
            path.estimate.came_back(now - message.sent_ns)
            node.offset.peer_received(message.probe_sent_ns, message.received_ns, now)
            node.offset.peer_sent(message.sent_ns, now)
        return self._greet(path, now) if path.state is State.GONE else []

    def left(self, path: Path, reason: str, now: int) -> list[Action]:
        """The node said good-bye on this path, which is lost with what is out there: greetings. Where it does not know us
        there, it is greeted anew, at once the first time and after a pause where that greeting is what it turned down."""
        turned_down = path.state is State.GREETING
        self._lose(path, State.GONE)
        if reason not in ("hello", REPLACED):
            return []
        if turned_down:
            path.state = State.GREETING
            return []
        return self._greet_both(path, now)

    def jumped(self, now: int) -> list[Action]:
        """This host was suspended: its clock has fallen behind all others, which the nodes learn by a new greeting. What
        probes of before say of clocks holds no longer."""
        self._jumped_ns = now
        greetings: list[Action] = []
        for node in self.by_name.values():
            node.forget_clock()
            for path in node.paths:
                path.estimate.reset()
                path.pad = None
                if path.probe_up:
                    greetings.append(Send(path.probe, self._hello(path, "probe")))
                if path.state is State.PAUSED:
                    greetings.append(Send(path.data, self._hello(path, "data")))
                elif path.state is not State.DOWN:
                    greetings += self._greet(path, now)
        return greetings

    def unknown_to(self, path: Path, now: int) -> list[Action]:
        """The node refused a request because it does not know us on this connection: greet it anew."""
        return self._greet(path, now) if path.state in (UP, STALLED) else []

    def overdue(self, path: Path, now: int) -> bool:
        """Mark the path stalled where an answer is overdue by more than the settings allow; True where that is new. One that
        is overdue beyond hope is forgotten."""
        if path.state is not UP or not path.out:
            return False
        if all(now <= s.typical_ns + self._stall_ns for s in path.out.values()):
            return False
        hopeless = [key for key, sent in path.out.items() if now > sent.typical_ns + FORGET_NS]
        for key in hopeless:
            path.forgotten(path.out[key], now)
        _forget(path, hopeless)
        path.state = STALLED
        path.hello_at = now + HELLO_EVERY_NS
        return True

    def tick(self, now: int) -> tuple[list[Action], list[Path], list[Path]]:
        """What is due: probes, repeated greetings, the end of a pause. Returns messages, paths that are lost, and paths that
        are stalled since now."""
        actions: list[Action] = []
        lost: list[Path] = []
        stalled: list[Path] = []
        for name, at in list(self._leaves_at.items()):
            if now >= at or not self.by_name[name].out:
                lost += self.by_name[name].paths
                actions += self._remove(name)
        for path in self.paths():
            if path.state is State.PAUSED and now >= path.return_at:
                path.state = UP
            if path.state is State.GREETING and now >= path.hello_at:
                actions += self._greet_both(path, now)
            elif path.state is STALLED and now >= path.hello_at:
                path.hello_at = now + HELLO_EVERY_NS
                actions.append(Send(path.data, self._hello(path, "data")))
            if path.probe_up and now >= path.probe_at:
                if path.probes_out >= self._link.probe_losses and path.known:
                    lost.append(self._lose(path, State.GREETING))
                    actions += self._greet_both(path, now)
                actions.append(self._probe(path, now))
            if self.overdue(path, now):
                if _is_stuck(path):
                    actions.append(self._redial(path, now))
                    lost.append(path)
                else:
                    stalled.append(path)
            if path.state is UP:
                actions += path.keep_warm(now)
        return actions, lost, stalled

    def next_wakeup(self) -> int:
        """When `tick` is due next; `NEVER_NS` where it is not."""
        soonest = min(self._leaves_at.values()) if self._leaves_at else NEVER_NS
        for path in self._paths:
            state, at = path.state, path.probe_at if path.probe_up else NEVER_NS
            if state is UP:
                for sent in path.out.values():
                    overdue = sent.typical_ns + self._stall_ns + 1
                    at = overdue if overdue < at else at
                pad_at = path.warm.next_at()
                at = pad_at if pad_at is not None and pad_at < at else at
            elif state is STALLED or state is State.GREETING:
                at = path.hello_at if path.hello_at < at else at
            elif state is State.PAUSED:
                at = path.return_at if path.return_at < at else at
            soonest = at if at < soonest else soonest
        return soonest

    def _greet(self, path: Path, now: int) -> list[Action]:
        path.state = State.GREETING
        path.hello_at = now + HELLO_EVERY_NS
        return [Send(path.data, self._hello(path, "data"))]

    def _greet_both(self, path: Path, now: int) -> list[Action]:
        greetings = self._greet(path, now)
        return [Send(path.probe, self._hello(path, "probe")), *greetings] if path.probe_up else greetings

    def _hello(self, path: Path, connection: Kind) -> Hello:
        return Hello(PROTOCOL, self._peer, self._incarnation, connection, self._contracts, path.number)

    def _probe(self, path: Path, now: int) -> Action:
        path.probes_out += 1
        path.probe_number += 1
        path.probe_at = now + int(self._link.probe_interval_ms * MS)
        return Send(path.probe, Probe(path.probe_number, now, *path.last_probe))

    def _redial(self, path: Path, now: int) -> Action:
        """Make a data connection anew. What is out there is lost; the node is not, so that the path is used as soon as it has
        greeted."""
        for sent in path.out.values():
            path.forgotten(sent, now)
        _forget(path, list(path.out))
        path.state = State.DOWN
        self._local.pop(path.data, None)
        made = self._connections[path.data]
        return Dial(made.link, made.endpoint, made.source)

    def _lose(self, path: Path, state: State) -> Path:
        path.state = state
        path.last_probe = (0, 0)
        path.was_lost = path.was_lost or path.greeted
        _forget(path, list(path.out))
        if not any(other.known for other in path.node.paths):
            path.node.credits = 0
            path.node.forget_clock()
        return path

    def _recover(self, path: Path, now: int) -> None:
        """A stall is over: the path is used again, and trusted again by and by."""
        path.state = UP
        path.estimate.recovered(now, self._pause_ns())

    def _return(self, path: Path, now: int, *, started_anew: bool) -> None:
        """The node has greeted. One that was started anew is left alone for a pause, since all edges find it in one instant.
        One that was out of reach has lost nothing: it is used at once, as after a stall."""
        if path.was_lost:
            path.was_lost = False
            if started_anew:
                path.return_at = now + self._pause_ns()
            else:
                self._recover(path, now)
        path.state = State.PAUSED if now < path.return_at else UP

    def _pause_ns(self) -> int:
        low, high = self._link.return_pause_ms
        return int(self._rng.uniform(low, high) * MS)


def _is_stuck(path: Path) -> bool:
    """Whether it is this connection alone that carries nothing: another one on the same way was answered after what is
    overdue here was sent. TCP waits a fifth of a second and more before it sends a lost packet again where nothing else
    tells it of the loss; a new connection is there after a few round trips."""
    sent_ns = min(sent.sent_ns for sent in path.out.values()) if path.out else 0
    return any(
        other is not path and other.way == path.way and other.state is UP and other.answered_ns > sent_ns
        for other in path.node.paths
    )


def _forget(path: Path, keys: Sequence[tuple[int, int]]) -> None:
    """Nothing will come of these copies; the credit of an attempt that no other path carries is free."""
    for key in keys:
        del path.out[key]
        if not path.node.carries(key):
            path.node.out.pop(key, None)
