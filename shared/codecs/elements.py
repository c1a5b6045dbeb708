"""The element types in which tensors travel."""

from __future__ import annotations

import importlib
from functools import cache

import numpy as np

from shared.errors import UserError
from shared.request import TensorSpec


@cache
def dtype_of(name: str) -> np.dtype[np.generic]:
    """The numpy type of a tensor's `dtype` name, native byte order. `bfloat16` and the 8-bit floats need `ml_dtypes`.

    Raises `UserError` for a name that this process cannot hold.
    """
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = _extended_dtype(name)
    if dtype.hasobject or dtype.itemsize == 0:
        raise UserError(f"element type {name!r} is not one that a tensor can travel in")
    return dtype


def _extended_dtype(name: str) -> np.dtype[np.generic]:
    try:
        importlib.import_module("ml_dtypes")
    except ImportError:
        raise UserError(
            f"element type {name!r} is unknown to numpy; bfloat16 and 8-bit floats need the package ml_dtypes"
        ) from None
    try:
        return np.dtype(name)
    except TypeError:
        raise UserError(f"element type {name!r} is unknown to numpy and to ml_dtypes") from None


@cache
def little(name: str) -> np.dtype[np.generic]:
    """The same in little-endian byte order, in which tensors travel."""
    return dtype_of(name).newbyteorder("<")


def channels(spec: TensorSpec) -> int:
    """How many scales the tensor has, one a channel: the length of axis 1, or 1 for fewer than two axes."""
    return spec.shape[1] if len(spec.shape) >= 2 else 1


def floating_fault(tensors: tuple[TensorSpec, ...], what: str) -> str | None:
    """Why `what`, a kind for floating types, is not for these tensors, in words; None where it is."""
    for spec in tensors:
        if dtype_of(spec.dtype).kind not in {"f", "V"}:
            return f"tensor {spec.name!r} is {spec.dtype}, {what} is for floating types"
    return None
