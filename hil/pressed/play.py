"""A node that is asked too much, by edges of which some could do without it: with pressure told, and without."""

from __future__ import annotations

import random
from collections import Counter
from typing import Literal

import msgspec

from hil.crowd.net import FixedNetwork
from hil.crowd.plan import stated_plan
from hil.regret.tcp import MS, Agenda
from hil.regret.world import World
from shared.events import Resolve
from shared.plan import contract_digest
from shared.request import Answer
from shared.settings import (
    AgentGroup,
    CloudSettings,
    EdgeSettings,
    Execution,
    NodeAddress,
    NodeExecution,
    NodeGroup,
    NodePressure,
)
from shared.wire.messages import Message, Refusal

Kind = Literal["needs", "able", "spare"]
"""Edges that need the node, edges that could do without it, and those of the class below that could."""

KINDS: dict[Kind, tuple[float, int]] = {"needs": (0.4, 1), "able": (0.3, 1), "spare": (0.3, 2)}
"""Which part of the edges is of each kind, and of what class their requests are."""

NODE = "node"
WEAK = 10.0
"""So many times slower are devices that need the node."""
FIRST_NS = 500 * MS
"""When the first edges ask: all have connected by then."""
OFF_MS = 0.0
"""The `return_ms` of a node that tells no pressure."""


class Press(msgspec.Struct, frozen=True):
    """`load` is what all edges together ask for, in parts of what the node's `executors` can run, each request in `tail_ms`.
    Answers are due after `deadline_ns`. What is asked before `settled_s` of the `seconds` is not counted."""

    load: float = 1.5
    edges: int = 60
    executors: int = 2
    tail_ms: float = 4.0
    deadline_ms: float = 40.0
    seconds: float = 14.0
    settled_s: float = 4.0
    return_ms: float = NodePressure().return_ms
    seed: int = 1

    @property
    def period_ns(self) -> int:
        """Between two requests of an edge."""
        return round(self.edges * self.tail_ms * MS / (self.load * self.executors))


class Fared(msgspec.Struct, frozen=True):
    """How the requests of one kind fared. `agreement` is the mean of all, nothing for those without an answer."""

    requests: int = 0
    on_time: int = 0
    cloud: int = 0
    agreement: float = 0.0

    def share(self, count: int) -> float:
        """So many of them as a share of all."""
        return count / max(1, self.requests)


class Outcome(msgspec.Struct, frozen=True):
    """What came of it. `refused`: requests that the node refused, by reason, without those that were cancelled.
    `stepped_back`: choices of edges to do without the node. `most`: the highest level of pressure."""

    press: Press
    kinds: dict[Kind, Fared]
    refused: dict[str, int]
    stepped_back: int
    most: float

    @property
    def requests(self) -> int:
        """How many requests count."""
        return sum(fared.requests for fared in self.kinds.values())

    @property
    def on_time(self) -> float:
        """The share of them that was answered on time."""
        return sum(fared.on_time for fared in self.kinds.values()) / max(1, self.requests)

    @property
    def turned_down(self) -> int:
        """How many the node refused."""
        return sum(self.refused.values())


def play(press: Press) -> Outcome:
    """Let the edges ask."""
    plan = stated_plan("pressed", "for a node under pressure", 1.0, press.deadline_ms, press.tail_ms)
    contract = contract_digest(plan)
    agenda = Agenda(0)
    watch = _Watch(press)
    rng = random.Random(f"pressed {press.seed}")
    world = World({contract: plan}, FixedNetwork(agenda, lambda _: True, rng), agenda, watch, press.seed)
    session = world.add_node(
        CloudSettings(
            node=NodeGroup(name=NODE, credits=4 * press.edges),
            execution=NodeExecution(executors=press.executors),
            pressure=NodePressure(return_ms=press.return_ms),
        )
    )
    brokers = [
        world.add_edge(
            EdgeSettings(
                agent=AgentGroup(name=edge),
                nodes=(NodeAddress(NODE, "tcp://127.0.0.1:1"),),
                execution=Execution(slowdown=WEAK if kind == "needs" else 1.0),
            )
        )
        for edge, kind in watch.kinds.items()
    ]
    for edge in watch.kinds:
        agenda.put(FIRST_NS + rng.randrange(press.period_ns), _Asker(world, edge, contract, press, watch, rng).ask)
    agenda.play(int((press.seconds + press.deadline_ms / 1e3) * 1e9))
    stepped_back = sum(broker.counters["stepped-back"] for broker in brokers)
    return watch.told(stepped_back, session.pressure.figures().most)


class _Asker:
    """An edge's application: it asks at a steady pace, a little early or late each time."""

    def __init__(self, world: World, edge: str, contract: str, press: Press, watch: _Watch, rng: random.Random) -> None:
        self._world = world
        self._edge = edge
        self._contract = contract
        self._press = press
        self._watch = watch
        self._rng = rng
        self._sequence = 0

    def ask(self, at: int) -> None:
        """Ask, and again after the period."""
        press = self._press
        self._sequence += 1
        self._watch.asked(self._edge, self._sequence, at)
        priority = KINDS[self._watch.kinds[self._edge]][1]
        due_ns = int(press.deadline_ms * MS)
        self._world.ask(self._edge, self._sequence, self._contract, due_ns, priority=priority)
        again = at + int(press.period_ns * self._rng.uniform(0.8, 1.2))
        if again < press.seconds * 1e9:
            self._world.agenda.put(again, self.ask)


class _Watch:
    """Counts what becomes of requests that were asked when things had settled."""

    def __init__(self, press: Press) -> None:
        self._press = press
        self.kinds: dict[str, Kind] = {}
        for kind, (part, _) in KINDS.items():
            for number in range(round(part * press.edges)):
                self.kinds[f"{kind}{number}"] = kind
        self._counted: set[tuple[str, int]] = set()
        self._requests: Counter[Kind] = Counter()
        self._on_time: Counter[Kind] = Counter()
        self._cloud: Counter[Kind] = Counter()
        self._agreement: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._refused: Counter[str] = Counter()

    def asked(self, edge: str, sequence: int, now: int) -> None:
        """An edge asks."""
        if now >= self._press.settled_s * 1e9:
            self._counted.add((edge, sequence))
            self._requests[self.kinds[edge]] += 1

    def resolved(self, edge: str, action: Resolve, now: int) -> None:
        """A request has its outcome."""
        del now
        outcome, kind = action.outcome, self.kinds[edge]
        if (edge, action.sequence) in self._counted and isinstance(outcome, Answer):
            self._on_time[kind] += 1
            self._cloud[kind] += outcome.source == "cloud"
            self._agreement[kind] += outcome.agreement

    def sent(self, edge: str, link: str, message: Message, now: int) -> None:
        """An edge has sent something."""

    def received(self, edge: str, link: str, message: Message, now: int) -> None:
        """An edge has got something."""
        del edge, link
        if isinstance(message, Refusal) and message.reason != "cancelled" and now >= self._press.settled_s * 1e9:
            self._refused[message.reason] += 1

    def told(self, stepped_back: int, most: float) -> Outcome:
        """What was seen."""
        kinds: dict[Kind, Fared] = {}
        for kind in KINDS:
            count = self._requests[kind]
            agreement = self._agreement[kind] / max(1, count)
            kinds[kind] = Fared(count, self._on_time[kind], self._cloud[kind], agreement)
        return Outcome(self._press, kinds, dict(self._refused), stepped_back, most)
