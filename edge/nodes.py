"""The nodes as this edge sees them: greeting, liveness, credit, and the return of a lost one.

    DOWN --connected--> GREETING --welcome--> UP            (the first time)
                                 --welcome--> PAUSED --pause over--> UP     (after a loss)
    UP --an answer is overdue--> STALLED --any answer on the data connection--> UP
    any --disconnected--> DOWN        any but DOWN --probes lost--> GONE --a probe answered--> GREETING
                                      (one that is being greeted anew goes on being greeted)

*Stalled* (route elsewhere for the moment) differs from *gone* (what was sent there is given up). A node that returns is
used again after a short random pause, so that a fleet of edges does not fall upon it in one instant.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from typing import Literal

import msgspec

from edge.link import LinkEstimate
from shared.events import Action, Send
from shared.offset import OffsetInterval
from shared.settings import EdgeSettings, Link
from shared.wire.messages import PROTOCOL, Hello, Load, Probe, ProbeReply, Welcome

MS = 1_000_000
HELLO_EVERY_NS = 250 * MS
"""How often an unanswered greeting is repeated, and the least pause after one that was turned down."""

FORGET_NS = 5_000 * MS
"""An attempt that is overdue for so long will not be answered: its credit is taken back, so that a node that owes a few
answers for ever is not shut out for ever."""


class State(Enum):
    """See the diagram at the head of the module."""

    DOWN = "down"
    GREETING = "greeting"
    PAUSED = "paused"
    UP = "up"
    STALLED = "stalled"
    GONE = "gone"


class Sent(msgspec.Struct, frozen=True, gc=False):
    """An attempt that is out at a node and not answered: it holds one credit."""

    sent_ns: int
    typical_ns: int
    """When its answer is typically back."""
    due_ns: int
    nbytes: int
    exploring: bool
    network_ns: int = 0
    """The part of the prediction that was the network's."""
    startup_ns: int = 0
    """What the start of TCP was to cost it by the model."""
    upto_bytes: int = 0
    """How many bytes had been handed to the connection by then."""
    sure_ns: int = 0
    """When its answer is back 95 times in 100."""
    node_ns: int = 0
    """The part of the prediction that was the node's."""


class Node:
    """One cloud node. Mutable state, changed by `Nodes` and, for `out`, by the broker."""

    def __init__(self, name: str, link: Link) -> None:
        self.name = name
        self.state = State.DOWN
        self.incarnation = 0
        self.contracts: frozenset[str] = frozenset()
        self.credits = 0
        self.wait_ns = 0
        self.estimate = LinkEstimate(link)
        self.offset = OffsetInterval()
        self.out: dict[tuple[int, int], Sent] = {}
        self.answered_ns = -1
        """When the latest of the attempts that were answered was sent."""
        self.explore_at = 0
        self.explored = 0
        """Explorations since an answer was last on time."""
        self.was_lost = False
        self.hello_at = 0
        self.return_at = 0
        self.probe_up = False
        self.probe_at = 0
        self.probes_out = 0
        self.probe_number = 0
        self.last_probe: tuple[int, int] = (0, 0)

    @property
    def known(self) -> bool:
        """Whether it has greeted and was not lost since."""
        return self.incarnation != 0 and not self.was_lost

    @property
    def data(self) -> str:
        """Name of the connection that carries requests."""
        return f"{self.name}/data"

    @property
    def probe(self) -> str:
        """Name of the connection that carries probes."""
        return f"{self.name}/probe"

    def answered(self, sent: Sent, node_ns: int, now: int) -> None:
        """An attempt was answered, of which the node took `node_ns`: what that says about the link. One that was on time
        allows the next exploration at once."""
        estimate = self.estimate
        waited_ns = estimate.passed(sent.upto_bytes, sent.sent_ns, node_ns, now)
        estimate.exchanged(sent.nbytes, now - sent.sent_ns - node_ns, waited_ns, sent.startup_ns)
        late_by, sure_by = now - sent.typical_ns, sent.sure_ns - sent.typical_ns
        estimate.finished(sent.nbytes, sent.network_ns, late_by, sure_by, now)
        self.answered_ns = max(self.answered_ns, sent.sent_ns)
        if now <= sent.due_ns:
            self.explore_at = now
            self.explored = 0

    def refused(self, sent: Sent, now: int) -> None:
        """An attempt was refused since it was late or cancelled: an answer would not have come before now."""
        estimate = self.estimate
        waited_ns = estimate.passed(sent.upto_bytes, sent.sent_ns, 0, now)
        estimate.gave_up(sent.nbytes, now - sent.sent_ns - sent.node_ns, waited_ns, sent.startup_ns)
        self._censored(sent, now)
        self.answered_ns = max(self.answered_ns, sent.sent_ns)

    def forgotten(self, sent: Sent, now: int) -> None:
        """An attempt is not waited for any more."""
        self._censored(sent, now)

    def _censored(self, sent: Sent, now: int) -> None:
        late_by, sure_by = now - sent.typical_ns, sent.sure_ns - sent.typical_ns
        self.estimate.censored(sent.nbytes, sent.network_ns, late_by, sure_by, now)

    def still(self, due_ns: int, now: int) -> float:
        """The chance that the data connection carries anything by `due_ns`, as far as what is out there tells: TCP keeps the
        order, so that what is sent after an overdue attempt comes after it."""
        for sent in self.out.values():
            if sent.sent_ns > self.answered_ns:
                over_ns = now - sent.typical_ns
                if over_ns <= 0:
                    return 1.0
                slack_ns = due_ns - sent.typical_ns
                return self.estimate.still(sent.nbytes, sent.network_ns, over_ns, slack_ns, now)
        return 1.0

    def load(self, load: Load) -> None:
        """Take the state that rode on a reply."""
        self.wait_ns = load.wait_ns
        self.credits = load.credits


class Nodes:
    """All nodes of an edge. Methods return the messages to send, and the nodes whose attempts are hopeless by what came."""

    def __init__(self, settings: EdgeSettings, contracts: Sequence[str], incarnation: int, rng: random.Random) -> None:
        self._link = settings.link
        self._peer = settings.agent.name
        self._contracts = tuple(contracts)
        self._incarnation = incarnation
        self._rng = rng
        self._jumped_ns = 0
        self.by_name = {n.name: Node(n.name, settings.link) for n in settings.nodes}

    def of_link(self, link: str) -> Node | None:
        """The node that a connection belongs to."""
        return self.by_name.get(link.rpartition("/")[0])

    def usable(self, contract: str) -> list[Node]:
        """Nodes that may be sent a request for `contract` now."""
        limit = self._link.max_outstanding
        return [
            n
            for n in self.by_name.values()
            if n.state is State.UP and contract in n.contracts and len(n.out) < min(n.credits, limit)
        ]

    def connected(self, link: str, now: int) -> list[Action]:
        """A connection was made: greet."""
        node = self.of_link(link)
        if node is None:
            return []
        if not self._jumped_ns:
            # Probes of before were of an earlier process, and its host may have been suspended since.
            self._jumped_ns = now - 1
        if link == node.probe:
            node.probe_up = True
            node.probes_out = 0
            node.probe_at = now
            return [Send(link, self._hello("probe"))]
        node.estimate.connected()
        return self._greet(node, now)

    def disconnected(self, link: str) -> Node | None:
        """A connection was lost; the node whose attempts are hopeless by that, if any."""
        node = self.of_link(link)
        if node is None:
            return None
        if link == node.probe:
            node.probe_up = False
            node.last_probe = (0, 0)
            return None
        return self._lose(node, State.DOWN)

    def welcomed(self, node: Node, message: Welcome, now: int) -> bool:
        """The node answered a greeting on its data connection; True where it turned out to be another incarnation."""
        restarted = node.incarnation not in (0, message.incarnation)
        if restarted:
            node.offset.reset()
            node.was_lost = True
            node.out.clear()
        node.incarnation = message.incarnation
        node.contracts = frozenset(message.contracts)
        node.credits = message.credits
        if node.state is State.GREETING or restarted:
            self._return(node, now)
        elif node.state is State.STALLED:
            self._recover(node, now)
        return restarted

    def moved(self, node: Node, now: int) -> None:
        """The data connection carried something: it is not stalled."""
        if node.state is State.STALLED:
            self._recover(node, now)

    def probed(self, node: Node, message: ProbeReply, now: int) -> list[Action]:
        """A probe came back."""
        node.probes_out = 0
        node.load(message.load)
        if message.probe_sent_ns <= self._jumped_ns:
            return self._greet(node, now) if node.state is State.GONE else []
        node.last_probe = (message.sent_ns, now)
        node.estimate.probed((now - message.probe_sent_ns) - (message.sent_ns - message.received_ns))
        node.offset.peer_received(message.probe_sent_ns, message.received_ns, now)
        node.offset.peer_sent(message.sent_ns, now)
        return self._greet(node, now) if node.state is State.GONE else []

    def left(self, node: Node, reason: str, now: int) -> list[Action]:
        """The node said good-bye: its attempts are hopeless. One that does not know us is greeted anew, at once the first
        time and after a pause where that greeting is what it turned down."""
        turned_down = node.state is State.GREETING
        self._lose(node, State.GONE)
        if reason != "hello":
            return []
        if turned_down:
            node.state = State.GREETING
            return []
        return self._greet_both(node, now)

    def jumped(self, now: int) -> list[Action]:
        """This host was suspended: its clock has fallen behind all others, which the nodes learn by a new greeting. What
        probes of before say of clocks holds no longer."""
        self._jumped_ns = now
        greetings: list[Action] = []
        for node in self.by_name.values():
            node.offset.reset()
            node.estimate.reset()
            node.last_probe = (0, 0)
            if node.probe_up:
                greetings.append(Send(node.probe, self._hello("probe")))
            if node.state is State.PAUSED:
                greetings.append(Send(node.data, self._hello("data")))
            elif node.state is not State.DOWN:
                greetings += self._greet(node, now)
        return greetings

    def unknown_to(self, node: Node, now: int) -> list[Action]:
        """The node refused a request because it does not know us: greet it anew."""
        return self._greet(node, now) if node.state in (State.UP, State.STALLED) else []

    def overdue(self, node: Node, now: int) -> bool:
        """Mark the node stalled where an answer is overdue by more than the settings allow; True where that is new. One that
        is overdue beyond hope is forgotten."""
        if node.state is not State.UP or not node.out:
            return False
        allowed = int(self._link.stall_ms * MS)
        if all(now <= s.typical_ns + allowed for s in node.out.values()):
            return False
        for key in [key for key, sent in node.out.items() if now > sent.typical_ns + FORGET_NS]:
            node.forgotten(node.out.pop(key), now)
        node.state = State.STALLED
        node.hello_at = now + HELLO_EVERY_NS
        return True

    def tick(self, now: int) -> tuple[list[Action], list[Node], list[Node]]:
        """What is due: probes, repeated greetings, the end of a pause. Returns messages, nodes that are lost, and nodes that
        are stalled since now."""
        actions: list[Action] = []
        lost: list[Node] = []
        stalled: list[Node] = []
        for node in self.by_name.values():
            if node.state is State.PAUSED and now >= node.return_at:
                node.state = State.UP
            if node.state is State.GREETING and now >= node.hello_at:
                actions += self._greet_both(node, now)
            elif node.state is State.STALLED and now >= node.hello_at:
                node.hello_at = now + HELLO_EVERY_NS
                actions.append(Send(node.data, self._hello("data")))
            if node.probe_up and now >= node.probe_at:
                if node.probes_out >= self._link.probe_losses and node.known:
                    lost.append(self._lose(node, State.GREETING if node.state is State.GREETING else State.GONE))
                actions.append(self._probe(node, now))
            if self.overdue(node, now):
                stalled.append(node)
        return actions, lost, stalled

    def next_wakeup(self) -> int | None:
        """When `tick` is due next."""
        stall_ns = int(self._link.stall_ms * MS)
        soonest: int | None = None
        for node in self.by_name.values():
            state = node.state
            at = node.probe_at if node.probe_up else None
            if state is State.UP:
                for sent in node.out.values():
                    overdue = sent.typical_ns + stall_ns + 1
                    at = overdue if at is None or overdue < at else at
            elif state in (State.GREETING, State.STALLED):
                at = node.hello_at if at is None or node.hello_at < at else at
            elif state is State.PAUSED:
                at = node.return_at if at is None or node.return_at < at else at
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return soonest

    def _greet(self, node: Node, now: int) -> list[Action]:
        node.state = State.GREETING
        node.hello_at = now + HELLO_EVERY_NS
        return [Send(node.data, self._hello("data"))]

    def _greet_both(self, node: Node, now: int) -> list[Action]:
        greetings = self._greet(node, now)
        return [Send(node.probe, self._hello("probe")), *greetings] if node.probe_up else greetings

    def _hello(self, connection: Literal["data", "probe"]) -> Hello:
        return Hello(PROTOCOL, self._peer, self._incarnation, connection, self._contracts)

    def _probe(self, node: Node, now: int) -> Action:
        node.probes_out += 1
        node.probe_number += 1
        node.probe_at = now + int(self._link.probe_interval_ms * MS)
        return Send(node.probe, Probe(node.probe_number, now, *node.last_probe))

    def _lose(self, node: Node, state: State) -> Node:
        node.state = state
        node.offset.reset()
        node.last_probe = (0, 0)
        node.was_lost = node.was_lost or node.incarnation != 0
        node.out.clear()
        node.credits = 0
        return node

    def _recover(self, node: Node, now: int) -> None:
        """A stall is over: the node is used again, and trusted again by and by."""
        low, high = self._link.return_pause_ms
        node.state = State.UP
        node.estimate.recovered(now, int(self._rng.uniform(low, high) * MS))

    def _return(self, node: Node, now: int) -> None:
        if not node.was_lost:
            node.state = State.PAUSED if now < node.return_at else State.UP
            return
        low, high = self._link.return_pause_ms
        node.state = State.PAUSED
        node.was_lost = False
        node.return_at = now + int(self._rng.uniform(low, high) * MS)
