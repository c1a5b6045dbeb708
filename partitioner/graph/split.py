"""Cutting a graph into a chain of graphs, each with only its own weights.

A tensor that several parts need travels along: it is an input and an output of the parts in between, under its own name.
Weights are renamed by their content. A runtime that optimises a part of an already optimised model makes names of its own
beside the old ones and can meet one of them; a name by content cannot mean two things, and equal weights of two parts are
seen to be equal. What is made from a crossing value by cheap operators alone (`fusion.remade_from`) is made again by each
part that uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import onnx
from onnx import NodeProto

from partitioner.graph.cuts import INPUT, OUTPUT, CandidateCut
from partitioner.graph.fusion import ELEMENTWISE, LAYOUTS
from partitioner.graph.model import Model, content_digest, value_info
from partitioner.graph.walk import constant_nodes, node_inputs, node_outputs, producers, rename_in_node
from shared.errors import InvariantBroken, ModelError


@dataclass(frozen=True, slots=True)
class Chain:
    """`parts[i]` leads from `cuts[i]` to `cuts[i + 1]`. `cuts` begins with the input and ends with the outputs."""

    cuts: tuple[CandidateCut, ...]
    parts: tuple[Model, ...]


def split(model: Model, cuts: Sequence[CandidateCut]) -> Chain:
    """`Splitter.split`, for a model that is split once."""
    return Splitter(model).split(cuts)


class Splitter:
    """A model indexed once, to be split often."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._graph = model.proto.graph
        self._made_by = producers(self._graph)
        self._constant = constant_nodes(self._graph)
        self._held = {t.name: t for t in self._graph.initializer}
        self._fresh = {t.name: f"weight_{content_digest(t)[:32]}" for t in self._graph.initializer}
        self._all = frozenset(range(len(self._graph.node))) - self._constant

    def split(self, cuts: Sequence[CandidateCut]) -> Chain:
        """Cut at the given inner cuts (any order; they must be nested). No cut gives one part. `input` and `output` may be
        among them.

        Each part's inputs and outputs are all tensors of its two cuts, pass-through tensors included; it holds only its own
        weights, named by content.

        Raises:
            ModelError: two cuts are not nested.
        """
        inner = {frozenset(cut.nodes): cut for cut in cuts if cut.nodes and cut.nodes != self._all}
        ordered = [
            CandidateCut(INPUT, self._model.inputs, "", frozenset(), 0.0),
            *sorted(inner.values(), key=lambda cut: len(cut.nodes)),
            CandidateCut(OUTPUT, self._model.outputs, "", self._all, 1.0),
        ]
        for before, after in pairwise(ordered):
            if not before.nodes <= after.nodes:
                raise ModelError(
                    f"{self._model.name}: cuts '{before.name}' and '{after.name}' are not nested: neither holds the other"
                )
        return Chain(tuple(ordered), tuple(self._part(before, after) for before, after in pairwise(ordered)))

    def _part(self, before: CandidateCut, after: CandidateCut) -> Model:
        inside = set(after.nodes) - set(before.nodes)
        given = {spec.name for spec in before.tensors}
        made = given | {name for index in inside for name in node_outputs(self._graph.node[index])}
        held_outputs = [spec.name for spec in after.tensors if spec.name not in made and spec.name in self._held]
        inside |= self._made_again(inside, made, [spec.name for spec in after.tensors])
        proto = onnx.ModelProto(ir_version=self._model.ir_version, producer_name="headtail")
        graph = proto.graph  # filled where it stands: a graph of 2 GB cannot be put into a model afterwards
        graph.name = "part"
        weights = dict.fromkeys(held_outputs)
        for index in sorted(inside):
            node = NodeProto()
            node.CopyFrom(self._graph.node[index])
            names = node_inputs(node)
            for name in names:
                if name in self._held:
                    weights[name] = None
                elif name not in given and self._made_by.get(name) not in inside:
                    raise InvariantBroken(
                        f"{self._model.name}: a part uses '{name}', which does not cross '{before.name}'"
                    )
            rename_in_node(node, {name: self._fresh[name] for name in names if name in self._fresh})
            graph.node.append(node)
        for name in held_outputs:  # an output of the whole model may be a weight; it keeps its name through an operator
            graph.node.add(op_type="Identity", input=[self._fresh[name]], output=[name], name=f"give_{name}")
        for fresh, name in {self._fresh[name]: name for name in weights}.items():
            graph.initializer.add().CopyFrom(self._held[name])
            graph.initializer[-1].name = fresh
        return self._model_of(proto, before, after)

    def _made_again(self, inside: set[int], made: set[str], wanted: list[str]) -> set[int]:
        """Nodes that the nodes `inside` or the outputs `wanted` need and that belong to no side: those that depend on
        weights alone, and cheap ones that both sides have. `made` is what a part is given and makes without them."""
        waiting = wanted + [name for index in inside for name in node_inputs(self._graph.node[index])]
        found: set[int] = set()
        while waiting:
            name = waiting.pop()
            index = self._made_by.get(name, -1)
            if name in made or index < 0 or index in found:
                continue
            if index in self._constant or self._graph.node[index].op_type in ELEMENTWISE | LAYOUTS:
                found.add(index)
                waiting.extend(node_inputs(self._graph.node[index]))
        return found

    def _model_of(self, proto: onnx.ModelProto, before: CandidateCut, after: CandidateCut) -> Model:
        model = self._model
        proto.graph.input.extend(value_info(spec, model.batchable) for spec in before.tensors)
        proto.graph.output.extend(value_info(spec, model.batchable) for spec in after.tensors)
        proto.opset_import.extend(model.proto.opset_import)
        name = f"{model.name}[{before.name}:{after.name}]"
        return replace(model, proto=proto, name=name, inputs=before.tensors, outputs=after.tensors)
