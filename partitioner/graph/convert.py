"""Whole-graph conversions that libraries do: inlining functions, newer opsets, folding of constants.

Folding is the runtime's at its basic level. What it saves is still portable; higher levels save kernels for the very
processor they ran on. Nothing of it is taken on trust: `normalise` runs the graph before and after.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import inliner, version_converter

from partitioner.graph.model import Model, opset_of
from partitioner.graph.passes import OLDEST_IR
from partitioner.graph.runtime import LARGE_BYTES, open_session
from partitioner.graph.walk import bodies

LARGEST_GROWTH = 1.1
GROWTH_ALLOWED = 1 << 16
"""Folding may make the weights this much larger, as a factor and in bytes on top."""


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with the file's own functions written out where they are called."""
    return inliner.inline_local_functions(proto) if proto.functions else proto


def raise_opset(proto: onnx.ModelProto, weight_bytes: int, target: int, oldest: int) -> onnx.ModelProto:
    """The same graph at opset `target`, where it is older than `oldest` and can be converted; otherwise as it is. Whoever
    needs the newer opset looks at what came out."""
    proto.ir_version = max(proto.ir_version, OLDEST_IR)
    if opset_of(proto) >= oldest or weight_bytes > LARGE_BYTES:
        return proto
    try:
        return version_converter.convert_version(proto, target)
    except (version_converter.ConvertError, RuntimeError):
        return proto


def fold(model: Model) -> Model:
    """Constants folded and the runtime's basic, portable rewrites done.

    The constants stay where folding them would make the weights larger (as of weights that are stored as integers); the
    model stays as it is where what was saved would not be portable (operators of one runtime, or the casts that a
    processor without 16-bit floats needs).
    """
    folded = _folded(model, constants=True)
    if folded.weight_bytes > model.weight_bytes * LARGEST_GROWTH + GROWTH_ALLOWED:
        folded = _folded(model, constants=False)
    before, after = list(_all_nodes(model.proto.graph)), list(_all_nodes(folded.proto.graph))
    if {n.domain for n in after} - {n.domain for n in before} - {"", "ai.onnx"}:
        return model
    if sum(n.op_type == "Cast" for n in after) > sum(n.op_type == "Cast" for n in before):
        return model
    return folded


def _folded(model: Model, constants: bool) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "folded.onnx"
        open_session(model, optimisation="basic", save_to=path, fold_constants=constants)
        proto = onnx.load(str(path), format="protobuf")  # pyright: ignore[reportUnknownMemberType]
    proto.ir_version = max(model.proto.ir_version, OLDEST_IR)
    return replace(model, proto=proto)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from _all_nodes(body)
