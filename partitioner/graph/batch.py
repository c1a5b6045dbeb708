"""Making the first axis count rows, where a graph lets it.

Exporters bake the batch size of their example into `Reshape`, and chains that start at `Shape` carry it along. Both are
rewritten where that is safe, and whether it was is not argued but run: two rows at once against one by one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from partitioner.graph.local_sizes import make_sizes_local
from partitioner.graph.model import Model
from partitioner.graph.observe import batch_works, fetch, row_inputs
from partitioner.graph.passes import drop_useless
from partitioner.graph.walk import shape_values
from shared.errors import ModelError
from shared.request import Array

SMALL_SHAPE = 64
"""Elements of the largest value that is taken for a shape."""


def is_batchable(model: Model) -> bool:
    """Whether the graph, as it is, gives for two rows at once what it gives for each alone."""
    return all(spec.shape for spec in model.inputs) and batch_works(model)


def make_batchable(model: Model) -> Model | None:
    """The graph (whose inputs have an open first axis) with shapes made independent of the batch size, proven; None where
    that cannot be done."""
    frozen = freeze_shapes(model)
    if is_batchable(frozen):
        return _with_local_sizes(frozen)
    loosened = loosen_reshapes(frozen)
    if loosened is not None and is_batchable(loosened):
        loosened = freeze_shapes(loosened)
        if is_batchable(loosened):
            return _with_local_sizes(loosened)
    return None


def _with_local_sizes(model: Model) -> Model:
    """The graph, which is batchable, with sizes made where they are used, if it then still is."""
    local = make_sizes_local(model)
    return replace(local if local is model or is_batchable(local) else model, batchable=True)


def freeze_shapes(model: Model) -> Model:
    """Replace values that are computed from shapes alone by constants, where they do not depend on the batch size; in a
    `Reshape` to a shape of which one axis does, that axis becomes -1. Then no such chain can cross a cut."""
    names = shape_values(model.proto.graph)
    reshaped = [
        node.output[0] for node in model.proto.graph.node if node.op_type == "Reshape" and node.input[1] in names
    ]
    if not names:
        return model
    a, _, both = row_inputs(model)
    try:
        values = {
            name: (one, two)
            for name, (one, two) in fetch(model, sorted({*names, *reshaped}), [a, both])
            if one is not None and two is not None
        }
    except ModelError:
        return model  # a batch of two does not run yet; `loosen_reshapes` may help
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    constants: dict[str, Array] = {}
    for node in proto.graph.node:
        for position, name in enumerate(node.input):
            if name not in names or name not in values:
                continue
            one, two = values[name]
            constant = one if np.array_equal(one, two) and one.size <= SMALL_SHAPE else None
            if constant is None and node.op_type == "Reshape" and position == 1:
                constant = _open_shape(*values[node.output[0]])
            if constant is not None:
                fresh = f"{name}__frozen_{len(constants)}"
                constants[fresh] = constant
                node.input[position] = fresh
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    drop_useless(proto)
    return replace(model, proto=proto)


def _open_shape(one: Array, two: Array) -> Array | None:
    """The shape of both results with -1 where the second is twice as long; None where that is not one axis."""
    moved = [axis for axis, (a, b) in enumerate(zip(one.shape, two.shape, strict=True)) if a != b]
    if len(moved) != 1 or two.shape[moved[0]] != 2 * one.shape[moved[0]]:
        return None
    return np.array([-1 if axis == moved[0] else size for axis, size in enumerate(one.shape)], np.int64)


def loosen_reshapes(model: Model) -> Model | None:
    """Let the first axis of every constant `Reshape` follow its input; None where there is nothing to loosen.

    Where input and target have the same first axis it is copied (0); where it is the only one that can move it is left
    open (-1). What is wrong in this shows in the proof that follows."""
    held = {t.name: t for t in model.proto.graph.initializer}
    nodes = [
        index
        for index, node in enumerate(model.proto.graph.node)
        if node.op_type == "Reshape" and node.input[1] in held and not _zero_is_literal(node)
    ]
    a, _, _ = row_inputs(model)
    sources = sorted({model.proto.graph.node[index].input[0] for index in nodes} - {s.name for s in model.inputs})
    shapes = {spec.name: spec.shape for spec in model.inputs}
    try:
        shapes.update({name: one.shape for name, (one,) in fetch(model, sources, [a]) if one is not None})
    except ModelError:
        return None
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    changed = False
    for index in nodes:
        node = proto.graph.node[index]
        target = numpy_helper.to_array(held[node.input[1]]).copy()
        source = shapes.get(node.input[0])
        if not source or target.size == 0 or target[0] <= 0:
            continue
        if target[0] == source[0]:
            target[0] = 0
        elif -1 not in target:
            target[0] = -1
        else:
            continue
        changed = True
        fresh = f"{node.input[1]}__loose_{index}"
        proto.graph.initializer.append(numpy_helper.from_array(target, fresh))
        node.input[1] = fresh
    drop_useless(proto)
    return replace(model, proto=proto) if changed else None


def _zero_is_literal(node: NodeProto) -> bool:
    return any(a.name == "allowzero" and helper.get_attribute_value(a) == 1 for a in node.attribute)
