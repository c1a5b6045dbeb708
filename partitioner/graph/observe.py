"""What every value of a graph really is, found by running it.

Inference by rules knows too little (nothing after a custom operator, unknown axes after the first `Reshape`) and is
wrong where a file lies about its shapes. So a graph is run three times, without optimisation, on two different rows, a
and b, and on both together. From this it is seen which values keep their shape whatever the data, and of which the rows
for a and b lie one after the other, so that they may be joined into a batch and taken apart again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import onnx

from partitioner.graph.model import Model
from partitioner.graph.run import Tensors, run_session, sample_inputs
from partitioner.graph.runtime import open_session
from partitioner.graph.walk import node_outputs
from shared.errors import ModelError
from shared.request import Array, TensorSpec

AT_ONCE = 1024
"""Values fetched in one run: bounds the memory that intermediate values take."""

ROW_SCALE = 3.0
"""Row b is this much larger than row a, so that an operator that takes its range over the whole batch is caught."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A value at one row. `steady`: a tensor of numbers whose shape is the same for any data. `rowwise`: steady, and
    rows of a batch lie one after the other on its first axis (never true of a graph that was not run in a batch)."""

    spec: TensorSpec
    steady: bool
    rowwise: bool


def row_inputs(model: Model) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Random inputs of a row a, of a row b, and of both together."""
    a = sample_inputs(model, seed=1)
    b = sample_inputs(model, seed=2, scale=ROW_SCALE)
    both = {name: np.concatenate([a[name], b[name]]) if a[name].ndim else a[name] for name in a}
    return a, b, both


def fetch(model: Model, names: Sequence[str], inputs: Sequence[Tensors]) -> Iterator[tuple[str, list[Array | None]]]:
    """Each named value with its array for each of the inputs (None where it is not a tensor).

    Raises:
        ModelError: the model cannot be run on these inputs.
    """
    session = open_session(with_outputs(model, names), optimisation="none")
    for some in _groups(names):
        results = [run_session(session, model.name, list(some), feed) for feed in inputs]
        for name in some:
            yield name, [_tensor(result[name]) for result in results]


def _groups(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), AT_ONCE):
        yield names[start : start + AT_ONCE]


def _tensor(value: object) -> Array | None:
    return cast(Array, value) if isinstance(value, np.ndarray) else None


def with_outputs(model: Model, names: Sequence[str]) -> Model:
    """The same graph with these values as its outputs. Their types are left to the runtime."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    for name in names:
        proto.graph.output.add().name = name
    return replace(model, proto=proto)


def observe(model: Model) -> dict[str, Fact]:
    """Facts about every graph input and every value that an operator of the outermost graph makes.

    Raises:
        ModelError: the model cannot be run on random inputs.
    """
    facts = {spec.name: Fact(spec, steady=True, rowwise=model.batchable) for spec in model.inputs}
    names = [name for node in model.proto.graph.node for name in node_outputs(node)]
    a, b, both = row_inputs(model)
    for name, arrays in fetch(model, names, [a, b, both] if model.batchable else [a, b]):
        facts[name] = _fact(name, arrays)
    return facts


def _fact(name: str, arrays: list[Array | None]) -> Fact:
    tensors = [array for array in arrays if array is not None]
    if len(tensors) < len(arrays) or tensors[0].dtype.kind not in "fiub":
        return Fact(TensorSpec(name, "", ()), steady=False, rowwise=False)
    spec = TensorSpec(name, tensors[0].dtype.name, tensors[0].shape)
    steady = tensors[0].shape == tensors[1].shape
    rowwise = steady and len(tensors) == 3 and joined(*tensors)
    return Fact(spec, steady, rowwise)


def joined(a: Array, b: Array, both: Array) -> bool:
    """Whether `both` is a and b one after the other, as far as rounding allows.

    The mean difference is judged, not the largest: a value on the border between two quanta may fall on either side, a
    wrong layout moves all of them."""
    if a.ndim == 0 or a.dtype != both.dtype or both.shape != (a.shape[0] + b.shape[0], *a.shape[1:]):
        return False
    wanted = np.concatenate([a, b]).astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(both.astype(np.float64) - wanted))
    size = np.nan_to_num(np.abs(wanted), posinf=0.0)
    if wanted.size == 0:
        return True
    tolerance = 2e-3 if a.dtype == np.float16 else 1e-5
    return bool(apart.mean() <= tolerance * max(size.mean(), 1e-6))


def batch_works(model: Model) -> bool:
    """Whether running two rows at once gives what running them one by one gives. `model` has free first axes."""
    names = [value.name for value in model.proto.graph.output]
    a, b, both = row_inputs(model)
    try:
        session = open_session(model)
        results = [run_session(session, model.name, names, feed) for feed in (a, b, both)]
    except ModelError:
        return False  # a batch size baked into the graph shows itself as an error of the runtime
    return all(_rows_match(results, name) for name in names)


def _rows_match(results: list[dict[str, Array]], name: str) -> bool:
    tensors = [_tensor(result[name]) for result in results]
    known = [tensor for tensor in tensors if tensor is not None]
    return len(known) == 3 and _fact(name, tensors).rowwise
