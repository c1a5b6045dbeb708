"""Changing the cut under load: real processes, and every answer held against what it ought to be.

An application asks at a steady pace, with much time and with little, in turns: with much the cut of the fewest bytes is the
better one, with little the work before it takes too long. Afterwards the agent's own journal is run again, step by step,
with a clock: that says for each request by which cut it went and how long the broker took to decide so, without a probe in
the agent. Each step is timed several times and the least counts, which is what it takes on a machine that is left alone.
Memory is compared with a second agent and node whose route is fixed.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from edge.tickets import OutcomeFuture
from hil.journals import load
from hil.ledger import Ledger
from hil.monitor import Monitor
from hil.player import Switch
from hil.proxy_control import Proxy, RouteAddress
from hil.references import references
from hil.services import Service, free_ports, run_folder
from hil.shaping import Shape
from hil.small_plans import Times, make_images, write_small
from hil.switching_rules import MOST_MEMORY, MOST_SWITCH_MS, Account, Step, Switches, Switching, account, switches
from hil.tap import tapped_client
from shared.bundle import load_bundle
from shared.errors import HeadtailError
from shared.events import Action, Event
from shared.journal.keeper import SUFFIX
from shared.journal.kind import Recorded
from shared.journal.replay import Replay
from shared.request import Array
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Execution, Journal, NodeAddress, NodeGroup

RATE_HZ = 300.0
DEADLINES_MS = (30.0, 5.0)
"""When requests are due, in turns."""

TURN = 75
"""So many requests of one deadline follow each other: a quarter of a second."""

LINK = Shape(100.0, 0.5)
ROUTES = ("raw", "split")
SLOWDOWN = 40.0
TIMES = Times(whole_us=4_000.0, small_us=1_000.0, cloud_us=300.0, slowdown=SLOWDOWN)
"""On the device the whole takes 4 ms, half of it before the cut, and the rung 1 ms."""
IMAGES = 32
SEED = 5
TURNS = 5
"""How often the journal is run again."""

STEPS_EACH = 30
"""Steps of the broker for each request, at most."""

READY_S = 60.0
LAST_S = 5.0


def measure(seconds: float, progress: Callable[[str], None]) -> Switching:
    """Both runs. Raises `HeadtailError` where a process does not come up."""
    requests = int(seconds * RATE_HZ)
    progress("the cut changes")
    with Monitor(1.0) as monitor:
        monitor.take()
        told, found, changing = _run("best", requests)
        machine = monitor.take()
    progress("one route, fixed")
    _, _, fixed = _run("0/raw", requests)
    return Switching(RATE_HZ, requests, told, found, changing, fixed, machine)


def show(found: Switching, console: Console) -> bool:
    """Show what was measured; whether all bounds are kept."""
    table = Table("process", "cut changes, MB", "one route, MB", "factor")
    for name, factor in found.memory.items():
        table.add_row(
            name, f"{found.changing_kb[name] / 1024:.1f}", f"{found.fixed_kb[name] / 1024:.1f}", f"{factor:.2f}"
        )
    table.title = f"Changing the cut under {found.rate_hz:g} requests a second"
    console.print(table)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.account.kinds.items()))
    sources = ", ".join(f"{count} by {source}" for source, count in sorted(found.account.sources.items()))
    ways = ", ".join(f"{count} as {way}" for way, count in sorted(found.switches.ways.items()))
    console.print(f"{found.requests} requests: {kinds}; {sources}; attempts: {ways}.")
    console.print(
        f"The cut changed {found.switches.count} times; the broker took up to {found.switches.most_ms:.3f} ms for it "
        f"(bound {MOST_SWITCH_MS:g}), for other steps up to {found.switches.others_most_ms:.3f} ms. "
        f"Bound of the memory's factor: {MOST_MEMORY:g}. A 1 ms timer of the machine came {found.machine.p50_ms:.2f} ms late "
        f"(p50), {found.machine.p99_ms:.2f} ms (p99)."
    )
    for words in found.faults:
        console.print(f"  OVER: {words}", style="bold red")
    return not found.faults


def _run(route: str, requests: int) -> tuple[Account, Switches, dict[str, int]]:
    with ExitStack() as stack:
        sockets = run_folder()
        stack.callback(shutil.rmtree, sockets, ignore_errors=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headtail-switching-")))
        bundle_path = write_small(folder, "swing", rungs=("small",), routes=ROUTES, times=TIMES)
        bundle = load_bundle(bundle_path)
        images = make_images(IMAGES, SEED)
        known = references(bundle, images)
        port = free_ports(1)[0]
        proxy = stack.enter_context(Proxy((RouteAddress("air", port),)))
        proxy.shape(LINK, LINK)
        node = Service(
            "node",
            "cloud",
            CloudSettings(node=NodeGroup(name="node", endpoint=f"tcp://127.0.0.1:{port}", models=(str(bundle_path),))),
            folder,
        )
        agent = Service(
            "agent",
            "edge",
            EdgeSettings(
                agent=AgentGroup(name="edge", endpoint=f"ipc://{sockets}/agent", models=(str(bundle_path),)),
                nodes=(NodeAddress(name="node", endpoint=f"tcp://127.0.0.1:{proxy.port('air')}"),),
                journal=Journal(
                    events=min(1_000_000, requests * STEPS_EACH), folder=str(folder / "journals"), save_below=0.0
                ),
                execution=Execution(slowdown=SLOWDOWN),
                route=route,
            ),
            folder,
        )
        (folder / "journals").mkdir()
        for service in (node, agent):
            stack.callback(service.end)
            service.start()
        _until(lambda: node.ready and agent.ready, "the processes are not ready")
        ledger = _ask(f"ipc://{sockets}/agent", requests, images)
        peaks = {service.name: _peak_kb(service.pid) for service in (agent, node)}
        os.kill(agent.pid, signal.SIGUSR1)
        _until(lambda: bool(_saved(folder)), "no journal was saved")
        agent.end()
        return account(ledger.close(known)), switches(_timed(_saved(folder)[0])), peaks


def _ask(endpoint: str, requests: int, images: tuple[Array, ...]) -> Ledger:
    """Ask at the steady pace."""
    ledger = Ledger()
    switch = Switch()
    with tapped_client(endpoint, "switching", switch) as client:
        if not client.wait_attached(READY_S):
            raise HeadtailError("the agent cannot be reached")
        switch.lead_to(ledger.delivered)
        futures: list[OutcomeFuture] = []
        began_ns = time.monotonic_ns()
        for number in range(requests):
            due_ns = began_ns + round(number * 1e9 / RATE_HZ)
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            image = number % len(images)
            future = client.submit(images[image], DEADLINES_MS[number // TURN % len(DEADLINES_MS)])
            ledger.asked(future.sequence, image, due_ns)
            futures.append(future)
        wait(futures, timeout=max(DEADLINES_MS) / 1e3 + LAST_S)
        for future in futures:
            if not future.done():
                ledger.unresolved(future.sequence)
    return ledger


class _Clocked:
    """A machine that tells how long its last step took."""

    def __init__(self, machine: Recorded) -> None:
        self._machine = machine
        self.took_ns = 0

    def handle(self, event: Event, now: int) -> list[Action]:
        """As the machine does."""
        began = time.perf_counter_ns()
        try:
            return self._machine.handle(event, now)
        finally:
            self.took_ns = time.perf_counter_ns() - began

    def validate(self) -> None:
        """As the machine does."""
        self._machine.validate()


def _timed(path: Path) -> list[Step]:
    """The journal's steps, each with the least time that it took. Raises `HeadtailError` where it does not run again."""
    found = load(path)
    steps: list[Step] = []
    for turn in range(TURNS):
        replay = Replay(found, states=False)
        clocked = replay.machine = _Clocked(replay.machine)
        gc.collect()
        gc.disable()
        try:
            for number, step in enumerate(replay.steps()):
                if turn == 0:
                    steps.append(Step(step.actions, clocked.took_ns))
                else:
                    steps[number] = Step(step.actions, min(steps[number].took_ns, clocked.took_ns))
        finally:
            gc.enable()
        if replay.difference is not None:
            raise HeadtailError(f"the agent's journal does not run again: {replay.difference}")
    return steps


def _saved(folder: Path) -> list[Path]:
    return sorted((folder / "journals").glob(f"*{SUFFIX}"))


def _peak_kb(pid: int) -> int:
    """The most resident memory that a process had. Raises `HeadtailError` where there is none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError as error:
        raise HeadtailError(f"a process of the run is gone: {error}") from error
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _until(done: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + READY_S
    while not done():
        if time.monotonic() > end:
            raise HeadtailError(f"{otherwise} after {READY_S:g} s")
        time.sleep(0.02)
