"""A crowd on virtual time: edges that ask at a steady pace, nodes that lend credit, one of which dies and returns."""

from __future__ import annotations

import random
from collections import Counter

import msgspec

from hil.crowd.net import FixedNetwork
from hil.crowd.plan import stated_plan
from hil.regret.tcp import MS, Agenda
from hil.regret.world import Turns, World
from shared.events import Resolve
from shared.plan import contract_digest
from shared.request import Answer
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, NodeAddress, NodeExecution, NodeGroup
from shared.wire.messages import Infer, Message, Refusal, Reply

WINDOW_NS = 50 * MS
FIRST_NS = 500 * MS
"""When the first edges ask: all have connected by then."""


class Crowd(msgspec.Struct, frozen=True):
    """Who is there and what happens. `hz` is how often each edge asks, `deadline_ms` when its answer is due. A node runs a
    request in `tail_ms` on each of its `executors` and lends `credits`. Times are seconds from the beginning; the first
    node dies at `dies_s` and is back at `returns_s`."""

    edges: int = 500
    nodes: int = 4
    hz: float = 5.0
    deadline_ms: float = 50.0
    tail_ms: float = 2.0
    executors: int = 2
    credits: int = 64
    dies_s: float = 5.0
    returns_s: float = 10.0
    seconds: float = 16.0
    seed: int = 1


class Seen(msgspec.Struct, frozen=True):
    """What was seen of one node in each window of 50 ms: the most requests that were sent to it and not ended, and how many
    were sent."""

    node: str
    most_out: tuple[int, ...]
    sent: tuple[int, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What came of a crowd. `served` is how many edges ever had an answer of a node; `refused` counts refusals by reason."""

    crowd: Crowd
    requests: int
    on_time: int
    cloud: int
    served: int
    refused: dict[str, int]
    nodes: tuple[Seen, ...]


def play(crowd: Crowd, turns: Turns | None = None) -> Outcome:
    """Let the crowd play. With `turns` messages pass through the codec, and the nodes' turns are timed."""
    plan = stated_plan("crowd", "for a crowd", crowd.hz, crowd.deadline_ms, crowd.tail_ms)
    contract = contract_digest(plan)
    agenda = Agenda(0)
    watch = _Watch(agenda, crowd)
    rng = random.Random(f"crowd {crowd.seed}")
    names = [f"node{i}" for i in range(crowd.nodes)]
    network = FixedNetwork(agenda, lambda name: world.nodes[name].alive, rng)
    world = World({contract: plan}, network, agenda, watch, crowd.seed, turns)
    for name in names:
        world.add_node(_node(name, crowd))
    addresses = tuple(NodeAddress(name, "tcp://127.0.0.1:1") for name in names)
    period_ns, deadline_ns = int(1e9 / crowd.hz), int(crowd.deadline_ms * MS)
    end_ns = int(crowd.seconds * 1e9)
    for index in range(crowd.edges):
        edge = f"edge{index}"
        world.add_edge(EdgeSettings(agent=AgentGroup(name=edge), nodes=addresses))
        agenda.put(
            FIRST_NS + rng.randrange(period_ns),
            _Asker(world, edge, contract, period_ns, deadline_ns, end_ns, watch).ask,
        )

    def die(at: int) -> None:
        del at
        world.kill(names[0])
        watch.died(names[0])
        network.cut(names[0])

    def come_back(at: int) -> None:
        del at
        world.add_node(_node(names[0], crowd))

    agenda.put(int(crowd.dies_s * 1e9), die)
    agenda.put(int(crowd.returns_s * 1e9), come_back)
    agenda.play(end_ns + deadline_ns)
    return watch.told(names)


class _Asker:
    """An edge's application: it asks at a steady pace."""

    def __init__(
        self, world: World, edge: str, contract: str, period_ns: int, deadline_ns: int, end_ns: int, watch: _Watch
    ) -> None:
        self._world = world
        self._edge = edge
        self._contract = contract
        self._period_ns = period_ns
        self._deadline_ns = deadline_ns
        self._end_ns = end_ns
        self._watch = watch
        self._sequence = 0

    def ask(self, at: int) -> None:
        """Ask, and again after the period."""
        self._sequence += 1
        self._watch.requests += 1
        self._world.ask(self._edge, self._sequence, self._contract, self._deadline_ns)
        if at + self._period_ns < self._end_ns:
            self._world.agenda.put(at + self._period_ns, self.ask)


class _Watch:
    """Counts what is out at each node."""

    def __init__(self, agenda: Agenda, crowd: Crowd) -> None:
        self._agenda = agenda
        self._crowd = crowd
        self._out: dict[str, set[tuple[str, int, int]]] = {}
        self._most: dict[str, Counter[int]] = {}
        self._sent: dict[str, Counter[int]] = {}
        self._served: set[str] = set()
        self._refused: Counter[str] = Counter()
        self._on_time = 0
        self._cloud = 0
        self.requests = 0

    def resolved(self, edge: str, action: Resolve, now: int) -> None:
        """A request has its outcome."""
        del now
        outcome = action.outcome
        if isinstance(outcome, Answer):
            self._on_time += 1
            if outcome.source == "cloud":
                self._cloud += 1
                self._served.add(edge)

    def sent(self, edge: str, link: str, message: Message, now: int) -> None:
        """An edge has sent something."""
        if not isinstance(message, Infer):
            return
        node = link.rpartition("/")[0]
        out = self._out.setdefault(node, set())
        out.add((edge, message.sequence, message.attempt))
        window = now // WINDOW_NS
        self._sent.setdefault(node, Counter())[window] += 1
        most = self._most.setdefault(node, Counter())
        most[window] = max(most[window], len(out))

    def received(self, edge: str, link: str, message: Message, now: int) -> None:
        """An edge has got something."""
        del now
        if isinstance(message, Reply | Refusal):
            out = self._out.get(link.rpartition("/")[0], set())
            out.discard((edge, message.sequence, message.attempt))
            if isinstance(message, Refusal):
                self._refused[message.reason] += 1

    def died(self, node: str) -> None:
        """What was out at a node is gone with it."""
        self._out[node] = set()

    def told(self, nodes: list[str]) -> Outcome:
        """What was seen."""
        windows = range(int(self._crowd.seconds * 1e9) // WINDOW_NS)
        seen = tuple(
            Seen(
                node,
                tuple(self._most.get(node, Counter())[w] for w in windows),
                tuple(self._sent.get(node, Counter())[w] for w in windows),
            )
            for node in nodes
        )
        return Outcome(
            self._crowd, self.requests, self._on_time, self._cloud, len(self._served), dict(self._refused), seen
        )


def _node(name: str, crowd: Crowd) -> CloudSettings:
    return CloudSettings(
        node=NodeGroup(name=name, credits=crowd.credits), execution=NodeExecution(executors=crowd.executors)
    )
