"""`raw`: the tensor's own bytes, little-endian, C order. Every bit pattern passes; any element type.

It is also how a model's own quantised tensor travels: a cut whose tensor is uint8 or int8 needs nothing else.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shared.codecs.elements import dtype_of, little
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec
from shared.wire.codec import raw_frame


class Raw:
    """The codec of the kind `raw`."""

    kind: CodingKind = "raw"
    fields: frozenset[str] = frozenset()

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """None: every tensor may travel raw."""
        return None

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """A view of the array where it is little-endian and C contiguous, else of a converted copy."""
        return raw_frame(array)

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """The one possible length, twice."""
        nbytes = dtype_of(spec.dtype).itemsize * math.prod(spec.at(rows))
        return nbytes, nbytes

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """Copy the frame."""
        np.copyto(out, np.frombuffer(frame, little(spec.dtype)).reshape(out.shape))
