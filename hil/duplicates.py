"""Whether second copies over two connections keep a lossy link's requests in time, beside what one connection does.

A node and two agents are real processes in network namespaces that an emulated link joins: the same loss, delay and packets
for both agents, of which one has a single connection to the node and the other two. Both are asked at the same rate all the
while, half a period apart, for an answer that only the cloud can give, so that what is on time is what the network let
through.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from edge.client import Client
from edge.tickets import OutcomeFuture
from hil.emulator.handle import Emulator
from hil.emulator.messages import Link as Air
from hil.emulator.shape import Shape
from hil.monitor import Monitor, Noise
from hil.services import Service, run_folder, wait_ready
from hil.small_plans import Times, make_images, write_small
from shared.lateness import LatenessFigures
from shared.request import Answer, Outcome
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Link, NodeAddress, NodeGroup

NAME = "only-cloud"
SIDE = 60
"""An image of 60 by 60 pixels has 10,800 bytes."""

HERTZ = 30.0
DEADLINE_S = 0.020
ONE_WAY_MS = 2.5
LOSS = 0.01
WARM = 60
"""Requests of each agent that are not counted: connections warm up, estimates learn what the link is like."""

LIMIT = 0.99
PORT = 7711
READY_S = 60.0

Progress = Callable[[str], None]


class Tally(msgspec.Struct, frozen=True):
    """What one agent's requests came to. `p50_ms`, `p99_ms`: from when a request was due until its outcome, answered or
    not."""

    connections: int
    requests: int
    on_time: int
    p50_ms: float
    p99_ms: float

    @property
    def share(self) -> float:
        """Share of requests that were answered in time."""
        return self.on_time / self.requests


class Duplicated(msgspec.Struct, frozen=True):
    """A run: what one connection did, what two did, and whether the machine itself stood still meanwhile."""

    single: Tally
    double: Tally
    stalled: bool

    @property
    def holds(self) -> bool:
        """Whether copies kept enough requests in time."""
        return self.double.share >= LIMIT


class Asked(msgspec.Struct, frozen=True):
    """Every request's outcome, by agent, and how late the machine was meanwhile."""

    outcomes: tuple[list[Outcome], list[Outcome]]
    lateness: LatenessFigures


def measure(requests: int, progress: Progress) -> Duplicated:
    """Ask each agent `requests` times. Raises `UserError` where links cannot be emulated here."""
    noise = Noise()
    with (
        Emulator((Air("air"),), seed=7) as emulator,
        tempfile.TemporaryDirectory(prefix="headtail-duplicates-") as kept,
        Monitor(noise.late_ms) as monitor,
    ):
        shape = Shape(delay_ms=ONE_WAY_MS, loss=LOSS)
        emulator.shape(shape, shape)
        sockets = run_folder()
        services = _services(emulator, Path(kept), sockets)
        try:
            for service in services:
                service.start()
            wait_ready(services, READY_S)
            with Client(_endpoint(sockets, 1)) as single, Client(_endpoint(sockets, 2)) as double:
                asked = _ask((single, double), requests, progress, monitor)
        finally:
            for service in services:
                service.end()
            shutil.rmtree(sockets, ignore_errors=True)
    single_tally, double_tally = (_tally(n, outcomes) for n, outcomes in zip((1, 2), asked.outcomes, strict=True))
    return Duplicated(single_tally, double_tally, noise.stalled(asked.lateness))


def show(found: Duplicated, console: Console) -> bool:
    """Show both; whether the limit is kept."""
    table = Table(
        title=f"10.8 KB at {HERTZ:g} Hz, {LOSS:.0%} loss each way, {2 * ONE_WAY_MS:g} ms round trip, {DEADLINE_S * 1e3:g} ms"
    )
    for column in ("connections", "requests", "on time", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    for tally in (found.single, found.double):
        table.add_row(
            str(tally.connections),
            str(tally.requests),
            f"{tally.share:.2%}",
            f"{tally.p50_ms:.1f}",
            f"{tally.p99_ms:.1f}",
        )
    console.print(table)
    if found.stalled:
        console.print("The machine stood still meanwhile: this says little.", style="bold yellow")
    limit = "kept" if found.holds else "MISSED"
    console.print(f"Limit: with second copies at least {LIMIT:.0%} on time: {limit}.")
    return found.holds


def _endpoint(sockets: Path, connections: int) -> str:
    return f"ipc://{sockets}/agent-{connections}"


def _services(emulator: Emulator, folder: Path, sockets: Path) -> list[Service]:
    times = Times(whole_us=200.0, small_us=200.0, cloud_us=200.0)
    bundle = str(write_small(folder, NAME, rungs=(), routes=("raw",), times=times, side=SIDE))
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


def _ask(clients: tuple[Client, Client], requests: int, progress: Progress, monitor: Monitor) -> Asked:
    """Both agents in turn, each at its rate, half a period apart. The first `WARM` of each are not kept."""
    images = make_images(16, 3, SIDE)
    for client in clients:
        client.wait_attached(READY_S)
    futures: tuple[list[OutcomeFuture], list[OutcomeFuture]] = ([], [])
    began_ns = time.monotonic_ns()
    for number in range(2 * (WARM + requests)):
        due_ns = began_ns + round(number * 1e9 / (2 * HERTZ))
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
        # Where the machine wakes this process late, that is not the network's fault.
        deadline_ns = time.monotonic_ns() + round(DEADLINE_S * 1e9)
        turn = number % 2
        futures[turn].append(clients[turn].submit(images[number % len(images)], deadline_ns=deadline_ns))
        if number == 2 * WARM:
            monitor.take()
        if number % 200 == 0:
            progress(f"duplicates: {number // 2} of {WARM + requests} requests of each agent")
    outcomes = tuple([future.result(1.0) for future in each[WARM:]] for each in futures)
    return Asked((outcomes[0], outcomes[1]), monitor.take())


def _tally(connections: int, outcomes: list[Outcome]) -> Tally:
    took = sorted(outcome.elapsed_ns / 1e6 for outcome in outcomes)
    on_time = sum(isinstance(outcome, Answer) and outcome.on_time for outcome in outcomes)
    return Tally(connections, len(outcomes), on_time, took[len(took) // 2], took[int(0.99 * (len(took) - 1))])
