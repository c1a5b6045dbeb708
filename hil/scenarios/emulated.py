"""The network of a scenario as namespaces of this host, joined packet by packet by the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from hil.emulator.handle import Emulator
from hil.emulator.messages import Link
from hil.emulator.shape import Passing, Shape
from hil.links.trace import Trace
from hil.scenarios.orders import Orders, order_here
from hil.scenarios.scenario import Scenario, Site, State
from hil.services import Service
from shared.settings import CloudSettings, EdgeSettings

SITES: dict[Site, str] = {"vehicle": "vehicle", "cloud": "cloud", "crowd": "crowd"}
CROWD_LINK = "crowd"
CROWD_SHAPE = Shape(delay_ms=1.0)
FIRST_PORT = 7711

PASSING: dict[State, Passing] = {"open": Passing.OPEN, "stalled": Passing.STALLED, "dark": Passing.DARK}


class EmulatedNetwork:
    """A `Backend`. Raises `UserError` where the machine cannot do it: the message says what is missing."""

    def __init__(self, scenario: Scenario) -> None:
        self._ports = {node: FIRST_PORT + number for number, node in enumerate(scenario.nodes)}
        self._links = tuple(link.name for link in scenario.links)
        crowded = any(fault.kind == "crowd" for fault in scenario.faults)
        links = [Link(name, "vehicle", "cloud") for name in self._links]
        links += [Link(CROWD_LINK, "crowd", "cloud")] if crowded else []
        self._emulator = Emulator(links, scenario.seed)
        if crowded:
            self._emulator.shape(CROWD_SHAPE, CROWD_SHAPE, CROWD_LINK)
        self._shapes = {link.name: (link.up, link.down) for link in scenario.links}
        self._states: dict[str, State] = dict.fromkeys(self._links, "open")
        self._addresses = 0
        for name in self._links:
            self._apply(name)

    def service(
        self, name: str, verb: str, settings: EdgeSettings | CloudSettings, folder: Path, program: Sequence[str]
    ) -> Service:
        """A process in the namespace of its site."""
        place = self.place("vehicle" if verb == "edge" else "cloud")
        return Service(name, verb, settings, folder, program, place)

    def order(self, service: Service, orders: Orders) -> None:
        """Tell a process of this host."""
        order_here(service, orders)

    def collect(self, folder: Path) -> None:
        """All journals are here."""

    def place(self, site: Site) -> Sequence[str]:
        """Into the namespace of a site."""
        return self._emulator.command_at(SITES[site], ())

    def binds(self, node: str) -> str:
        """Every address of the cloud's namespace: one for each link."""
        return f"tcp://*:{self._ports[node]}"

    def endpoints(self, node: str) -> Sequence[str]:
        """The cloud's end of each link."""
        return [f"tcp://{self._emulator.place(link, 'cloud').address}:{self._ports[node]}" for link in self._links]

    def crowd_endpoint(self, node: str) -> str:
        """The cloud's end of the crowd's link."""
        return f"tcp://{self._emulator.place(CROWD_LINK, 'cloud').address}:{self._ports[node]}"

    def shape(self, link: str, up: Shape, down: Shape) -> None:
        """A link is so from now on."""
        self._shapes[link] = (up, down)
        self._apply(link)

    def state(self, link: str, state: State) -> None:
        """Let a link pass, stall or lose everything."""
        self._states[link] = state
        self._apply(link)

    def play(self, link: str, trace: Trace, queue_bytes: int) -> int:
        """Play a trace on a link."""
        return self._emulator.play_trace(trace, link, queue_bytes)

    def readdress(self, link: str) -> str:
        """Another address, of a network that no link uses."""
        self._addresses += 1
        address = f"10.78.{self._links.index(link)}.{self._addresses}"
        self._emulator.readdress(link, "vehicle", address)
        return address

    def told(self) -> tuple[str, ...]:
        """The emulator's lateness, and packets that it lost itself."""
        report = self._emulator.report()
        late = report.lateness
        ways = [way for counts in report.links.values() for way in (counts.up, counts.down)]
        lost = sum(way.unread + way.refused for way in ways)
        return (
            f"the emulator's own lateness: p50 {late.p50_ms:.2f} ms, p99 {late.p99_ms:.2f} ms, at most {late.max_ms:.1f} ms; "
            f"{lost} packets lost by itself",
        )

    def close(self) -> None:
        """Remove the namespaces."""
        self._emulator.close()

    def _apply(self, link: str) -> None:
        passing = PASSING[self._states[link]]
        up, down = self._shapes[link]
        self._emulator.shape(replace(up, passing=passing), replace(down, passing=passing), link)
