"""Many real connections on one node process: whether each request has its outcome, and for how long the node's loop stalls.

The node is `headtail cloud` with an identity, so that its loop does little else than to serve connections; the edges are one
process (`hil.callers`), each on a TCP connection of its own. The node tells at its end for how long it did not look at what
had come (`stalls`), and what became of its slots.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console

from hil.bench_plans import write_identity
from hil.callers import Callers, CallersFigures
from hil.load.opening import WEIGHT
from hil.monitor import Monitor
from hil.own_node import OwnNode
from shared.bundle import load_bundle
from shared.driver import Driver
from shared.errors import HeadtailError
from shared.events import Action, Event, Send, SendFailed
from shared.lateness import LatenessFigures
from shared.memory import ArenaFigures
from shared.process import OwnProcess
from shared.settings import CloudSettings, NodeGroup
from shared.transport import Dealers
from shared.wire.codec import decode_node

CONNECTIONS = 200
HZ = 2.0
"""Requests of each connection a second."""

NBYTES = 4096
BUDGET_NS = 1_000_000_000
CREDITS = 2 * CONNECTIONS


class Connections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of it. `stalls` and `late` are the node's: turns of its loop, and how late it handled its wake-ups. `machine`
    is how late a 1 ms timer came meanwhile."""

    seconds: float
    callers: CallersFigures
    stalls: LatenessFigures
    late: LatenessFigures
    memory: ArenaFigures
    machine: LatenessFigures

    @property
    def within(self) -> bool:
        """Whether every request had one outcome and nothing broke."""
        callers = self.callers
        whole = callers.answered + sum(callers.refused.values()) == callers.asked
        return whole and not (callers.lost or callers.again or callers.unsent or callers.broken)


def measure(seconds: float, connections: int = CONNECTIONS) -> Connections:
    """Ask for so long. Raises `HeadtailError` where the node does not start, or not all connections are made."""
    with tempfile.TemporaryDirectory(prefix="headtail-connections-") as folder:
        path = write_identity(Path(folder), "identity", NBYTES, insured=False)
        bundle = load_bundle(path)
        callers = Callers(
            bundle.contract,
            bundle.plan,
            bytes(NBYTES),
            connections,
            max(1, round(seconds * HZ)),
            round(1e9 / HZ),
            BUDGET_NS,
        )
        settings = CloudSettings(node=NodeGroup(name="node", credits=CREDITS))
        with OwnNode(path, 1, settings, WEIGHT) as node:
            began = time.monotonic()
            with Monitor(1.0) as monitor:
                _play(callers, node.endpoint())
                machine = monitor.take()
            figures = callers.figures()
            if figures.connections < connections:
                raise HeadtailError(f"only {figures.connections} of {connections} connections were greeted")
            took = time.monotonic() - began
            stats = node.end()
    return Connections(took, figures, stats.stalls, stats.lateness, stats.memory, machine)


def _play(callers: Callers, endpoint: str) -> None:
    dealers = Dealers("crowd", 1, decode_node)
    own = _Loop(callers, dealers)
    try:
        for link in callers.links:
            dealers.connect(link, endpoint)
        own.driver.run()
    finally:
        own.driver.close()
        dealers.close()


class _Loop:
    """The callers' loop, which ends when they are done."""

    def __init__(self, callers: Callers, dealers: Dealers) -> None:
        self._callers = callers
        self._dealers = dealers
        self.driver = Driver(self, self._perform, transports=(dealers,), own_process=OwnProcess())

    def handle(self, event: Event, now: int) -> list[Action]:
        """The callers' own `handle`."""
        actions = self._callers.handle(event, now)
        if self._callers.done:
            self.driver.stop()
        return actions

    def _perform(self, action: Action) -> Event | None:
        if isinstance(action, Send) and not self._dealers.send(action):
            return SendFailed(action.link, action.message)
        return None


def show(found: Connections, console: Console) -> bool:
    """Print it; whether the limit is kept."""
    callers, memory = found.callers, found.memory
    refused = ", ".join(f"{count} {reason}" for reason, count in callers.refused.items()) or "none"
    console.print(
        f"Connections: {callers.connections} on one node, {callers.asked} requests in {found.seconds:.0f} s: "
        f"{callers.answered} answered, refused {refused}, {callers.lost} lost, {callers.again} answered twice, "
        f"{callers.unsent} not sent, {callers.broken} connections broke. Answers took "
        f"{callers.round_trips.p50_ms:.2f} ms (p50), {callers.round_trips.p99_ms:.2f} ms (p99)."
    )
    console.print(
        f"The node's loop stalled for {found.stalls.p50_ms:.3f} ms (p50), {found.stalls.p99_ms:.3f} ms (p99), "
        f"{found.stalls.max_ms:.1f} ms at most, in {found.stalls.count} turns; its wake-ups were handled "
        f"{found.late.p99_ms:.3f} ms late (p99). A 1 ms timer of the machine came {found.machine.p99_ms:.2f} ms late (p99). "
        f"Slots: {memory.hit_rate:.1%} of {memory.leases + memory.refused} were there, {memory.high_water} of "
        f"{memory.slots} in use at once."
    )
    kept = "kept" if found.within else "EXCEEDED"
    console.print(f"Limit: each request has one outcome, no connection breaks: {kept}.")
    return found.within
