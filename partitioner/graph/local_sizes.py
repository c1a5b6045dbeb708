"""Sizes that follow the batch are computed where they are used.

An exporter asks one tensor for its shape and hands what it finds to operators far away: the size to which a feature map is
resized, the zeros with which a recurrent layer begins. Where such a chain crosses a cut, the other side would be handed a
size that belongs to no row. But all that it can depend on is the number of rows, and an operator that uses it is given
tensors with rows itself. So each use gets a chain of its own, from an axis of what the operator is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from partitioner.graph.model import Model
from partitioner.graph.observe import fetch, row_inputs
from partitioner.graph.passes import drop_useless
from partitioner.graph.walk import initializer_names, node_inputs, node_outputs, producers, shape_values
from shared.errors import ModelError
from shared.request import Array

SMALL_SIZE = 64
"""Elements of the largest value that is taken for sizes."""

INTEGERS = {"int64": TensorProto.INT64, "int32": TensorProto.INT32}

Runs = tuple[Array, Array, Array]
"""A value at one, two and three rows."""


@dataclass(frozen=True, slots=True)
class _Anchor:
    """A tensor whose `axis` is `size` for each row."""

    name: str
    axis: int
    size: int


def make_sizes_local(model: Model) -> Model:
    """The same graph (whose inputs have an open first axis) with each size that follows the batch taken from what the
    operator that uses it is given, where that can be done. Whether answers stay the same is for the caller to prove."""
    graph = model.proto.graph
    sizes = shape_values(graph)
    uses = [
        (index, name)
        for index, node in enumerate(graph.node)
        if not sizes & set(node_outputs(node))
        for name in dict.fromkeys(node.input)
        if name in sizes
    ]
    if not uses:
        return model
    given = {name for index, _ in uses for name in graph.node[index].input if name}
    made = set(producers(graph))
    try:
        runs = _runs(model, sorted((sizes | given) & made))
    except ModelError:
        return model
    writer = _Writer(model, sizes, runs)
    for index, name in uses:
        writer.replace(index, name)
    return writer.model()


def _runs(model: Model, names: list[str]) -> dict[str, Runs]:
    a, b, both = row_inputs(model)
    three = {name: np.concatenate([a[name], b[name], a[name]]) if a[name].ndim else a[name] for name in a}
    found: dict[str, Runs] = {spec.name: (a[spec.name], both[spec.name], three[spec.name]) for spec in model.inputs}
    for name, arrays in fetch(model, names, [a, both, three]):
        tensors = [array for array in arrays if array is not None]
        if len(tensors) == 3:
            found[name] = (tensors[0], tensors[1], tensors[2])
    return found


class _Writer:
    """Collects the chains. Each stands right before the operator that uses it."""

    def __init__(self, model: Model, sizes: set[str], runs: Mapping[str, Runs]) -> None:
        self._model = model
        self._proto = onnx.ModelProto()
        self._proto.CopyFrom(model.proto)
        self._graph = self._proto.graph
        self._sizes = sizes
        self._runs = runs
        self._made_by = producers(self._graph)
        self._fixed = initializer_names(self._graph)
        self._before: dict[int, list[NodeProto]] = {}
        self._count = 0

    def replace(self, index: int, name: str) -> None:
        """Give the operator a chain of its own in the place of a value, where something that it is given tells the rows."""
        node = self._graph.node[index]
        for anchor in self._anchors(node):
            fresh: list[NodeProto] = []
            local = self._local(name, anchor, fresh)
            if local is not None:
                self._before.setdefault(index, []).extend(fresh)
                for position, given in enumerate(node.input):
                    if given == name:
                        node.input[position] = local
                return

    def model(self) -> Model:
        """The graph with all chains in it and those that nobody uses any more taken out."""
        nodes: list[NodeProto] = []
        for index, node in enumerate(self._graph.node):
            nodes += [*self._before.get(index, ()), NodeProto.FromString(node.SerializeToString())]
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        drop_useless(self._proto)
        return replace(self._model, proto=self._proto)

    def _anchors(self, node: NodeProto) -> Iterator[_Anchor]:
        for name in node_inputs(node):
            if name in self._sizes or name not in self._runs:
                continue
            one, two, three = (array.shape for array in self._runs[name])
            moved = [axis for axis, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1]]
            if len(moved) == 1 and two[moved[0]] == 2 * one[moved[0]] and three[moved[0]] == 3 * one[moved[0]]:
                yield _Anchor(name, moved[0], one[moved[0]])

    def _local(self, name: str, anchor: _Anchor, nodes: list[NodeProto]) -> str | None:
        """The name of the same value computed from the anchor; its operators are added to `nodes`."""
        if name in self._fixed:
            return name
        if name not in self._sizes or name not in self._runs:
            return None
        counted = self._counted(name, anchor, nodes)
        if counted is not None:
            return counted
        node = NodeProto()
        node.CopyFrom(self._graph.node[self._made_by[name]])
        if node.op_type in {"Shape", "Size"}:
            return None
        for position, given in enumerate(node.input):
            local = self._local(given, anchor, nodes) if given else ""
            if local is None:
                return None
            node.input[position] = local
        fresh = {given: self._name(given) for given in node_outputs(node)}
        for position, given in enumerate(node.output):
            node.output[position] = fresh.get(given, "")
        node.name = fresh[name]
        nodes.append(node)
        return fresh[name]

    def _counted(self, name: str, anchor: _Anchor, nodes: list[NodeProto]) -> str | None:
        """Whole numbers that grow evenly with the rows: a constant, and a step for each row."""
        one, two, three = self._runs[name]
        if one.dtype.name not in INTEGERS or one.size > SMALL_SIZE or not one.shape == two.shape == three.shape:
            return None
        first, second, third = (array.astype(np.int64) for array in (one, two, three))
        step = second - first
        if not np.array_equal(third - second, step) or np.any(step % anchor.size):
            return None
        position = np.array(anchor.axis if one.ndim == 0 else [anchor.axis], np.int64)
        shape = self._add(nodes, "Shape", [anchor.name], name)
        rows = self._add(nodes, "Gather", [shape, self._hold(position, name)], name)
        steps = self._add(nodes, "Mul", [rows, self._hold(step // anchor.size, name)], name)
        total = self._add(nodes, "Add", [steps, self._hold(first - step, name)], name)
        if one.dtype.name == "int64":
            return total
        return self._add(nodes, "Cast", [total], name, to=INTEGERS[one.dtype.name])

    def _add(self, nodes: list[NodeProto], op: str, inputs: list[str], of: str, **attributes: int) -> str:
        name = self._name(of)
        node = helper.make_node(op, inputs, [name], name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        nodes.append(node)
        return name

    def _hold(self, array: Array, of: str) -> str:
        name = self._name(of)
        self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _name(self, of: str) -> str:
        self._count += 1
        return f"{of}__local_{self._count}"
