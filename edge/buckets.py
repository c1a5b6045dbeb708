"""Which plan of a model with an open axis a request is asked of: the smallest bucket that it fits into.

Called at the client's door, in the caller's thread. The buckets of a family are plans of their own with names of their own;
asked by that name a plan takes what is no longer than itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge.door import Inputs, bind, by_name, called, check_shape, choose_model, family_of, specs
from shared.errors import InputError, InvariantBroken
from shared.padding import pad
from shared.request import Array, TensorSpec
from shared.wire.messages import ModelInfo


def bind_to_bucket(
    models: Mapping[str, ModelInfo],
    name: str | None,
    inputs: Inputs | Mapping[str | None, Array],
    *,
    copy: bool = True,
) -> tuple[ModelInfo, tuple[Array, ...], int, int]:
    """The plan to ask, its inputs in order, how many rows they have, and how long they were before they were padded; 0 where
    nothing was padded. Raises `InputError` as `bind`, and for a length that no bucket takes, or more lengths than one."""
    info = called(models, name)
    family = family_of(models, name) if info is None or info.padding is not None else ()
    if not family:
        info = info or choose_model(models, name)
        arrays, rows = bind(info, inputs, copy=copy)
        return info, arrays, rows, 0
    given = by_name(family[0], inputs)
    length = _length(family, given)
    info = next(one for one in family if one.padding is not None and one.padding.size >= length)
    if info.padding is None or info.padding.size == length:
        arrays, rows = bind(info, given, copy=copy)
        return info, arrays, rows, 0
    _check_rows(info, given)
    arrays, rows = bind(info, pad(info.padding, given), copy=copy)
    return info, arrays, rows, length


def _check_rows(info: ModelInfo, given: Mapping[str, Array]) -> None:
    """Refuse rows that the bucket does not take as they were given: not the shape that they were padded to, nor after memory
    for that was taken."""
    for spec in specs(info):
        array = given[spec.name]
        if array.ndim and array.shape[0] != spec.shape[0]:
            check_shape(info, TensorSpec(spec.name, spec.dtype, (spec.shape[0], *array.shape[1:])), array)


def _length(family: Sequence[ModelInfo], given: Mapping[str, Array]) -> int:
    """The one length that all padded inputs have. Raises `InputError` for a shape that no bucket takes."""
    largest, padding = family[-1], family[-1].padding
    if padding is None:
        raise InvariantBroken(f"model {largest.name} is of a family and pads nothing")
    buckets = ", ".join(str(one.padding.size) for one in family if one.padding is not None)
    shapes = {name: tuple(shape) for name, _, shape in largest.inputs}
    found: dict[str, int] = {}
    for padded in padding.inputs:
        name, axis = padded.tensor, padded.axis
        wanted, shape = shapes[name], given[name].shape
        fits = len(shape) == len(wanted) and 1 <= shape[axis] <= padding.size
        if not fits or any(a != b for at, (a, b) in enumerate(zip(shape, wanted, strict=True)) if at not in {0, axis}):
            told = [*map(str, wanted)]
            told[0] = "n" if largest.batchable else told[0]
            told[axis] = f"1 to {padding.size}"
            raise InputError(
                f"input {name!r}: expected shape [{', '.join(told)}], {padding.dimension} being padded to {buckets}, "
                f"got {list(shape)}"
            )
        found[name] = shape[axis]
        first = padding.inputs[0].tensor
        if found[name] != found[first]:
            raise InputError(
                f"input {name!r}: is {found[name]} long where {first!r} is {found[first]}: {padding.dimension} is the same "
                "in all inputs of a request"
            )
    return found[padding.inputs[0].tensor]
