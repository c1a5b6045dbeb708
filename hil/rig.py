"""The demo's house: two nodes behind a shaping proxy, an agent that may use them, an agent that may not, and a monitor.

All of them are processes of their own on the loopback, started with the commands that a user would type.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from hil.house import House
from hil.monitor import Monitor
from hil.phases import NODES, Fault, LinkShape, Phase
from hil.proxy_control import Proxy, RouteAddress
from hil.services import HEADTAIL, Service, free_ports, run_folder, wait_ready
from hil.throttle import PROGRAM, Throttle
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Execution, Link, NodeAddress, NodeGroup

AGENTS = ("edge", "control")

READY_S = 60.0
"""How long the processes may take to load their bundles."""


class Rig(House):
    """Starts everything when it is entered, ends everything when it is left. `folder` takes settings and outputs.

    `bundles` are served by every agent and node. `slowdown` is how much slower than this machine the agents' device is.
    `link` is what the proxy plays at first and what the agent is told to expect. `late_ms` is what the monitor calls late.
    """

    def __init__(self, folder: Path, bundles: Sequence[Path], slowdown: float, link: LinkShape, late_ms: float) -> None:
        self._folder = folder
        self._bundles = tuple(str(path.resolve()) for path in bundles)
        self._slowdown = slowdown
        self._link = link
        self._late_ms = late_ms
        self._sockets = run_folder()
        self.services: dict[str, Service] = {}

    def endpoint(self, agent: str) -> str:
        """Where clients reach the agent `edge` or `control`."""
        return f"ipc://{self._sockets}/{agent}"

    def wait_ready(self) -> None:
        """Block until every process that was not killed on purpose serves.

        Raises `HeadtailError` where one ends instead, or takes too long."""
        wait_ready(tuple(self.services.values()), READY_S)

    def prepare(self, phase: Phase) -> None:
        """Make the link what the phase wants. Nodes stay as they are: killing them is a fault."""
        if phase.link is not None:
            self.proxy.shape(phase.link.shape(), phase.link.shape())

    def restore(self, phase: Phase) -> None:
        """Bring back what this phase's own faults took away, so that it can be played again."""
        for fault in reversed(phase.faults):
            if fault.kind == "kill":
                self.services[fault.node].start()
            elif fault.kind == "start":
                self.services[fault.node].kill()
            elif fault.kind == "stall":
                self.proxy.stall(False)
            elif fault.kind == "heat":
                self._heat(1.0)

    def apply(self, fault: Fault) -> None:
        """Let a fault happen."""
        if fault.kind == "kill":
            self.services[fault.node].kill()
        elif fault.kind == "start":
            self.services[fault.node].start()
        elif fault.kind == "heat":
            self._heat(fault.times)
        else:
            self.proxy.stall(fault.kind == "stall")

    def _heat(self, times: float) -> None:
        edge = self.services["edge"]
        Throttle(edge.config).set(edge.pid, times)

    def check(self) -> None:
        """Raise `HeadtailError` where a process that ought to run has ended by itself."""
        for service in self.services.values():
            service.check()

    def _build(self) -> None:
        self.monitor = Monitor(self._late_ms)
        ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.proxy = Proxy(tuple(RouteAddress(name, port) for name, port in ports.items()))
        self.proxy.shape(self._link.shape(), self._link.shape())
        for name, port in ports.items():
            node = NodeGroup(name=name, endpoint=f"tcp://127.0.0.1:{port}", models=self._bundles)
            self._start(name, "cloud", CloudSettings(node=node))
        addresses = tuple(NodeAddress(name=name, endpoint=f"tcp://127.0.0.1:{self.proxy.port(name)}") for name in NODES)
        for name in AGENTS:
            settings = EdgeSettings(
                agent=AgentGroup(name=name, endpoint=self.endpoint(name), models=self._bundles),
                nodes=addresses if name == "edge" else (),
                execution=Execution(slowdown=self._slowdown),
                link=Link(rate_mbit=self._link.rate_mbit, rtt_ms=self._link.rtt_ms),
            )
            self._start(name, "edge", settings, PROGRAM if name == "edge" else HEADTAIL)

    def _start(
        self, name: str, verb: str, settings: EdgeSettings | CloudSettings, program: Sequence[str] = HEADTAIL
    ) -> None:
        service = self.services[name] = Service(name, verb, settings, self._folder, program)
        service.log.unlink(missing_ok=True)
        service.start()

    def _end(self) -> None:
        for service in reversed(self.services.values()):
            service.end()
        for helper in (getattr(self, "proxy", None), getattr(self, "monitor", None)):
            if helper is not None:
                helper.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
