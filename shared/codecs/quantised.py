"""Floats as whole steps of a scale, symmetric about 0: what `int8` and `intn` share.

`q = clip(round(x / scale), -limit, limit)`, halves to even, in float32; read as `q * scale`, in float32, rounded to the
tensor's type. Inside the range the error is at most half a step. NaN becomes 0, infinities become the ends of the range.

Rejected: multiplying by the reciprocal scale (differs from the formula in the last place, so that an independent client
would not agree with us to the byte); a zero point (a relu's output is as well served by the bits that are never used and
compress away, and a symmetric range keeps 0 exact).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shared.codecs.elements import channels, floating_fault
from shared.errors import InputError
from shared.plan import Coding
from shared.request import Array, TensorSpec


def scales_of(
    coding: Coding, tensor_index: int, shape: tuple[int, ...], *, single: bool = False
) -> npt.NDArray[np.float32]:
    """The tensor's scales, shaped to be broadcast along axis 1 (a scalar for fewer than two axes). `single`: whether one
    scale may serve all channels. Raises `InputError` where their number is another."""
    expected = shape[1] if len(shape) >= 2 else 1
    given = coding.scales[tensor_index] if tensor_index < len(coding.scales) else ()
    if len(given) == expected and tensor_index < len(coding.scales):
        scales = np.asarray(given, np.float32)
        return scales.reshape(-1, *(1,) * (len(shape) - 2)) if len(shape) >= 2 else scales.reshape(())
    if single and len(given) == 1:
        return np.asarray(given[0], np.float32)
    raise InputError(f"coding {coding.name}: tensor {tensor_index} needs {expected} scales")


def quantise(array: Array, scales: npt.NDArray[np.float32], limit: int) -> npt.NDArray[np.int8]:
    """The steps of each element, C contiguous, of the array's shape."""
    with np.errstate(over="ignore"):
        scaled = np.divide(array, scales, dtype=np.float32, casting="same_kind")
    scaled = np.asarray(scaled)  # a tensor without axes comes back as a plain number
    np.rint(scaled, out=scaled)
    np.clip(scaled, -limit, limit, out=scaled)
    # Clipped, the sum is a number unless an element is not: one cheap pass instead of a mask.
    if math.isnan(float(scaled.sum())):
        scaled[np.isnan(scaled)] = 0.0
    return scaled.astype(np.int8, order="C")


def scales_fault(coding: Coding, tensors: tuple[TensorSpec, ...], *, single: bool = False) -> str | None:
    """Why these tensors cannot travel by the coding's scales, in words; None where they can."""
    if len(coding.scales) != len(tensors):
        return f"scales for {len(coding.scales)} tensors, the cut has {len(tensors)}"
    fault = floating_fault(tensors, coding.kind)
    if fault:
        return fault
    for spec, scales in zip(tensors, coding.scales, strict=True):
        if len(scales) != channels(spec) and not (single and len(scales) == 1):
            return f"{len(scales)} scales for the {channels(spec)} channels of {spec.name!r}"
        if not all(math.isfinite(scale) and scale > 0 for scale in scales):
            return f"a scale of {spec.name!r} is not a positive number"
    return None
