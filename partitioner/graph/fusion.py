"""Which values are borders: not inside a group of operators that the runtime joins into one kernel.

A cut inside such a group is slower, since both sides lose the kernel, and not bit-equal. What is joined is not guessed
from patterns: the runtime optimises the graph, and a value that is left is a border. Rules of our own come on top.
A value that one cheap operator then only maps element by element is no border, the mapped value is as good and later.
And a value that was widened from a smaller one (dequantised, cast from pixels) is no border: the smaller one is a
fourth of the bytes, and cutting on the float side of a quantised pair shifts results by a quantum. The same holds for
an input that was only laid out anew: it is no smaller, and an image codec could no longer write it. Where both sides need
such a value, its source crosses and each side makes it for itself (`remade_from`). Sizes that are computed from shapes are
none either: they say nothing of the data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import NodeProto

from partitioner.graph.model import Model
from partitioner.graph.observe import Fact
from partitioner.graph.runtime import open_session
from partitioner.graph.walk import (
    constant_nodes,
    consumers,
    initializer_names,
    node_inputs,
    node_outputs,
    producers,
    shape_values,
)

ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "BatchNormalization", "BitShift", "Cast", "Ceil", "Celu", "Clip", "DequantizeLinear", "Div", "Elu",
        "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish",
        "Mul", "Neg", "PRelu", "Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softplus",
        "Softsign", "Sqrt", "Sub", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
"""Operators that give an element for each element, where all but one of their inputs are constants."""

WIDE_PREFIX = "InsertedPrecisionFreeCast_"
"""Stands before the names of the 32-bit values that a processor computes in the place of 16-bit ones. A cut at such a value
adds a rounding to 16 bits, which the runtime saves itself inside a part."""

LAYOUTS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only lay out anew what they are given."""


def borders(model: Model, facts: Mapping[str, Fact]) -> set[str]:
    """Names of the values at which a cut falls between kernels.

    Raises:
        ModelError: the runtime cannot optimise the graph.
    """
    graph = model.proto.graph
    made_by, users = producers(graph), consumers(graph)
    fixed = _fixed(graph)
    outputs = {value.name for value in graph.output}
    left = surviving_values(model)
    remade = remade_from(model, facts)
    sizes = shape_values(graph)
    return {
        name
        for name in made_by
        if name not in fixed
        and name not in remade
        and (name not in sizes or name in outputs)
        and (name in outputs or (name in left and not _mapped_on(name, graph, users, facts, fixed)))
    }


def remade_from(model: Model, facts: Mapping[str, Fact]) -> dict[str, str]:
    """Values that never cross a cut, each with the value that crosses in its place: the smaller one from which it was
    widened, or the input that it only lays out anew. One cheap operator leads from the one to the other."""
    graph = model.proto.graph
    fixed = _fixed(graph)
    inputs, outputs = {spec.name for spec in model.inputs}, {value.name for value in graph.output}
    found: dict[str, str] = {}
    for name, index in producers(graph).items():
        node = graph.node[index]
        source = _variable_input(node, fixed)
        if source is None or name in fixed:
            continue
        laid_out = node.op_type in LAYOUTS and source in inputs and name not in outputs
        if laid_out or _widened(node, name, source, facts):
            found[name] = source
    return found


def _fixed(graph: onnx.GraphProto) -> set[str]:
    fixed = initializer_names(graph)
    fixed.update(name for index in constant_nodes(graph) for name in node_outputs(graph.node[index]))
    return fixed


def surviving_values(model: Model) -> set[str]:
    """Values that the runtime still computes after joining operators, at the highest level that is no layout of one
    processor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "extended.onnx"
        open_session(model, optimisation="extended", save_to=path)
        proto = onnx.load(  # pyright: ignore[reportUnknownMemberType]
            str(path), format="protobuf", load_external_data=False
        )
    names = {name for node in proto.graph.node for name in node_outputs(node)}
    return names | {name.removeprefix(WIDE_PREFIX) for name in names}


def _variable_input(node: NodeProto, fixed: set[str]) -> str | None:
    names = [name for name in node_inputs(node) if name not in fixed]
    return names[0] if len(names) == 1 else None


def _mapped_on(
    name: str, graph: onnx.GraphProto, users: Mapping[str, list[int]], facts: Mapping[str, Fact], fixed: set[str]
) -> bool:
    indices = users.get(name, [])
    if len(indices) != 1:
        return False
    node = graph.node[indices[0]]
    if node.op_type not in ELEMENTWISE or _variable_input(node, fixed) != name:
        return False
    after = facts.get(node.output[0])
    return after is not None and after.steady and after.spec.nbytes() <= facts[name].spec.nbytes()


def _widened(node: NodeProto, name: str, source: str, facts: Mapping[str, Fact]) -> bool:
    if node.op_type not in ELEMENTWISE or source not in facts or not facts[source].steady:
        return False
    return facts[name].steady and facts[name].spec.nbytes() > facts[source].spec.nbytes()
