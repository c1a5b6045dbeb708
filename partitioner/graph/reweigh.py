"""Seeded random weights in the place of constants.

Models that are kept small for tests hold one value in all weights of a layer, or have an operator fill them. Whatever is cut
wrongly in such a model still gives the right answer, as all its answers are alike; and behind a softmax even models with real
weights differ by less than they should. So weights are drawn anew, and a softmax at the end is taken away.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from partitioner.graph.model import Model
from partitioner.graph.walk import producers
from shared.errors import ModelError
from shared.request import Array

SMALLEST = 2
"""Elements from which on a float tensor counts as weights."""

MOST_BYTES = 1 << 31
"""Of all weights together: what is drawn is held in memory."""

VARIANCE_INPUT = 4
"""Where a `BatchNormalization` takes variances, which must stay positive."""


def with_random_weights(model: Model, seed: int) -> Model:
    """The model with float32 weights drawn anew: normal, scaled so that values neither die out nor grow from layer to layer
    (He et al., "Delving deep into rectifiers", 2015), variances uniform in 0.5 to 1.5. Weights that a `ConstantOfShape` fills
    become initializers. Shapes of what is no float stay as they are.

    Raises:
        ModelError: the weights would take more than `MOST_BYTES`.
    """
    random = np.random.default_rng(seed)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph = proto.graph
    turned = {name for node in graph.node for name in node.input if _is_transposed(node, name)}
    variances = {
        node.input[VARIANCE_INPUT]
        for node in graph.node
        if node.op_type == "BatchNormalization" and len(node.input) > VARIANCE_INPUT
    }
    total = 0
    for name, shape in _weights(graph).items():
        total += 4 * math.prod(shape)
        if total > MOST_BYTES:
            raise ModelError(f"{model.name}: random weights would take more than {MOST_BYTES:,} bytes")
        array = random.uniform(0.5, 1.5, shape) if name in variances else _drawn(random, shape, name in turned)
        graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    return replace(model, proto=proto)


def before_softmax(model: Model) -> Model:
    """The model with every output that a `Softmax` makes replaced by what that is given."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    made_by = producers(proto.graph)
    for value in proto.graph.output:
        node = proto.graph.node[made_by[value.name]] if value.name in made_by else None
        if node is not None and node.op_type == "Softmax":
            value.name = node.input[0]
            value.type.tensor_type.ClearField("shape")
    return replace(model, proto=proto)


def _weights(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shape by name of what is to be drawn; what holds it now is taken out of the graph."""
    sizes = {t.name: t for t in graph.initializer if t.data_type == TensorProto.INT64}
    found: dict[str, tuple[int, ...]] = {}
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if node.op_type == "ConstantOfShape" and node.input[0] in sizes and not _filled_with_integers(node):
            found[node.output[0]] = tuple(int(size) for size in numpy_helper.to_array(sizes[node.input[0]]).flat)
            del graph.node[index]
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        shape = tuple(int(size) for size in tensor.dims)
        if tensor.data_type == TensorProto.FLOAT and math.prod(shape) >= SMALLEST:
            found[tensor.name] = shape
            del graph.initializer[index]
    return dict(sorted(found.items()))


def _filled_with_integers(node: onnx.NodeProto) -> bool:
    return any(a.name == "value" and a.t.data_type != TensorProto.FLOAT for a in node.attribute)


def _is_transposed(node: onnx.NodeProto, name: str) -> bool:
    """Whether a weight's inputs lie on its first axis instead of the others: the right factor of a product."""
    if node.op_type == "MatMul":
        return len(node.input) > 1 and node.input[1] == name
    turned = any(a.name == "transB" and a.i for a in node.attribute)
    return node.op_type == "Gemm" and node.input[1] == name and not turned


def _drawn(random: np.random.Generator, shape: tuple[int, ...], transposed: bool) -> Array:
    if len(shape) < 2:
        return np.asarray(1.0 + 0.1 * random.standard_normal(shape))
    inputs = math.prod(shape[:-1]) if transposed else math.prod(shape[1:])
    return np.asarray(random.standard_normal(shape, np.float32)) * np.float32(math.sqrt(2.0 / max(1, inputs)))
