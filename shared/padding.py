"""Requests of different lengths for one plan: padded to the plan's bucket, and its outputs cut back to what they were.

A plan fixes every shape. Where a model leaves an axis open that is no batch, the length of a sequence for instance, one plan
is made for each of a few lengths, the *buckets*, and a request is asked of the smallest that it fits into: its inputs are
filled up at the end of that axis, and the outputs that have the axis are cut there. So requests of different lengths share
launches, and all that lies behind the client's door (slots, codings, execution times, batches, contracts) sees whole buckets
only.

That padding changes no answer is proven when the plan is made (`partitioner.padding_proof`): a plan of which it is not true
never gets a `Padding`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from shared.request import Answer, Array, Outcome

MAX_NAME = 128


class PaddedInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input, which of its axes is filled up, and with what."""

    tensor: str
    axis: int
    value: float = 0.0


class CutOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output, and which of its axes is cut back."""

    tensor: str
    axis: int


class Padding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan says of its open axis. `family` is the name by which a request asks for whichever bucket fits,
    `dimension` what the model calls the axis, `size` this plan's bucket. Requests have 1 to `size` there."""

    family: str
    dimension: str
    size: int
    inputs: tuple[PaddedInput, ...]
    outputs: tuple[CutOutput, ...] = ()


Shapes = Mapping[str, tuple[int, ...]]
"""Shapes by tensor name."""


def padding_faults(padding: Padding, inputs: Shapes, outputs: Iterable[str]) -> Iterator[str]:
    """What does not hold between a padding and the tensors of its plan, at one row, as sentences. The first axis counts rows
    and is never padded."""
    if not 0 < len(padding.family) <= MAX_NAME or not 0 < len(padding.dimension) <= MAX_NAME:
        yield f"a family and a dimension have 1 to {MAX_NAME} characters"
    if not padding.inputs:
        yield "no input is padded"
    for padded in padding.inputs:
        shape = inputs.get(padded.tensor)
        if shape is None:
            yield f"{padded.tensor!r} is no input"
        elif not 0 < padded.axis < len(shape) or shape[padded.axis] != padding.size:
            yield f"input {padded.tensor!r} of {list(shape)} has not {padding.size} on axis {padded.axis}, after its first"
        if not math.isfinite(padded.value):
            yield f"input {padded.tensor!r} is padded with {padded.value}, which is no number"
    known = set(outputs)
    for cut in padding.outputs:
        if cut.tensor not in known or cut.axis < 1:
            yield f"{cut.tensor!r} is no output, or {cut.axis} no axis after its first"


def pad(padding: Padding, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """These inputs, filled up to the bucket at the end of their axis. What is no longer than the bucket already is kept as
    it is."""
    padded = dict(inputs)
    for one in padding.inputs:
        array = padded[one.tensor]
        length = array.shape[one.axis]
        if length < padding.size:
            shape = (*array.shape[: one.axis], padding.size, *array.shape[one.axis + 1 :])
            filled: Array = np.full(shape, np.asarray(one.value).astype(array.dtype), array.dtype)
            filled[_upto(one.axis, length)] = array
            padded[one.tensor] = filled
    return padded


def unpad(padding: Padding, inputs: Mapping[str, Array], length: int) -> dict[str, Array]:
    """Inputs that were padded as they were before."""
    axes = {one.tensor: one.axis for one in padding.inputs}
    return {name: _cut(array, axes.get(name), length) for name, array in inputs.items()}


def cut_back(padding: Padding, outputs: Mapping[str, Array], length: int) -> dict[str, Array]:
    """The outputs of a padded request without what belongs to the padding, as views."""
    axes = {cut.tensor: cut.axis for cut in padding.outputs}
    return {name: _cut(array, axes.get(name), length) for name, array in outputs.items()}


def as_asked(outcome: Outcome, padding: Padding | None, length: int) -> Outcome:
    """The outcome of a request that was `length` long before it was padded; 0 where it was not."""
    if padding is None or not length or not isinstance(outcome, Answer):
        return outcome
    return outcome.replace(outputs=cut_back(padding, outcome.outputs, length))


def _cut(array: Array, axis: int | None, length: int) -> Array:
    return array if axis is None or axis >= array.ndim else array[_upto(axis, length)]


def _upto(axis: int, length: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(0, length))
