"""Cutting a graph into a chain of graphs, each with only its own weights.

A tensor that several parts need travels along: it is an input and an output of the parts in between, under its own name.
Weights are renamed by their content. A runtime that optimises a part of an already optimised model makes names of its own
beside the old ones and can meet one of them; a name by content cannot mean two things, and equal weights of two parts are
seen to be equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import onnx
from onnx import NodeProto, TensorProto

from partitioner.graph.cuts import INPUT, OUTPUT, CandidateCut
from partitioner.graph.model import Model, content_digest, value_info
from partitioner.graph.walk import node_inputs, node_outputs, producers, rename_in_node
from shared.errors import InvariantBroken, ModelError
from shared.request import TensorSpec


@dataclass(frozen=True, slots=True)
class Chain:
    """`parts[i]` leads from `cuts[i]` to `cuts[i + 1]`. `cuts` begins with the input and ends with the outputs."""

    cuts: tuple[CandidateCut, ...]
    parts: tuple[Model, ...]


def split(model: Model, cuts: Sequence[CandidateCut]) -> Chain:
    """Cut at the given inner cuts (any order; they must be nested). No cut gives one part. `input` and `output` may be
    among them.

    Each part's inputs and outputs are all tensors of its two cuts, pass-through tensors included; it holds only its own
    weights, named by content.

    Raises:
        ModelError: two cuts are not nested.
    """
    count = len(model.proto.graph.node)
    inner = {cut.nodes: cut for cut in cuts if 0 < len(cut.nodes) < count}
    ordered = [
        CandidateCut(INPUT, model.inputs, "", frozenset(), 0.0),
        *sorted(inner.values(), key=lambda cut: len(cut.nodes)),
        CandidateCut(OUTPUT, model.outputs, "", frozenset(range(count)), 1.0),
    ]
    borders = list(pairwise(ordered))
    for before, after in borders:
        if not before.nodes <= after.nodes:
            raise ModelError(
                f"{model.name}: cuts '{before.name}' and '{after.name}' are not nested: neither holds the other"
            )
    fresh = {t.name: f"weight_{content_digest(t)[:32]}" for t in model.proto.graph.initializer}
    held = {t.name: t for t in model.proto.graph.initializer}
    made_by = producers(model.proto.graph)
    parts = tuple(
        _part(model, index, before, after, held, fresh, made_by) for index, (before, after) in enumerate(borders)
    )
    return Chain(tuple(ordered), parts)


def _part(
    model: Model,
    index: int,
    before: CandidateCut,
    after: CandidateCut,
    held: dict[str, TensorProto],
    fresh: dict[str, str],
    made_by: dict[str, int],
) -> Model:
    graph = onnx.GraphProto(name=f"part_{index}")
    inside = after.nodes - before.nodes
    given = {spec.name for spec in before.tensors}
    needed: dict[str, None] = {}
    for position in sorted(inside):
        node = NodeProto()
        node.CopyFrom(model.proto.graph.node[position])
        names = node_inputs(node)
        for name in names:
            if name in held:
                needed[name] = None
            elif name not in given and made_by.get(name) not in inside:
                raise InvariantBroken(
                    f"{model.name}: part {index} uses '{name}', which does not cross cut '{before.name}'"
                )
        rename_in_node(node, {name: fresh[name] for name in names if name in fresh})
        graph.node.append(node)
    made = given | {name for position in inside for name in node_outputs(model.proto.graph.node[position])}
    _give_held_outputs(graph, after.tensors, made, held, needed, fresh)
    added: set[str] = set()
    for name in needed:
        if fresh[name] not in added:
            added.add(fresh[name])
            graph.initializer.add().CopyFrom(held[name])
            graph.initializer[-1].name = fresh[name]
    graph.input.extend(value_info(spec, model.batchable) for spec in before.tensors)
    graph.output.extend(value_info(spec, model.batchable) for spec in after.tensors)
    proto = onnx.ModelProto(ir_version=model.proto.ir_version, producer_name="headtail", graph=graph)
    proto.opset_import.extend(model.proto.opset_import)
    return replace(
        model,
        proto=proto,
        name=f"{model.name}[{before.name}:{after.name}]",
        inputs=before.tensors,
        outputs=after.tensors,
    )


def _give_held_outputs(
    graph: onnx.GraphProto,
    wanted: Sequence[TensorSpec],
    made: set[str],
    held: dict[str, TensorProto],
    needed: dict[str, None],
    fresh: dict[str, str],
) -> None:
    # An output of the whole model may be a constant: then no operator makes it, and it keeps its name through one.
    for spec in wanted:
        if spec.name not in made and spec.name in held:
            needed[spec.name] = None
            graph.node.add(op_type="Identity", input=[fresh[spec.name]], output=[spec.name], name=f"give_{spec.name}")
