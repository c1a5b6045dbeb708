"""The processes of a scenario and what is done to them: agents, nodes, the monitor, faults that begin and end.

All but the clients run at their sites of a `Backend`; the clients are the application, in the rig's own process, and reach
the agents by local sockets.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from hil.child import LineChild
from hil.ledger import References
from hil.links.trace import Trace
from hil.monitor import Monitor
from hil.references import only, references, telling_frames
from hil.scenarios.backend import Backend
from hil.scenarios.crowd import Crowd, CrowdProcess
from hil.scenarios.hog import Hog
from hil.scenarios.orders import Orders
from hil.scenarios.scenario import AGENT, CONTROL, DEVICE, IN_USE, STANDBY, Fault, Scenario, State
from hil.scenarios.subject import PROGRAM
from hil.services import Service, run_folder
from hil.small_plans import Times, make_images, write_small
from hil.stalls import Seen, together
from shared.bundle import Bundle, load_bundle
from shared.driver import BOOT_NS, JumpWatch
from shared.errors import HeadtailError
from shared.request import Array
from shared.settings import (
    AgentGroup,
    CloudSettings,
    EdgeSettings,
    Execution,
    Journal,
    Link,
    NodeAddress,
    NodeGroup,
    PathAddress,
)

MODEL = "small"
IMAGES, IMAGES_SEED = 24, 20240
SLOWDOWN = 10.0
CLOUD_US = 100.0
"""What a node's profile claims; its executor is slowed down to the scenario's `cloud_ms`."""

MONITOR_MS = 2.0
MOST_CORES = 16
READY_S = 60.0
JOURNAL_EVENTS = 200_000
JOURNALS_S = 10.0
CROWD_CREDITS = 64


class DeviceClock:
    """The boot time of the vehicle, as the clients see it: the host's, and how far it is ahead."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def watch(self) -> JumpWatch:
        """What finds its jumps, for one client."""
        return JumpWatch(boot=lambda: BOOT_NS() + self.ahead_ns)


@dataclass(frozen=True, slots=True)
class Known:
    """What is asked and what the right answers are: the bundle, the images, the references of each way."""

    bundle: Bundle
    images: list[Array]
    references: References


def make_known(scenario: Scenario, folder: Path) -> Known:
    """Write the scenario's model into `folder` and compute every answer that it may give."""
    model = scenario.model
    times = Times(
        whole_us=3000.0 * model.rung_ms, small_us=1000.0 * model.rung_ms, cloud_us=CLOUD_US, slowdown=SLOWDOWN
    )
    shutil.rmtree(folder / f"{MODEL}.plan", ignore_errors=True)
    path = write_small(
        folder, MODEL, rungs=("small",), routes=model.routes, times=times, seed=scenario.seed, side=model.side
    )
    bundle = load_bundle(path)
    images = make_images(IMAGES, IMAGES_SEED, model.side)
    known: References = references(bundle, images)
    kept = telling_frames(known)
    return Known(bundle, [images[number] for number in kept], only(known, kept))


@dataclass(slots=True)
class _Suffering:
    """What each process was told, and what is there beside the processes because of a fault."""

    orders: dict[str, Orders] = field(default_factory=dict[str, Orders])
    helpers: dict[tuple[int, int], list[LineChild]] = field(default_factory=dict[tuple[int, int], list[LineChild]])
    victims: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict[tuple[int, int], tuple[str, ...]])


class Stage:
    """Starts everything when it is entered, ends everything when it is left.

    `in_use` names the node that gave the latest answer, empty where none has. Raises `HeadtailError` where a process ends by
    itself or does not come.
    """

    def __init__(
        self,
        scenario: Scenario,
        known: Known,
        folder: Path,
        backend: Backend,
        traces: Mapping[str, Trace],
        in_use: Callable[[], str] = lambda: "",
    ) -> None:
        self._scenario = scenario
        self._known = known
        self._folder = folder
        self._backend = backend
        self._traces = traces
        self._in_use = in_use
        self._sockets = run_folder()
        # The kernel ends a service with the thread that started it: one that lives as long as the stage starts all of them.
        self._hands = ThreadPoolExecutor(1, "hil-start")
        self._suffering = _Suffering()
        self._monitors: list[Monitor] = []
        self.device = DeviceClock()
        self.services: dict[str, Service] = {}
        self.crowds: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def endpoint(self, agent: str) -> str:
        """Where clients reach an agent."""
        return f"ipc://{self._sockets}/{agent}"

    def wait_ready(self) -> None:
        """Block until every process that ought to run serves. Raises `HeadtailError` where one ends instead."""
        end = time.monotonic() + READY_S
        for service in self.services.values():
            while service.wanted and not service.ready:
                if time.monotonic() > end:
                    raise HeadtailError(
                        f"the process {service.name!r} was not ready after {READY_S:g} s: {service.log}"
                    )
                time.sleep(0.02)

    def check(self) -> None:
        """Raise `HeadtailError` where a process that ought to run has ended by itself."""
        for service in self.services.values():
            service.check()

    def seen(self) -> Seen:
        """What the monitors, one for each core, saw since the last call."""
        return together([monitor.take_all() for monitor in self._monitors])

    def begin_links(self) -> dict[str, int]:
        """Let traces begin; when each did, in nanoseconds of CLOCK_MONOTONIC, by the link's name."""
        queues = {link.name: link.queue_kb << 10 for link in self._scenario.links}
        return {name: self._backend.play(name, trace, queues[name]) for name, trace in self._traces.items()}

    # --- faults -------------------------------------------------------------------------------------------------------

    def begin(self, number: int, turn: int) -> tuple[str, ...]:
        """Let a fault begin; the processes that it struck."""
        fault = self._scenario.faults[number]
        victims = self._victims(fault)
        self._suffering.victims[number, turn] = victims
        match fault.kind:
            case "kill":
                self._each(victims, Service.kill)
            case "stop" | "suspend":
                self._each(victims, Service.stop)
            case "restart":
                for name in victims:
                    self.services[name].end()
                    self._start(name)
            case "clock_step":
                by_ns = round(fault.by_s * 1e9)
                for name in victims:
                    now = self._orders(name)
                    if name in self._scenario.nodes:
                        ahead = now.clock_ns + by_ns
                        self._order(name, msgspec.structs.replace(now, clock_ns=ahead, wall_ns=now.wall_ns + by_ns))
                    else:
                        self._order(name, msgspec.structs.replace(now, wall_ns=now.wall_ns + by_ns))
            case "heat":
                for name in victims:
                    self._order(name, msgspec.structs.replace(self._orders(name), times=fault.times))
            case "meddle":
                for name in victims:
                    orders = msgspec.structs.replace(
                        self._orders(name), what=fault.what, share=fault.share, seed=self._scenario.seed + turn
                    )
                    self._order(name, orders)
            case "stall" | "dark":
                self._state(fault, "stalled" if fault.kind == "stall" else "dark")
            case "shape":
                for name in self._links(fault):
                    self._backend.shape(name, fault.up, fault.down)
            case "readdress":
                self._backend.readdress(fault.link)
            case "cpu" | "memory" | "disk" | "crowd":
                self._suffering.helpers[number, turn] = self._helpers(fault)
        return victims

    def end(self, number: int, turn: int) -> None:
        """Let a fault end."""
        fault = self._scenario.faults[number]
        victims = self._suffering.victims.pop((number, turn))
        match fault.kind:
            case "kill":
                for name in victims:
                    self._start(name)
            case "stop":
                self._each(victims, Service.resume)
            case "suspend":
                by_ns = round(fault.by_s * 1e9)
                for name in victims:
                    now = self._orders(name)
                    self._order(name, msgspec.structs.replace(now, boot_ns=now.boot_ns + by_ns))
                if fault.on == DEVICE:
                    self.device.ahead_ns += by_ns
                self._each(victims, Service.resume)
            case "heat":
                for name in victims:
                    self._order(name, msgspec.structs.replace(self._orders(name), times=1.0))
            case "meddle":
                for name in victims:
                    self._order(name, msgspec.structs.replace(self._orders(name), what=(), share=0.0))
            case "stall" | "dark":
                self._state(fault, "open")
            case "shape":
                for link in self._scenario.links:
                    if link.name in self._links(fault):
                        self._backend.shape(link.name, link.up, link.down)
            case _:
                for helper in self._suffering.helpers.pop((number, turn), ()):
                    self._let_go(helper)

    def _victims(self, fault: Fault) -> tuple[str, ...]:
        if fault.on == DEVICE:
            return self._scenario.vehicle
        if fault.on == IN_USE:
            return (self._in_use() or self._scenario.nodes[0],)
        return (fault.on,) if fault.on else ()

    def _each(self, names: tuple[str, ...], do: Callable[[Service], None]) -> None:
        for name in names:
            do(self.services[name])

    def _links(self, fault: Fault) -> list[str]:
        return [link.name for link in self._scenario.links if fault.link in ("", link.name)]

    def _state(self, fault: Fault, state: State) -> None:
        for name in self._links(fault):
            self._backend.state(name, state)

    def _helpers(self, fault: Fault) -> list[LineChild]:
        if fault.kind == "crowd":
            crowd = Crowd(
                endpoints=tuple(self._backend.crowd_endpoint(node) for node in self._scenario.nodes),
                contract=self._known.bundle.contract,
                side=self._scenario.model.side,
                count=fault.count,
                rate_hz=fault.rate_hz,
                seed=self._scenario.seed,
            )
            return [CrowdProcess(crowd, self._backend.place("crowd"))]
        if fault.kind == "memory":
            return [Hog("memory", str(fault.count))]
        return [Hog(fault.kind, str(self._folder) if fault.kind == "disk" else "") for _ in range(fault.count)]

    def _let_go(self, helper: LineChild) -> None:
        if isinstance(helper, CrowdProcess):
            counts = helper.counts()
            self.crowds.append(
                f"the crowd asked {counts.sent} times: {counts.answers} answers, {counts.refusals} refusals, "
                f"{counts.without_credit} times it had no credit to ask with"
            )
        helper.close()

    def _orders(self, name: str) -> Orders:
        return self._suffering.orders.get(name, Orders())

    def _order(self, name: str, orders: Orders) -> None:
        """Tell a process."""
        self._suffering.orders[name] = orders
        self._backend.order(self.services[name], orders)

    def _start(self, name: str) -> None:
        """Start a process that was ended: with the host's own clocks."""
        orders = msgspec.structs.replace(self._orders(name), boot_ns=0, clock_ns=0, wall_ns=0)
        self._order(name, orders)
        self._hands.submit(self.services[name].start).result()

    # --- what there is ------------------------------------------------------------------------------------------------

    def save_journals(self) -> list[Path]:
        """Have every process that runs save its journal; the files, once they are there or `JOURNALS_S` have passed."""
        folder = self._folder / "journals"
        asked = [service for service in self.services.values() if service.running]
        for service in asked:
            service.signal(signal.SIGUSR1)
        end = time.monotonic() + JOURNALS_S
        while True:
            self._backend.collect(self._folder)
            found = sorted(folder.glob("*-signal.journal"))
            if len(found) >= len(asked) or time.monotonic() > end:
                return found
            time.sleep(0.05)

    def _build(self) -> None:
        scenario, models = self._scenario, (str(self._known.bundle.path.resolve()),)
        shutil.rmtree(self._folder / "journals", ignore_errors=True)
        cores = sorted(os.sched_getaffinity(0))[:MOST_CORES]
        self._monitors += [Monitor(MONITOR_MS, core) for core in cores]
        journal = Journal(events=JOURNAL_EVENTS, folder=str(self._folder.resolve() / "journals"), save_below=0.0)
        factor = max(1.0, 1000.0 * scenario.model.cloud_ms / CLOUD_US)
        for name in scenario.nodes:
            node = NodeGroup(name=name, endpoint=self._backend.binds(name), models=models, credits=CROWD_CREDITS)
            self._add(name, "cloud", CloudSettings(node=node, execution=Execution(slowdown=factor), journal=journal))
        for name in scenario.vehicle:
            self._add(name, "edge", self._agent(name, models, journal))
        self.wait_ready()

    def _agent(self, name: str, models: tuple[str, ...], journal: Journal) -> EdgeSettings:
        nodes = tuple(self._address(node) for node in self._scenario.nodes) if name == AGENT else ()
        up, down = self._scenario.links[0].up, self._scenario.links[0].down
        prior = Link(rate_mbit=up.rate_mbit or Link().rate_mbit, rtt_ms=up.delay_ms + down.delay_ms)
        return EdgeSettings(
            agent=AgentGroup(name=name, endpoint=self.endpoint(name), models=models, standby=name == STANDBY),
            nodes=nodes,
            execution=Execution(slowdown=SLOWDOWN),
            link=prior if name != CONTROL and not self._traces else Link(),
            journal=journal,
        )

    def _address(self, node: str) -> NodeAddress:
        """Where the agent finds a node: a path over each link."""
        first, *others = self._backend.endpoints(node)
        paths = tuple(PathAddress(endpoint=endpoint) for endpoint in others)
        return NodeAddress(name=node, endpoint=first, connections=self._scenario.fleet.connections, paths=paths)

    def _add(self, name: str, verb: str, settings: EdgeSettings | CloudSettings) -> None:
        service = self.services[name] = self._backend.service(name, verb, settings, self._folder, PROGRAM)
        service.log.unlink(missing_ok=True)
        self._order(name, Orders())
        self._hands.submit(service.start).result()

    def _end(self) -> None:
        for helpers in self._suffering.helpers.values():
            for helper in helpers:
                helper.close()
        for service in reversed(self.services.values()):
            service.end()
        self._hands.shutdown()
        for monitor in self._monitors:
            monitor.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
