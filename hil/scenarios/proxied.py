"""The network of a scenario without any privilege: a proxy on the loopback that shapes connections, not packets.

It knows delay, rate and stalls, the same for both directions' own values. It knows no loss, no reordering, no blackout that
drops, no address and no second link, and each node's way is a link of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from hil.emulator.shape import Shape
from hil.links.trace import Conditions, Moment, Trace
from hil.proxy_control import Proxy, RouteAddress
from hil.scenarios.carried import cannot_carry
from hil.scenarios.orders import Orders, order_here
from hil.scenarios.playing import Playing
from hil.scenarios.scenario import Scenario, Site, State
from hil.services import Service, free_ports
from hil.shaping import Shape as ProxyShape
from shared.errors import UserError
from shared.settings import CloudSettings, EdgeSettings


class ProxiedNetwork:
    """A `Backend`. Losses of a trace are left out, and said so."""

    def __init__(self, scenario: Scenario) -> None:
        why = cannot_carry(scenario)
        if why:
            raise UserError(f"the proxy cannot carry {why}")
        self._ports = dict(zip(scenario.nodes, free_ports(len(scenario.nodes)), strict=True))
        self._proxy = Proxy(tuple(RouteAddress(node, port) for node, port in self._ports.items()))
        self._lock = threading.Lock()
        self._playing: Playing | None = None
        self._told: Moment | None = None
        self._lossy = False
        link = scenario.links[0]
        self.shape(link.name, link.up, link.down)

    def service(
        self, name: str, verb: str, settings: EdgeSettings | CloudSettings, folder: Path, program: Sequence[str]
    ) -> Service:
        """A process of this host."""
        return Service(name, verb, settings, folder, program)

    def order(self, service: Service, orders: Orders) -> None:
        """Tell a process of this host."""
        order_here(service, orders)

    def collect(self, folder: Path) -> None:
        """All journals are here."""

    def place(self, site: Site) -> Sequence[str]:
        """Every site is here."""
        del site
        return ()

    def binds(self, node: str) -> str:
        """A port of the loopback."""
        return f"tcp://127.0.0.1:{self._ports[node]}"

    def endpoints(self, node: str) -> Sequence[str]:
        """The proxy's port."""
        return [f"tcp://127.0.0.1:{self._proxy.port(node)}"]

    def crowd_endpoint(self, node: str) -> str:
        """The node's own port."""
        return self.binds(node)

    def shape(self, link: str, up: Shape, down: Shape) -> None:
        """Delay and rate of all connections from now on."""
        del link
        with self._lock:
            self._proxy.shape(ProxyShape(up.rate_mbit, up.delay_ms), ProxyShape(down.rate_mbit, down.delay_ms))

    def state(self, link: str, state: State) -> None:
        """Let nothing pass, or everything."""
        del link
        if state == "dark":
            raise UserError("the proxy cannot drop what is under way")
        with self._lock:
            self._proxy.stall(state == "stalled")

    def play(self, link: str, trace: Trace, queue_bytes: int) -> int:
        """Play a trace from a thread of the rig's own, step by step."""
        del link, queue_bytes
        self._stop_playing()
        self._lossy = self._lossy or bool(trace.up.loss.any() or trace.down.loss.any())
        self._playing = Playing(trace, self._at)
        return self._playing.began_ns

    def readdress(self, link: str) -> str:
        """Raises `UserError`: there are no addresses."""
        raise UserError(f"the proxy cannot give the vehicle another address on {link!r}")

    def told(self) -> tuple[str, ...]:
        """The proxy's lateness, and what of a trace was left out."""
        with self._lock:
            late = self._proxy.report().lateness
        told = [f"the proxy's own lateness: p50 {late.p50_ms:.2f} ms, p99 {late.p99_ms:.2f} ms"]
        if self._lossy:
            told.append("The trace's losses were left out: the proxy shapes connections, not packets.")
        return tuple(told)

    def close(self) -> None:
        """End the proxy."""
        self._stop_playing()
        self._proxy.close()

    def _at(self, moment: Moment) -> None:
        """The link is as in this moment of a trace."""
        outage = moment.up.outage or moment.down.outage
        with self._lock:
            if moment != self._told:
                self._told = moment
                self._proxy.shape(_shape(moment.up), _shape(moment.down))
                self._proxy.stall(outage)

    def _stop_playing(self) -> None:
        if self._playing is not None:
            self._playing.stop()
            self._playing = None


def _shape(now: Conditions) -> ProxyShape:
    return ProxyShape(now.rate_mbit, now.delay_ms)
