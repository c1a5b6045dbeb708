"""`int8`: one signed byte an element, a scale for each channel, not compressed: the cheapest of the lossy kinds."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shared.codecs.quantised import quantise, scales_fault, scales_of
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec
from shared.wire.codec import raw_frame

LIMIT = 127


class Int8:
    """The codec of the kind `int8`."""

    kind: CodingKind = "int8"
    fields: frozenset[str] = frozenset({"scales"})

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """Floats only, with a positive scale for each channel of each tensor."""
        return scales_fault(coding, tensors)

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """`clip(round(x / scale), -127, 127)`, halves to even."""
        return raw_frame(quantise(array, scales_of(coding, tensor_index, array.shape), LIMIT))

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """The one possible length, twice."""
        elements = math.prod(spec.at(rows))
        return elements, elements

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """`q * scale`, straight into its place."""
        steps = np.frombuffer(frame, np.int8).reshape(out.shape)
        np.multiply(steps, scales_of(coding, tensor_index, out.shape), out=out, casting="same_kind")
