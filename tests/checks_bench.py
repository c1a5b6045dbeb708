"""A bench for the checks of the simulator: one client, one agent, one node, real machines, stepped by hand.

What a test does to a machine or to what the checks are told of it is the bug; the checks must find it. `change` is given the
actions of a step and says what the checks (and who comes after them) see instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec
from plans import X, make_input, make_plan

from cloud.session import Session
from edge.broker import Broker
from edge.front import Front, model_info
from edge.outcomes import Outcomes
from edge.stub import AGENT, Stub
from hil.sim.books import ClientBook, EdgeBook, NodeBook
from hil.sim.checks import Checks
from hil.sim.watch import Kind
from shared.events import (
    Action,
    Arrived,
    Event,
    Finished,
    LinkUp,
    Received,
    Resolve,
    RowResult,
    Run,
    Send,
    Tick,
    Withdrawn,
)
from shared.ports import Machine
from shared.request import EXACT, Answer, Array, Request
from shared.settings import CloudSettings, EdgeSettings, NodeAddress
from shared.wire.messages import (
    PROTOCOL,
    AnswerHeader,
    Attached,
    Cancel,
    Final,
    Hello,
    Infer,
    Load,
    Reply,
    Tensor,
    Welcome,
    tensor_table,
)

MS = 1_000_000
T0 = 1_000 * MS
CONTRACT, PLAN = make_plan()
OUTPUTS = make_input(9)[0][:, :4].copy()
EDGE_LINK = "edge:1:node/data"
PROBE_LINK = "edge:1:node/probe"
CLIENT_LINK = "app:1:agent"

Change = Callable[[list[Action]], Sequence[Action]]


def as_they_are(actions: list[Action]) -> list[Action]:
    return actions


def without(kind: type) -> Change:
    return lambda actions: [a for a in actions if not isinstance(a, kind)]


def twice(kind: type) -> Change:
    return lambda actions: [a for action in actions for a in ([action] * (2 if isinstance(action, kind) else 1))]


def with_fields(kind: type, **fields: object) -> Change:
    """Actions of this kind get other fields."""

    def change(actions: list[Action]) -> list[Action]:
        return [msgspec.structs.replace(a, **fields) if isinstance(a, kind) else a for a in actions]  # type: ignore[arg-type]

    return change


def with_message(kind: type, **fields: object) -> Change:
    """Messages of this kind that are sent get other fields."""

    def change(actions: list[Action]) -> list[Action]:
        return [
            Send(a.link, msgspec.structs.replace(a.message, **fields), a.frames)  # type: ignore[arg-type]
            if isinstance(a, Send) and isinstance(a.message, kind)
            else a
            for a in actions
        ]

    return change


class BenchHost:
    """A process of the bench. Its clock is the world's, `ahead_ns` later."""

    def __init__(self, name: str, kind: Kind, machine: Machine) -> None:
        self.name = name
        self.kind: Kind = kind
        self.incarnation = 1
        self.machine = machine
        self.stopped = False
        self.ahead_ns = 0

    def local(self, at: int) -> int:
        return at + self.ahead_ns


class Bench:
    """`now` is the time of the next step. The agent knows the node, and has been welcomed by it."""

    def __init__(self, edge: EdgeSettings | None = None, cloud: CloudSettings | None = None) -> None:
        self.now = T0
        self.checks = Checks(self.expected)
        settings = edge or EdgeSettings(nodes=(NodeAddress(name="node", endpoint="tcp://127.0.0.1:1"),))
        self.broker = Broker(settings, {CONTRACT: PLAN}, 1, random.Random(1))
        self.front = Front(settings, {CONTRACT: PLAN}, 1, self.broker)
        self.session = Session(cloud or CloudSettings(), {CONTRACT: PLAN}, "node", 1)
        self.outcomes = Outcomes("app-1", 256)
        self.stub = Stub("app-1", 1, self.outcomes)
        self.client = BenchHost("app", "client", self.stub)
        self.agent = BenchHost("edge", "agent", self.front)
        self.node = BenchHost("node", "node", self.session)
        for host in (self.client, self.agent, self.node):
            self.checks.born(host, self.now)
        books = {host.name: self.checks._books[host] for host in (self.client, self.agent, self.node)}
        self.client_book: ClientBook = books["app"][0]
        self.edge_book: EdgeBook = books["edge"][1]
        self.node_book: NodeBook = books["node"][2]
        self.right: dict[str, Array] = {"y": OUTPUTS}
        self._models = (model_info(PLAN, CONTRACT, settings),)

    def expected(self, request: Request, answer: Answer) -> dict[str, Array]:
        return self.right

    # --- steps ------------------------------------------------------------------------------------------------------

    def client_step(self, event: Event, change: Change = as_they_are) -> list[Action]:
        actions = list(change(self.stub.handle(event, self.now)))
        self.checks.stepped(self.client, event, actions, self.now)
        for action in actions:
            if isinstance(action, Resolve):
                self.checks.ended(self.client, action.sequence, action.outcome, self.now)
        return actions

    def edge_step(self, event: Event, change: Change = as_they_are) -> list[Action]:
        actions = list(change(self.broker.handle(event, self.now)))
        self.checks.ears.edge.hear(self.edge_book, event, actions, self.now)
        self.checks.stepped(self.agent, event, [], self.now)
        return actions

    def node_step(self, event: Event, change: Change = as_they_are) -> list[Action]:
        actions = list(change(self.session.handle(event, self.now)))
        self.checks.stepped(self.node, event, actions, self.now)
        return actions

    def sweep(self) -> None:
        self.checks.sweep(self.now)

    def rest(self) -> None:
        self.checks.rest(self.now)

    # --- a client ---------------------------------------------------------------------------------------------------

    def attach(self) -> None:
        self.client_step(LinkUp(AGENT))
        self.client_step(Received(AGENT, Attached(PROTOCOL, "edge", 1, self._models)))

    def ask(self, sequence: int = 1, due_ms: float = 10.0, change: Change = as_they_are) -> list[Action]:
        request = self.request(sequence, due_ms, client="app-1")
        self.checks.asked(self.client, request, self.now)
        return self.client_step(Arrived(request), change)

    def final(self, sequence: int, **fields: object) -> Received:
        """The agent's answer, of the device's whole model."""
        header = AnswerHeader("edge", None, "whole", None, EXACT, CONTRACT, {}, (Tensor("float32", OUTPUTS.shape),))
        header = msgspec.structs.replace(header, **fields)  # type: ignore[arg-type]
        return Received(AGENT, Final(sequence, "answer", header), (OUTPUTS.tobytes(),))

    # --- a broker ---------------------------------------------------------------------------------------------------

    def request(self, sequence: int = 1, due_ms: float = 10.0, **fields: object) -> Request:
        given: dict[str, object] = {
            "client": CLIENT_LINK,
            "sequence": sequence,
            "plan": CONTRACT,
            "inputs": make_input(sequence),
            "rows": 1,
            "scheduled_ns": self.now,
            "deadline_ns": self.now + int(due_ms * MS),
        }
        return Request(**(given | fields))  # type: ignore[arg-type]

    def arrival(self, sequence: int = 1, due_ms: float = 10.0, **fields: object) -> Arrived:
        return Arrived(self.request(sequence, due_ms, **fields))

    def arrive(
        self, sequence: int = 1, due_ms: float = 10.0, change: Change = as_they_are, **fields: object
    ) -> list[Action]:
        return self.edge_step(self.arrival(sequence, due_ms, **fields), change)

    def welcome(self, credits_: int = 8) -> None:
        self.edge_step(LinkUp("node/data"))
        self.edge_step(Received("node/data", Welcome(PROTOCOL, "node", 1, (CONTRACT,), credits_)))

    def reply(self, asked: Send, **fields: object) -> Received:
        infer = asked.message
        assert isinstance(infer, Infer)
        given: dict[str, object] = {
            "incarnation": infer.incarnation,
            "sequence": infer.sequence,
            "attempt": infer.attempt,
            "contract": infer.contract,
            "cut": infer.cut,
            "coding": infer.coding,
            "rows": infer.rows,
            "tensors": tensor_table(PLAN.outputs, 1)[1],
            "stages": {},
            "sent_ns": self.now,
            "load": Load(0, 8),
        }
        return Received("node/data", Reply(**(given | fields)), (OUTPUTS.tobytes(),))  # type: ignore[arg-type]

    # --- a node -----------------------------------------------------------------------------------------------------

    def greet(self, link: str = EDGE_LINK, connection: str = "data") -> None:
        self.node_step(Received(link, Hello(PROTOCOL, "edge", 1, connection, (CONTRACT,))))  # type: ignore[arg-type]

    def infer(
        self, sequence: int = 1, change: Change = as_they_are, budget_ms: float = 10.0, **fields: object
    ) -> list[Action]:
        given: dict[str, object] = {
            "incarnation": 1,
            "sequence": sequence,
            "attempt": 1,
            "contract": CONTRACT,
            "cut": 0,
            "coding": "raw",
            "rows": 1,
            "priority": 1,
            "budget_ns": int(budget_ms * MS),
            "sent_ns": self.now,
            "tensors": (Tensor("float32", X.shape),),
        }
        message = Infer(**(given | fields))  # type: ignore[arg-type]
        return self.node_step(Received(EDGE_LINK, message, (make_input(sequence)[0].tobytes(),)), change)

    # --- what comes of actions -------------------------------------------------------------------------------------

    def finish(self, run: Run, took_ms: float = 1.0) -> Finished:
        """The run is over now, `took_ms` after it began."""
        results = tuple(RowResult(row.job, (OUTPUTS,)) for row in run.rows)
        return Finished(run.run, results, self.now - int(took_ms * MS), self.now)

    def tick(self) -> Tick:
        return Tick(0)

    def nudge_edge(self) -> Event:
        """An event that is nothing to a broker."""
        return Withdrawn("nobody", 1)

    def nudge_node(self) -> Event:
        """An event that is nothing to a node."""
        return Received(EDGE_LINK, Cancel(1, 99, 1))


def run_of(actions: Sequence[Action]) -> Run:
    (run,) = [a for a in actions if isinstance(a, Run)]
    return run


def sent(actions: Sequence[Action], kind: type) -> Send:
    (send,) = [a for a in actions if isinstance(a, Send) and isinstance(a.message, kind)]
    return send


def busy_broker(*more_ms: float) -> Bench:
    """A broker that runs request 1, due in 30 ms, while requests 2, 3, ... wait, due in so many ms."""
    bench = Bench()
    bench.arrive(1, 30)
    for sequence, due_ms in enumerate(more_ms, 2):
        bench.arrive(sequence, due_ms)
    return bench


def busy_node(waiting: int, cloud: CloudSettings | None = None) -> tuple[Bench, Run]:
    """A node that runs request 1 while so many wait."""
    bench = Bench(cloud=cloud)
    bench.greet()
    run = run_of(bench.infer(1))
    for sequence in range(2, 2 + waiting):
        bench.infer(sequence, budget_ms=10 + sequence)
    return bench, run


def plus(*more: Action) -> Callable[[list[Action]], list[Action]]:
    return lambda actions: [*actions, *more]
