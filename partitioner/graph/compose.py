"""Joining two graphs into one: the outputs of the first become inputs of the second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx
from onnx import helper

from partitioner.graph.convert import raise_opset
from partitioner.graph.model import Model
from partitioner.graph.normalise import settled, tidy
from partitioner.graph.observe import batch_works
from partitioner.graph.walk import initializer_names, node_outputs, rename
from shared.errors import ModelError


def join(first: Model, second: Model, wires: Mapping[str, str]) -> Model:
    """`second` behind `first`; `wires` gives for every input of `second` the output of `first` that feeds it.

    The result has the name and inputs of `first` and the outputs of `second`. Where both use a name for different
    values, the inner one is renamed. It is batchable where both are, proven by running.

    Raises:
        ModelError: the operator sets cannot be brought together, an output is named as an input, or the result cannot be
            run.
    """
    a, b = _same_opset(first, second)
    inner_of_a = _part_names(a, b, first.name)
    rename(b.graph, {target: inner_of_a.get(source, source) for target, source in wires.items()})
    joined = onnx.ModelProto()
    joined.CopyFrom(a)
    joined.graph.node.extend(b.graph.node)
    joined.graph.initializer.extend(b.graph.initializer)
    del joined.graph.output[:]
    joined.graph.output.extend(b.graph.output)
    known = {opset.domain for opset in a.opset_import}
    joined.opset_import.extend(
        helper.make_opsetid(opset.domain, opset.version) for opset in b.opset_import if opset.domain not in known
    )
    joined.ir_version = max(a.ir_version, b.ir_version)
    model = tidy(Model(joined, first.name, first.inputs, second.outputs, first.batchable and second.batchable))
    if model.batchable and not batch_works(model):
        raise ModelError(f"{first.name}: joined with {second.name}, two rows at once differ from one by one")
    return settled(model)


def _same_opset(first: Model, second: Model) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    target = max(first.opset, second.opset)
    protos: list[onnx.ModelProto] = []
    for model in (first, second):
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        proto = raise_opset(proto, model.weight_bytes, target, target)
        converted = replace(model, proto=proto)
        if converted.opset != target:
            raise ModelError(
                f"{model.name}: opset {model.opset} cannot be converted to {target}, as joining graphs needs"
            )
        protos.append(proto)
    return protos[0], protos[1]


def _part_names(a: onnx.ModelProto, b: onnx.ModelProto, name: str) -> dict[str, str]:
    """Rename what would clash, in place: inner values of `b`, then values of `a` that bear the name of an output of `b`.
    The new names in `a` by the old ones."""
    in_a, in_b, outputs = _values(a), _values(b), {value.name for value in b.graph.output}
    if both := outputs & _inputs(a):
        raise ModelError(f"{name}: '{min(both)}' would be an input and an output; rename one of them")
    taken = in_a | in_b
    rename(b.graph, {old: _fresh(old, taken) for old in sorted((in_b & in_a) - outputs - _inputs(b))})
    renamed = {old: _fresh(old, taken) for old in sorted(outputs & in_a)}
    rename(a.graph, renamed)
    return renamed


def _inputs(proto: onnx.ModelProto) -> set[str]:
    return {value.name for value in proto.graph.input}


def _values(proto: onnx.ModelProto) -> set[str]:
    names = initializer_names(proto.graph) | _inputs(proto)
    for node in proto.graph.node:
        names.update(node_outputs(node))
    return names


def _fresh(name: str, taken: set[str]) -> str:
    fresh = f"{name}__inner"
    while fresh in taken:
        fresh += "_"
    taken.add(fresh)
    return fresh
