"""How soon the cloud answers again after the device's address has changed.

A node and an agent are real processes in network namespaces that an emulated link joins. While the agent is asked at a steady
rate, its end of the link gets another address, as a vehicle gets one in another network: the old one is gone, and connections
that use it hang. Measured is the time from the change to the first answer of the cloud to a request made after it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console

from edge.client import Client
from hil.emulator.handle import Emulator
from hil.emulator.messages import Link as Air
from hil.emulator.shape import Shape
from hil.monitor import Monitor
from hil.services import Service, run_folder, wait_ready
from hil.small_plans import Times, make_images, write_small
from hil.stalls import held_up, together
from shared.errors import HeadtailError
from shared.request import Answer
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Link, NodeAddress, NodeGroup

NAME = "moved"
PORT = 7711
ONE_WAY_MS = 2.5
HERTZ = 50.0
DEADLINE_MS = 15.0
READY_S = 60.0
SETTLE_S = 2.0
GIVE_UP_S = 10.0
LIMIT_S = 1.0
STALL_MS = 1.0
"""A wake-up that is later than this holds up what is under way."""

Progress = Callable[[str], None]


class Moves(msgspec.Struct, frozen=True):
    """Seconds without the cloud after each change of address, and requests without any answer meanwhile that the machine
    did not hold up."""

    away_s: tuple[float, ...]
    unanswered: int

    @property
    def holds(self) -> bool:
        """Whether service was always back in time, and the device answered until then."""
        return max(self.away_s) <= LIMIT_S and not self.unanswered


def measure(changes: int, progress: Progress) -> Moves:
    """Change the address so many times. Raises `UserError` where links cannot be emulated here, `HeadtailError` where the
    cloud does not come back."""
    with (
        Emulator((Air("air"),), seed=11) as emulator,
        tempfile.TemporaryDirectory(prefix="headtail-moves-") as kept,
        ExitStack() as watching,
    ):
        monitors = [watching.enter_context(Monitor(STALL_MS, core)) for core in sorted(os.sched_getaffinity(0))]
        emulator.shape(Shape(delay_ms=ONE_WAY_MS), Shape(delay_ms=ONE_WAY_MS))
        sockets = run_folder()
        services = _services(emulator, Path(kept), sockets)
        try:
            for service in services:
                service.start()
            wait_ready(services, READY_S)
            with Client(f"ipc://{sockets}/agent") as client:
                client.wait_attached(READY_S)
                away, unanswered = _move(client, emulator, changes, progress)
        finally:
            for service in services:
                service.end()
            shutil.rmtree(sockets, ignore_errors=True)
        stalls = together([monitor.take_all() for monitor in monitors]).stalls
    ours = sum(not held_up(at_ns, at_ns + round(DEADLINE_MS * 1e6), stalls) for at_ns in unanswered)
    return Moves(tuple(away), ours)


def show(found: Moves, console: Console) -> bool:
    """Show it; whether the limit is kept."""
    limit = "kept" if found.holds else "MISSED"
    console.print(
        f"After a change of the device's address the cloud answered again within {statistics.median(found.away_s):.2f} s "
        f"(p50), {max(found.away_s):.2f} s (max) of {len(found.away_s)} changes; "
        f"{found.unanswered} requests that the machine did not hold up had no answer meanwhile."
    )
    console.print(f"Limit: {LIMIT_S:g} s, and no request without an answer: {limit}.")
    return found.holds


def _services(emulator: Emulator, folder: Path, sockets: Path) -> list[Service]:
    times = Times(whole_us=4000.0, small_us=500.0, cloud_us=200.0)
    bundle = str(write_small(folder, NAME, rungs=("small",), routes=("raw",), times=times))
    endpoint = f"tcp://{emulator.place('air', 'cloud').address}:{PORT}"
    node = CloudSettings(node=NodeGroup(name="node", endpoint=endpoint, models=(bundle,)))
    edge = EdgeSettings(
        agent=AgentGroup(name="agent", endpoint=f"ipc://{sockets}/agent", models=(bundle,)),
        nodes=(NodeAddress(name="node", endpoint=endpoint),),
        link=Link(rtt_ms=2 * ONE_WAY_MS),
    )
    return [
        Service("node", "cloud", node, folder, place=emulator.command_at("cloud", ())),
        Service("agent", "edge", edge, folder, place=emulator.command_at("edge", ())),
    ]


def _move(client: Client, emulator: Emulator, changes: int, progress: Progress) -> tuple[list[float], list[int]]:
    """Seconds without the cloud after each change, and when those were asked that had no answer."""
    image = make_images(1, 3)[0]
    away: list[float] = []
    unanswered: list[int] = []
    for change in range(changes + 1):
        if change:
            progress(f"address: change {change} of {changes}")
            emulator.readdress("air", "edge", f"10.77.9.{change}")
        began = time.monotonic()
        back = 0.0
        while time.monotonic() < began + (SETTLE_S if back or not change else GIVE_UP_S):
            at_ns = time.monotonic_ns()
            outcome = client.infer(image, DEADLINE_MS)
            if not isinstance(outcome, Answer):
                unanswered.append(at_ns)
            if not back and isinstance(outcome, Answer) and outcome.source == "cloud":
                back = time.monotonic() - began
            time.sleep(1.0 / HERTZ)
        if not back:
            raise HeadtailError(f"no answer of the cloud within {GIVE_UP_S:g} s of change {change} of the address")
        if change:
            away.append(back)
    return away, unanswered
