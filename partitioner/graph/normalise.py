"""One form for every model: what all later steps may rely on.

Sorted; inputs are only what is fed; every node named; shapes stated but for the first axis, which stays open where a
batch gives the same as its rows one by one; constants folded; opset 13 or later where it can be converted. The outputs
are those of the file within `TOLERANCE`, proven by running both. Anything measured before this is measured wrong: with
its initializers listed as inputs a face detector took 15.1 ms instead of 6.4, and any split looked like a gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx

from partitioner.graph import passes
from partitioner.graph.batch import make_batchable
from partitioner.graph.convert import fold, inline_functions, raise_opset
from partitioner.graph.model import Model, as_read, real_inputs, value_info
from partitioner.graph.run import Session, Tensors, check_same, difference, open_session, run_session, sample_inputs
from partitioner.graph.shapes import check_one_row, concrete_inputs, set_inputs
from shared.errors import ModelError
from shared.request import TensorSpec

TOLERANCE = 1e-3
"""Largest change of an output, relative to max(1, |output|), that folding and fusing may cause on random inputs."""

QUANTISED_TOLERANCE = 0.05
"""The same where values are quantised inside: a rounding can move one of them by a whole quantum."""


def normalise(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> Model:
    """The normal form of a model that was read from a file, at the given shapes (`parse_shapes`).

    Raises:
        ModelError: an axis stays open, a shape is of several rows, the graph is damaged, it cannot be run at these shapes,
            or a pass changed an answer.
    """
    specs = concrete_inputs(model, shapes)
    proto = structured(model)
    pinned = _shaped(proto, model.name, specs, free_rows=False)
    found = None
    if all(spec.shape for spec in specs):
        found = make_batchable(tidy(fold(_shaped(proto, model.name, specs, free_rows=True))))
    if found is not None:
        check_one_row(model, shapes)
    result = settled(found or tidy(fold(pinned)))
    quantised = any(node.op_type == "QuantizeLinear" for node in proto.graph.node)
    check_same(pinned, result, sample_inputs(pinned), QUANTISED_TOLERANCE if quantised else TOLERANCE)
    return result


def structured(model: Model) -> onnx.ModelProto:
    """A copy with everything in order that needs no shapes. Raises `ModelError` where nothing is left to run."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto = inline_functions(proto)
    passes.check_operators_known(proto, model.name)
    passes.drop_initializer_inputs(proto)
    passes.sort_nodes(proto, model.name)
    passes.forget_shapes(proto)
    proto = raise_opset(proto, model.weight_bytes, passes.PREFERRED_OPSET, passes.OLDEST_OPSET)
    passes.forget_shapes(proto)
    passes.drop_initializer_inputs(proto)
    passes.hold_constants(proto)
    passes.drop_useless(proto)
    if not real_inputs(proto):
        raise ModelError(f"{model.name}: it takes no input, so that there is nothing to ask of it")
    if not proto.graph.node:
        raise ModelError(f"{model.name}: no operator is needed for its outputs")
    return proto


def _shaped(proto: onnx.ModelProto, name: str, specs: tuple[TensorSpec, ...], free_rows: bool) -> Model:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    set_inputs(copy, specs, free_rows)
    return replace(as_read(copy, name), inputs=specs)


def tidy(model: Model) -> Model:
    """Sorted, named, nothing useless, no shapes but those of the inputs. Run after every rewrite."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    passes.forget_shapes(proto)
    passes.drop_initializer_inputs(proto)
    passes.hold_constants(proto)
    passes.drop_useless(proto)
    passes.sort_nodes(proto, model.name)
    passes.name_nodes(proto)
    passes.drop_unused_domains(proto)
    return replace(model, proto=proto)


def settled(model: Model) -> Model:
    """The model with its outputs as they come from a run, in the graph and in `Model.outputs`.

    Raises:
        ModelError: it cannot be run, an output is not a tensor of numbers, its size depends on the data, or it is another
            one each time.
    """
    try:
        session = open_session(model)
        names = [value.name for value in model.proto.graph.output]
        results, again = (run_session(session, model.name, names, sample_inputs(model)) for _ in range(2))
    except ModelError as error:
        shapes = ", ".join(f"{spec.name}={','.join(map(str, spec.shape))}" for spec in model.inputs)
        raise ModelError(f"{error} (run with random inputs of shape {shapes})") from error
    _check_steady(model, session, results, again)
    outputs = tuple(TensorSpec(name, array.dtype.name, array.shape) for name, array in results.items())
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.output[:]
    proto.graph.output.extend(value_info(spec, model.batchable) for spec in outputs)
    return replace(model, proto=proto, outputs=outputs)


def _check_steady(model: Model, session: Session, results: Tensors, again: Tensors) -> None:
    """Refuse outputs for which no place can be kept, or which prove nothing. `again` are those of a second run."""
    try:
        blank: Tensors = run_session(session, model.name, list(results), sample_inputs(model, scale=0.0))
    except ModelError:
        blank = again  # some models divide by what they are given; that says nothing of sizes
    for name, array in results.items():
        number = isinstance(array, np.ndarray) and array.dtype.kind in "fiub"  # pyright: ignore[reportUnnecessaryIsInstance]
        if not number:
            raise ModelError(f"{model.name}: output '{name}' is not a tensor of numbers")
        if blank[name].shape != array.shape or again[name].shape != array.shape:
            raise ModelError(
                f"{model.name}: the size of output '{name}' depends on the data ({list(array.shape)}, then "
                f"{list(blank[name].shape)}), so that no place can be kept for it"
            )
        if not difference(array, again[name]) <= TOLERANCE:
            raise ModelError(f"{model.name}: output '{name}' is another one each time, from the same input")
