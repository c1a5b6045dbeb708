"""The world: processes with the real machines in them, the network between them, and what happens to them in time.

It lets things happen and checks nothing: a `Watch` looks on. Everything that is random comes from generators that are seeded
by the run's seed and a name (a host's, a path's, a process's), so that leaving one item out of a script disturbs the rest
little.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from cloud.session import Session
from edge.broker import Broker
from edge.direct import Direct
from edge.front import Front, model_info
from edge.outcomes import Outcomes
from edge.stub import AGENT, Stub
from hil.sim import times
from hil.sim.agenda import Agenda
from hil.sim.clock import HostClock
from hil.sim.device import Times, Trouble, VirtualExecutor
from hil.sim.hosts import Host, Process
from hil.sim.loop import Loops
from hil.sim.net import MS, Net, Path
from hil.sim.script import START_NS, Ask, Device, Place, Quartz, Script, Source
from hil.sim.stamp import Stamps, request_inputs
from hil.sim.trace import Trace
from hil.sim.watch import Kind, Watch
from shared.errors import InvariantBroken
from shared.events import Action, Arrived, Event, Resolve, Send, StreamClosed, StreamOpened, Withdrawn
from shared.latency import Latency
from shared.plan import Plan
from shared.ports import Machine
from shared.request import Answer, Request
from shared.settings import Execution
from shared.wire import codec

MEGABYTE = 1 << 20
LARGEST = 2047 * MEGABYTE
LOCAL_PAUSES = (20 * MS, 200 * MS)
REMOTE_PAUSES = (50 * MS, 2_000 * MS)
CLIENT_MARKS = (64, 256)
NODE_MARKS = (4, 256)
IPC_NS = 30_000


class Client:
    """Where a client lives."""

    def __init__(self, name: str, device: Device) -> None:
        self.name = name
        self.device = device


class World:
    """All that there is in one run."""

    def __init__(self, script: Script, seed: int, watch: Watch) -> None:
        self.script = script
        self.seed = seed
        self.agenda = Agenda(START_NS)
        self.counters: dict[str, int] = {}
        self.trace = Trace()
        self.asked = 0
        self._watch = watch
        self.loops = Loops(self.agenda, watch, self.trace)
        self.net = Net(self.agenda, self, self.trace, self.counters)
        self.loops.wire = self.net
        self.loops.ended = self._ended
        self.loops.asked = self._ask_late
        self._models = {model.name: model for model in script.models}
        self._stamps = Stamps(
            {c: p for model in script.models for c, p in zip(model.contracts, model.plans, strict=True)}
        )
        self._devices = {device.name: device for device in script.devices}
        self._places = {place.name: place for place in script.nodes}
        self._clients = {name: Client(name, device) for device in script.devices for name in device.clients}
        self.hosts = {d.name: self._host(d.name, d.clock) for d in script.devices}
        self.hosts |= {n.name: self._host(n.name, n.clock) for n in script.nodes}
        self.paths = {
            road.name: self._path(road.name, road.times, road.one_way_ns, road.per_byte_ns) for road in script.roads
        }
        for device in script.devices:
            self.paths[device.name] = self._path(device.name, "wired", IPC_NS, 0.0, local=True)
        self.processes: dict[str, Process] = {}
        self.troubles: dict[str, Trouble] = {}
        self.versions = {d.name: d.version for d in script.devices} | {n.name: n.version for n in script.nodes}
        self._starts: dict[str, int] = {}
        self._numbers = 0

    def random(self, *names: object) -> random.Random:
        """A generator of its own for whatever these names name."""
        return random.Random("/".join(map(str, (self.seed, *names))))

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.counters[what] = self.counters.get(what, 0) + 1

    def turn(self, process: Process, event: Event, at: int) -> None:
        """Let a process take an event now."""
        self.loops.turn(process, event, at)

    def router(self, name: str) -> Process | None:
        """The living process of this name."""
        process = self.processes.get(name)
        return process if process is not None and process.alive else None

    @property
    def names(self) -> tuple[str, ...]:
        """Every process there is to be, in the order in which they start."""
        agents = (d.name for d in self.script.devices if not d.embedded)
        return (*self._places, *agents, *self._clients)

    # --- births and deaths --------------------------------------------------------------------------------------------

    def start(self, name: str, at: int) -> None:
        """Start a process that is not there."""
        if self.router(name) is not None:
            return
        if name in self._places:
            self._start_node(self._places[name], at)
        elif name in self._devices:
            self._start_agent(self._devices[name], at)
        else:
            self._start_client(self._clients[name], at)

    def kill(self, process: Process, at: int) -> None:
        """Kill a process: nothing of it happens any more."""
        process.alive = False
        self.net.died(process, at)
        process.host.processes.remove(process)
        self._watch.died(process, at)

    def _start_node(self, place: Place, at: int) -> None:
        plans = self._plans(place.models, self.versions[place.name])
        incarnation = self._next(place.name)
        session = Session(place.settings, plans, place.name, incarnation)
        process = self._born(place.name, "node", incarnation, place.name, session, plans, place.late_us, at)
        self._equip(process, plans, "cloud", place.settings.execution, place.sigma)

    def _start_agent(self, device: Device, at: int) -> None:
        plans = self._plans(device.models, self.versions[device.name])
        incarnation = self._next(device.name)
        broker = Broker(device.settings, plans, incarnation, self.random("broker", device.name, incarnation))
        front = Front(device.settings, plans, incarnation, broker)
        process = self._born(device.name, "agent", incarnation, device.name, front, plans, device.late_us, at)
        self._equip(process, plans, "edge", device.settings.execution, device.sigma)
        self._dial(process, device, incarnation, at)

    def _start_client(self, client: Client, at: int) -> None:
        device = client.device
        incarnation = self._next(client.name)
        if device.embedded:
            plans = self._plans(device.models, self.versions[device.name])
            broker = Broker(device.settings, plans, incarnation, self.random("broker", client.name, incarnation))
            models = {plan.name: model_info(plan, c, device.settings) for c, plan in plans.items()}
            outcomes = Outcomes(client.name, device.settings.limits.max_open)
            direct = Direct(client.name, outcomes, broker, models, device.settings.scheduling.priority_levels)
            process = self._born(client.name, "client", incarnation, device.name, direct, plans, device.late_us, at)
            self._equip(process, plans, "edge", device.settings.execution, device.sigma)
            self._dial(process, device, incarnation, at)
            return
        called = f"{client.name}-{incarnation}"
        stub = Stub(called, incarnation, Outcomes(called, device.max_open))
        process = self._born(client.name, "client", incarnation, device.name, stub, {}, device.late_us, at)
        most = device.settings.limits.max_message_mb * MEGABYTE
        self.net.connect(
            self.paths[device.name],
            process,
            AGENT,
            device.name,
            decode=(codec.decode_client, codec.decode_agent),
            most=(most, LARGEST),
            marks=CLIENT_MARKS,
            pauses=LOCAL_PAUSES,
            routing_id=f"{called}:{incarnation}:{AGENT}",
            at=at,
        )

    def _dial(self, process: Process, device: Device, incarnation: int, at: int) -> None:
        most = device.settings.limits.max_message_mb * MEGABYTE
        for node in device.settings.nodes:
            place = self._places[node.name]
            for kind in ("data", "probe"):
                link = f"{node.name}/{kind}"
                self.net.connect(
                    self.paths[f"{device.name}>{node.name}"],
                    process,
                    link,
                    node.name,
                    decode=(codec.decode_edge, codec.decode_node),
                    most=(place.settings.limits.max_message_mb * MEGABYTE, most),
                    marks=NODE_MARKS,
                    pauses=REMOTE_PAUSES,
                    routing_id=f"{device.settings.agent.name}:{incarnation}:{link}",
                    at=at,
                )

    def _born(
        self,
        name: str,
        kind: Kind,
        incarnation: int,
        host: str,
        machine: Machine,
        plans: Mapping[str, Plan],
        late_us: float,
        at: int,
    ) -> Process:
        self._numbers += 1
        table = tuple(int(late_us * 1_000 * f) for f in times.LATENESS)
        lateness = (max(table), times.draws(self.random("late", name, incarnation), table))
        process = Process(name, kind, incarnation, self._numbers, self.hosts[host], machine, plans, lateness)
        self.processes[name] = process
        process.host.processes.append(process)
        if process.clock.suspended:
            process.frozen = 1
        self._watch.born(process, at)
        return process

    def _equip(
        self, process: Process, plans: Mapping[str, Plan], side: str, execution: Execution, sigma: float
    ) -> None:
        typical = Times(Latency.of(plans.items(), side, execution.slowdown))
        trouble = self.troubles.setdefault(process.name, Trouble())
        executors: list[VirtualExecutor] = []
        for index in range(execution.executors):
            rng = self.random("executor", process.name, process.incarnation, index)
            draw = times.factors(rng, times.lognormal(sigma))
            executors.append(
                VirtualExecutor(
                    process,
                    self.agenda,
                    typical,
                    self._stamps,
                    trouble,
                    draw,
                    rng,
                    self._watch,
                    self.loops.deliver,
                    self.counters,
                )
            )
        process.executors = tuple(executors)

    def _next(self, name: str) -> int:
        self._starts[name] = self._starts.get(name, 0) + 1
        return self._starts[name]

    def _plans(self, models: tuple[str, ...], version: int) -> dict[str, Plan]:
        return dict(self._models[name].version(version) for name in models)

    def _host(self, name: str, quartz: Quartz) -> Host:
        return Host(name, HostClock(quartz.local_ns, START_NS, quartz.rate_ppb))

    def _path(
        self, name: str, kind: str | tuple[int, ...], one_way_ns: int, per_byte_ns: float, *, local: bool = False
    ) -> Path:
        rng = self.random("path", name)
        return Path(name, times.one_way(rng, kind, one_way_ns), per_byte_ns, rng, local=local)

    # --- applications -------------------------------------------------------------------------------------------------

    def ask(self, ask: Ask, at: int) -> None:
        """An application asks, if it is there."""
        process = self.router(ask.client)
        if process is None:
            self.count("nobody-asked")
        elif process.frozen:
            process.asks.append(ask)
        else:
            self._ask(process, ask, at)

    def _ask_late(self, process: Process, at: int) -> None:
        asks, process.asks = list(process.asks), type(process.asks)()
        for ask in asks:
            self._ask(process, ask, at)

    def _ask(self, process: Process, ask: Ask, at: int) -> None:
        machine = process.machine
        if not isinstance(machine, Stub | Direct):
            raise InvariantBroken(f"{process.name} is no client, and was asked")
        process.sequence += 1
        scheduled = process.clock.local(at) - ask.early_ns
        specs = self._models[ask.model].plans[0].inputs
        inputs = request_inputs(specs, ask.rows, ask.value)
        info = machine.models.get(ask.model)
        if machine.models and (info is None or ask.rows > info.max_batch):
            self.count("refused-at-the-door")
            return
        request = Request(
            process.client,
            process.sequence,
            "" if info is None else info.contract,
            inputs,
            ask.rows,
            scheduled,
            scheduled + ask.deadline_ns,
            ask.priority,
            ask.stream,
            ask.latest_wins,
        )
        self.asked += 1
        process.tickets[request.sequence] = None
        self._watch.asked(process, request, at)
        if info is None:
            self.count("deferred")
            machine.defer(request.sequence, ask.model, {s.name: x for s, x in zip(specs, inputs, strict=True)})
            request = msgspec.structs.replace(request, inputs=(), rows=1)
        if ask.withdraw_ns:
            self.agenda.put(at + ask.withdraw_ns, Withdrawal(self, process, request.sequence))
        self.loops.deliver(process, Arrived(request), at)

    def withdraw(self, process: Process, sequence: int, at: int) -> None:
        """An application gives up a request, if it has no outcome yet."""
        if process.alive and sequence in process.tickets:
            self.count("withdrawn")
            del process.tickets[sequence]
            process.withdrawn[sequence] = None
            event = Withdrawn(process.client, sequence)
            if process.frozen or process.busy:
                process.arrivals.append(event)
            else:
                self.loops.turn(process, event, at)

    def open_stream(self, source: Source, at: int) -> None:
        """An application announces a stream."""
        process = self.router(source.client)
        machine = process.machine if process is not None else None
        if process is None or process.frozen or not isinstance(machine, Stub | Direct):
            return
        info = machine.models.get(source.model)
        opened = StreamOpened(
            process.client,
            source.stream,
            source.model if info is None else info.contract,
            source.rows,
            source.period_ns,
            source.deadline_ns,
            source.priority,
            source.latest_wins,
        )
        self._hand_over(process, opened, at)

    def close_stream(self, source: Source, at: int) -> None:
        """An application closes a stream."""
        process = self.router(source.client)
        if process is not None:
            self._hand_over(process, StreamClosed(process.client, source.stream), at)

    def _hand_over(self, process: Process, event: Event, at: int) -> None:
        if process.frozen or process.busy:
            process.arrivals.append(event)
        else:
            self.loops.turn(process, event, at)

    def leave(self, process: Process, at: int) -> None:
        """A client closes and is gone."""
        machine = process.machine
        if process.kind != "client" or process.frozen or not isinstance(machine, Stub | Direct):
            return
        actions: list[Action] = machine.close(process.clock.local(at))
        for action in actions:
            if isinstance(action, Resolve):
                self._ended(process, action, at)
            elif isinstance(action, Send):
                self.net.send(process, action, at)
        self.kill(process, at)

    def _ended(self, process: Process, resolve: Resolve, at: int) -> None:
        sequence, outcome = resolve.sequence, resolve.outcome
        self.trace.add((at, process.number, sequence, outcome.elapsed_ns))
        if sequence in process.withdrawn:
            return
        process.tickets.pop(sequence, None)
        kind = type(outcome).__name__
        if isinstance(outcome, Answer):
            kind = f"Answer-{outcome.source}" if outcome.on_time else f"late-{outcome.source}"
        self.count(kind)
        self._watch.ended(process, sequence, outcome, at)


class Withdrawal:
    """An application loses its patience."""

    __slots__ = ("process", "sequence", "world")

    def __init__(self, world: World, process: Process, sequence: int) -> None:
        self.world = world
        self.process = process
        self.sequence = sequence

    def happen(self, at: int) -> None:
        """It gives the request up."""
        self.world.withdraw(self.process, self.sequence, at)
