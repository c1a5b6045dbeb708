"""What recording costs: the time that a recorder adds to a machine's work, and how long a snapshot of its state takes.

The events of a simulated run are given to fresh recorded machines, and what is done before the loop sleeps is timed; what is
left, in `handle`, is one tuple a step, 0.2 to 0.3 µs. The least of many turns counts, which is what the work itself takes
on a machine that is left alone. To compare whole runs with and without a recorder was tried: where others are at
work, the difference of two large figures says nothing.
"""

from __future__ import annotations

import time

import msgspec
from rich.console import Console
from rich.table import Table

from hil.journals import journal
from hil.sim.author import write
from hil.sim.play import record
from hil.sim.scenario import SCENARIOS
from shared.events import Event
from shared.journal.kind import MachineKind, Recorded, Setup
from shared.journal.recorder import Recorder
from shared.journal.replay import Replay
from shared.journal.state import write_state

SEED, REQUESTS = 1, 600
TURNS = 40
RING = 10_000

TOGETHER = 16
"""Steps between two pauses of the loop."""

MOST_STEP_US = 10.0
MOST_SNAPSHOT_MS = 3.0


class JournalCost(msgspec.Struct, frozen=True):
    """Of one kind of machine, over `steps` events: what a step takes to become bytes, what a snapshot takes, and how large a
    step is in the ring. A request is three to five steps."""

    kind: str
    steps: int
    step_us: float
    snapshot_ms: float
    step_bytes: float

    @property
    def kept(self) -> bool:
        """Whether both limits are kept."""
        return self.step_us <= MOST_STEP_US and self.snapshot_ms <= MOST_SNAPSHOT_MS


def measure() -> list[JournalCost]:
    """The busiest machine of each kind in a simulated run."""
    recorders = record(write(SEED, SCENARIOS["mixed"], REQUESTS), SEED, 1 << 30)
    busiest: dict[str, Recorder] = {}
    for recorder in recorders.values():
        kind = recorder.frozen().kind
        if kind not in busiest or _steps(recorder) > _steps(busiest[kind]):
            busiest[kind] = recorder
    return [_measure(recorder) for recorder in busiest.values()]


def show(costs: list[JournalCost], console: Console) -> bool:
    """Show what was measured; whether the limits are kept."""
    table = Table("machine", "steps", "recording, µs a step", "snapshot, ms", "ring, bytes a step")
    for column in table.columns[1:]:
        column.justify = "right"
    for cost in costs:
        table.add_row(
            cost.kind,
            f"{cost.steps}",
            f"{cost.step_us:.2f}",
            f"{cost.snapshot_ms:.2f}",
            f"{cost.step_bytes:.0f}",
            style=None if cost.kept else "bold red",
        )
    table.title = "What a journal costs"
    console.print(table)
    kept = all(cost.kept for cost in costs)
    limits = f"at most {MOST_STEP_US:g} µs a step and {MOST_SNAPSHOT_MS:g} ms a snapshot"
    console.print(f"Limit of recording: {limits}: {'kept' if kept else 'EXCEEDED'}.")
    return kept


def _steps(recorder: Recorder) -> int:
    return sum(len(segment.records) for segment in recorder.frozen().segments)


def _measure(recorder: Recorder) -> JournalCost:
    found = journal(recorder)
    replay = Replay(found)
    events = [(step.event, step.now_ns) for step in replay.steps()]
    kind, setup = found.kind, found.setup
    idle = [_idle(Recorder(kind.build(setup), kind, setup, events=RING), events) for _ in range(TURNS)]
    snapshots = [_snapshot(replay.machine, kind, setup) for _ in range(TURNS)]
    return JournalCost(
        kind=kind.name,
        steps=len(events),
        step_us=min(idle) / 1_000 / len(events),
        snapshot_ms=min(snapshots) / 1e6,
        step_bytes=sum(len(record) for record in found.records) / len(events),
    )


def _idle(recorder: Recorder, events: list[tuple[Event, int]]) -> int:
    """Nanoseconds before sleeping, over a whole run."""
    took = 0
    for place, (event, now) in enumerate(events):
        recorder.handle(event, now)
        if place % TOGETHER == 0:
            began = time.thread_time_ns()
            recorder.idle(0)
            took += time.thread_time_ns() - began
    return took


def _snapshot(machine: Recorded, kind: MachineKind, setup: Setup) -> int:
    fixed = kind.fixed_of(machine, setup)
    began = time.thread_time_ns()
    write_state(machine, kind.known, fixed)
    return time.thread_time_ns() - began
