"""How long it takes to plan for a model of thousands of operators, step by step. For `headtail bench --only search`.

The whole of `headtail plan --quick --no-rungs` is run, in this process, on a model that is written for it
(`hil.long_model`) and random rows to judge codings by, so that every place to cut is weighed in every coding. What the
steps are called is what the command itself says. Timing at the stream's pace waits between runs; that is part of it.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hil.long_model import WIDTH, write_long_model
from partitioner.build import make
from partitioner.options import PlanOptions

NODES = 3000
ROWS = 64
LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Step:
    """What was done, in the command's words, and the seconds that it took: by the clock, and of the processor."""

    what: str
    wall_s: float
    processor_s: float


@dataclass(frozen=True, slots=True)
class Planning:
    """How long a plan took: the model's operators, the ways that were weighed, and each step."""

    nodes: int
    ways: int
    steps: tuple[Step, ...]

    @property
    def wall_s(self) -> float:
        """Seconds from the call to the bundle, by the clock."""
        return sum(step.wall_s for step in self.steps)

    @property
    def processor_s(self) -> float:
        """The seconds of these in which the processor worked for it."""
        return sum(step.processor_s for step in self.steps)

    @property
    def within(self) -> bool:
        """Whether the limit is kept, by the clock."""
        return self.wall_s < LIMIT_S


def measure(folder: Path, nodes: int = NODES) -> Planning:
    """Plan for a model of about so many operators, in this folder."""
    model = write_long_model(folder / "long.onnx", nodes)
    rows = folder / "rows.npz"
    np.savez(rows, x=np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32))
    options = PlanOptions(
        model=model,
        out=folder / "long.plan",
        calibration=rows,
        metric="relative",
        lower_rungs=False,
        quick=True,
    )
    marks: list[tuple[str, float, float]] = []

    def progress(what: str) -> None:
        marks.append((what, time.perf_counter(), time.process_time()))

    made = make(options, progress)
    progress("")
    steps = tuple(
        Step(what, wall_s - begun_s, processor_s - before_s)
        for (what, begun_s, before_s), (_, wall_s, processor_s) in itertools.pairwise(marks)
    )
    return Planning(nodes, len(made.weighing.candidates), steps)


def show(planning: Planning, console: Console) -> bool:
    """Show every step; whether the limit is kept."""
    table = Table(title=f"Planning for {planning.nodes} operators, {planning.ways} ways")
    for column in ("step", "s", "s of the processor"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for step in planning.steps:
        table.add_row(step.what, f"{step.wall_s:.2f}", f"{step.processor_s:.2f}")
    table.add_row("all", f"{planning.wall_s:.2f}", f"{planning.processor_s:.2f}", style="bold")
    console.print(table)
    kept = "kept" if planning.within else "EXCEEDED"
    console.print(f"Limit: a plan for {NODES} operators in less than {LIMIT_S:g} s: {kept}.")
    return planning.within
