"""What `headtail inspect` finds out about a model: what it takes and gives, where it may be cut, what is odd about it.

Nothing here decides. What a cut is worth depends on device, cloud and network, and is the business of `headtail plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from partitioner.graph.cuts import CandidateCut, CutFinder
from partitioner.graph.load import read_model, refusal
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.survey import oddities, operators, stated_axes
from partitioner.graph.traits import Quantisation, control_flow, quantisation, unsupported, weights_by_type
from partitioner.inspections.cheapest import cheapest
from shared.errors import ModelError
from shared.request import TensorSpec


class Value(msgspec.Struct, frozen=True):
    """An input or output: its type and its shape as the file gives it, `?` for what it leaves open."""

    name: str
    dtype: str
    shape: str


class CutRow(msgspec.Struct, frozen=True):
    """A place where the model may be cut. `share_before` is the estimated part of the compute that the device would do.

    `raw_bytes` is what crosses, in the model's own quantised form where it has one there (`quantised`); `int8_bytes` has
    every float at one byte; `cheapest` names the coding with the fewest bytes that `headtail plan` offers, and
    `cheapest_bytes` is about how many (`partitioner.inspections.cheapest`)."""

    name: str
    producer: str
    tensors: tuple[TensorSpec, ...]
    raw_bytes: int
    int8_bytes: int
    share_before: float
    quantised: bool
    cheapest: str
    cheapest_bytes: int


class Inspection(msgspec.Struct, frozen=True):
    """Everything `headtail inspect` says. `inputs` and `outputs` are the file's, the rest of the normal form is in
    `cuts`: its first row is the input (pixels, where there is an image), its last the outputs.

    `unsupported` are the operators that no installed provider has, `control_flow` those with graphs inside, by name.
    `sized_by_data` counts the values inside whose size depends on the data: no cut may fall there.
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
    weights_by_type: dict[str, int]
    control_flow: dict[str, int]
    quantisation: Quantisation
    unsupported: tuple[str, ...] = ()
    sized_by_data: int = 0
    batchable: bool = False
    cuts: tuple[CutRow, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """An inspection, and the model it was made of where it could be run: what a drawing is made from."""

    found: Inspection
    finder: CutFinder | None
    cuts: tuple[CandidateCut, ...]


def inspect_model(recipe: Recipe) -> Inspection:
    """Look at a model, as far as it lets itself be looked at.

    Raises:
        UserError: a processing is misspelt.
        ModelError: the file is no readable ONNX model.
    """
    return look_at(recipe).found


def look_at(recipe: Recipe) -> Look:
    """`inspect_model`, with the model beside it. Raises as that does."""
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
        weights_by_type=weights_by_type(read),
        control_flow=control_flow(read),
        quantisation=quantisation(read),
    )
    refused = refusal(recipe.path)
    if refused is not None:
        return Look(msgspec.structs.replace(seen, unsupported=unsupported(read), problem=str(refused)), None, ())
    try:
        whole = build(recipe)
        finder = CutFinder(whole)
    except ModelError as error:
        return Look(msgspec.structs.replace(seen, problem=str(error)), None, ())
    cuts = tuple(finder.single())
    found = msgspec.structs.replace(
        seen,
        batchable=whole.batchable,
        cuts=tuple(_row(cut) for cut in cuts),
        sized_by_data=finder.sized_by_data(),
        warnings=(*seen.warnings, *_of_normal_form(whole, cuts)),
    )
    return Look(found, finder, cuts)


def _row(cut: CandidateCut) -> CutRow:
    least = cheapest(cut.tensors)
    quantised = bool(cut.nodes) and all(spec.dtype in {"int8", "uint8"} for spec in cut.tensors)
    return CutRow(
        name=cut.name,
        producer=cut.producer,
        tensors=cut.tensors,
        raw_bytes=cut.raw_bytes,
        int8_bytes=cut.int8_bytes,
        share_before=round(cut.share, 6),
        quantised=quantised,
        cheapest=least.coding,
        cheapest_bytes=least.nbytes,
    )


def _of_normal_form(whole: Model, cuts: Sequence[CandidateCut]) -> list[str]:
    found: list[str] = []
    if not whole.batchable:
        found.append("requests cannot be batched: the batch size is baked in, or some input has no row axis in front")
    if len(cuts) == 2:
        found.append(
            "no single tensor separates the model anywhere; only cuts of several tensors are possible (--force-cut)"
        )
    return found
