"""A classifier that may answer early: one graph whose second half runs only for rows of which a small head is not sure.

Behind an inner tensor stands a head: mean and maximum of each channel, one linear layer, softmax. Where its largest
probability reaches the gate for every row of a run, the graph's `If` gives the head's answer and the rest of the model is
not run. Otherwise the rest runs, for all rows, and each row that the head was sure of keeps the head's answer: so a row's
answer never depends on the rows beside it.

Weights stay in the graph around the `If`, where a bundle finds and shares them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from partitioner.graph.cuts import CandidateCut, CutFinder
from partitioner.graph.images import with_image_input
from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise, settled, tidy
from partitioner.graph.observe import batch_works, with_outputs
from partitioner.graph.processing import parse_postprocess, parse_preprocess, with_postprocess
from partitioner.graph.recipe import Recipe
from partitioner.graph.shapes import parse_shapes
from partitioner.graph.walk import node_inputs, producers, rename_in_node
from shared.errors import ModelError
from shared.request import Array, TensorSpec

PREFIX = "exit"
LATEST_SHARE = 0.75
"""An exit behind more than this share of the compute has nothing to save."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Exit:
    """The head: `weights` (2 * channels, classes) and `bias` (classes) of the linear layer over means, then maxima, of the
    channels. `gate` is the least probability of which it counts as sure. `probabilities`: the model gives them, no logits."""

    weights: Floats
    bias: Floats
    gate: float
    probabilities: bool


def classifier_of(recipe: Recipe) -> Model:
    """The recipe's model with its pre-processing and without its post-processing.

    Raises:
        ModelError: it is no classifier of one output (rows, classes) of float32.
    """
    image = parse_preprocess(recipe.preprocess)
    read = load_model(recipe.path)
    model = normalise(read, parse_shapes(read, recipe.shapes))
    if image is not None:
        model = with_image_input(model, image)
    spec = model.outputs[0]
    if (
        len(model.outputs) != 1
        or len(spec.shape) != 2
        or spec.shape[0] != 1
        or spec.shape[1] < 2
        or spec.dtype != "float32"
    ):
        shown = ", ".join(f"{one.name} {one.dtype}{list(one.shape)}" for one in model.outputs)
        raise ModelError(f"{model.name}: an early exit needs one output of float32[1, classes]; it has {shown}")
    return model


def exit_place(model: Model, share: float) -> CandidateCut:
    """Where an exit may stand: of the cuts at a single map of channels before `LATEST_SHARE` of the compute, the one nearest
    to this share. Raises `ModelError` where there is none."""
    cuts = [cut for cut in CutFinder(model).single()[1:-1] if cut.share <= LATEST_SHARE and _takes(cut.tensors)]
    if not cuts:
        raise ModelError(
            f"{model.name}: no inner map of channels in the first {LATEST_SHARE:.0%} of it, for an early exit"
        )
    return min(cuts, key=lambda cut: abs(cut.share - share))


def _takes(tensors: tuple[TensorSpec, ...]) -> bool:
    return len(tensors) == 1 and tensors[0].dtype == "float32" and len(tensors[0].shape) == 4


def tapped(model: Model, place: CandidateCut) -> Model:
    """The model with the inner tensor as its first output, and its own output behind it."""
    names = [place.tensors[0].name, model.outputs[0].name]
    return replace(with_outputs(model, names), outputs=(place.tensors[0], model.outputs[0]))


def with_exit(model: Model, place: TensorSpec, head: Exit) -> Model:
    """The classifier with an early exit behind an inner tensor (1, channels, ...). Same inputs and outputs.

    Raises:
        ModelError: the head does not fit, the graph does not run so, or its rows are not independent.
    """
    output = model.outputs[0]
    if head.weights.shape != (2 * place.shape[1], output.shape[1]):
        raise ModelError(
            f"{model.name}: an exit at {place.name!r} needs weights {[2 * place.shape[1], output.shape[1]]}, got "
            f"{list(head.weights.shape)}"
        )
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    before, rest = _halves(proto.graph, place.name, output.name)
    answer = f"{PREFIX}/rest"
    for node in rest:
        rename_in_node(node, {output.name: answer})
    del proto.graph.node[:]
    proto.graph.node.extend(before)
    _add_head(proto.graph, place.name, head)
    proto.graph.node.append(_choice(rest, answer, output.name))
    result = settled(tidy(replace(model, proto=proto)))
    if result.outputs != model.outputs:
        raise ModelError(f"{model.name}: with an early exit its output would have another type or shape")
    if model.batchable and not batch_works(result):
        raise ModelError(f"{model.name}: with an early exit, two rows at once differ from one by one")
    return result


def finished(recipe: Recipe, model: Model) -> Model:
    """A classifier with the recipe's post-processing behind it."""
    return with_postprocess(model, parse_postprocess(recipe.postprocess))


def _halves(graph: onnx.GraphProto, place: str, output: str) -> tuple[list[NodeProto], list[NodeProto]]:
    """Copies of the nodes that `place` needs, and of the others that `output` needs, in order."""
    made_by = producers(graph)

    def needed(name: str, known: set[int]) -> set[int]:
        found, waiting = set[int](), [name]
        while waiting:
            index = made_by.get(waiting.pop())
            if index is not None and index not in found | known:
                found.add(index)
                waiting.extend(node_inputs(graph.node[index]))
        return found

    before = needed(place, set())
    rest = needed(output, before)
    return [_copied(graph.node[index]) for index in sorted(before)], [
        _copied(graph.node[index]) for index in sorted(rest)
    ]


def _copied(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _add_head(graph: onnx.GraphProto, place: str, head: Exit) -> None:
    """The head, in opset 13 and later: `exit/answer` (rows, classes), `exit/sure` (rows, 1), `exit/all_sure`."""

    def add(op: str, inputs: list[str], *outputs: str, **attributes: int) -> None:
        names = [f"{PREFIX}/{name}" for name in outputs]
        node = helper.make_node(op, inputs, names, name=f"{PREFIX}/{op}_{len(graph.node)}")
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        graph.node.append(node)

    held: dict[str, Array] = {
        "weights": head.weights,
        "bias": head.bias,
        "gate": np.array(head.gate, np.float32),
        "one": np.array([1], np.int64),
    }
    graph.initializer.extend(numpy_helper.from_array(array, f"{PREFIX}/{name}") for name, array in held.items())
    own = {name: f"{PREFIX}/{name}" for name in ("mean4", "max4", "mean", "max", "pooled", "logits", "probability")}
    add("GlobalAveragePool", [place], "mean4")
    add("GlobalMaxPool", [place], "max4")
    add("Flatten", [own["mean4"]], "mean")
    add("Flatten", [own["max4"]], "max")
    add("Concat", [own["mean"], own["max"]], "pooled", axis=1)
    add("Gemm", [own["pooled"], f"{PREFIX}/weights", f"{PREFIX}/bias"], "logits")
    add("Softmax", [own["logits"]], "probability", axis=1)
    add("Identity", [own["probability"] if head.probabilities else own["logits"]], "answer")
    add("TopK", [own["probability"], f"{PREFIX}/one"], "best", "which", axis=1)
    add("GreaterOrEqual", [f"{PREFIX}/best", f"{PREFIX}/gate"], "sure")
    add("Cast", [f"{PREFIX}/sure"], "sure_number", to=TensorProto.FLOAT)
    add("ReduceMin", [f"{PREFIX}/sure_number"], "least_sure", keepdims=0)
    add("Cast", [f"{PREFIX}/least_sure"], "all_sure", to=TensorProto.BOOL)


def _choice(rest: list[NodeProto], answer: str, output: str) -> NodeProto:
    """The `If` that gives the head's answer, or that of the rest for the rows of which the head is not sure."""

    def body(name: str, nodes: list[NodeProto], made: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(made, TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [value])

    early, chosen = f"{PREFIX}/early", f"{PREFIX}/chosen"
    take = helper.make_node("Identity", [f"{PREFIX}/answer"], [early], name=f"{PREFIX}/take")
    choose = helper.make_node(
        "Where", [f"{PREFIX}/sure", f"{PREFIX}/answer", answer], [chosen], name=f"{PREFIX}/choose"
    )
    return helper.make_node(
        "If",
        [f"{PREFIX}/all_sure"],
        [output],
        name=f"{PREFIX}/If",
        then_branch=body("early", [take], early),
        else_branch=body("rest", [*rest, choose], chosen),
    )
