"""Edges and nodes on one virtual clock: the real brokers and sessions, with executors and networks that are arithmetic.

It is made for long runs and for many edges: what `hil.pair` checks after every step (the machines' own books, the codec) is
left out here, messages are handed over as they are, and their bytes are the plan's; with `Turns` they pass through the codec
and what nodes do with them is timed. Timers are exact; an executor takes the
plan's typical time times a factor that belongs to the request, so that under every policy the same request takes as long.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol
from zlib import crc32

import numpy as np

from cloud.session import Session
from edge.broker import Broker
from edge.paths import connections
from hil.regret.tcp import MS, Agenda, Happen
from hil.sim.times import TABLE, lognormal
from shared.codecs import encode
from shared.events import (
    Abort,
    Action,
    Arrived,
    Dial,
    Event,
    Failed,
    Finished,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    RowResult,
    Run,
    Send,
    SendFailed,
    Tick,
    WakeAt,
)
from shared.latency import Latency, WorkKey
from shared.lateness import Lateness
from shared.plan import Coding, Plan
from shared.request import Array, Buffer, Request
from shared.settings import CloudSettings, EdgeSettings
from shared.slots import Side
from shared.wire import codec
from shared.wire.messages import Infer, Message, Reply

WAKE_NS = 50_000
"""Time from a launch to its beginning, unless it is carried out in place."""

SMALL_BYTES = 160
"""A message without tensors, with its framing."""

EDGE_CLOCK_NS, NODE_CLOCK_NS = 1_000_000 * MS, 5_000_000 * MS
"""What the hosts' clocks show when the world begins."""

CLIENT = "client"
SPREAD = 0.05
"""Standard deviation of the logarithm of how long the same work takes."""


class Channel(Protocol):
    """One connection of an edge to a node."""

    def send(self, nbytes: int, deliver: Happen, *, upward: bool) -> bool:
        """Send a message, upward to the node; False where there is no connection or it takes no more."""
        ...

    def renew(self) -> None:
        """Make the connection anew; the edge hears only that it is there."""
        ...


class Network(Protocol):
    """Makes connections. `up` and `down` tell the edge how each fares."""

    def connect(self, edge: str, node: str, link: str, up: Happen, down: Happen) -> Channel:
        """Connect, and keep connected."""
        ...


class Watch(Protocol):
    """Somebody who looks on. Times are the world's."""

    def resolved(self, edge: str, action: Resolve, now: int) -> None:
        """A request has its outcome."""
        ...

    def sent(self, edge: str, link: str, message: Message, now: int) -> None:
        """An edge has sent a message to a node."""
        ...

    def received(self, edge: str, link: str, message: Message, now: int) -> None:
        """A message of a node has come to an edge, and was handled."""
        ...


class Turns:
    """How long nodes take, by a real clock in nanoseconds, for each message that comes: to decode it, to decide, and to
    encode what they send. As long as that a real node's loop looks at nothing else."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.took = Lateness()


class Host:
    """A process: its machine, and what runs on its executors."""

    def __init__(self, name: str, machine: Broker | Session, side: Side, latency: Latency, clock_ns: int) -> None:
        self.name = name
        self.machine = machine
        self.side: Side = side
        self.latency = latency
        self.clock_ns = clock_ns
        self.alive = True
        self.wake_at = 0
        self.running: set[int] = set()


class EdgeHost(Host):
    """An edge. `sequences` are the client's numbers of its requests by the broker's."""

    def __init__(self, name: str, broker: Broker, latency: Latency) -> None:
        super().__init__(name, broker, "edge", latency, EDGE_CLOCK_NS)
        self.broker = broker
        self.channels: dict[str, Channel] = {}
        self.sequences: dict[int, int] = {}


class World:
    """Hosts on an agenda. `plans` by contract; `seed` is of the machines' random numbers and of how long work takes. With
    `turns` messages pass through the codec, and those to nodes are timed."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        network: Network,
        agenda: Agenda,
        watch: Watch,
        seed: int,
        turns: Turns | None = None,
    ) -> None:
        self.agenda = agenda
        self._turns = turns
        self.edges: dict[str, EdgeHost] = {}
        self.nodes: dict[str, Host] = {}
        self._plans = dict(plans)
        self._network = network
        self._watch = watch
        self._seed = seed
        self._factors = lognormal(SPREAD)
        self._bytes = {
            (contract, route.cut, route.coding): (route.bytes_up, route.bytes_down)
            for contract, plan in plans.items()
            for route in plan.routes
        }
        self._coded: dict[tuple[str, int, str, int], tuple[Buffer, ...]] = {}
        self._zeros: dict[tuple[str, int, int], tuple[Array, ...]] = {}
        self._edge_times = Latency.of(plans.items(), "edge")
        self._cloud_times = Latency.of(plans.items(), "cloud")

    # --- what a rig does ----------------------------------------------------------------------------------------------

    def add_node(self, settings: CloudSettings) -> Session:
        """Start a node, or start it again after `kill`; its machine."""
        name = settings.node.name
        incarnation = 1 + self.agenda.now // MS
        session = Session(settings, self._plans, name, incarnation)
        self.nodes[name] = Host(name, session, "cloud", self._cloud_times, NODE_CLOCK_NS)
        return session

    def add_edge(self, settings: EdgeSettings) -> Broker:
        """Start an edge, which connects to the nodes of its settings; its machine."""
        name = settings.agent.name
        slowed = settings.execution.slowdown != 1.0
        times = Latency.of(self._plans.items(), "edge", settings.execution.slowdown) if slowed else self._edge_times
        broker = Broker(settings, self._plans, 1, random.Random(f"{self._seed} {name}"))
        host = self.edges[name] = EdgeHost(name, broker, times)
        for node in settings.nodes:
            for link in (way.link for way in connections(node)):
                host.channels[link] = self._network.connect(
                    name, node.name, link, self._feeds(host, LinkUp(link)), self._feeds(host, LinkDown(link))
                )
        return broker

    def kill(self, node: str) -> None:
        """Kill a node: what it had is gone. That its connections break is the network's to tell."""
        self.nodes[node].alive = False

    def ask(
        self, edge: str, sequence: int, contract: str, deadline_ns: int, *, stream: int = 0, priority: int = 1
    ) -> None:
        """Hand a request of one row to an edge now, due `deadline_ns` from now."""
        host = self.edges[edge]
        now = self.agenda.now + host.clock_ns
        due, inputs = now + deadline_ns, self._entry(contract)
        request = Request(CLIENT, sequence, contract, inputs, 1, now, due, priority, stream)
        actions = host.broker.handle(Arrived(request), now)
        number = host.broker.number(CLIENT, sequence)
        if number:
            host.sequences[number] = sequence
        for action in actions:
            self._do(host, action)

    def feed(self, edge: str, event: Event) -> None:
        """Hand an edge an event of its client."""
        self._feed(self.edges[edge], event)

    def factor(self, side: Side, edge: str, sequence: int) -> float:
        """How much longer than typical the work for this request takes."""
        mixed = hash((self._seed, crc32(edge.encode()), side == "edge", sequence))
        return self._factors[(mixed >> 7) % TABLE]

    # --- the world ----------------------------------------------------------------------------------------------------

    def _feeds(self, host: Host, event: Event) -> Happen:
        def happen(at: int) -> None:
            del at
            self._feed(host, event)

        return happen

    def _feed(self, host: Host, event: Event) -> None:
        if host.alive:
            for action in host.machine.handle(event, self.agenda.now + host.clock_ns):
                self._do(host, action)

    def _do(self, host: Host, action: Action) -> None:
        match action:
            case Run():
                self._launch(host, action)
            case Abort():
                if action.run in host.running:
                    host.running.discard(action.run)
                    self.agenda.put(self.agenda.now, self._feeds(host, Failed(action.run, "aborted")))
            case Send():
                self._send(host, action)
            case Resolve():
                self._watch.resolved(host.name, action, self.agenda.now)
            case WakeAt():
                self._wake(host, action.at_ns)
            case Dial():
                if isinstance(host, EdgeHost):
                    host.channels[action.link].renew()
            case _:
                pass

    def _wake(self, host: Host, at_ns: int) -> None:
        host.wake_at = at_ns

        def fire(at: int) -> None:
            del at
            if host.wake_at == at_ns:
                self._feed(host, Tick(0))

        self.agenda.put(at_ns - host.clock_ns, fire)

    def _launch(self, host: Host, run: Run) -> None:
        host.running.add(run.run)
        began = self.agenda.now + (0 if run.in_place else WAKE_NS)
        clock = host.clock_ns
        if began + clock > run.latest_ns:
            self._end(host, run, began, Failed(run.run, "window"))
            return
        first = run.rows[0]
        key = WorkKey(run.contract, run.range, _coded(first.decode), _coded(first.encode))
        rows = sum(row.rows for row in run.rows)
        slowness = max(self._slowness(host, row.job) for row in run.rows)
        ended = began + int(host.latency.typical(key, rows) * slowness)
        results = tuple(self._result(run, row.job, row.rows, row.encode) for row in run.rows)
        self._end(host, run, ended, Finished(run.run, results, began + clock, ended + clock))

    def _slowness(self, host: Host, job: int) -> float:
        """The factor of the request that a job works for."""
        machine = host.machine
        if isinstance(machine, Broker):
            number, edge = machine.owner(job)[0], host.name
        else:
            identity = machine.owner(job)
            if identity is None:
                return 1.0
            edge, number = identity[0], identity[2]
        sequence = self.edges[edge].sequences.get(number, number)
        return self.factor(host.side, edge, sequence)

    def _end(self, host: Host, run: Run, at: int, event: Event) -> None:
        def end(then: int) -> None:
            del then
            if run.run in host.running:
                host.running.discard(run.run)
                self._feed(host, event)

        self.agenda.put(at, end)

    def _result(self, run: Run, job: int, rows: int, coding: Coding | None) -> RowResult:
        part = run.range
        whole = part.program != 0 or part.last == len(self._plans[run.contract].programs[0].segments)
        cut = len(self._plans[run.contract].cuts) - 1 if whole else part.last
        if coding is None:
            return RowResult(job, self._tensors(run.contract, cut, rows))
        key = (run.contract, cut, coding.name, rows)
        frames = self._coded.get(key)
        if frames is None:
            tensors = self._tensors(run.contract, cut, rows)
            frames = self._coded[key] = tuple(encode(tensor, coding, i) for i, tensor in enumerate(tensors))
        return RowResult(job, frames)

    def _entry(self, contract: str) -> tuple[Array, ...]:
        return self._tensors(contract, 0, 1)

    def _tensors(self, contract: str, cut: int, rows: int) -> tuple[Array, ...]:
        key = (contract, cut, rows)
        found = self._zeros.get(key)
        if found is None:
            specs = self._plans[contract].cuts[cut].tensors
            found = self._zeros[key] = tuple(np.zeros(spec.at(rows), spec.dtype) for spec in specs)
        return found

    # --- messages -----------------------------------------------------------------------------------------------------

    def _send(self, host: Host, send: Send) -> None:
        message = send.message
        if isinstance(host, EdgeHost):
            name = send.link.rpartition("/")[0]
            arrive = self._to_node(host.name, send, name)
            gone = host.channels[send.link].send(self._nbytes(send), arrive, upward=True)
            self._watch.sent(host.name, send.link, message, self.agenda.now)
        else:
            edge, _, link = send.link.partition("|")
            arrive = self._to_edge(self.edges[edge], link, send)
            gone = self.edges[edge].channels[link].send(self._nbytes(send), arrive, upward=False)
        if not gone:
            self.agenda.put(self.agenda.now, self._feeds(host, SendFailed(send.link, message)))

    def _to_node(self, edge: str, send: Send, name: str) -> Happen:
        generation = self.nodes.get(name)
        link, turns = f"{edge}|{send.link}", self._turns
        wire = None if turns is None else _encoded(send)

        def arrive(at: int) -> None:
            del at
            node = self.nodes.get(name)
            if node is None or node is not generation:
                return
            if turns is None or wire is None:
                self._feed(node, Received(link, send.message, _frames(send)))
                return
            began = turns.clock()
            self._feed(node, Received(link, *codec.decode_edge(wire)))
            turns.took.add(turns.clock() - began)

        return arrive

    def _to_edge(self, host: EdgeHost, link: str, send: Send) -> Happen:
        wire = None if self._turns is None else _encoded(send)

        def arrive(at: int) -> None:
            message, frames = (send.message, _frames(send)) if wire is None else codec.decode_node(wire)
            self._feed(host, Received(link, message, frames))
            self._watch.received(host.name, link, message, at)

        return arrive

    def _nbytes(self, send: Send) -> int:
        message = send.message
        if isinstance(message, Infer):
            return self._bytes[message.contract, message.cut, message.coding][0] * message.rows
        if isinstance(message, Reply):
            return self._bytes[message.contract, message.cut, message.coding][1] * message.rows
        return SMALL_BYTES + sum(memoryview(frame).nbytes for frame in _frames(send))


def _encoded(send: Send) -> list[Buffer]:
    return [bytes(frame) for frame in codec.encode(send.message, send.frames)]


def _frames(send: Send) -> tuple[Buffer, ...]:
    return tuple(frame.data if isinstance(frame, np.ndarray) else frame for frame in send.frames)


def _coded(coding: Coding | None) -> str:
    return coding.name if coding is not None and coding.coded else ""
