"""The port between a scenario and what stands for its network: namespaces and an emulator here, a proxy, real hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hil.emulator.shape import Shape
from hil.links.trace import Trace
from hil.scenarios.orders import Orders
from hil.scenarios.scenario import Site, State
from hil.services import Service
from shared.settings import CloudSettings, EdgeSettings


class Backend(Protocol):
    """Sites, the links between vehicle and cloud, and what they do. Links are named as in the scenario.

    Whatever cannot be done raises `UserError` that says what is missing.
    """

    def service(
        self, name: str, verb: str, settings: EdgeSettings | CloudSettings, folder: Path, program: Sequence[str]
    ) -> Service:
        """A process of the vehicle (`edge`) or of the cloud (`cloud`), not yet started."""
        ...

    def order(self, service: Service, orders: Orders) -> None:
        """Tell a process what to suffer."""
        ...

    def collect(self, folder: Path) -> None:
        """Bring journals that were saved elsewhere into `folder`'s `journals`."""
        ...

    def place(self, site: Site) -> Sequence[str]:
        """What a command that is to run at a site begins with."""
        ...

    def binds(self, node: str) -> str:
        """The endpoint that a node binds."""
        ...

    def endpoints(self, node: str) -> Sequence[str]:
        """Where the vehicle finds a node: one endpoint for each link."""
        ...

    def crowd_endpoint(self, node: str) -> str:
        """Where the crowd finds a node, over a link of its own."""
        ...

    def shape(self, link: str, up: Shape, down: Shape) -> None:
        """A link is so from now on. It stays stalled or dark where it is."""
        ...

    def state(self, link: str, state: State) -> None:
        """Let a link pass, stall or lose everything from now on."""
        ...

    def play(self, link: str, trace: Trace, queue_bytes: int) -> int:
        """Play a trace on a link from now on, again and again; when it began, in nanoseconds of CLOCK_MONOTONIC."""
        ...

    def readdress(self, link: str) -> str:
        """Give the vehicle another address on a link, and return it."""
        ...

    def told(self) -> tuple[str, ...]:
        """What is to be known of the network's own doing since the beginning: its lateness, packets that it lost itself."""
        ...

    def close(self) -> None:
        """End everything that was begun."""
        ...
