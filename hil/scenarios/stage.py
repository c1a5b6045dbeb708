"""The processes of a scenario: agents, nodes, monitors, started and ended. What goes wrong with them is `strikes`.

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
from pathlib import Path

from hil.house import House
from hil.links.trace import Trace
from hil.monitor import Monitor
from hil.scenarios.backend import Backend
from hil.scenarios.known import CLOUD_US, SLOWDOWN, Known
from hil.scenarios.orders import Orders
from hil.scenarios.scenario import AGENT, CONTROL, STANDBY, Scenario
from hil.scenarios.strikes import DeviceClock, Place, Strikes
from hil.scenarios.subject import PROGRAM
from hil.services import Service, run_folder, wait_ready
from hil.stalls import Seen, together
from shared.settings import (
    AgentGroup,
    CloudSettings,
    EdgeSettings,
    Execution,
    Journal,
    Link,
    NodeAddress,
    NodeExecution,
    NodeGroup,
    PathAddress,
)

MONITOR_MS = 1.0
MOST_CORES = 16
READY_S = 60.0
JOURNAL_EVENTS = 200_000
JOURNALS_S = 10.0
CROWD_CREDITS = 64


class Stage(House):
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
        self._sockets = run_folder()
        # The kernel ends a service with the thread that started it: one that lives as long as the stage starts all of them.
        self._hands = ThreadPoolExecutor(1, "hil-start")
        self._monitors: list[Monitor] = []
        self.device = DeviceClock()
        self.services: dict[str, Service] = {}
        self.strikes = Strikes(
            Place(scenario, self.services, backend, self.device, folder, known.bundle.contract, self._start, in_use)
        )

    def endpoint(self, agent: str) -> str:
        """Where clients reach an agent."""
        return f"ipc://{self._sockets}/{agent}"

    def wait_ready(self) -> None:
        """Block until every process that ought to run serves. Raises `HeadtailError` where one ends instead."""
        wait_ready(tuple(self.services.values()), READY_S)

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
            self._add(
                name, "cloud", CloudSettings(node=node, execution=NodeExecution(slowdown=factor), journal=journal)
            )
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
            route=self._scenario.fleet.route if name == AGENT else EdgeSettings().route,
        )

    def _address(self, node: str) -> NodeAddress:
        """Where the agent finds a node: a path over each link."""
        first, *others = self._backend.endpoints(node)
        paths = tuple(PathAddress(endpoint=endpoint) for endpoint in others)
        return NodeAddress(name=node, endpoint=first, connections=self._scenario.fleet.connections, paths=paths)

    def _add(self, name: str, verb: str, settings: EdgeSettings | CloudSettings) -> None:
        service = self.services[name] = self._backend.service(name, verb, settings, self._folder, PROGRAM)
        service.log.unlink(missing_ok=True)
        self._backend.order(service, Orders())
        self._start(service)

    def _start(self, service: Service) -> None:
        self._hands.submit(service.start).result()

    def _end(self) -> None:
        self.strikes.close()
        for service in reversed(self.services.values()):
            service.end()
        self._hands.shutdown()
        for monitor in self._monitors:
            monitor.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
