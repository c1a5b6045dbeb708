"""A model of thousands of operators for measuring how long a plan takes: blocks of two branches around a residual."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
WIDTH = 16
BLOCK_NODES = 6


def write_long_model(path: Path, nodes: int, seed: int = 0) -> Path:
    """Write a model of about `nodes` operators, in whole blocks of six, that takes `x` (float32, rows x 16) and gives `y`
    (float32, rows x 16); return its path. In each block a product with a softmax and one with a tanh are added to
    each other and to the block's input. Weights are random, from the seed."""
    random = np.random.default_rng(seed)
    made: list[NodeProto] = []
    weights: list[TensorProto] = []

    def add(operator: str, inputs: Sequence[str], output: str) -> str:
        made.append(helper.make_node(operator, inputs, [output]))
        return output

    def product(source: str, name: str) -> str:
        array = (random.standard_normal((WIDTH, WIDTH)) / WIDTH).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"{name}.w"))
        return add("MatMul", [source, f"{name}.w"], name)

    here = "x"
    blocks = max(1, nodes // BLOCK_NODES)
    for block in range(blocks):
        left = add("Softmax", [product(here, f"b{block}.p")], f"b{block}.s")
        right = add("Tanh", [product(here, f"b{block}.q")], f"b{block}.t")
        both = add("Add", [left, right], f"b{block}.both")
        here = add("Add", [both, here], "y" if block == blocks - 1 else f"b{block}")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in "xy")
    graph = helper.make_graph(made, "long", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    path.write_bytes(model.SerializeToString())
    return path
