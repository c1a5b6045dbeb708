"""`intn`: steps of 2 to 8 bits, a scale a channel or one for the tensor, compressed by zstd at level 1.

Steps of 2 to 4 bits are packed two to a byte before they are compressed, those of 5 to 8 bits lie one to a byte. Which
is smaller was measured, in bytes an element, on six tensors each of two trained detectors over one photograph: the relu
outputs of CenterFace at 320 x 320 (53 % zeros), its convolutions before the relu (dense), and the silu outputs of YOLOX
at 416 x 416; per channel, clipped at the 99th percentile up to 4 bits and at the 99.9th above:

    bits                 2             3             4         5      6      8
                    byte  pair    byte  pair    byte  pair    byte   byte   byte
    relu            0.097 0.083   0.191 0.155   0.265 0.236   0.318  0.397  0.545
    dense           0.129 0.109   0.265 0.226   0.379 0.361   0.480  0.618  0.875
    silu            0.097 0.085   0.239 0.197   0.360 0.316   0.422  0.529  0.783

(int8 takes 1, fp16 2, raw 4.) zstd codes bytes, of at least one bit each, so that pairs gain where most steps are 0.

Rejected: four steps a byte at 2 bits (0.068 to 0.092, but a second layout for a width that costs too much agreement to be
offered); bits packed without gaps (steps of 3, 5, 6 and 7 bits then straddle bytes, and zstd finds nothing: 0.61 instead
of 0.54 at 5 bits on noise); planes of bits (smaller below 4 bits, larger from 5 on where nothing is 0, and slow in numpy).

Decoding allocates at most 2 bytes an element beside the frame.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shared.codecs.quantised import quantise, scales_fault, scales_of
from shared.codecs.zstd import LEAST_BYTES, Zstd, most_bytes
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec

LEAST_BITS, MOST_BITS = 2, 8
PAIRED_BITS = 4
"""Steps of at most so many bits lie two to a byte."""


class IntN:
    """The codec of the kind `intn`."""

    kind: CodingKind = "intn"
    fields: frozenset[str] = frozenset({"scales", "bits"})

    def __init__(self) -> None:
        self._zstd = Zstd("intn")

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """Floats only, 2 to 8 bits, with a positive scale for each channel of each tensor, or one for all of them."""
        if not LEAST_BITS <= coding.bits <= MOST_BITS:
            return f"bits {coding.bits} is not one of {LEAST_BITS} to {MOST_BITS}"
        return scales_fault(coding, tensors, single=True)

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """`clip(round(x / scale), -limit, limit)`, halves to even, packed and compressed."""
        steps = quantise(array, scales_of(coding, tensor_index, array.shape, single=True), limit_of(coding.bits))
        steps = steps.reshape(-1)
        return self._zstd.compress((_paired(steps) if coding.bits <= PAIRED_BITS else steps).data)

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """From the shortest frame to the longest that zstd makes of so many bytes."""
        return LEAST_BYTES, most_bytes(_packed_nbytes(coding.bits, math.prod(spec.at(rows))))

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """`q * scale`."""
        data = self._zstd.decompress(frame, _packed_nbytes(coding.bits, out.size), spec.name)
        steps = np.frombuffer(data, np.int8)
        if coding.bits <= PAIRED_BITS:
            steps = _parted(steps)[: out.size]
        scales = scales_of(coding, tensor_index, out.shape, single=True)
        np.multiply(steps.reshape(out.shape), scales, out=out, casting="same_kind")


def limit_of(bits: int) -> int:
    """The largest step of so many bits: the range is symmetric, so that one of the bit patterns is never written."""
    return (1 << (bits - 1)) - 1


def _packed_nbytes(bits: int, elements: int) -> int:
    return (elements + 1) // 2 if bits <= PAIRED_BITS else elements


def _paired(steps: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """Two steps a byte as two's complements of four bits, the first in the lower half; an odd last one beside a 0."""
    halves = steps.view(np.uint8)
    pairs = halves[0::2] & np.uint8(15)
    pairs[: halves.size // 2] |= halves[1::2] << np.uint8(4)
    return pairs


def _parted(pairs: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    steps = np.empty((pairs.size, 2), np.int8)
    np.left_shift(pairs, 4, out=steps[:, 0])
    np.right_shift(steps[:, 0], 4, out=steps[:, 0])
    np.right_shift(pairs, 4, out=steps[:, 1])
    return steps.reshape(-1)
