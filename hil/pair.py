"""An edge and its nodes in memory, on virtual time: the same broker, sessions and wire codec as in the real processes.

Nothing waits: a heap of what is to happen stands for the network, the executors and the timers. Each machine is asked to
validate its own books after every step. Executors take exactly the plan's typical times (times a factor that a test may
set) and compute a stamp of their inputs instead of a network, so that an answer made from the wrong tensors shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush

import numpy as np

from cloud.journal import NODE, build_session, node_setup
from cloud.session import Session
from edge.broker import Broker
from edge.journal import EDGE, build_broker, edge_setup
from edge.paths import connections
from shared.codecs import decode_into, encode
from shared.directory import Directory
from shared.errors import InvariantBroken
from shared.events import (
    Abort,
    Action,
    Arrived,
    Dial,
    DirectorySeen,
    Draining,
    Event,
    Failed,
    Finished,
    Granted,
    HangUp,
    Hold,
    Keep,
    Leave,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Row,
    RowResult,
    Run,
    Send,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
)
from shared.journal.recorder import Recorder
from shared.latency import Latency, WorkKey
from shared.plan import Plan
from shared.request import Answer, Array, Buffer, Outcome, Request
from shared.settings import CloudSettings, EdgeSettings
from shared.slots import Side
from shared.wire import codec
from shared.wire.messages import Message

MS = 1_000_000
WAKE_NS = 50_000
"""Time from a launch to its beginning, unless it is carried out in place."""
START_NS = 1_000 * MS
CLIENT = "client"

Machine = Broker | Session


class Way:
    """The network between the edge and one node. Mutable: a test changes it while the pair runs.

    `one_way_ns` each way, `per_byte_ns` on top. Not `up`: nothing is connected. `stalled`: messages wait until it is over.
    """

    def __init__(self, one_way_ns: int = 1 * MS, per_byte_ns: float = 40.0) -> None:
        self.one_way_ns = one_way_ns
        self.per_byte_ns = per_byte_ns
        self.up = True
        self.stalled: list[Callable[[], None]] | None = None

    def delay_ns(self, nbytes: int) -> int:
        """Time that a message of this size takes one way."""
        return self.one_way_ns + int(nbytes * self.per_byte_ns)


class Host:
    """A process: its machine, its executors' virtual devices, its own clock (`skew_ns` ahead of the pair's). A test may
    change how much slower than the plan it runs (`slow`), and how long after a launch that begins (`wake_ns`)."""

    def __init__(self, name: str, machine: Machine, side: Side, latency: Latency, skew_ns: int) -> None:
        self.name = name
        self.machine = machine
        self.recorder: Recorder | None = None
        self.side: Side = side
        self.latency = latency
        self.skew_ns = skew_ns
        self.slow = 1.0
        self.wake_ns = WAKE_NS
        self.alive = True
        self.wake_at = 0
        self.running: set[int] = set()
        self.launched: list[Run] = []


class Pair:
    """One edge, some nodes, one client. `plans` by contract digest."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        edge: EdgeSettings,
        cloud: CloudSettings | None = None,
        *,
        seed: int = 0,
        skew_ns: int = 5_000 * MS,
        journal: int = 0,
    ) -> None:
        """Builds everything and connects the edge to the nodes that its settings name. `skew_ns` puts the nodes' clocks
        ahead of the edge's. Each machine has a `recorder` that keeps its last `journal` steps, none where that is 0."""
        self.plans = dict(plans)
        self.now = START_NS
        self.delivered: dict[int, list[tuple[int, Outcome]]] = {}
        self.held: dict[int, list[tuple[int, Answer]]] = {}
        self.granted: dict[int, list[Granted]] = {}
        self.ways = {way_name(way.link): Way() for node in edge.nodes for way in connections(node)}
        """By node, and `NODE.1` and so on for further paths to it."""
        self._edge = edge
        self._cloud = cloud or CloudSettings()
        self._skew_ns = skew_ns
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._last: dict[tuple[str, str], int] = {}
        self._broken: dict[str, int] = {}
        """How often each connection was cut."""
        self._steps = 0
        self._sequence = 0
        slowdown = edge.execution.slowdown
        setup = edge_setup(edge, self.plans, 1, seed)
        self.broker = build_broker(setup)
        self.edge = Host("edge", self.broker, "edge", Latency.of(self.plans.items(), "edge", slowdown), 0)
        self._journal = journal
        if journal:
            self.edge.recorder = Recorder(self.broker, EDGE, setup, events=journal)
        self.nodes: dict[str, Host] = {}
        for node in edge.nodes:
            self.start(node.name)

    # --- what a test does ---------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a node, or start it again after `kill`, and let the edge connect, where it knows it."""
        incarnation = 1 + (self.now // MS)
        setup = node_setup(self._cloud, self.plans, name, incarnation)
        session = build_session(setup)
        latency = Latency.of(self.plans.items(), "cloud")
        self.nodes[name] = host = Host(name, session, "cloud", latency, self._skew_ns)
        if self._journal:
            host.recorder = Recorder(session, NODE, setup, events=self._journal)
        for link in self._links(name):
            self.ways[way_name(link)].up = True
        for link in self._links(name):
            self._feed(self.edge, LinkUp(link))

    def kill(self, name: str) -> None:
        """Kill a node: what it had is gone, and its connections break."""
        self.nodes[name].alive = False
        for link in self._links(name):
            self.ways[way_name(link)].up = False
        for link in self._links(name):
            self._feed(self.edge, LinkDown(link))

    def cut(self, link: str) -> None:
        """One connection of the edge breaks, with what is under way on it, and is made again after 50 ms."""
        self._broken[link] = self._broken.get(link, 0) + 1
        self._feed(self.edge, LinkDown(link))
        self._at(self.now + 50 * MS, lambda: self._feed(self.edge, LinkUp(link)))

    def _dialled(self, link: str) -> None:
        host = self.nodes.get(link.rpartition("/")[0])
        if host is not None and host.alive:
            self._feed(self.edge, LinkUp(link))

    def _links(self, name: str) -> list[str]:
        return [
            path_link
            for path in self.broker.nodes.paths()
            if path.node.name == name
            for path_link in (path.data, path.probe)
        ]

    def tell(self, directory: Directory) -> None:
        """The edge finds a directory of the fleet. Nodes that are new in it are those that were started."""
        self._feed(self.edge, DirectorySeen(directory))

    def drain(self, name: str) -> None:
        """Tell a node to leave; its connections break 1 ms after it has gone."""
        self._feed(self.nodes[name], Draining())

    def stall(self, name: str) -> None:
        """From now on nothing passes between the edge and this node, and nothing is lost."""
        self.ways[name].stalled = []

    def resume(self, name: str) -> None:
        """What waited passes now."""
        waiting, self.ways[name].stalled = self.ways[name].stalled or [], None
        for deliver in waiting:
            deliver()

    def open_stream(
        self, stream: int, period_ms: float, deadline_ms: float, *, priority: int = 1, plan: str = "", rows: int = 1
    ) -> None:
        """Announce a stream of the client (`plan` by contract, the first where empty)."""
        contract = plan or next(iter(self.plans))
        period, deadline = int(period_ms * MS), int(deadline_ms * MS)
        self._feed(self.edge, StreamOpened(CLIENT, stream, contract, rows, period, deadline, priority, False))

    def close_stream(self, stream: int) -> None:
        """End a stream of the client."""
        self._feed(self.edge, StreamClosed(CLIENT, stream))

    def ask(self, inputs: tuple[Array, ...], deadline_ms: float = 10.0, *, plan: str = "", **fields: object) -> int:
        """Hand a request to the edge now (`plan` by contract, the first where empty); its sequence."""
        self._feed(self.edge, Arrived(self.request(inputs, deadline_ms, plan=plan, **fields)))
        return self._sequence

    def request(
        self, inputs: tuple[Array, ...], deadline_ms: float = 10.0, *, plan: str = "", **fields: object
    ) -> Request:
        """The next request of the client, made now."""
        self._sequence += 1
        plan = plan or next(iter(self.plans))
        spec = self.plans[plan].inputs[0]
        return Request(
            client=CLIENT,
            sequence=self._sequence,
            plan=plan,
            inputs=inputs,
            rows=inputs[0].shape[0] // spec.shape[0] if self.plans[plan].batchable else 1,
            scheduled_ns=self.now,
            deadline_ns=self.now + int(deadline_ms * MS),
            **fields,  # type: ignore[arg-type]
        )

    def run(self, until_ms: float) -> None:
        """Let this much virtual time pass."""
        end = self.now + int(until_ms * MS)
        while self._heap and self._heap[0][0] <= end:
            at, _, happen = heappop(self._heap)
            self.now = max(self.now, at)
            happen()
        self.now = end

    def outcome(self, sequence: int) -> Outcome:
        """The one outcome of a request. Raises `InvariantBroken` where there is none, or more."""
        found = self.delivered.get(sequence, [])
        if len(found) != 1:
            raise InvariantBroken(f"request {sequence} has {len(found)} outcomes: {found}")
        return found[0][1]

    def answer(self, sequence: int) -> Answer:
        """The one outcome, which must be an answer."""
        outcome = self.outcome(sequence)
        if not isinstance(outcome, Answer):
            raise InvariantBroken(f"request {sequence} ended as {outcome}")
        return outcome

    # --- the world ----------------------------------------------------------------------------------------------------

    def _at(self, at_ns: int, happen: Callable[[], None]) -> None:
        self._steps += 1
        heappush(self._heap, (at_ns, self._steps, happen))

    def _feed(self, host: Host, event: Event) -> None:
        if not host.alive:
            return
        machine = host.recorder or host.machine
        actions = machine.handle(event, self.now + host.skew_ns)
        host.machine.validate()
        for action in actions:
            self._do(host, action)

    def _do(self, host: Host, action: Action) -> None:
        match action:
            case Run():
                self._launch(host, action)
            case Abort():
                if action.run in host.running:
                    host.running.discard(action.run)
                    self._at(self.now, lambda: self._feed(host, Failed(action.run, "aborted")))
            case Send():
                self._send(host, action)
            case Hold():
                self.held.setdefault(action.sequence, []).append((self.now, action.answer))
            case Resolve():
                self.delivered.setdefault(action.sequence, []).append((self.now, action.outcome))
            case Granted():
                self.granted.setdefault(action.stream, []).append(action)
            case WakeAt():
                self._wake(host, action.at_ns)
            case Dial():
                self._broken[action.link] = self._broken.get(action.link, 0) + 1
                self.ways.setdefault(way_name(action.link), Way())
                self._at(self.now + 2 * MS, lambda: self._dialled(action.link))
            case HangUp() | Keep():
                pass
            case Leave():
                self._at(self.now + MS + self.ways[host.name].delay_ns(0), lambda: self.kill(host.name))

    def _wake(self, host: Host, at_ns: int) -> None:
        host.wake_at = at_ns

        def fire() -> None:
            if host.wake_at == at_ns:
                self._feed(host, Tick(0))

        self._at(at_ns - host.skew_ns, fire)

    def _launch(self, host: Host, run: Run) -> None:
        host.launched.append(run)
        host.running.add(run.run)
        began = self.now + (0 if run.in_place else host.wake_ns)
        if began + host.skew_ns > run.latest_ns:
            self._end(host, run, began, Failed(run.run, "window"))
            return
        first = run.rows[0]
        key = WorkKey(
            run.contract, run.range, _lossy(first.decode.name), _lossy(first.encode.name if first.encode else "")
        )
        ended = began + int(host.latency.typical(key, sum(r.rows for r in run.rows)) * host.slow)
        results = tuple(self._compute(run, row) for row in run.rows)
        self._end(host, run, ended, Finished(run.run, results, began + host.skew_ns, ended + host.skew_ns))

    def _end(self, host: Host, run: Run, at_ns: int, event: Event) -> None:
        def end() -> None:
            if run.run in host.running:
                host.running.discard(run.run)
                self._feed(host, event)

        self._at(at_ns, end)

    def _compute(self, run: Run, row: Row) -> RowResult:
        plan = self.plans[run.contract]
        entry = plan.cuts[run.range.first].tensors
        arrays: list[Array] = []
        for i, (spec, given) in enumerate(zip(entry, row.inputs, strict=True)):
            if isinstance(given, np.ndarray):
                arrays.append(given)
            else:
                out: Array = np.empty(spec.at(row.rows), spec.dtype)
                decode_into(given, row.decode, i, spec, row.rows, out)
                arrays.append(out)
        whole = run.range.program != 0 or run.range.last == len(plan.programs[0].segments)
        leaving = plan.outputs if whole else plan.cuts[run.range.last].tensors
        outputs = (
            tuple(arrays)
            if run.range.empty
            else stamp(arrays, run.range.program, [(s.at(row.rows), s.dtype) for s in leaving])
        )
        if row.encode is None:
            return RowResult(row.job, outputs)
        return RowResult(row.job, tuple(encode(a, row.encode, i) for i, a in enumerate(outputs)))

    def _send(self, host: Host, send: Send) -> None:
        link = send.link
        name = link.rpartition("/")[0]
        target = self.nodes[name] if host is self.edge else self.edge
        way = self.ways[way_name(link)]
        if not way.up:
            self._at(self.now, lambda: self._feed(host, SendFailed(send.link, send.message)))
            return
        frames = [bytes(f) for f in codec.encode(send.message, send.frames)]
        decode: Callable[[list[bytes]], tuple[Message, tuple[Buffer, ...]]]
        decode = codec.decode_edge if host is self.edge else codec.decode_node
        nbytes = sum(len(f) for f in frames)
        generation, unbroken = target, self._broken.get(link, 0)

        def arrive() -> None:
            if self._broken.get(link, 0) != unbroken:
                return
            if self.nodes[name].alive and (target is self.edge or self.nodes[name] is generation):
                message, tensors = decode(frames)
                self._feed(target, Received(link, message, tensors))

        def deliver() -> None:
            if way.stalled is not None:
                way.stalled.append(deliver)
            else:
                arrive()

        direction = (host.name, send.link)
        self._last[direction] = max(self._last.get(direction, 0), self.now + way.delay_ns(nbytes))
        self._at(self._last[direction], deliver)


def stamp(arrays: list[Array], program: int, shapes: list[tuple[tuple[int, ...], str]]) -> tuple[Array, ...]:
    """What a virtual device gives for these inputs: every output is filled with a number that depends on all of them."""
    total = sum(float(np.asarray(a, np.float64).sum()) * (i + 1) for i, a in enumerate(arrays))
    return tuple(np.full(shape, (total + 7 * program + i) % 251, dtype) for i, (shape, dtype) in enumerate(shapes))


def way_name(link: str) -> str:
    """What the way is called that a connection of the edge goes over."""
    node, _, kind = link.rpartition("/")
    number = kind.partition(".")[2]
    return f"{node}.{number}" if number else node


def _lossy(name: str) -> str:
    return "" if name == "raw" else name
