"""What `infer()` adds to a model that runs on the device alone: the embedded agent beside the runtime called by itself.

Both run the same identity, which takes a few microseconds, in turns, so that the machine's noise falls on both alike; the
figure is the median over the turns of the difference of their medians. The input is copied once by the client and once into
the slot, so that larger inputs cost more.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# onnxruntime has no types.

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

from edge.client import Client
from hil.bench_plans import write_identity
from shared.errors import HeadtailError
from shared.request import Answer
from shared.settings import AgentGroup, EdgeSettings

SIZES = {"4 KB": 4096, "147 KB": 147_456}
DEADLINE_MS = 1000.0
MOST_ADDED_US = 60.0


class LocalCost(msgspec.Struct, frozen=True):
    """Of one size of input: microseconds of the runtime alone and of `infer()`, at p50, and what the latter adds."""

    size: str
    run_us: float
    infer_us: float
    added_us: float

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.added_us <= MOST_ADDED_US


def measure(turns: int, requests: int, progress: Callable[[str], None]) -> list[LocalCost]:
    """Measure every size in `turns` turns of `requests` each. Raises `HeadtailError` where the agent answers otherwise than
    on the device."""
    found: list[LocalCost] = []
    with tempfile.TemporaryDirectory(prefix="headtail-local-") as folder:
        for size, nbytes in SIZES.items():
            with _both(Path(folder) / str(nbytes), nbytes) as (run, infer):
                pairs: list[tuple[float, float]] = []
                for turn in range(turns + 1):
                    progress(f"on the device, {size}, turn {turn} of {turns}")
                    pairs.append((_turn(run, requests), _turn(infer, requests)))
            runs, infers = zip(*pairs[1:], strict=True)
            added = statistics.median(there - alone for alone, there in pairs[1:])
            found.append(LocalCost(size, statistics.median(runs), statistics.median(infers), added))
    return found


@contextmanager
def _both(folder: Path, nbytes: int) -> Generator[tuple[Callable[[], object], Callable[[], object]]]:
    """The runtime's call and the client's, of one model."""
    bundle = write_identity(folder, "local", nbytes, insured=True)
    x = np.random.default_rng(1).random((1, nbytes // 4), np.float32)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(bundle / "rung.onnx"), options, providers=["CPUExecutionProvider"])
    with Client.embedded(EdgeSettings(agent=AgentGroup(name="local", models=(str(bundle),)))) as client:

        def infer() -> None:
            outcome = client.infer(x, DEADLINE_MS)
            if not isinstance(outcome, Answer) or outcome.source != "edge":
                raise HeadtailError(f"the bench asked the device and got {outcome}")

        yield lambda: session.run(None, {"x": x}), infer


def _turn(ask: Callable[[], object], requests: int) -> float:
    """The median of so many, in microseconds."""
    took: list[int] = []
    for _ in range(requests):
        began = time.perf_counter_ns()
        ask()
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took) / 1e3


def show(costs: list[LocalCost], console: Console) -> bool:
    """Show what was measured; whether the limit is kept."""
    table = Table("payload", "runtime alone, µs", "infer(), µs", "added, µs", title="A model on the device alone, p50")
    for column in table.columns[1:]:
        column.justify = "right"
    for cost in costs:
        style = None if cost.kept else "bold red"
        table.add_row(cost.size, f"{cost.run_us:.1f}", f"{cost.infer_us:.1f}", f"{cost.added_us:.1f}", style=style)
    console.print(table)
    kept = all(cost.kept for cost in costs)
    console.print(
        f"Limit: infer() adds at most {MOST_ADDED_US:g} µs at p50 to the runtime alone: {'kept' if kept else 'EXCEEDED'}."
    )
    return kept
