"""What the rig says to its proxy, and the proxy's handle in the rig's process.

One JSON object a line on the proxy's standard input, one line back for each on its standard output.
"""

from __future__ import annotations

import msgspec

from hil.child import LineChild
from hil.shaping import Shape
from shared.errors import HeadtailError
from shared.lateness import LatenessFigures


class RouteAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way through the proxy: it listens on `host:listen` (0 takes any free port) and connects to `host:target`."""

    name: str
    target: int
    listen: int = 0
    host: str = "127.0.0.1"


class Routes(msgspec.Struct, frozen=True, tag="routes", forbid_unknown_fields=True):
    """First line: what to listen on."""

    routes: tuple[RouteAddress, ...]


class Reshape(msgspec.Struct, frozen=True, tag="shape", forbid_unknown_fields=True):
    """Rate and delay of both directions, of one route or of all (None)."""

    up: Shape
    down: Shape
    route: str | None = None


class Stall(msgspec.Struct, frozen=True, tag="stall", forbid_unknown_fields=True):
    """Let nothing pass (or let it pass again), on one route or on all."""

    stalled: bool
    route: str | None = None


class Cut(msgspec.Struct, frozen=True, tag="cut", forbid_unknown_fields=True):
    """Close all connections of one route or of all. New ones are taken as before."""

    route: str | None = None


class Report(msgspec.Struct, frozen=True, tag="report", forbid_unknown_fields=True):
    """Ask for the counts since the last report."""


Command = Routes | Reshape | Stall | Cut | Report
"""A line to the proxy."""


class RouteCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traffic of one route since the last report. `refused`: connections whose target was not there."""

    listen: int = 0
    accepted: int = 0
    refused: int = 0
    open: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line from the proxy: `error` is empty where the command was carried out. `lateness` is how much later than due
    bytes left."""

    error: str = ""
    lateness: LatenessFigures = LatenessFigures()
    routes: dict[str, RouteCounts] = {}


class Proxy(LineChild):
    """A proxy process of its own. Build it, then use it as a context manager, or `close` it.

    Raises `HeadtailError` where the proxy refuses a command or has died.
    """

    def __init__(self, routes: tuple[RouteAddress, ...]) -> None:
        super().__init__("hil.proxy")
        self._ports = {name: counts.listen for name, counts in self.command(Routes(routes)).routes.items()}

    def port(self, route: str) -> int:
        """The port that a route listens on."""
        return self._ports[route]

    def command(self, command: Command) -> Reply:
        """Have a command carried out and return the reply."""
        reply = msgspec.json.decode(self.ask(msgspec.json.encode(command)), type=Reply)
        if reply.error:
            raise HeadtailError(f"the shaping proxy refuses: {reply.error}")
        return reply

    def shape(self, up: Shape, down: Shape, route: str | None = None) -> None:
        """Set rate and delay of both directions."""
        self.command(Reshape(up, down, route))

    def stall(self, stalled: bool, route: str | None = None) -> None:
        """Let nothing pass, or let it pass again."""
        self.command(Stall(stalled, route))

    def cut(self, route: str | None = None) -> None:
        """Close all connections."""
        self.command(Cut(route))

    def report(self) -> Reply:
        """Counts and lateness since the last report."""
        return self.command(Report())
