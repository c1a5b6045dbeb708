"""The best classes of a classifier, as operators behind the model."""

from __future__ import annotations

from dataclasses import dataclass

from partitioner.graph.builder import Builder
from partitioner.graph.compose import join
from partitioner.graph.model import Model
from partitioner.graph.passes import OLDEST_OPSET
from shared.errors import ModelError


@dataclass(frozen=True, slots=True)
class TopK:
    """The `k` best classes of the one output; `softmax` turns logits into probabilities first."""

    k: int = 5
    softmax: bool = False


def with_topk(model: Model, top: TopK) -> Model:
    """The model with outputs `scores` (N, k), float32, falling, and `classes` (N, k), int64.

    Raises:
        ModelError: the model has not one output of shape (N, classes), or fewer classes than `k`.
    """
    if model.opset < OLDEST_OPSET:
        raise ModelError(
            f"{model.name}: opset {model.opset} could not be converted to one that postprocess 'topk' takes"
        )
    if len(model.outputs) != 1 or len(model.outputs[0].shape) != 2:
        shown = ", ".join(f"{spec.name} {spec.dtype}{list(spec.shape)}" for spec in model.outputs)
        raise ModelError(f"{model.name}: postprocess 'topk' needs one output of shape N,classes; there are {shown}")
    spec = model.outputs[0]
    if not 0 < top.k <= spec.shape[1]:
        raise ModelError(f"{model.name}: k={top.k} of {spec.shape[1]} classes")
    build = Builder("post", model.opset)
    given = build.input("post/logits", spec.dtype, spec.shape)
    value = build.add("Cast", given, to=1) if spec.dtype != "float32" else given
    if top.softmax:
        value = build.add("Softmax", value, axis=1)
    build.add_many("TopK", value, build.numbers(top.k), outputs=["scores", "classes"], axis=1, largest=1, sorted=1)
    return join(model, build.model(["scores", "classes"], model.batchable), {given: spec.name})
