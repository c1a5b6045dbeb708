"""A smaller model of the user's own as a rung: whatever it is inside, to a caller it must look like the whole one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from shared.errors import ModelError
from shared.request import TensorSpec


def supplied_model(recipe: Recipe, path: Path, whole: Model) -> Model:
    """The model at `path`, normalised, with the shapes and the pre- and post-processing that `whole` was made with.

    Raises `ModelError`: it cannot be read or run so; an input or output differs from the whole model's in name, dtype or
    shape, or in order; it does not take batches where the whole one does.
    """
    model = build(replace(recipe, path=path))
    fault = _fault("input", model.inputs, whole.inputs) or _fault("output", model.outputs, whole.outputs)
    if fault:
        raise ModelError(f"{path}: it cannot stand in for {whole.name}: {fault}")
    if whole.batchable and not model.batchable:
        raise ModelError(f"{path}: it cannot stand in for {whole.name}: it does not take several rows at once")
    return model if model.batchable == whole.batchable else replace(model, batchable=False)


def _fault(kind: str, mine: Sequence[TensorSpec], wanted: Sequence[TensorSpec]) -> str:
    """The first difference between two interfaces, or ""."""
    for number, (has, expected) in enumerate(zip_longest(mine, wanted), start=1):
        if has != expected:
            return f"{kind} {number} is {_shown(has)}, expected {_shown(expected)}"
    return ""


def _shown(spec: TensorSpec | None) -> str:
    return "none" if spec is None else f"{spec.name!r} {spec.dtype}{list(spec.shape)}"
