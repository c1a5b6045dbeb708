"""How soon a request is refused that cannot be promised: an agent of its own process, whose device is busy with a promise.

Each turn asks for two answers. The first is promised, and keeps the device busy for longer than the second may wait, which
comes once the first has begun, so that the second must end as `Rejected` at once and not at its deadline. What is measured
is the client's own account of it, from the call to the outcome.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from edge.client import Client
from hil.monitor import Monitor
from hil.services import Service, run_folder, wait_ready
from hil.small_plans import Times, make_images, write_small
from shared.errors import HeadtailError
from shared.lateness import LatenessFigures
from shared.request import Answer, Rejected
from shared.settings import AgentGroup, EdgeSettings, Execution

JOB_MS = 20.0
SLOWDOWN = 500.0
"""Nearly all of a job is the wait that stands for a slow device."""

KEPT_MS, HOPELESS_MS = 200.0, 25.0
"""Deadlines of the request that is promised, and of the one that could be promised only on an idle device."""

BEGUN_S = 0.003
"""After which the first has begun."""

LIMIT_MS = 1.0
READY_S = 60.0


class Refusals(msgspec.Struct, frozen=True):
    """`turns` refusals from the call to the outcome, in milliseconds. `others` counts the hopeless requests that ended as
    something else, and the promised ones that ended without an answer. `machine` is how late a 1 ms timer came meanwhile."""

    turns: int
    p50_ms: float
    p99_ms: float
    others: int
    machine: LatenessFigures

    @property
    def within(self) -> bool:
        """Whether all was refused that had to be, and typically within the limit."""
        return not self.others and self.p50_ms <= LIMIT_MS


def measure(turns: int) -> Refusals:
    """So many turns, one after the other. Raises `HeadtailError` where the agent does not come up."""
    sockets = run_folder()
    try:
        with tempfile.TemporaryDirectory(prefix="headtail-refusals-") as folder:
            return _measured(turns, Path(folder), f"ipc://{sockets}/agent")
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def _measured(turns: int, folder: Path, endpoint: str) -> Refusals:
    times = Times(small_us=JOB_MS * 1e3, whole_us=4 * JOB_MS * 1e3, slowdown=SLOWDOWN)
    bundle = write_small(folder, "busy", rungs=("small",), routes=(), times=times)
    settings = EdgeSettings(
        agent=AgentGroup(name="agent", endpoint=endpoint, models=(str(bundle),)), execution=Execution(slowdown=SLOWDOWN)
    )
    agent = Service("agent", "edge", settings, folder)
    agent.start()
    try:
        wait_ready((agent,), READY_S)
        with Client(endpoint, name="refused") as client, Monitor(1.0) as monitor:
            if not client.wait_attached(READY_S):
                raise HeadtailError(f"the agent cannot be reached after {READY_S:g} s")
            return _asked(turns, client, monitor)
    finally:
        agent.end()


def _asked(turns: int, client: Client, monitor: Monitor) -> Refusals:
    image = make_images(1, 0)[0]
    took_ms: list[float] = []
    others = 0
    for _ in range(turns):
        promised = client.submit(image, KEPT_MS)
        time.sleep(BEGUN_S)
        refused = client.submit(image, HOPELESS_MS).result(READY_S)
        others += not isinstance(promised.result(READY_S), Answer)
        if isinstance(refused, Rejected):
            took_ms.append(refused.elapsed_ns / 1e6)
        else:
            others += 1
    p50, p99 = np.percentile(took_ms, [50, 99]) if took_ms else (float("nan"), float("nan"))
    return Refusals(turns, round(float(p50), 3), round(float(p99), 3), others, monitor.take())


def show(found: Refusals, console: Console) -> bool:
    """Print it; whether the limit is kept."""
    kept = "kept" if found.within else "EXCEEDED"
    console.print(
        f"Refusals: {found.turns} requests that could not be promised were refused after {found.p50_ms:.2f} ms (p50), "
        f"{found.p99_ms:.2f} ms (p99); {found.others} ended otherwise. A 1 ms timer of the machine came "
        f"{found.machine.p50_ms:.2f} ms late (p50), {found.machine.p99_ms:.2f} ms (p99)."
    )
    console.print(f"Limit: p50 of at most {LIMIT_MS:g} ms, and nothing else: {kept}.")
    return found.within
