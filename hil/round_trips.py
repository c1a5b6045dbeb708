"""`headtail bench --only round-trips`: what headtail itself costs, beside the least that the same hops can cost.

The round trip of an identity model, from `client.infer()` to a node and back, embedded and through an agent of its own
process, is set against a raw pyzmq echo of the same payload. All of them take turns in one run, a few hundred requests a
turn, so that the machine's noise falls on all alike; the ratios are what counts, and a ratio is the median over the turns.
The node and the agent run at weight, as in the demo.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from edge.client import Client
from hil.bench_plans import write_identity
from hil.echo import EchoClient
from hil.monitor import Monitor
from hil.own_code import environment
from hil.services import Service, free_ports, run_folder
from shared.errors import HeadtailError
from shared.lateness import LatenessFigures
from shared.request import Answer, Array
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Link, NodeAddress, NodeGroup

SIZES = {"4 KB": 4096, "147 KB": 147_456, "590 KB": 589_824}
WAYS = ("echo", "embedded", "embedded, insured", "agent")
DEADLINE_MS = 1000.0
Samples = np.ndarray[tuple[int], np.dtype[np.float64]]
LIMITS = {("147 KB", "embedded"): (2.6, 3.3)}
"""Largest ratios to the echo at p50 and p99 that are accepted."""


class Figure(msgspec.Struct, frozen=True):
    """Round trips of one way at one size: microseconds, and the median over the turns of the ratio to the echo's turn."""

    size: str
    way: str
    p50_us: float
    p99_us: float
    ratio_p50: float
    ratio_p99: float


class Report(msgspec.Struct, frozen=True):
    """All figures, and how late a 1 ms timer of the machine came meanwhile."""

    figures: tuple[Figure, ...]
    machine: LatenessFigures
    requests: int
    turns: int


def measure(turns: int, requests: int, progress: Callable[[str], None]) -> Report:
    """Measure every way at every size in `turns` turns of `requests` each."""
    samples: dict[tuple[str, str], list[Samples]] = {}
    with tempfile.TemporaryDirectory() as folder, Monitor(1.0) as monitor:
        for size, nbytes in SIZES.items():
            with _ways(Path(folder) / str(nbytes), nbytes) as ways:
                for ask in ways.values():
                    _turn(ask, requests)
                for turn in range(turns):
                    progress(f"{size}, turn {turn + 1} of {turns}")
                    for way, ask in ways.items():
                        samples.setdefault((size, way), []).append(_turn(ask, requests))
        machine = monitor.take()
    figures = [_figure(size, way, samples[size, way], samples[size, "echo"]) for size in SIZES for way in WAYS]
    return Report(tuple(figures), machine, requests, turns)


def _turn(ask: Callable[[], None], requests: int) -> Samples:
    took = np.empty(requests)
    for i in range(requests):
        began = time.perf_counter()
        ask()
        took[i] = time.perf_counter() - began
    return took * 1e6


def _figure(size: str, way: str, turns: list[Samples], floor: list[Samples]) -> Figure:
    def ratio(q: float) -> float:
        return statistics.median(
            float(np.percentile(mine, q) / np.percentile(theirs, q)) for mine, theirs in zip(turns, floor, strict=True)
        )

    every = np.concatenate(turns)
    p50, p99 = (float(np.percentile(every, q)) for q in (50, 99))
    return Figure(size, way, p50, p99, ratio(50), ratio(99))


@contextmanager
def _ways(folder: Path, nbytes: int) -> Generator[dict[str, Callable[[], None]]]:
    folder.mkdir()
    plain = write_identity(folder, "plain", nbytes, insured=False)
    insured = write_identity(folder, "insured", nbytes, insured=True)
    echo_port, node_port = free_ports(2)
    node_at = f"tcp://127.0.0.1:{node_port}"
    sockets = run_folder()
    with ExitStack() as stack:
        models = (str(plain), str(insured))
        node = Service(
            "node", "cloud", CloudSettings(node=NodeGroup(name="node", endpoint=node_at, models=models)), folder
        )
        edge = EdgeSettings(
            agent=AgentGroup(name="agent", endpoint=f"ipc://{sockets}/agent", models=models),
            nodes=(NodeAddress(name="node", endpoint=node_at),),
            link=Link(rate_mbit=10_000.0, rtt_ms=0.2),
        )
        agent = Service("agent", "edge", edge, folder)
        for service in (node, agent):
            stack.callback(service.end)
            service.start()
        echo_at = f"tcp://127.0.0.1:{echo_port}"
        stack.enter_context(_echo_server(echo_at))
        echo = stack.enter_context(EchoClient(echo_at))
        own = msgspec.structs.replace(edge, agent=msgspec.structs.replace(edge.agent, name="embedded"))
        embedded = stack.enter_context(Client.embedded(own))
        through = stack.enter_context(Client(edge.agent.endpoint))
        x = np.random.default_rng(1).random((1, nbytes // 4), np.float32)
        payload = memoryview(x.tobytes())
        ways: dict[str, Callable[[], None]] = {
            "echo": lambda: echo.ask(payload),
            "embedded": _asker(embedded, "plain", x),
            "embedded, insured": _asker(embedded, "insured", x),
            "agent": _asker(through, "plain", x),
        }
        for ask in (ways["embedded"], ways["embedded, insured"], ways["agent"]):
            _until_answered(ask, (node, agent))
        yield ways


@contextmanager
def _echo_server(endpoint: str) -> Generator[None]:
    command = [sys.executable, "-m", "hil.weight", sys.executable, "-m", "hil.echo", endpoint]
    process = subprocess.Popen(  # noqa: S603 -- our own module
        command, stdin=subprocess.DEVNULL, start_new_session=True, env=environment()
    )
    try:
        yield
    finally:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _asker(client: Client, model: str, x: Array) -> Callable[[], None]:
    def ask() -> None:
        outcome = client.infer(x, DEADLINE_MS, model=model)
        if not isinstance(outcome, Answer) or outcome.source != "cloud":
            raise HeadtailError(f"the bench asked the node and got {outcome}")

    return ask


def _until_answered(ask: Callable[[], None], services: tuple[Service, ...], within_s: float = 60.0) -> None:
    """Ask until the node answers: it may still be loading."""
    end = time.monotonic() + within_s
    while True:
        for service in services:
            service.check()
        try:
            return ask()
        except HeadtailError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _kept(figure: Figure) -> bool:
    p50, p99 = LIMITS.get((figure.size, figure.way), (math.inf, math.inf))
    return figure.ratio_p50 <= p50 and figure.ratio_p99 <= p99


def show(report: Report, console: Console) -> bool:
    """Show the figures; whether all limits are kept."""
    table = Table(title=f"Round trips, {report.turns} turns of {report.requests}; ratios are medians over the turns")
    for column, justify in (("payload", "left"), ("way", "left"), ("p50 µs", "right"), ("p99 µs", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("p50 / echo", justify="right")
    table.add_column("p99 / echo", justify="right")
    good = True
    for f in report.figures:
        held = _kept(f)
        good = good and held
        style = None if held else "bold red"
        table.add_row(
            f.size, f.way, f"{f.p50_us:.0f}", f"{f.p99_us:.0f}", f"{f.ratio_p50:.2f}", f"{f.ratio_p99:.2f}", style=style
        )
    console.print(table)
    machine = report.machine
    console.print(
        f"The machine's own 1 ms timer was late by {machine.p50_ms:.2f} ms (p50), {machine.p99_ms:.2f} ms (p99) meanwhile."
    )
    for f in report.figures:
        most = LIMITS.get((f.size, f.way))
        if most is not None:
            kept = "kept" if _kept(f) else "EXCEEDED"
            limit = f"at most {most[0]:g} times the echo at p50 and {most[1]:g} times at p99"
            console.print(f"Limit for {f.way}, {f.size}: {limit}: {kept}.")
    return good
