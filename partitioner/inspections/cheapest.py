"""About how small the tensors of a cut get on the wire, told before anything was encoded.

What a compressed coding weighs depends on what is in the tensor. Floats are counted as steps of 4 bits before they are
compressed, which is the most they take; a picture as a photograph at quality 90, whose size was measured at 224 to 640
pixels. Both are lossy, and what they do to answers is for `headtail plan` to judge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from partitioner.calibrating.calibration import is_image
from shared.request import TensorSpec

STEP_BITS = 4
PHOTOGRAPH_BYTES = 0.3
"""Bytes of a pixel in a JPEG of quality 90: 0.22 to 0.32 in the middle of natural images."""


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The coding with the fewest bytes for one row, `raw` where there is none that is smaller."""

    coding: str
    nbytes: int


def cheapest(tensors: Sequence[TensorSpec]) -> Cheapest:
    """The cheapest coding of a cut that these tensors cross, as `headtail plan` would name it."""
    raw = sum(spec.nbytes() for spec in tensors)
    if is_image(tensors):
        _, height, width, _ = tensors[0].shape
        return Cheapest("jpeg90", math.ceil(height * width * PHOTOGRAPH_BYTES))
    if tensors and all(np.dtype(spec.dtype).kind == "f" for spec in tensors):
        return Cheapest(f"int{STEP_BITS}", sum(math.ceil(math.prod(s.shape) * STEP_BITS / 8) for s in tensors))
    return Cheapest("raw", raw)
