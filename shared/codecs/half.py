"""`fp16`: floats as IEEE 754 binary16, little-endian, two bytes an element.

Rounded once, from the tensor's own type, to nearest with ties to even. A finite number that would round to infinity
becomes the largest finite half, 65504, with its sign: an activation that is a little too large stays one. Infinities stay
infinities and NaN stays a NaN, since a half can hold them and a mask of minus infinities means what it says. So for finite
|x| <= 65504 the error is at most max(2**-11 |x|, 2**-25), and beyond that what is cut off.

Rejected: clipping before converting (infinities would become numbers).

Decoding allocates nothing of the tensor's size.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shared.codecs.elements import floating_fault
from shared.errors import InputError
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec

LARGEST = np.float16(65504.0)


class Half:
    """The codec of the kind `fp16`."""

    kind: CodingKind = "fp16"
    fields: frozenset[str] = frozenset()

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """Only floats become halves."""
        return floating_fault(tensors, "fp16")

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """The halves. Raises `InputError` for an array that is not of a floating type."""
        if array.dtype.kind not in {"f", "V"}:
            raise InputError(f"the fp16 coding is for floating types, not {array.dtype}")
        with np.errstate(over="ignore"):
            halves = np.ascontiguousarray(array).astype("<f2")
        infinite = (halves.view("<u2") & 0x7FFF) == 0x7C00
        if infinite.any():
            overflowed = infinite & np.isfinite(array)
            halves[overflowed] = np.copysign(LARGEST, halves[overflowed])
        return halves.reshape(-1).view(np.uint8).data

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """The one possible length, twice."""
        nbytes = 2 * math.prod(spec.at(rows))
        return nbytes, nbytes

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """The halves as the tensor's type, which holds each of them exactly (but for bfloat16 and smaller floats)."""
        np.copyto(out, np.frombuffer(frame, "<f2").reshape(out.shape), casting="unsafe")
