"""The proof that filling an open axis up to a bucket changes no answer, by running the model at shorter lengths and there.

Whether it does cannot be read off a graph: a mask may reach every sum or all but one, a mean divides by what was padded, an
axis may be turned round. So the model is made anew at a few lengths, from the shortest to one below the bucket, and each
row's answers there are held against those of the same row filled up, alone and in a batch of rows of different lengths, by
the rule that exact ways are held to (`partitioner.verify_local`). The bundle is later proven against the model at the bucket.

Whole numbers are ones in one row and drawn from 0 and 1 in the others, but for a 1 in the first place: of a row whose mask
leaves nothing at all many a model makes a mean over what it masks, so that padding changes it, and nobody asks for it.

Rejected: filling the padding with noise and looking whether the answer changes, by which a division by the bucket's length
stays unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.recipe import Recipe, build
from partitioner.graph.run import difference, sample_inputs
from partitioner.graph.shapes import describe_axes, parse_shapes
from partitioner.options import PlanOptions
from partitioner.running import Part, Tensors, join_rows, load_part
from partitioner.verify_local import TOLERANCE
from shared.errors import ModelError, UserError
from shared.padding import CutOutput, PaddedInput, Padding, cut_back, pad
from shared.request import Array

ROWS = 3
"""Rows of each length that are run."""
MOST = 1 << 20
"""The longest bucket."""
MANY = 16
"""Buckets of one model."""


@dataclass(frozen=True, slots=True)
class ProvenPadding:
    """What was proven: at these lengths every answer is that of the row as it is, but for `worst`, relative to
    max(1, |value|). `shapes` state the inputs at the bucket."""

    padding: Padding
    lengths: tuple[int, ...]
    worst: float
    shapes: tuple[str, ...]

    @property
    def note(self) -> str:
        """The same for a person."""
        padding = self.padding
        names = ", ".join(padded.tensor for padded in padding.inputs)
        told = ", ".join(map(str, self.lengths))
        return (
            f"{padding.dimension} of {names} is padded to {padding.size}: at lengths {told} the answers are those without "
            f"padding, but for {self.worst:.1e} at most"
        )


def prove_padding(options: PlanOptions) -> ProvenPadding:
    """Prove it of the bucket that the options ask for. Raises `UserError` for a bucket that the model has not, `ModelError`
    where padding changes an answer, or the model does not run at a length."""
    if options.bucket is None:
        raise UserError("no bucket is asked for")
    dimension, size = options.bucket
    axes = open_axes(options, dimension)
    padding = Padding(options.out.stem.removesuffix(f"-{size}"), dimension, size, _padded(options, axes))
    lengths = tuple(sorted({1, 2, size // 2, size // 2 + 1, size - 1} - {0, size}))
    shapes = _shapes(options, axes, size)
    bucket = _Sized(options, axes, size)
    shorter = [_Sized(options, axes, length) for length in lengths]
    padding = replace_outputs(padding, bucket.model, shorter[-1].model, lengths[-1])
    worst = 0.0
    filled: list[Tensors] = []
    wanted: list[Mapping[str, Array]] = []
    for short in shorter:
        for seed in range(ROWS):
            row = short.row(axes, seed)
            filled.append(bucket.ordered(pad(padding, row)))
            wanted.append(short.part.named(short.ordered(row)))
            got = cut_back(padding, bucket.part.named(filled[-1]), short.length)
            worst = max(worst, _same(options, padding, short.length, wanted[-1], got, "alone"))
    if bucket.model.batchable:
        joined = bucket.part.named(join_rows(filled))
        units = {spec.name: spec.shape[0] for spec in bucket.model.outputs}
        for place, answer in enumerate(wanted):
            length = lengths[place // ROWS]
            own = {name: array[place * units[name] : (place + 1) * units[name]] for name, array in joined.items()}
            worst = max(worst, _same(options, padding, length, answer, cut_back(padding, own, length), "in a batch"))
    return ProvenPadding(padding, lengths, worst, shapes)


def open_axes(options: PlanOptions, dimension: str) -> dict[str, int]:
    """Which axis of each input the model's file calls so. Raises `UserError` that says which there are."""
    values = load_model(options.model).proto.graph.input
    axes: dict[str, int] = {}
    for value in values:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param != dimension or dim.dim_value > 0:
                continue
            if axis == 0 or value.name in axes:
                raise UserError(
                    f"bucket {dimension}: input {value.name!r} of {options.model.name} is {describe_axes(value)}; expected "
                    "it on one axis of an input, and not on the first, which counts rows"
                )
            axes[value.name] = axis
    if not axes:
        told = "; ".join(f"{value.name} {describe_axes(value)}" for value in values)
        raise UserError(f"bucket {dimension}: no input of {options.model.name} has an open axis of that name: {told}")
    return axes


def replace_outputs(padding: Padding, bucket: Model, short: Model, length: int) -> Padding:
    """The padding with the outputs that are as long as the inputs. Raises `ModelError` for one whose length follows theirs in
    another way."""
    found: list[CutOutput] = []
    for whole, part in zip(bucket.outputs, short.outputs, strict=True):
        pairs = list(zip(whole.shape, part.shape, strict=False))
        moved = [axis for axis, (a, b) in enumerate(pairs) if a != b]
        if (
            len(whole.shape) != len(part.shape)
            or len(moved) > 1
            or any(pairs[axis] != (padding.size, length) or axis == 0 for axis in moved)
        ):
            raise ModelError(
                f"output {whole.name!r} has shape {list(whole.shape)} where {padding.dimension} is {padding.size} and "
                f"{list(part.shape)} where it is {length}: expected the same, or {padding.dimension} itself on one axis "
                "after the first, to be cut back there"
            )
        found += [CutOutput(whole.name, axis) for axis in moved]
    return Padding(padding.family, padding.dimension, padding.size, padding.inputs, tuple(found))


class _Sized:
    """The model at one length."""

    def __init__(self, options: PlanOptions, axes: Mapping[str, int], length: int) -> None:
        self.length = length
        recipe = Recipe(options.model, _shapes(options, axes, length), options.preprocess, options.postprocess)
        try:
            self.model = build(recipe)
            self.part: Part = load_part(self.model, options.threads)
        except ModelError as error:
            dimension = "" if options.bucket is None else options.bucket[0]
            raise ModelError(f"{dimension} of {length}: {error}") from error

    def row(self, axes: Mapping[str, int], seed: int) -> dict[str, Array]:
        """A row of this length. With seed 0 whole numbers are ones."""
        row = sample_inputs(self.model, seed=seed)
        for name, axis in axes.items():
            array = row[name]
            if array.dtype.kind in "iub":
                if seed == 0:
                    array = np.ones_like(array)
                first: tuple[slice | int, ...] = (*(slice(None),) * axis, 0)
                array[first] = 1
                row[name] = array
        return row

    def ordered(self, row: Mapping[str, Array]) -> Tensors:
        return tuple(row[spec.name] for spec in self.model.inputs)


def _padded(options: PlanOptions, axes: Mapping[str, int]) -> tuple[PaddedInput, ...]:
    values = dict(options.pads)
    unknown = sorted(values.keys() - axes.keys())
    if unknown:
        raise UserError(f"pad {unknown[0]}: is not padded; expected one of {', '.join(axes)}")
    dtypes = {spec.name: np.dtype(spec.dtype) for spec in load_model(options.model).inputs}
    for name, value in values.items():
        with np.errstate(all="ignore"):
            held = float(np.asarray(value).astype(dtypes[name]))
        if held != value if dtypes[name].kind in "iub" else not np.isclose(held, value, rtol=1e-3, atol=0.0):
            raise UserError(f"pad {name}={value:g}: input {name!r} is {dtypes[name]}, which has no such number")
    return tuple(PaddedInput(name, axis, values.get(name, 0.0)) for name, axis in axes.items())


def _shapes(options: PlanOptions, axes: Mapping[str, int], length: int) -> tuple[str, ...]:
    """The inputs' shapes as texts: as the user states them, or the file, with this length on the open axis."""
    model = load_model(options.model)
    stated = parse_shapes(model, options.shapes)
    texts: list[str] = []
    for spec in model.inputs:
        shape = list(stated.get(spec.name, spec.shape))
        if spec.name in axes:
            shape[axes[spec.name]] = length
        elif spec.name not in stated:
            continue
        if shape[0] < 0:
            shape[0] = 1
        if min(shape) < 0:
            told = ",".join("?" if axis < 0 else str(axis) for axis in shape)
            raise UserError(
                f"input {spec.name!r} of {options.model.name} has further open axes; state them with "
                f"--shape {spec.name}={told}"
            )
        texts.append(f"{spec.name}={','.join(map(str, shape))}")
    return tuple(texts)


def _same(
    options: PlanOptions, padding: Padding, length: int, wanted: Mapping[str, Array], got: Mapping[str, Array], how: str
) -> float:
    worst = 0.0
    for name, array in wanted.items():
        apart = difference(array, got[name])
        if not apart <= TOLERANCE:
            other = list(got[name].shape)
            by = f"by {apart:.2g} where at most {TOLERANCE:g} is allowed"
            changed = by if other == list(array.shape) else f"from shape {list(array.shape)} to {other}"
            raise ModelError(
                f"{options.model.name}: {padding.dimension} of {length} padded to {padding.size} {how} changes output "
                f"{name!r} {changed}: expected a model that masks its padding, "
                "or another value for it (--pad NAME=VALUE); without --buckets it can be planned for one length"
            )
        worst = max(worst, apart)
    return worst


def with_padding(options: PlanOptions) -> tuple[PlanOptions, ProvenPadding | None]:
    """The options with the shapes of their bucket, and what was proven of it; as they are where they ask for none. Only the
    whole model is planned, since of nothing else it is proven."""
    if options.bucket is None:
        return options, None
    proven = prove_padding(options)
    return replace(options, shapes=proven.shapes, lower_rungs=False), proven


def parse_buckets(text: str) -> tuple[str, tuple[int, ...]]:
    """`seq=64,128,256` as the axis and its lengths, rising. Raises `UserError`."""
    dimension, equals, numbers = text.partition("=")
    parts = [part.strip() for part in numbers.split(",")]
    if not dimension or not equals or not all(part.isdecimal() and 2 <= int(part) <= MOST for part in parts):
        raise UserError(f"buckets {text!r}: expected DIM=N,N,... with lengths from 2 to {MOST}, such as seq=64,128,256")
    sizes = tuple(sorted(int(part) for part in parts))
    if len(set(sizes)) < len(sizes) or len(sizes) > MANY:
        raise UserError(f"buckets {text!r}: expected up to {MANY} lengths, each once")
    return dimension, sizes


def parse_pads(texts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """`ids=1` as an input and what it is filled up with. Raises `UserError`."""
    pads: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = np.nan
        if not name or not np.isfinite(number) or name in pads:
            raise UserError(f"pad {text!r}: expected NAME=VALUE with a finite number, each input once, such as ids=1")
        pads[name] = number
    return tuple(pads.items())
