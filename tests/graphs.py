"""Small models for tests of the graph subpackage, each built in code with seeded random weights.

`Net` collects nodes and weights; `net.save(path)` or `net.read()` gives a file or a model as it would be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from partitioner.graph.cuts import CandidateCut
from partitioner.graph.model import Model, as_read
from partitioner.graph.normalise import normalise
from partitioner.graph.run import difference, run_model, sample_inputs
from partitioner.graph.shapes import parse_shapes
from partitioner.graph.split import split

Dims = Sequence[int | str | None]


class Net:
    """A graph in the making."""

    def __init__(self, seed: int = 0, opset: int = 17, ir_version: int = 8) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.opset = opset
        self.ir_version = ir_version
        self.domains: dict[str, int] = {}

    def input(self, name: str, dims: Dims, elem_type: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, elem_type, list(dims)))
        return name

    def output(self, name: str, dims: Dims | None = None, elem_type: int = TensorProto.FLOAT) -> str:
        shape = None if dims is None else list(dims)
        self.outputs.append(helper.make_tensor_value_info(name, elem_type, shape))
        return name

    def hold(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.hold(
            name, (self.random.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
        )

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def conv(self, source: str, output: str, channels: tuple[int, int], kernel: int = 3, **attributes: object) -> str:
        weight = self.weight(f"{output}.w", channels[1], channels[0], kernel, kernel)
        pads = [kernel // 2] * 4
        return self.add(
            "Conv", [source, weight, self.weight(f"{output}.b", channels[1])], output, pads=pads, **attributes
        )

    def proto(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "net", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(name, version) for name, version in self.domains.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self.ir_version)

    def save(self, path: Path) -> Path:
        path.write_bytes(self.proto().SerializeToString())
        return path

    def read(self) -> Model:
        return as_read(self.proto(), "net.onnx")

    def normal(self, *shapes: str) -> Model:
        read = self.read()
        return normalise(read, parse_shapes(read, shapes))


def classifier(side: int = 16, classes: int = 7) -> Net:
    """image-like input x (N, 3, side, side) -> stem, a residual block, pooling -> logits (N, classes)."""
    net = Net()
    net.input("x", ["batch", 3, side, side])
    net.add("Relu", [net.conv("x", "stem.conv", (3, 8), strides=[2, 2])], "stem")
    net.add("Relu", [net.conv("stem", "block.a.conv", (8, 8))], "block.a")
    net.conv("block.a", "block.b", (8, 8))
    net.add("Add", ["stem", "block.b"], "block.sum")
    net.add("Relu", ["block.sum"], "block")
    net.add("GlobalAveragePool", ["block"], "pooled")
    net.add("Flatten", ["pooled"], "flat", axis=1)
    net.add("Gemm", ["flat", net.weight("head.w", 8, classes), net.weight("head.b", classes)], "logits")
    net.output("logits", ["batch", classes])
    return net


def centre_detector(side: int = 32, landmarks: bool = True) -> Net:
    """A small analogue of a face detector by centre points: encoder, decoder with a skip connection, four maps of a
    quarter of the input's size. Old opset, fixed shapes of another size, weights listed as inputs."""
    net = Net(seed=3, opset=9, ir_version=4)
    net.input("image.1", [10, 3, 64, 64])
    net.add("Relu", [net.conv("image.1", "c1.conv", (3, 8), strides=[2, 2])], "c1")
    net.add("Relu", [net.conv("c1", "c2.conv", (8, 8), strides=[2, 2])], "c2")
    net.add("Relu", [net.conv("c2", "c3.conv", (8, 16), strides=[2, 2])], "c3")
    net.add("ConvTranspose", ["c3", net.weight("up.w", 16, 8, 2, 2)], "up.conv", strides=[2, 2])
    net.add("Relu", ["up.conv"], "up")
    net.add("Relu", [net.conv("c2", "skip.conv", (8, 8), 1)], "skip")
    net.add("Add", ["up", "skip"], "joined")
    net.add("Relu", [net.conv("joined", "neck.conv", (8, 8))], "neck")
    net.add("Sigmoid", [net.conv("neck", "heat.conv", (8, 1), 1)], "heat")
    maps = [("heat", 1), ("size", 2), ("offset", 2), *([("points", 10)] if landmarks else [])]
    for name, channels in maps:
        if name != "heat":
            net.conv("neck", name, (8, channels), 1)
        net.output(name, [10, channels, 16, 16])
    net.inputs += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in net.weights]
    return net


def chained(model: Model, cuts: Sequence[CandidateCut], rows: int = 1, seed: int = 7) -> float:
    """The largest difference between the whole model and its parts run one after the other."""
    inputs = sample_inputs(model, rows, seed)
    wanted = run_model(model, inputs)
    values = inputs
    for part in split(model, cuts).parts:
        values = run_model(part, values)
    assert set(values) == set(wanted)
    return max(difference(wanted[name], values[name]) for name in wanted)


def op_types(model: Model) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]
