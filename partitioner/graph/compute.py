"""How much each operator computes, roughly: two operations for each multiply-add, one for each element of any other
result. Good enough to show where in a model a cut lies; times are measured, never taken from here."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
from onnx import NodeProto

from partitioner.graph.observe import Fact

CONVOLUTIONS = {"Conv": 1, "FusedConv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Where the weights are among the inputs; shape (out, in / groups, kernel...)."""

PRODUCTS = {"MatMul": (0, 1), "Gemm": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3)}
"""Where the two factors are among the inputs."""

RECURRENT = {"LSTM", "GRU", "RNN"}


def operations(proto: onnx.ModelProto, facts: Mapping[str, Fact]) -> list[float]:
    """An estimate for each node of the outermost graph, at one row."""
    shapes: dict[str, tuple[int, ...]] = {name: fact.spec.shape for name, fact in facts.items()}
    shapes.update({t.name: tuple(int(size) for size in t.dims) for t in proto.graph.initializer})
    return [_node(node, shapes) for node in proto.graph.node]


def _node(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> float:
    results = [math.prod(shapes.get(name, ())) for name in node.output if name]
    elements = float(sum(results))
    if node.op_type in CONVOLUTIONS:
        weights = _shape(node, CONVOLUTIONS[node.op_type], shapes)
        return elements + 2.0 * elements * math.prod(weights[1:])
    if node.op_type == "ConvTranspose":
        weights = _shape(node, 1, shapes)
        return elements + 2.0 * math.prod(_shape(node, 0, shapes)) * math.prod(weights[1:])
    if node.op_type in PRODUCTS:
        left, right = (_shape(node, position, shapes) for position in PRODUCTS[node.op_type])
        # For every pair of matrices rows * inner * columns, whatever is transposed: inner = sqrt(left * right / result).
        pairs = math.prod(left[-2:]) * math.prod(right[-2:]) / max(1, math.prod(_tail(node, shapes)))
        return elements + 2.0 * elements * math.sqrt(max(1.0, pairs))
    if node.op_type in RECURRENT:
        steps = math.prod(_shape(node, 0, shapes)[:2])
        return elements + 2.0 * steps * (math.prod(_shape(node, 1, shapes)) + math.prod(_shape(node, 2, shapes)))
    return elements


def _shape(node: NodeProto, position: int, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    return shapes.get(node.input[position], ()) if position < len(node.input) else ()


def _tail(node: NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    return shapes.get(node.output[0], ())[-2:]
