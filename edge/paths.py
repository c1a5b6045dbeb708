"""The paths to a node: its address over one local link, each with connections of its own for requests and for probes.

    DOWN --connected--> GREETING --welcome--> UP            (the first time, and of a node that was only out of reach)
                                 --welcome--> PAUSED --pause over--> UP     (of a node that was started anew)
    UP --an answer is overdue--> STALLED --any answer on the data connection--> UP
    any --disconnected--> DOWN        any but DOWN --probes lost--> GREETING
    any --a good-bye--> GONE --a probe answered--> GREETING

*Stalled* (route elsewhere for the moment) differs from *lost* (what was sent there is given up). Paths stall and are lost
one by one: what a node lends, serves and is (credit, contracts, load, incarnation) is the node's, and the same on each of
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Literal

import msgspec

from edge.link import LinkEstimate
from edge.link_warm import MOST_BYTES, KeepWarm
from shared.events import Action, Send
from shared.settings import Link, NodeAddress
from shared.wire.messages import Probe, ProbeReply, Tensor

if TYPE_CHECKING:
    from edge.nodes import Node

Kind = Literal["data", "probe"]
KINDS: tuple[Kind, Kind] = ("data", "probe")


PAD_NS = 2_000_000_000
"""Padding that is not answered for so long will not be."""

PADDING = memoryview(bytes(MOST_BYTES))


class State(Enum):
    """See the diagram at the head of the module."""

    DOWN = "down"
    GREETING = "greeting"
    PAUSED = "paused"
    UP = "up"
    STALLED = "stalled"
    GONE = "gone"


UP, STALLED = State.UP, State.STALLED
"""The same by names of their own: to look one up in its class takes a tenth of a microsecond."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A copy of an attempt that is out on a path and not answered there."""

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


class Path:
    """One path to a node. Mutable state, changed by `Nodes` and, for `out`, by the broker's attempts."""

    def __init__(self, node: Node, number: int, link: Link, way: int = 0) -> None:
        self.node = node
        self.number = number
        self.data = link_name(node.name, "data", number)
        """Name of the connection that carries requests."""
        self.probe = link_name(node.name, "probe", number)
        """Name of the connection that carries probes."""
        self.way = way
        """Which of the node's addresses it goes to: paths of one way share a link."""
        self.state = State.DOWN
        self.shut = False
        """Whether the node does not take so many paths of an edge."""
        self.estimate = LinkEstimate(link)
        self.warm = KeepWarm(0.0 if link.budget_mb_per_hour else link.warm_kb_per_s * 1000)
        self.pad: Sent | None = None
        """Padding that is out on the data connection."""
        self.out: dict[tuple[int, int], Sent] = {}
        self.answered_ns = -1
        """When the latest of the copies that were answered was sent."""
        self.explore_at = 0
        self.explored = 0
        """Explorations since an answer was last on time."""
        self.greeted = False
        """Whether it was ever up."""
        self.was_lost = False
        self.greeted_by = 0
        """The incarnation of the node that greeted it last."""
        self.hello_at = 0
        self.return_at = 0
        self.probe_up = False
        self.probe_at = 0
        self.probes_out = 0
        self.probe_number = 0
        self.last_probe: tuple[int, int] = (0, 0)

    @property
    def known(self) -> bool:
        """Whether it has been greeted and was not lost since."""
        return self.greeted and not self.was_lost

    def back_ns(self, nbytes: int, node_ns: int, now: int) -> int:
        """When the answer to what is sent on it now is typically back, of an exchange of `nbytes` of which the node takes
        `node_ns`."""
        return now + self.estimate.network_ns(nbytes) + self.estimate.extra_ns(nbytes, now) + node_ns

    def answered(self, sent: Sent, node_ns: int, now: int) -> int:
        """A copy was answered on this path, of which the node took `node_ns`: what is out on it has changed. Returns how long
        the copy had waited for what was before it. An answer that was on time allows the next exploration at once."""
        self.answered_ns = max(self.answered_ns, sent.sent_ns)
        if now <= sent.due_ns:
            self.explore_at = now
            self.explored = 0
        return self.estimate.passed(sent.upto_bytes, sent.sent_ns, node_ns, now)

    def learn(self, sent: Sent, node_ns: int, waited_ns: int, answered_ns: int) -> None:
        """What a copy that was answered says of exchanges to come."""
        estimate = self.estimate
        estimate.exchanged(sent.nbytes, answered_ns - sent.sent_ns - node_ns, waited_ns, sent.startup_ns)
        late_by, sure_by = answered_ns - sent.typical_ns, sent.sure_ns - sent.typical_ns
        estimate.finished(sent.nbytes, sent.network_ns, late_by, sure_by, answered_ns)

    def refused(self, sent: Sent, now: int) -> None:
        """A copy was refused since it was late or cancelled: an answer would not have come before now."""
        estimate = self.estimate
        waited_ns = estimate.passed(sent.upto_bytes, sent.sent_ns, 0, now)
        estimate.gave_up(sent.nbytes, now - sent.sent_ns - sent.node_ns, waited_ns, sent.startup_ns)
        self._censored(sent, now)
        self.answered_ns = max(self.answered_ns, sent.sent_ns)

    def forgotten(self, sent: Sent, now: int) -> None:
        """A copy is not waited for any more."""
        self._censored(sent, now)

    def _censored(self, sent: Sent, now: int) -> None:
        late_by, sure_by = now - sent.typical_ns, sent.sure_ns - sent.typical_ns
        self.estimate.censored(sent.nbytes, sent.network_ns, late_by, sure_by, now)

    def keep_warm(self, now: int) -> list[Action]:
        """Send padding where it is due: a probe on the data connection, one at a time."""
        pad = self.pad
        if pad is not None and (self.answered_ns > pad.sent_ns or now > pad.sent_ns + PAD_NS):
            # A node that answers what came later does not answer padding.
            self.pad = None
            self.warm.off()
        if self.out or self.pad is not None:
            self.warm.busy(now)
            return []
        nbytes = self.warm.due(now)
        if not nbytes:
            return []
        estimate = self.estimate
        network_ns = estimate.network_ns(nbytes) + estimate.extra_ns(nbytes, now)
        typical_ns = now + network_ns
        sure_ns = typical_ns + estimate.margin_ns(nbytes, network_ns, now)
        startup_ns, upto_bytes = estimate.sent(nbytes, now)
        self.pad = Sent(now, typical_ns, 0, nbytes, True, network_ns, startup_ns, upto_bytes, sure_ns)
        self.probe_number += 1
        probe = Probe(self.probe_number, now, 0, 0, (Tensor("uint8", (nbytes,)),))
        return [Send(self.data, probe, (PADDING[:nbytes],))]

    def padded(self, message: ProbeReply, now: int) -> None:
        """Padding was answered: what that says about the link."""
        self.node.load(message.load, message.pressure)
        if self.pad is not None and message.probe_sent_ns == self.pad.sent_ns:
            pad, self.pad = self.pad, None
            node_ns = message.sent_ns - message.received_ns
            self.learn(pad, node_ns, self.answered(pad, node_ns, now), now)

    def still(self, due_ns: int, now: int) -> float:
        """The chance that the data connection carries anything by `due_ns`, as far as what is out there tells: TCP keeps the
        order, so that what is sent after an overdue copy comes after it."""
        for sent in self.out.values():
            if sent.sent_ns > self.answered_ns:
                over_ns = now - sent.typical_ns
                if over_ns <= 0:
                    return 1.0
                slack_ns = due_ns - sent.typical_ns
                return self.estimate.still(sent.nbytes, sent.network_ns, over_ns, slack_ns, now)
        return 1.0


class Connection(msgspec.Struct, frozen=True):
    """A connection of an edge to a node: its name, where it goes to, the local address or interface that it leaves from
    (empty: as the system routes), and which of the node's addresses that is."""

    link: str
    endpoint: str
    source: str
    way: int


def link_name(node: str, kind: Kind, path: int) -> str:
    """Name of a connection of path `path` to a node: `NODE/data`, from the second path on `NODE/data.1`."""
    return f"{node}/{kind}.{path}" if path else f"{node}/{kind}"


def connections(address: NodeAddress) -> Iterator[Connection]:
    """The connections that an edge keeps to a node: for each path one for requests and one for probes. Paths are numbered
    in the order of the addresses, each as many times as it has connections."""
    number = 0
    ways = ((address.endpoint, address.source), *((p.endpoint, p.source) for p in address.paths))
    for way, (endpoint, source) in enumerate(ways):
        for _ in range(address.connections):
            for kind in KINDS:
                yield Connection(link_name(address.name, kind, number), endpoint or address.endpoint, source, way)
            number += 1


def of_node(link: str) -> bool:
    """Whether a connection of an agent is one to a node, by its name; those of clients are never called so."""
    kind, _, number = link.rpartition("/")[2].partition(".")
    return "/" in link and kind in KINDS and (not number or number.isdecimal())


def ways_of(address: NodeAddress) -> tuple[int, ...]:
    """Which of a node's addresses each path to it goes to."""
    return tuple(way for way in range(1 + len(address.paths)) for _ in range(address.connections))
