"""Whether second copies over two connections keep a lossy link's requests in time, beside what one connection does.

A node and two agents are real processes in network namespaces that an emulated link joins: the same loss, delay and packets
for both agents, of which one has a single connection to the node and the other two. Both are asked at the same rate all the
while, half a period apart, for an answer that only the cloud can give, so that what is on time is what the network let
through.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from edge.client import Client
from edge.tickets import OutcomeFuture
from hil.emulator.handle import Emulator
from hil.emulator.messages import Link as Air
from hil.emulator.shape import Shape
from hil.monitor import Monitor
from hil.services import Service, run_folder, wait_ready
from hil.small_plans import make_images, write_small
from hil.stalls import Stall, held_up, together
from shared.request import Answer, Outcome
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Link, NodeAddress, NodeGroup

NAME = "only-cloud"
SIDE = 60
"""An image of 60 by 60 pixels has 10,800 bytes."""

HERTZ = 30.0
DEADLINE_NS = 20_000_000
ONE_WAY_MS = 2.5
LOSS = 0.01
WARM = 60
"""Requests of each agent that are not counted: connections warm up, estimates learn what the link is like."""

LIMIT = 0.99
ENOUGH = 100
"""Requests that the machine did not hold up from which on a run is judged."""

STALL_MS = 1.0
"""A wake-up that is later than this holds up what is under way."""

PORT = 7711
READY_S = 60.0

Progress = Callable[[str], None]


class Tally(msgspec.Struct, frozen=True):
    """What one agent's requests came to. `marked` are those during which the machine woke some process late, on any core; of
    the others `clear_on_time` were on time, and `p50_ms`, `p99_ms` are how long they took, answered or not."""

    connections: int
    requests: int
    on_time: int
    marked: int
    clear_on_time: int
    p50_ms: float
    p99_ms: float

    @property
    def clear(self) -> int:
        """Requests that the machine did not hold up."""
        return self.requests - self.marked

    @property
    def share(self) -> float:
        """Share of the clear requests that were answered in time."""
        return self.clear_on_time / self.clear if self.clear else 0.0


class Duplicated(msgspec.Struct, frozen=True):
    """A run: what one connection did, and what two did."""

    single: Tally
    double: Tally

    @property
    def judged(self) -> bool:
        """Whether the machine left enough requests alone to say something."""
        return self.double.clear >= ENOUGH

    @property
    def holds(self) -> bool:
        """Whether copies kept enough requests in time, as far as that can be judged."""
        return not self.judged or self.double.share >= LIMIT


class Asked(msgspec.Struct, frozen=True):
    """A request: when it was asked, in nanoseconds of CLOCK_MONOTONIC, and what came of it."""

    at_ns: int
    outcome: Outcome


def measure(requests: int, progress: Progress) -> Duplicated:
    """Ask each agent `requests` times. Raises `UserError` where links cannot be emulated here."""
    with (
        Emulator((Air("air"),), seed=7) as emulator,
        tempfile.TemporaryDirectory(prefix="headtail-duplicates-") as kept,
        ExitStack() as watching,
    ):
        cores = sorted(os.sched_getaffinity(0))
        monitors = [watching.enter_context(Monitor(STALL_MS, core)) for core in cores]
        shape = Shape(delay_ms=ONE_WAY_MS, loss=LOSS)
        emulator.shape(shape, shape)
        sockets = run_folder()
        services = _services(emulator, Path(kept), sockets)
        try:
            for service in services:
                service.start()
            wait_ready(services, READY_S)
            with Client(_endpoint(sockets, 1)) as single, Client(_endpoint(sockets, 2)) as double:
                asked = _ask((single, double), requests, progress)
                for service in services:
                    service.check()
        finally:
            for service in services:
                service.end()
            shutil.rmtree(sockets, ignore_errors=True)
        stalls = together([monitor.take_all() for monitor in monitors]).stalls
    return Duplicated(_tally(1, asked[0], stalls), _tally(2, asked[1], stalls))


def show(found: Duplicated, console: Console) -> bool:
    """Show both; whether the limit is kept."""
    table = Table(
        title=f"10.8 KB at {HERTZ:g} Hz, {LOSS:.0%} loss each way, {2 * ONE_WAY_MS:g} ms round trip, {DEADLINE_NS / 1e6:g} ms"
    )
    for column in (
        "connections",
        "requests",
        "on time",
        "not held up by the machine",
        "of these on time",
        "p50 ms",
        "p99 ms",
    ):
        table.add_column(column, justify="right")
    for tally in (found.single, found.double):
        table.add_row(
            str(tally.connections),
            str(tally.requests),
            f"{tally.on_time / tally.requests:.2%}",
            str(tally.clear),
            f"{tally.share:.2%}",
            f"{tally.p50_ms:.1f}",
            f"{tally.p99_ms:.1f}",
        )
    console.print(table)
    limit = "kept" if found.holds else "MISSED"
    if not found.judged:
        limit = f"not judged, since the machine held up all but {found.double.clear}"
    console.print(
        f"Limit: with second copies at least {LIMIT:.0%} of what the machine did not hold up on time: {limit}."
    )
    return found.holds


def _endpoint(sockets: Path, connections: int) -> str:
    return f"ipc://{sockets}/agent-{connections}"


def _services(emulator: Emulator, folder: Path, sockets: Path) -> list[Service]:
    bundle = str(write_small(folder, NAME, rungs=(), routes=("raw",), side=SIDE))
    endpoint = f"tcp://{emulator.place('air', 'cloud').address}:{PORT}"
    node = CloudSettings(node=NodeGroup(name="node", endpoint=endpoint, models=(bundle,)))
    services = [Service("node", "cloud", node, folder, place=emulator.command_at("cloud", ()))]
    for connections in (1, 2):
        name = f"agent-{connections}"
        edge = EdgeSettings(
            agent=AgentGroup(name=name, endpoint=_endpoint(sockets, connections), models=(bundle,)),
            nodes=(NodeAddress(name="node", endpoint=endpoint, connections=connections),),
            link=Link(rtt_ms=2 * ONE_WAY_MS),
        )
        services.append(Service(name, "edge", edge, folder, place=emulator.command_at("edge", ())))
    return services


def _ask(clients: tuple[Client, Client], requests: int, progress: Progress) -> tuple[list[Asked], list[Asked]]:
    """Both agents in turn, each at its rate, half a period apart. The first `WARM` of each are not kept."""
    images = make_images(16, 3, SIDE)
    for client in clients:
        client.wait_attached(READY_S)
    futures: tuple[list[tuple[int, OutcomeFuture]], list[tuple[int, OutcomeFuture]]] = ([], [])
    began_ns = time.monotonic_ns()
    for number in range(2 * (WARM + requests)):
        due_ns = began_ns + round(number * 1e9 / (2 * HERTZ))
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        # Where the machine wakes this process late, that is not the network's fault.
        at_ns = time.monotonic_ns()
        turn = number % 2
        future = clients[turn].submit(images[number % len(images)], deadline_ns=at_ns + DEADLINE_NS)
        futures[turn].append((at_ns, future))
        if number % 200 == 0:
            progress(f"duplicates: {number // 2} of {WARM + requests} requests of each agent")
    single, double = ([Asked(at_ns, future.result(1.0)) for at_ns, future in each[WARM:]] for each in futures)
    return single, double


def _tally(connections: int, asked: Sequence[Asked], stalls: Sequence[Stall]) -> Tally:
    clear = [one for one in asked if not held_up(one.at_ns, one.at_ns + DEADLINE_NS, stalls)]
    took = sorted(one.outcome.elapsed_ns / 1e6 for one in clear) or [0.0]
    return Tally(
        connections,
        len(asked),
        sum(map(_on_time, asked)),
        len(asked) - len(clear),
        sum(map(_on_time, clear)),
        took[len(took) // 2],
        took[int(0.99 * (len(took) - 1))],
    )


def _on_time(one: Asked) -> bool:
    return isinstance(one.outcome, Answer) and one.outcome.on_time
