"""What is noteworthy about a file before anything is done to it, in sentences for a person."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from onnx import TensorProto, numpy_helper

from partitioner.graph.model import Model, real_inputs, tensor_bytes
from partitioner.graph.passes import OLDEST_OPSET
from partitioner.graph.shapes import describe_axes
from partitioner.graph.walk import bodies, topological_order

LOOKED_AT = 64
"""Elements a weight must have to count in the search for constant weights."""


def operators(model: Model) -> dict[str, int]:
    """How often each operator is used in the outermost graph, most frequent first; with its domain where it has one."""
    counts = Counter(
        f"{node.domain}:{node.op_type}" if node.domain not in {"", "ai.onnx"} else node.op_type
        for node in model.proto.graph.node
    )
    return dict(counts.most_common())


def stated_axes(model: Model) -> dict[str, str]:
    """The shape of every input and output as the file gives it, `?` for what it leaves open."""
    values = [*real_inputs(model.proto), *model.proto.graph.output]
    return {
        value.name: describe_axes(value) if value.type.tensor_type.HasField("shape") else "(no shape)"
        for value in values
    }


def oddities(model: Model) -> list[str]:
    """Warnings about a model as it was read.

    Raises:
        ModelError: the graph is damaged: a cycle, or a value that nothing makes.
    """
    return [*_structure(model), *_shapes(model), *_weights(model)]


def _structure(model: Model) -> list[str]:
    graph = model.proto.graph
    found: list[str] = []
    order = topological_order(graph, model.name)
    if order != sorted(order):
        found.append("operators are not in an order in which they can run; they are sorted first")
    listed = len(graph.input) - len(real_inputs(model.proto))
    if listed:
        found.append(
            f"{listed} initializers are listed as inputs, which keeps a runtime from folding them; they are dropped"
        )
    if model.opset < OLDEST_OPSET:
        found.append(f"opset {model.opset} is older than {OLDEST_OPSET}; it is converted where that is possible")
    if model.proto.functions:
        found.append(f"{len(model.proto.functions)} functions of its own; they are inlined")
    holders = sorted({node.op_type for node in graph.node if any(True for _ in bodies(node))})
    if holders:
        found.append(f"graphs inside {', '.join(holders)}: cuts fall around them, and their weights are not counted")
    foreign = sorted({node.domain for node in graph.node} - {"", "ai.onnx"})
    if foreign:
        found.append(f"operators outside the standard, which ties the model to certain runtimes: {', '.join(foreign)}")
    return found


def _shapes(model: Model) -> list[str]:
    found: list[str] = []
    for value in (*real_inputs(model.proto), *model.proto.graph.output):
        dims = value.type.tensor_type.shape.dim
        if any(d.HasField("dim_value") and d.dim_value <= 0 for d in dims):
            found.append(f"'{value.name}' has literal sizes below one, which poison inference; they are taken as open")
    return found


def _weights(model: Model) -> list[str]:
    found: list[str] = []
    types = {t.data_type for t in model.proto.graph.initializer}
    if types & {TensorProto.FLOAT16, TensorProto.BFLOAT16}:
        found.append(
            "16-bit floats: on a processor they run as 32-bit ones, so that device and cloud may differ by a rounding"
        )
    weights = [*_held(model), *_filled(model)]
    alike = sum(size for size, same in weights if same)
    if alike * 2 > sum(size for size, _ in weights):
        found.append(
            "most weights hold one value repeated, so that a wrong cut could still give the right answer; nothing measured "
            "on this model proves a cut"
        )
    return found


def _held(model: Model) -> Iterator[tuple[int, bool]]:
    """Bytes of every weight of some size that the file holds, and whether all its elements are alike."""
    constants = [a.t for node in model.proto.graph.node if node.op_type == "Constant" for a in node.attribute]
    for tensor in (*model.proto.graph.initializer, *constants):
        if tensor.data_type in {TensorProto.UNDEFINED, TensorProto.STRING}:
            continue
        elements = numpy_helper.to_array(tensor)
        if elements.size >= LOOKED_AT:
            yield tensor_bytes(tensor), bool(np.all(elements == elements.flat[0]))


def _filled(model: Model) -> Iterator[tuple[int, bool]]:
    """The same of weights that the file has an operator fill with one value. Four bytes an element, whatever the type."""
    sizes = {tensor.name: tensor for tensor in model.proto.graph.initializer if tensor.data_type == TensorProto.INT64}
    for node in model.proto.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in sizes:
            elements = math.prod(int(size) for size in numpy_helper.to_array(sizes[node.input[0]]).flat)
            if elements >= LOOKED_AT:
                yield 4 * elements, True
