"""Small passes over a graph, each with one concern. Each changes the graph it is given, in place: `normalise` hands them
a copy of its own."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from partitioner.graph.walk import bodies, node_inputs, topological_order, useful_nodes
from shared.errors import ModelError

PREFERRED_OPSET = 17
"""Opset to which older graphs are converted: old enough for every runtime in use, new enough for what is composed."""

OLDEST_OPSET = 13
"""From here on axes are inputs and the operators used for pre- and post-processing keep their form."""

OLDEST_IR = 8
"""File format that lets initializers be no inputs and knows opset 17."""


def sort_nodes(proto: onnx.ModelProto, name: str) -> None:
    """Put nodes in an order in which they can run. Some exporters do not, and naive walkers then go wrong."""
    order = topological_order(proto.graph, name)
    if order != sorted(order):
        nodes = [NodeProto.FromString(proto.graph.node[index].SerializeToString()) for index in order]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)


def drop_initializer_inputs(proto: onnx.ModelProto) -> None:
    """Initializers listed as graph inputs could be fed anew with each run, which forbids the runtime to fold them."""
    held = {t.name for t in proto.graph.initializer}
    kept = [v for v in proto.graph.input if v.name not in held]
    if len(kept) < len(proto.graph.input):
        copies = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
        del proto.graph.input[:]
        proto.graph.input.extend(copies)


def hold_constants(proto: onnx.ModelProto) -> None:
    """Turn `Constant` nodes of the outermost graph into initializers, where they hold a tensor of numbers."""
    kept: list[NodeProto] = []
    for node in proto.graph.node:
        tensor = _constant(node)
        if tensor is None:
            kept.append(NodeProto.FromString(node.SerializeToString()))
        else:
            proto.graph.initializer.append(tensor)
    if len(kept) < len(proto.graph.node):
        del proto.graph.node[:]
        proto.graph.node.extend(kept)


def _constant(node: NodeProto) -> TensorProto | None:
    if node.op_type != "Constant" or node.domain not in {"", "ai.onnx"} or not node.attribute:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value" and attribute.type == AttributeProto.TENSOR:
        tensor = TensorProto()
        tensor.CopyFrom(attribute.t)
    elif attribute.name in {"value_float", "value_floats"}:
        tensor = numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), np.float32))
    elif attribute.name in {"value_int", "value_ints"}:
        tensor = numpy_helper.from_array(np.array(helper.get_attribute_value(attribute), np.int64))
    else:
        return None
    tensor.name = node.output[0]
    return tensor


def drop_useless(proto: onnx.ModelProto) -> None:
    """Drop nodes on which no output depends, then initializers that nothing uses."""
    useful = useful_nodes(proto.graph)
    if len(useful) < len(proto.graph.node):
        kept = [NodeProto.FromString(proto.graph.node[i].SerializeToString()) for i in sorted(useful)]
        del proto.graph.node[:]
        proto.graph.node.extend(kept)
    used = {name for node in proto.graph.node for name in node_inputs(node)}
    used.update(value.name for value in proto.graph.output)
    for index in reversed(range(len(proto.graph.initializer))):
        if proto.graph.initializer[index].name not in used:
            del proto.graph.initializer[index]


def name_nodes(proto: onnx.ModelProto) -> None:
    """Give every node of the outermost graph a name of its own, so that a profile can be mapped back."""
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
            while node.name in seen:
                node.name += "_"
        seen.add(node.name)


def drop_unused_domains(proto: onnx.ModelProto) -> None:
    """Name only the operator sets in use, each once: a runtime may refuse a file for a set that it would never need."""
    used = {""} | {_domain(n.domain) for n in proto.graph.node}
    waiting = [body for node in proto.graph.node for body in bodies(node)]
    while waiting:
        for node in waiting.pop().node:
            used.add(_domain(node.domain))
            waiting.extend(bodies(node))
    versions: dict[str, int] = {}
    for opset in proto.opset_import:
        domain = _domain(opset.domain)
        if domain in used:
            versions[domain] = max(opset.version, versions.get(domain, 0))
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in sorted(versions.items()))


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def forget_shapes(proto: onnx.ModelProto) -> None:
    """Drop what the file says about inner shapes and the shapes of outputs: they may be fixed to another size, or hold
    literal zeros and minus ones that poison inference. The runtime finds them itself."""
    del proto.graph.value_info[:]
    del proto.graph.quantization_annotation[:]
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def check_operators_known(proto: onnx.ModelProto, name: str) -> None:
    """Refuse local functions that stayed after inlining, which no walker here looks into.

    Raises:
        ModelError: there are some.
    """
    if proto.functions:
        names = ", ".join(sorted(f.name for f in proto.functions))
        raise ModelError(f"{name}: functions that cannot be inlined: {names}")
