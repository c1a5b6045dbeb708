"""Running a graph, and comparing two: the proof behind every pass."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from partitioner.graph.model import Model
from partitioner.graph.runtime import RUNTIME_ERRORS, Optimisation, Session, open_session, reason
from shared.errors import ModelError
from shared.request import Array, TensorSpec

__all__ = [
    "Session",
    "Tensors",
    "check_same",
    "difference",
    "open_session",
    "run_model",
    "run_session",
    "sample_inputs",
]

Tensors = Mapping[str, Array]
"""Arrays by tensor name."""


def run_session(session: Session, name: str, outputs: list[str], inputs: Tensors) -> dict[str, Array]:
    """Run an open session once; the outputs asked for, by name.

    Raises:
        ModelError: the runtime fails on these inputs; the message starts with `name`.
    """
    try:
        results = session.run(outputs, dict(inputs))
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{name}: {reason(error)}") from error
    except (ValueError, RuntimeError) as error:  # missing or misnamed inputs, and what is no array
        raise ModelError(f"{name}: {error}") from error
    return dict(zip(outputs, results, strict=True))


def run_model(model: Model, inputs: Tensors, optimisation: Optimisation = "all") -> dict[str, Array]:
    """Run a model once (opens a session; use `open_session` to run it often). Outputs by name.

    Raises:
        ModelError: it cannot be loaded or run.
    """
    session = open_session(model, optimisation=optimisation)
    return run_session(session, model.name, [v.name for v in model.proto.graph.output], inputs)


def sample_inputs(model: Model, rows: int = 1, seed: int = 0, scale: float = 1.0) -> dict[str, Array]:
    """Seeded random inputs: uint8 over its range, other integers 0 or 1 (safe as indices and masks), floats normal
    times `scale`."""
    random = np.random.default_rng(seed)
    return {spec.name: _sample(random, spec, rows, scale) for spec in model.inputs}


def _sample(random: np.random.Generator, spec: TensorSpec, rows: int, scale: float) -> Array:
    dtype, shape = np.dtype(spec.dtype), spec.at(rows)
    if dtype == np.uint8:
        return random.integers(0, 256, shape, dtype=np.uint8)
    if dtype.kind in "iub":
        return np.asarray(random.integers(0, 2, shape)).astype(dtype)
    return np.asarray(random.standard_normal(shape) * scale).astype(dtype)


def difference(a: Array, b: Array) -> float:
    """The largest |a - b| relative to max(1, |a|); infinite where shapes or types differ. Equal NaNs and infinities do
    not count."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.size == 0 or np.array_equal(a, b):
        return 0.0
    if a.dtype.kind not in "fiub":
        return float("inf")
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(wide_a - wide_b) / np.maximum(1.0, np.abs(wide_a))
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    return float(np.nan_to_num(np.where(same, 0.0, apart), nan=np.inf).max())


def check_same(a: Model, b: Model, inputs: Tensors, tolerance: float) -> float:
    """Run both on the same inputs, as their graphs stand, without optimisation; the largest difference, relative to
    max(1, |a|), over all outputs.

    Raises:
        ModelError: outputs differ in name, shape or type, or by more than `tolerance`.
    """
    wanted, got = run_model(a, inputs, "none"), run_model(b, inputs, "none")
    if wanted.keys() != got.keys():
        raise ModelError(f"{b.name}: outputs {sorted(got)} instead of {sorted(wanted)}")
    worst = 0.0
    for name, array in wanted.items():
        apart = difference(array, got[name])
        if not apart <= tolerance:
            raise ModelError(
                f"{b.name}: output '{name}' changed by {apart:.3g} where at most {tolerance:.3g} is allowed "
                f"({array.dtype}{list(array.shape)}, then {got[name].dtype}{list(got[name].shape)})"
            )
        worst = max(worst, apart)
    return worst
