"""The client's own door: a request is checked here, in the caller's thread, before anything else happens to it.

The checks are those that the model's `ModelInfo` allows: names, element types, shapes, rows. Each mistake is one
`InputError` that names the tensor, what was expected and what was given. What passes is copied once, as C-contiguous arrays
in native byte order, so that the caller may reuse its buffer at once and nothing later meets a stride or a foreign byte
order. An element type is never converted: a float64 image fed to a float32 model is nearly always a mistake upstream,
and rounding it here would hide it. Values are not looked at: NaN and infinities pass.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt

from shared.errors import InputError, shown
from shared.request import Array, TensorSpec
from shared.reuse import Reuse
from shared.wire.messages import ModelInfo

Inputs = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""What a caller may give: one array for a model with one input, or a mapping from input names to arrays."""

WHEN = "an integer of time.monotonic_ns()"
"""What a time is, in words."""

HIGHEST_CLASS = 1 << 16
"""The largest number of a priority that is taken before the agent says how many it has."""

CLASSES = "a whole number from 0 (the most important)"
"""What a priority is, in words."""

PLAIN_KINDS = frozenset("biufc")
"""Kinds of numpy's element types that some model may have; others, such as text, have no byte order to compare."""

_NO_NUMBERS = (bool, np.timedelta64, np.complexfloating)
"""What is a number to Python or numpy, and none here: a duration of numpy's has a unit of its own."""

MAX_EARLY_BYTES = 2047 << 20
"""The largest tensor that is kept until an agent says what its models look like: no agent takes a larger message."""

MAX_DEADLINE_NS = 3600 * 10**9
"""Longest time ahead that a deadline may lie: an hour."""

MOST_WAIT_S = 1e9
"""The longest that anything is waited for, 30 years: what the system takes as a time is not much more."""

LATEST_NS = 1 << 62
"""The latest time, and the longest duration, that is reckoned with."""


@lru_cache(maxsize=64)
def specs(info: ModelInfo) -> tuple[TensorSpec, ...]:
    """The model's inputs in the plan's order, at one row."""
    return tuple(TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in info.inputs)


COPIES = Reuse()
"""The private copies of what all callers of this process gave."""

Expected = tuple[tuple[TensorSpec, np.dtype[np.generic]], ...]
"""A model's inputs in the plan's order, at one row, each with its element type."""


@lru_cache(maxsize=64)
def _expected(info: ModelInfo) -> Expected:
    return tuple((spec, np.dtype(spec.dtype)) for spec in specs(info))


def choose_model(models: Mapping[str, ModelInfo], name: str | None) -> ModelInfo:
    """The model called `name`, or the only one where `name` is None; the largest bucket where it is a family; else
    `InputError` that names the known ones."""
    info = called(models, name)
    if info is None:
        family = family_of(models, name)
        if family:
            return family[-1]
        if name is None:
            raise InputError(f"model: name one of the agent's {len(models)} models ({_known(models)})")
        raise InputError(f"model {shown(name)} is unknown; the agent has: {_known(models)}")
    return info


def family_of(models: Mapping[str, ModelInfo], name: str | None) -> tuple[ModelInfo, ...]:
    """The buckets that a request for `name` may be asked of, the smallest first: those of the family of that name, or the one
    bucket that is called so; where `name` is None those of the only family, where there are no other models. Else none."""
    info = called(models, name)
    if info is not None:
        return () if info.padding is None else (info,)
    if name is None:
        families = {None if one.padding is None else one.padding.family for one in models.values()}
        name = families.pop() if len(families) == 1 else None
    found = [(one.padding.size, one.name, one) for one in models.values() if one.padding and one.padding.family == name]
    return tuple(one for _, _, one in sorted(found, key=lambda entry: entry[:2]))


def called(models: Mapping[str, ModelInfo], name: str | None) -> ModelInfo | None:
    """The model that is called so itself, or the only one where `name` is None; None where there is none such."""
    if name is None:
        return next(iter(models.values())) if len(models) == 1 else None
    return models.get(name) if isinstance(cast(object, name), str) else None


def _known(models: Mapping[str, ModelInfo]) -> str:
    families = {info.padding.family for info in models.values() if info.padding is not None}
    return ", ".join(sorted({*models, *families})) or "none"


def own(inputs: Inputs) -> dict[str | None, Array]:
    """A private copy of what the caller gave, by name, or under None where it gave a bare array.

    For requests that are made before any agent has said what its models look like; `bind` checks them later.
    """
    if isinstance(inputs, Mapping):
        return {_name(key): _copied(_name(key), value) for key, value in _listed(inputs).items()}
    return {None: _copied("input", inputs)}


def _copied(name: str, value: npt.ArrayLike) -> Array:
    array = _array(name, value)
    if array.nbytes > MAX_EARLY_BYTES:
        raise InputError(f"input {name!r}: has {array.nbytes} bytes; expected at most {MAX_EARLY_BYTES} of any tensor")
    return np.array(array, copy=True, subok=False)


def bind(
    info: ModelInfo, inputs: Inputs | Mapping[str | None, Array], *, copy: bool = True
) -> tuple[tuple[Array, ...], int]:
    """Check `inputs` against the model: the tensors in the plan's order, and how many rows they have.

    With `copy` they are private copies; else arrays that are in order already are used as they are. Raises `InputError`.
    """
    expected = _expected(info)
    if type(inputs) is np.ndarray and len(expected) == 1:
        arrays = [cast(Array, inputs)]
    else:
        given = _by_name(info, expected, inputs)
        arrays = [given[spec.name] for spec, _ in expected]
    rows = 0
    ordered: list[Array] = []
    for (spec, dtype), array in zip(expected, arrays, strict=True):
        if array.dtype is not dtype:
            _check_dtype(spec, dtype, array)
        here = 1 if array.shape == spec.shape else check_shape(info, spec, array)
        if rows and here != rows:
            raise InputError(
                f"input {spec.name!r} has {here} rows where {expected[0][0].name!r} has {rows}: all inputs of a request "
                "have the same number"
            )
        rows = here
        ordered.append(_in_order(array, dtype, copy=copy))
    return tuple(ordered), max(rows, 1)


def by_name(info: ModelInfo, inputs: Inputs | Mapping[str | None, Array]) -> dict[str, Array]:
    """What the caller gave as arrays by name, of the model's element types. Raises `InputError`."""
    expected = _expected(info)
    given = _by_name(info, expected, inputs)
    for spec, dtype in expected:
        _check_dtype(spec, dtype, given[spec.name])
    return given


def _by_name(info: ModelInfo, expected: Expected, inputs: Inputs | Mapping[str | None, Array]) -> dict[str, Array]:
    if isinstance(inputs, Mapping):
        named = _listed(inputs)
        if set(named) != {None}:
            return _named(info, expected, named)
        bare = named[None]
    else:
        bare = inputs
    if len(expected) != 1:
        names = ", ".join(spec.name for spec, _ in expected)
        raise InputError(f"model {info.name!r} has {len(expected)} inputs ({names}): give a dict from names to arrays")
    name = expected[0][0].name
    return {name: _array(name, bare)}


def _named(info: ModelInfo, expected: Expected, named: dict[object, npt.ArrayLike]) -> dict[str, Array]:
    wanted = [spec.name for spec, _ in expected]
    missing = [name for name in wanted if name not in named]
    extra = sorted(shown(name) for name in named if name not in wanted)
    if missing or extra:
        parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"unknown {', '.join(extra)}"] if extra else []
        raise InputError(f"inputs of model {info.name!r}: {'; '.join(parts)}; expected {', '.join(map(repr, wanted))}")
    return {name: _array(name, named[name]) for name in wanted}


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise InputError(f"inputs: a tensor's name is a string, not {type(key).__name__} {shown(key)}")
    return str(key)


def _listed(inputs: object) -> dict[object, npt.ArrayLike]:
    """What a mapping holds. It may be anybody's class, which reads a file for each value, and raises what it likes."""
    try:
        return dict(cast(Mapping[object, npt.ArrayLike], inputs))
    except Exception as error:
        raise InputError(f"inputs: {type(inputs).__name__} cannot be read: {_told(error)}") from error


def _array(name: str, value: npt.ArrayLike) -> Array:
    """The caller's value as an array. What is no array says so itself, by its own class, with whatever exception it likes."""
    if type(value) is np.ndarray:
        return cast(Array, value)
    try:
        array = cast(Array, np.asanyarray(value))
    except Exception as error:
        raise InputError(f"input {name!r}: {type(value).__name__} is no array: {_told(error)}") from error
    if isinstance(array, np.ma.MaskedArray) or _holds_masked(value):
        raise InputError(f"input {name!r}: a masked array: no model knows its mask; expected array.filled(VALUE)")
    if array.dtype.hasobject:
        raise InputError(f"input {name!r}: expected a numpy array, got {type(value).__name__}")
    return array


def _holds_masked(value: object) -> bool:
    """Whether a sequence has masked arrays in it, whose masks numpy leaves out."""
    return isinstance(value, list | tuple) and any(
        isinstance(each, np.ma.MaskedArray) or _holds_masked(each) for each in cast(Sequence[object], value)
    )


def _told(error: Exception) -> str:
    """What a foreign exception says, on one line."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = ""
    return said or type(error).__name__


def _check_dtype(spec: TensorSpec, dtype: np.dtype[np.generic], array: Array) -> None:
    if array.dtype is not dtype and (array.dtype.kind not in PLAIN_KINDS or array.dtype.newbyteorder("=") != dtype):
        raise InputError(f"input {spec.name!r}: expected dtype {spec.dtype}, got {array.dtype}")


def check_shape(info: ModelInfo, spec: TensorSpec, array: Array) -> int:
    """How many rows of this shape an array has. Raises `InputError` for another shape, and for more rows than may be."""
    shape = array.shape
    if not info.batchable or not spec.shape or not shape:
        if shape != spec.shape:
            raise InputError(f"input {spec.name!r}: expected shape {_wanted(info, spec)}, got {list(shape)}")
        return 1
    unit = spec.shape[0]
    if shape[1:] != spec.shape[1:] or shape[0] % unit:
        raise InputError(f"input {spec.name!r}: expected shape {_wanted(info, spec)}, got {list(shape)}")
    rows: int = shape[0] // unit
    if rows == 0:
        raise InputError(f"input {spec.name!r}: shape {list(shape)} holds no element; expected {_wanted(info, spec)}")
    if rows > info.max_batch:
        raise InputError(
            f"input {spec.name!r}: {rows} rows are too many; model {info.name!r} takes at most {info.max_batch}"
        )
    return rows


def _wanted(info: ModelInfo, spec: TensorSpec) -> str:
    if not info.batchable or info.max_batch == 1 or not spec.shape:
        return str(list(spec.shape))
    first = "n" if spec.shape[0] == 1 else f"{spec.shape[0]}*n"
    return f"[{', '.join([first, *map(str, spec.shape[1:])])}] with n from 1 to {info.max_batch}"


def _in_order(array: Array, dtype: np.dtype[np.generic], *, copy: bool) -> Array:
    if copy:
        return COPIES.copy(array, dtype)
    return np.ascontiguousarray(array, dtype=dtype) if array.ndim else np.asarray(array, dtype=dtype)


def whole(name: str, value: object, least: int, most: int, meaning: str) -> int:
    """`value` as a Python integer, also where it is one of numpy's. Raises `InputError` where it is no whole number from
    `least` to `most`; `meaning` says in words what was expected."""
    known = value if type(value) is int else _integer(value)
    if known is None or not least <= known <= most:
        raise InputError(f"{name}: expected {meaning}, got {shown(value)}")
    return known


def _integer(value: object) -> int | None:
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, int | np.integer):
        return None
    return int(cast(int, value))


def flag(name: str, value: object) -> bool:
    """`value` as Python's own truth value, also where it is numpy's. Raises `InputError` for all else, numbers and None
    included: whoever gives a word for yes would be surprised by what the word for no does."""
    if value is True or value is False:
        return value
    if not isinstance(value, np.bool_):
        raise InputError(f"{name}: expected True or False, got {shown(value)}")
    return bool(cast(object, value))


def span(name: str, value: object) -> float:
    """`value` as a positive finite number of milliseconds. Raises `InputError`."""
    span_ms = _real(value)
    if not math.isfinite(span_ms) or span_ms <= 0:
        raise InputError(f"{name}: expected a positive number of milliseconds, got {shown(value)}")
    return span_ms


def seconds(name: str, value: object) -> float:
    """`value` as a number of seconds to wait at most: not at all where it is negative, `MOST_WAIT_S` where it is more or
    infinite. Raises `InputError`, also for NaN, which no wait would come to the end of."""
    wait_s = math.inf if isinstance(value, int) and value > MOST_WAIT_S else _real(value)
    if math.isnan(wait_s):
        raise InputError(f"{name}: expected a number of seconds, got {shown(value)}")
    return min(max(wait_s, 0.0), MOST_WAIT_S)


def _real(value: object) -> float:
    """`value` as a float; NaN where it is no number, or none that a float can hold."""
    if type(value) is float:
        return value
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, int | float | np.number):
        return math.nan
    with contextlib.suppress(OverflowError):
        return float(cast(float, value))
    return math.nan


def deadline(now: int, scheduled_ns: int, deadline_ms: float | None, deadline_ns: int | None) -> int:
    """The absolute deadline, from a positive duration in milliseconds counted from `scheduled_ns`, or as given.

    Exactly one of the two is given. Raises `InputError`: not a positive finite number, past, or more than an hour ahead.
    """
    if deadline_ns is not None:
        due = whole("deadline_ns", deadline_ns, -LATEST_NS, LATEST_NS, WHEN)
        if due <= now:
            raise InputError(f"deadline_ns: lies {(now - due) / 1e6:.3f} ms in the past; expected a later time")
        if due < scheduled_ns:
            raise InputError(
                f"deadline_ns: lies {(scheduled_ns - due) / 1e6:.3f} ms before scheduled_ns; expected a later time"
            )
    else:
        span_ms = span("deadline_ms", deadline_ms)
        due = scheduled_ns + max(1, round(min(span_ms * 1e6, LATEST_NS)))
    if due - now > MAX_DEADLINE_NS:
        raise InputError(f"deadline: {(due - now) / 1e9:.0f} s ahead is too far; expected at most an hour")
    return due
