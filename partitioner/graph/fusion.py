"""Which values are borders: not inside a group of operators that the runtime joins into one kernel.

A cut inside such a group is slower, since both sides lose the kernel, and not bit-equal. What is joined is not guessed
from patterns: the runtime optimises the graph, and a value that is left is a border. Rules of our own come on top.
A value that one cheap operator then only maps element by element is no border, the mapped value is as good and later.
And a value that was widened from a smaller one (dequantised, cast from pixels) is no border: the smaller one is a
fourth of the bytes, and cutting on the float side of a quantised pair shifts results by a quantum. The same holds for
an input that was only laid out anew: it is no smaller, and an image codec could no longer write it.
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
from partitioner.graph.walk import constant_nodes, consumers, initializer_names, node_inputs, node_outputs, producers

ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "BatchNormalization", "BitShift", "Cast", "Ceil", "Celu", "Clip", "DequantizeLinear", "Div", "Elu",
        "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish",
        "Mul", "Neg", "PRelu", "Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softplus",
        "Softsign", "Sqrt", "Sub", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
"""Operators that give an element for each element, where all but one of their inputs are constants."""

LAYOUTS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only lay out anew what they are given."""


def borders(model: Model, facts: Mapping[str, Fact]) -> set[str]:
    """Names of the values at which a cut falls between kernels.

    Raises:
        ModelError: the runtime cannot optimise the graph.
    """
    graph = model.proto.graph
    made_by, users = producers(graph), consumers(graph)
    fixed = initializer_names(graph)
    fixed.update(name for index in constant_nodes(graph) for name in node_outputs(graph.node[index]))
    inputs, outputs = {spec.name for spec in model.inputs}, {value.name for value in graph.output}
    left = surviving_values(model)
    found: set[str] = set()
    for name, index in made_by.items():
        node = graph.node[index]
        if name in fixed or (
            node.op_type in LAYOUTS and _variable_input(node, fixed) in inputs and name not in outputs
        ):
            continue
        inner = name in outputs or (name in left and not _mapped_on(name, graph, users, facts, fixed))
        if inner and not _widened(node, name, facts, fixed):
            found.add(name)
    return found


def surviving_values(model: Model) -> set[str]:
    """Values that the runtime still computes after joining operators, at the highest level that is no layout of one
    processor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "extended.onnx"
        open_session(model, optimisation="extended", save_to=path)
        proto = onnx.load(  # pyright: ignore[reportUnknownMemberType]
            str(path), format="protobuf", load_external_data=False
        )
    return {name for node in proto.graph.node for name in node_outputs(node)}


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


def _widened(node: NodeProto, name: str, facts: Mapping[str, Fact], fixed: set[str]) -> bool:
    source = _variable_input(node, fixed)
    if node.op_type not in ELEMENTWISE or source is None or source not in facts or not facts[source].steady:
        return False
    return facts[name].steady and facts[name].spec.nbytes() > facts[source].spec.nbytes()
