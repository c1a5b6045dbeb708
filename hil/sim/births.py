"""How processes come into the world, with the real machines in them, and how they leave it."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec

from cloud.journal import NODE, build_session, node_setup
from cloud.session import Session
from edge.broker import Broker
from edge.direct import Direct
from edge.front import Front, model_infos
from edge.journal import EDGE, build_broker, edge_setup
from edge.outcomes import Outcomes
from edge.paths import connections
from edge.stub import AGENT, STANDBY_AGENT, Stub
from hil.sim import times
from hil.sim.agenda import Agenda
from hil.sim.device import Times, VirtualExecutor
from hil.sim.hosts import Process
from hil.sim.loop import Loops
from hil.sim.net import MS, Net
from hil.sim.script import Device, Place, road_name
from hil.sim.site import Site
from hil.sim.stamp import Stamps
from hil.sim.watch import Kind, Watch
from shared.journal.recorder import Recorder
from shared.latency import Latency
from shared.plan import Plan
from shared.ports import Machine
from shared.settings import EdgeSettings, Execution
from shared.slots import Side, served_plan
from shared.wire import codec

MEGABYTE = 1 << 20
LARGEST = 2047 * MEGABYTE
LOCAL_PAUSES = (20 * MS, 200 * MS)
REMOTE_PAUSES = (50 * MS, 2_000 * MS)
CLIENT_MARKS = (64, 256)
NODE_MARKS = (4, 256)
"""Messages that may wait to leave, of the side that connects and of the other, as in the real processes."""

SIDES: tuple[Side, Side] = ("edge", "standby")


class Births:
    """Starts processes and kills them."""

    def __init__(
        self, site: Site, agenda: Agenda, net: Net, loops: Loops, stamps: Stamps, watch: Watch, journal: int
    ) -> None:
        """`journal` is how many steps of each broker and session are kept (`recorders`), none where it is 0."""
        self._site = site
        self._agenda = agenda
        self._net = net
        self._loops = loops
        self._stamps = stamps
        self._watch = watch
        self._journal = journal
        self._starts: dict[str, int] = {}
        self._numbers = 0
        self.recorders: dict[str, Recorder] = {}
        """By name and incarnation, `edge0/1`."""

    def start(self, name: str, at: int) -> None:
        """Start a process that is not there."""
        if self._site.alive(name) is not None:
            return
        if name in self._site.places:
            self._start_node(self._site.places[name], at)
        elif name in self._site.agents:
            self._start_agent(name, self._site.agents[name], at)
        elif name in self._site.spares:
            self._start_agent(name, self._site.spares[name], at)
        else:
            self._start_client(name, self._site.clients[name], at)

    def kill(self, process: Process, at: int) -> None:
        """Kill a process: nothing of it happens any more."""
        process.alive = False
        for executor in process.executors:
            executor.die()
        if process.tickets:
            self._site.count("died-waiting", len(process.tickets))
        self._net.died(process, at)
        process.host.processes.remove(process)
        self._watch.died(process, at)

    def _start_node(self, place: Place, at: int) -> None:
        plans = self._site.plans(place.models, self._site.versions[place.name])
        incarnation = self._next(place.name)
        session = self._session(place, plans, incarnation)
        process = self._born(place.name, "node", incarnation, place.name, session, plans, place.late_us, at)
        self._equip(process, plans, "cloud", place.settings.execution, place.sigma)

    def _start_agent(self, name: str, device: Device, at: int) -> None:
        settings, side = device.settings, SIDES[name in self._site.spares]
        if side == "standby":
            group = msgspec.structs.replace(settings.agent, name=name, standby=True)
            settings = msgspec.structs.replace(settings, agent=group, nodes=())
        plans = {
            c: served_plan(p, side)
            for c, p in self._site.plans(device.models, self._site.versions[device.name]).items()
        }
        incarnation = self._next(name)
        broker = self._broker(name, settings, plans, incarnation)
        front = Front(settings, plans, incarnation, broker)
        process = self._born(name, "agent", incarnation, device.name, front, plans, device.late_us, at)
        self._equip(process, plans, "edge", settings.execution, device.sigma)
        self._dial(process, device, settings, incarnation, at)

    def _start_client(self, name: str, device: Device, at: int) -> None:
        incarnation = self._next(name)
        if device.embedded:
            plans = self._site.plans(device.models, self._site.versions[device.name])
            broker = self._broker(name, device.settings, plans, incarnation)
            models = model_infos(plans, device.settings)
            most, levels = device.settings.limits.max_open, device.settings.scheduling.priority_levels
            direct = Direct(name, most, broker, models, levels)
            process = self._born(name, "client", incarnation, device.name, direct, plans, device.late_us, at)
            self._equip(process, plans, "edge", device.settings.execution, device.sigma)
            self._dial(process, device, device.settings, incarnation, at)
            return
        called = f"{name}-{incarnation}"
        stub = Stub(called, incarnation, Outcomes(called, device.max_open, standby=device.standby))
        process = self._born(name, "client", incarnation, device.name, stub, {}, device.late_us, at)
        process.client = called
        most = device.settings.limits.max_message_mb * MEGABYTE
        links = ((AGENT, device.name), (STANDBY_AGENT, device.spare)) if device.standby else ((AGENT, device.name),)
        for link, agent in links:
            self._net.connect(
                self._site.paths[device.name],
                process,
                link,
                agent,
                decode=(codec.decode_client, codec.decode_agent),
                most=(most, LARGEST),
                marks=CLIENT_MARKS,
                pauses=LOCAL_PAUSES,
                routing_id=f"{called}:{incarnation}:{link}",
                at=at,
            )

    def _broker(
        self, name: str, settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int
    ) -> Broker | Recorder:
        seed = self._site.seed("broker", name, incarnation)
        if not self._journal:
            return Broker(settings, plans, incarnation, random.Random(seed))
        setup = edge_setup(settings, plans, incarnation, seed)
        recorder = Recorder(build_broker(setup), EDGE, setup, events=self._journal)
        self.recorders[f"{name}/{incarnation}"] = recorder
        return recorder

    def _session(self, place: Place, plans: Mapping[str, Plan], incarnation: int) -> Session | Recorder:
        if not self._journal:
            return Session(place.settings, plans, place.name, incarnation)
        setup = node_setup(place.settings, plans, place.name, incarnation)
        recorder = Recorder(build_session(setup), NODE, setup, events=self._journal)
        self.recorders[f"{place.name}/{incarnation}"] = recorder
        return recorder

    def _dial(self, process: Process, device: Device, settings: EdgeSettings, incarnation: int, at: int) -> None:
        most = settings.limits.max_message_mb * MEGABYTE
        for node in settings.nodes:
            place = self._site.places[node.name]
            for way in connections(node):
                self._net.connect(
                    self._site.paths[road_name(device.name, node.name, way.way)],
                    process,
                    way.link,
                    node.name,
                    decode=(codec.decode_edge, codec.decode_node),
                    most=(place.settings.limits.max_message_mb * MEGABYTE, most),
                    marks=NODE_MARKS,
                    pauses=REMOTE_PAUSES,
                    routing_id=f"{settings.agent.name}:{incarnation}:{way.link}",
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
        lateness = times.draws(self._site.random("late", name, incarnation), table)
        process = Process(name, kind, incarnation, self._numbers, self._site.hosts[host], machine, plans, lateness)
        self._site.processes[name] = process
        process.host.processes.append(process)
        if process.clock.suspended:
            process.frozen = 1
        self._watch.born(process, at)
        return process

    def _equip(
        self, process: Process, plans: Mapping[str, Plan], side: str, execution: Execution, sigma: float
    ) -> None:
        typical = Times(Latency.of(plans.items(), side, execution.slowdown))
        trouble = self._site.troubles[process.name]
        executors: list[VirtualExecutor] = []
        for index in range(execution.executors):
            rng = self._site.random("executor", process.name, process.incarnation, index)
            draw = times.factors(rng, times.lognormal(sigma))
            executors.append(
                VirtualExecutor(
                    process,
                    self._agenda,
                    typical,
                    self._stamps,
                    trouble,
                    draw,
                    rng,
                    self._watch,
                    self._loops.deliver,
                    self._site.counters,
                )
            )
        process.executors = tuple(executors)

    def _next(self, name: str) -> int:
        self._starts[name] = self._starts.get(name, 0) + 1
        return self._starts[name]
