"""What goes wrong in a scenario, done to real processes, links and this machine: faults that begin and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hil.child import LineChild
from hil.scenarios.backend import Backend
from hil.scenarios.crowd import Crowd, CrowdProcess
from hil.scenarios.hog import Hog
from hil.scenarios.orders import Orders
from hil.scenarios.scenario import DEVICE, IN_USE, Fault, Scenario, State
from hil.services import Service
from shared.driver import BOOT_NS, JumpWatch


class DeviceClock:
    """The boot time of the vehicle, as the clients see it: the host's, and how far it is ahead."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def watch(self) -> JumpWatch:
        """What finds its jumps, for one client."""
        return JumpWatch(boot=lambda: BOOT_NS() + self.ahead_ns)


@dataclass(frozen=True, slots=True)
class Place:
    """What faults are done to: the scenario's processes by name, its network, the vehicle's clock, a folder on this disk.

    `start` starts a process, `in_use` names the node that gave the latest answer, empty where none has; `contract` is what a
    crowd asks for.
    """

    scenario: Scenario
    services: Mapping[str, Service]
    backend: Backend
    device: DeviceClock
    folder: Path
    contract: str
    start: Callable[[Service], None]
    in_use: Callable[[], str]


class Strikes:
    """The faults of a run, by their number in the scenario and their turn."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._scenario = place.scenario
        self._backend = place.backend
        self._orders_of: dict[str, Orders] = {}
        self._helpers_of: dict[tuple[int, int], list[LineChild]] = {}
        self._victims_of: dict[tuple[int, int], tuple[str, ...]] = {}
        self.told: list[str] = []
        """What is to be known of faults that are over."""

    def begin(self, number: int, turn: int) -> tuple[str, ...]:
        """Let a fault begin; the processes that it struck."""
        fault = self._scenario.faults[number]
        victims = self._victims(fault)
        self._victims_of[number, turn] = victims
        match fault.kind:
            case "kill":
                self._each(victims, Service.kill)
            case "stop" | "suspend":
                self._each(victims, Service.stop)
            case "restart":
                for name in victims:
                    self._place.services[name].end()
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
                self._helpers_of[number, turn] = self._helpers(fault)
        return victims

    def end(self, number: int, turn: int) -> None:
        """Let a fault end."""
        fault = self._scenario.faults[number]
        victims = self._victims_of.pop((number, turn))
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
                    self._place.device.ahead_ns += by_ns
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
                for helper in self._helpers_of.pop((number, turn), ()):
                    self._let_go(helper)

    def _victims(self, fault: Fault) -> tuple[str, ...]:
        if fault.on == DEVICE:
            return self._scenario.vehicle
        if fault.on == IN_USE:
            return (self._place.in_use() or self._scenario.nodes[0],)
        return (fault.on,) if fault.on else ()

    def _each(self, names: tuple[str, ...], do: Callable[[Service], None]) -> None:
        for name in names:
            do(self._place.services[name])

    def _links(self, fault: Fault) -> list[str]:
        return [link.name for link in self._scenario.links if fault.link in ("", link.name)]

    def _state(self, fault: Fault, state: State) -> None:
        for name in self._links(fault):
            self._backend.state(name, state)

    def _helpers(self, fault: Fault) -> list[LineChild]:
        if fault.kind == "crowd":
            crowd = Crowd(
                endpoints=tuple(self._backend.crowd_endpoint(node) for node in self._scenario.nodes),
                contract=self._place.contract,
                side=self._scenario.model.side,
                count=fault.count,
                rate_hz=fault.rate_hz,
                seed=self._scenario.seed,
            )
            return [CrowdProcess(crowd, self._backend.place("crowd"))]
        if fault.kind == "memory":
            return [Hog("memory", str(fault.count))]
        return [Hog(fault.kind, str(self._place.folder) if fault.kind == "disk" else "") for _ in range(fault.count)]

    def _let_go(self, helper: LineChild) -> None:
        if isinstance(helper, CrowdProcess):
            counts = helper.counts()
            self.told.append(
                f"the crowd asked {counts.sent} times: {counts.answers} answers, {counts.refusals} refusals, "
                f"{counts.without_credit} times it had no credit to ask with"
            )
        helper.close()

    def _orders(self, name: str) -> Orders:
        return self._orders_of.get(name, Orders())

    def _order(self, name: str, orders: Orders) -> None:
        """Tell a process."""
        self._orders_of[name] = orders
        self._backend.order(self._place.services[name], orders)

    def _start(self, name: str) -> None:
        """Start a process that was ended: with the host's own clocks."""
        orders = msgspec.structs.replace(self._orders(name), boot_ns=0, clock_ns=0, wall_ns=0)
        self._order(name, orders)
        self._place.start(self._place.services[name])

    def close(self) -> None:
        """End what is there beside the processes because of a fault. Processes are left as they are."""
        for helpers in self._helpers_of.values():
            for helper in helpers:
                helper.close()
