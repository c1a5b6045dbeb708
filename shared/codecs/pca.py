"""`pca`: the channels turned onto their principal components, one quantisation step for all of them, compressed by zstd.

At each position a tensor of C channels is a vector x. It is sent as `q = round((B x - B m) / step)`, B being the k principal
components (k x C, rows of unit length that stand square on each other) and m the mean, both fitted to the user's data
(`shared.codecs.pca_basis`), and read as `B^T (q step) + m`. That is a convolution of 1 x 1 behind the head and its
transpose before the tail. Neighbouring channels say much the same; their components do not, most of them are near 0, and
zstd leaves out what is 0. One step for all is right, since with a B of such rows an error in any component counts alike
in the tensor (Gersho and Gray, *Vector Quantization and Signal Compression*, 1992, chapter 8).

Steps lie one to a byte, each component's together. One that no byte holds is written as -128 and follows behind all bytes
as an int16, in their order; beyond that it is clipped. So the step may be chosen by the loss alone: the range, which the
first components need and the others do not, costs nothing.

The basis is part of the plan, and with it of the contract. It costs 2 k C operations a position on either side, so that it
pays where the link is slow, and what it loses of agreement differs from cut to cut: it is offered where it is asked for
(`--codec pca`), timed, and judged like every lossy coding.

Measured in bytes an element and decibels of signal over noise, on four images after eight to which ranges and bases were
fitted (CenterFace at 320 x 320, YOLOX at 416 x 416, a reader of 48 x 320):

    tensor                              int6            int4            pca25           pca20           pca15
    CenterFace, 96 x 160 x 160, relu    0.341  21.9     0.169  12.7     0.221  24.8     0.153  20.7     0.100  16.8
    CenterFace, 32 x 160 x 160, relu    0.200  22.0     0.097  12.0     0.257  27.9     0.195  23.1     0.141  18.2
    CenterFace, 16 x 160 x 160, dense   0.408  21.2     0.214  11.8     0.381  23.4     0.300  18.4     0.222  13.5
    YOLOX, 48 x 104 x 104, silu         0.313  27.8     0.130  17.0     0.170  30.2     0.109  26.2     0.064  21.9
    YOLOX, 96 x 52 x 52, silu           0.442  25.5     0.216  15.2     0.298  27.5     0.215  23.3     0.140  19.1
    reader, 64 x 24 x 160               0.613  28.4     0.327  17.4     0.280  28.9     0.208  24.4     0.148  20.1
    reader, 480 x 6 x 80                0.611  28.0     0.345  17.5     0.245  30.7     0.190  25.7     0.135  20.9

So at the noise of int6 it takes from as many bytes (the second row) to little more than a third (the last).

Rejected: operators in head and tail (every coding of a cut would need segments of its own); a step for each component (finer
ones cost bytes and gain nothing, see above); the steps of each position together (up to four tenths larger, on most tensors
5 to 10 %, since what is 0 then stands alone).

What a product of matrices gives in its last place differs between processors, so that another implementation agrees but for
a step here and there. Rows are worked on one by one. Decoding allocates at most 3 bytes an element and two rows
in float32 beside the frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shared.codecs.elements import floating_fault
from shared.codecs.pca_basis import offered
from shared.codecs.zstd import LEAST_BYTES, Zstd, most_bytes
from shared.errors import InputError, PeerError
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec

LIMIT = 127
"""The largest magnitude that a byte holds."""
ESCAPE = -128
"""The byte of a step that follows as an int16."""
MOST = 32767
"""Where what follows as an int16 is clipped, symmetric about 0."""
MOST_BYTES_EACH = 3
"""Bytes of a step that was escaped."""
FLOAT_BYTES = 4

Floats = npt.NDArray[np.float32]


class Pca:
    """The codec of the kind `pca`."""

    kind: CodingKind = "pca"
    fields: frozenset[str] = frozenset({"scales", "basis"})

    def __init__(self) -> None:
        self._zstd = Zstd("pca")

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """Floats of two axes or more, each with one positive step and a basis of a mean and 1 to C components of C floats."""
        if len(coding.scales) != len(tensors) or len(coding.basis) != len(tensors):
            return (
                f"steps for {len(coding.scales)} and bases for {len(coding.basis)} tensors, the cut has {len(tensors)}"
            )
        fault = floating_fault(tensors, self.kind)
        if fault:
            return fault
        for spec, steps, basis in zip(tensors, coding.scales, coding.basis, strict=True):
            if len(spec.shape) < 2 or spec.shape[1] < 1:
                return f"tensor {spec.name!r} has no channels on axis 1"
            if len(steps) != 1 or not (math.isfinite(steps[0]) and np.float32(steps[0]) > 0):
                return f"the step of {spec.name!r} is not one positive number"
            vectors, rest = divmod(len(basis), FLOAT_BYTES * spec.shape[1])
            if rest or not 2 <= vectors <= spec.shape[1] + 1:
                return f"a basis of {len(basis)} bytes for the {spec.shape[1]} channels of {spec.name!r}"
            if not np.isfinite(np.frombuffer(basis, "<f4")).all():
                return f"the basis of {spec.name!r} holds what is not a number"
        return None

    def offer(self, tensors: tuple[TensorSpec, ...], samples: Sequence[Sequence[Array]]) -> tuple[Coding, ...]:
        """As `shared.codecs.pca_basis.offered`."""
        return offered(self.kind, tensors, samples)

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """The steps of each row, then those that no byte holds. NaN becomes 0, infinities the ends of the range."""
        mean, components, step = _fitted(coding, tensor_index, array.shape)
        shift = components @ mean
        rows = array.reshape(array.shape[0], array.shape[1], -1)
        near = np.empty((rows.shape[0], components.shape[0], rows.shape[2]), np.int8)
        far: list[npt.NDArray[np.int16]] = []
        for row, place in zip(rows, near, strict=True):
            steps = _steps(row, components, shift, step)
            escaped = np.abs(steps) > LIMIT
            if escaped.any():
                far.append(steps[escaped].astype("<i2"))
                steps[escaped] = ESCAPE
            np.copyto(place, steps, casting="unsafe")
        return self._zstd.compress(
            b"".join([near.tobytes(), *(steps.tobytes() for steps in far)]) if far else near.data
        )

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """From the shortest frame to the longest of as many components as channels, all of them escaped."""
        return LEAST_BYTES, most_bytes(MOST_BYTES_EACH * math.prod(spec.at(rows)))

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """Row by row, into its place."""
        mean, components, step = _fitted(coding, tensor_index, out.shape)
        rows = out.reshape(out.shape[0], out.shape[1], -1)
        shape = (components.shape[0], rows.shape[2])
        count = out.shape[0] * math.prod(shape)
        data = self._zstd.decompress_between(frame, count, MOST_BYTES_EACH * count, spec.name)
        near = np.frombuffer(data, np.int8, count).reshape(out.shape[0], *shape)
        far = _far(data, count, spec.name)
        taken = 0
        for row, steps in zip(rows, near, strict=True):
            scaled = steps.astype(np.float32)
            escaped = steps == ESCAPE
            held = int(np.count_nonzero(escaped))
            if taken + held > far.size:
                raise PeerError("codec", f"{spec.name}: {far.size} steps follow, and more are announced")
            scaled[escaped] = far[taken : taken + held]
            taken += held
            scaled *= step
            back: Floats = components.T @ scaled
            back += mean[:, None]
            with np.errstate(over="ignore"):
                np.copyto(row, back, casting="unsafe")
        if taken != far.size:
            raise PeerError("codec", f"{spec.name}: {far.size} steps follow, {taken} are announced")


def _fitted(coding: Coding, tensor_index: int, shape: tuple[int, ...]) -> tuple[Floats, Floats, np.float32]:
    """The mean (C), the components (k, C) and the step of a tensor. Raises `InputError` where they do not fit it."""
    if tensor_index < min(len(coding.basis), len(coding.scales)) and len(shape) >= 2 and shape[1] > 0:
        vectors = np.frombuffer(coding.basis[tensor_index], "<f4")
        if vectors.size % shape[1] == 0 and vectors.size >= 2 * shape[1]:
            held = vectors.reshape(-1, shape[1]).astype(np.float32, copy=False)
            return held[0], held[1:], np.float32(coding.scales[tensor_index][0])
    raise InputError(f"coding {coding.name}: tensor {tensor_index} of shape {shape} has no basis for its channels")


def _steps(row: Array, components: Floats, shift: Floats, step: np.float32) -> Floats:
    """The steps of a row (channels, positions) as whole floats (components, positions)."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = components @ row.astype(np.float32, copy=False)
        scaled -= shift[:, None]
        scaled /= step
    np.rint(scaled, out=scaled)
    np.clip(scaled, -MOST, MOST, out=scaled)
    if math.isnan(float(scaled.sum())):
        scaled[np.isnan(scaled)] = 0.0
    return scaled


def _far(data: bytes, count: int, what: str) -> npt.NDArray[np.int16]:
    """The steps that follow behind `count` bytes."""
    if (len(data) - count) % 2:
        raise PeerError("codec", f"{what}: half a step stands at the end")
    return np.frombuffer(data, "<i2", offset=count)
