"""What `headtail inspect` finds out about a model: what it takes and gives, where it may be cut, what is odd about it.

Nothing here decides. What a cut is worth depends on device, cloud and network, and is the business of `headtail plan`.
"""

from __future__ import annotations

import msgspec

from partitioner.graph.cuts import CandidateCut, find_cuts
from partitioner.graph.load import read_model, refusal
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.survey import oddities, operators, stated_axes
from shared.errors import ModelError
from shared.request import TensorSpec


class Value(msgspec.Struct, frozen=True):
    """An input or output: its type and its shape as the file gives it, `?` for what it leaves open."""

    name: str
    dtype: str
    shape: str


class CutRow(msgspec.Struct, frozen=True):
    """A place where the model may be cut. `share_before` is the estimated part of the compute that the device would do."""

    name: str
    producer: str
    tensors: tuple[TensorSpec, ...]
    raw_bytes: int
    int8_bytes: int
    share_before: float


class Inspection(msgspec.Struct, frozen=True):
    """Everything `headtail inspect` says. `inputs` and `outputs` are the file's, the rest of the normal form is in
    `cuts`: its first row is the input (pixels, where there is an image), its last the outputs.

    `problem` says why there are no cuts, where there are none: the model cannot be run, or a shape is missing.
    """

    file: str
    size_bytes: int
    opset: int
    ir_version: int
    parameters: int
    weight_bytes: int
    operators: dict[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    warnings: tuple[str, ...]
    batchable: bool = False
    cuts: tuple[CutRow, ...] = ()
    problem: str = ""


def inspect_model(recipe: Recipe) -> Inspection:
    """Look at a model, as far as it lets itself be looked at.

    Raises:
        UserError: a processing is misspelt.
        ModelError: the file is no readable ONNX model.
    """
    read = read_model(recipe.path)
    axes = stated_axes(read)
    seen = Inspection(
        file=str(recipe.path),
        size_bytes=recipe.path.stat().st_size,
        opset=read.opset,
        ir_version=read.ir_version,
        parameters=read.parameters,
        weight_bytes=read.weight_bytes,
        operators=operators(read),
        inputs=tuple(Value(spec.name, spec.dtype or "unknown", axes[spec.name]) for spec in read.inputs),
        outputs=tuple(Value(spec.name, spec.dtype or "unknown", axes[spec.name]) for spec in read.outputs),
        warnings=tuple(oddities(read)),
    )
    refused = refusal(recipe.path)
    if refused is not None:
        return msgspec.structs.replace(seen, problem=str(refused))
    try:
        whole = build(recipe)
        cuts = find_cuts(whole)
    except ModelError as error:
        return msgspec.structs.replace(seen, problem=str(error))
    return msgspec.structs.replace(
        seen,
        batchable=whole.batchable,
        cuts=tuple(_row(cut) for cut in cuts),
        warnings=(*seen.warnings, *_of_normal_form(whole, cuts)),
    )


def _row(cut: CandidateCut) -> CutRow:
    return CutRow(cut.name, cut.producer, cut.tensors, cut.raw_bytes, cut.int8_bytes, round(cut.share, 6))


def _of_normal_form(whole: Model, cuts: list[CandidateCut]) -> list[str]:
    found: list[str] = []
    if not whole.batchable:
        found.append("requests cannot be batched: the batch size is baked in, or some input has no row axis in front")
    if len(cuts) == 2:
        found.append(
            "no single tensor separates the model anywhere; only cuts of several tensors are possible (--force-cut)"
        )
    return found
