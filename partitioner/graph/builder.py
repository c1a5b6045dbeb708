"""Writing small graphs by hand: what pre- and post-processing are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from partitioner.graph.model import Model, value_info
from partitioner.graph.passes import OLDEST_IR
from shared.request import Array, TensorSpec

AttributeValue = int | float | str | Sequence[int] | Sequence[float]


class Builder:
    """Collects nodes and constants under names of its own (`prefix/...`), then becomes a `Model`.

    Written for opset 13 and later; the operators used must mean the same in all of them.
    """

    def __init__(self, prefix: str, opset: int) -> None:
        self._prefix = prefix
        self._opset = opset
        self._graph = onnx.GraphProto(name=prefix)
        self._inputs: list[TensorSpec] = []

    def input(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """Declare an input at one row; its name."""
        self._inputs.append(TensorSpec(name, dtype, shape))
        return name

    def constant(self, array: Array) -> str:
        """Hold a constant; its name."""
        name = f"{self._prefix}/constant_{len(self._graph.initializer)}"
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def numbers(self, *values: int) -> str:
        """Hold an int64 vector; its name."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float, dtype: str = "float32") -> str:
        """Hold a number; its name."""
        return self.constant(np.array(value, dtype))

    def add(self, op: str, *inputs: str, output: str = "", **attributes: AttributeValue) -> str:
        """Add a node with one output; the output's name."""
        return self.add_many(op, *inputs, outputs=(output,), **attributes)[0]

    def add_many(self, op: str, *inputs: str, outputs: Sequence[str], **attributes: AttributeValue) -> list[str]:
        """Add a node with several outputs; their names ("" asks for one to be made up)."""
        index = len(self._graph.node)
        name = f"{self._prefix}/{op}_{index}"
        names = [given or (f"{name}_{i}" if i else name) for i, given in enumerate(outputs)]
        node = helper.make_node(op, list(inputs), names, name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._graph.node.append(node)
        return names

    def model(self, outputs: Sequence[str], batchable: bool) -> Model:
        """The finished graph, its outputs untyped as yet."""
        self._graph.input.extend(value_info(spec, batchable) for spec in self._inputs)
        for name in outputs:
            self._graph.output.add().name = name
        proto = onnx.ModelProto(ir_version=OLDEST_IR, graph=self._graph)
        proto.opset_import.append(helper.make_opsetid("", self._opset))
        outputs_unknown = tuple(TensorSpec(name, "", ()) for name in outputs)
        return Model(proto, self._prefix, tuple(self._inputs), outputs_unknown, batchable)
