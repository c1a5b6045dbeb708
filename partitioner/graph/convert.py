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
from partitioner.graph.passes import OLDEST_IR, OLDEST_OPSET, PREFERRED_OPSET
from partitioner.graph.runtime import LARGE_BYTES, open_session
from partitioner.graph.walk import bodies


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with the file's own functions written out where they are called."""
    return inliner.inline_local_functions(proto) if proto.functions else proto


def raise_opset(proto: onnx.ModelProto, weight_bytes: int, target: int = PREFERRED_OPSET) -> onnx.ModelProto:
    """The same graph at a newer opset, where it is older than `OLDEST_OPSET` (or than an explicit `target`) and can be
    converted; otherwise as it is. Whoever needs the newer opset looks at what came out."""
    proto.ir_version = max(proto.ir_version, OLDEST_IR)
    wanted_from = OLDEST_OPSET if target == PREFERRED_OPSET else target
    if opset_of(proto) >= wanted_from or weight_bytes > LARGE_BYTES:
        return proto
    try:
        return version_converter.convert_version(proto, target)
    except (version_converter.ConvertError, RuntimeError):
        return proto


def fold(model: Model) -> Model:
    """Constants folded and the runtime's basic, portable rewrites done; the model as it is where what was saved would
    not be portable (operators of one runtime, or the casts that a processor without 16-bit floats needs)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "folded.onnx"
        open_session(model, optimisation="basic", save_to=path)
        proto = onnx.load(str(path), format="protobuf")  # pyright: ignore[reportUnknownMemberType]
    before, after = list(_all_nodes(model.proto.graph)), list(_all_nodes(proto.graph))
    if {n.domain for n in after} - {n.domain for n in before} - {"", "ai.onnx"}:
        return model
    if sum(n.op_type == "Cast" for n in after) > sum(n.op_type == "Cast" for n in before):
        return model
    proto.ir_version = max(model.proto.ir_version, OLDEST_IR)
    return replace(model, proto=proto)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from _all_nodes(body)
