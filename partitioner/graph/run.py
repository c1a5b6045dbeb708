"""Running a graph, and comparing two: the proof behind every pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from partitioner.graph.model import Model
from shared.request import Array

Tensors = Mapping[str, Array]
"""Arrays by tensor name."""


class Session(Protocol):
    """What is used of `onnxruntime.InferenceSession`."""

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, Array]) -> list[Array]:
        """Run once; outputs in the order asked for."""
        ...


def open_session(
    model: Model | Path, *, threads: int = 1, provider: str = "CPUExecutionProvider", profile_prefix: str = ""
) -> Session:
    """A session at full optimisation, without spinning threads. `profile_prefix` turns the runtime's profiler on.

    Raises:
        ModelError: the runtime refuses the model, or runs it on another provider than asked.
    """
    raise NotImplementedError


def run_model(model: Model, inputs: Tensors) -> dict[str, Array]:
    """Run a model once (opens a session; use `open_session` to run it often). Outputs by name.

    Raises:
        ModelError: it cannot be loaded or run.
    """
    raise NotImplementedError


def sample_inputs(model: Model, rows: int = 1, seed: int = 0) -> dict[str, Array]:
    """Seeded random inputs: uint8 over its range, other integers 0 or 1 (safe as indices and masks), floats normal."""
    raise NotImplementedError


def check_same(a: Model, b: Model, inputs: Tensors, tolerance: float) -> float:
    """Run both on the same inputs; the largest difference, relative to max(1, |a|), over all outputs.

    Raises:
        ModelError: outputs differ in name, shape or type, or by more than `tolerance`.
    """
    raise NotImplementedError
