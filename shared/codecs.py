"""How the tensors of a cut become frames and frames become tensors again.

Decoding writes straight into its destination, the row's place in a batch-shaped buffer, so that a received tensor is
copied exactly once. Sizes are checked before a byte is touched, and a JPEG's header before its pixels: a stream that
claims to be larger than its place is refused, not decoded and cropped.

Rejected: PIL (1.6 times as long for a 192×192 image, and cannot decode into a buffer); one frame for all tensors (a frame
for each lets the receiver check and place each one alone); multiplying by the reciprocal scale in int8 (differs from the
documented `round(x / scale)` in the last place, so that an independent client would not agree with us to the byte).

NaN in int8 becomes 0, infinities become the ends of the range. raw passes every bit pattern.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Iterable
from types import ModuleType

import numpy as np
import numpy.typing as npt

from shared.errors import InputError, PeerError, UserError
from shared.plan import Coding
from shared.request import Array, Buffer, TensorSpec
from shared.wire.codec import raw_frame

LENGTH_BYTES = 4
"""Bytes of the length before each JPEG stream's bytes (all lengths come first)."""

JPEG_HEADER_BOUND = 2048
"""Bytes that a JPEG may spend on its headers and tables, as libjpeg-turbo's own `tjBufSize` has it."""

MAX_JPEG_SCANS = 16
"""Scans of one JPEG stream: baseline has 1, progressive about 10. Each costs a pass over the whole image for a few bytes
of stream, so that without a bound a small frame could keep a node busy for seconds."""

INT8_LIMIT = 127


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


def channels(spec: TensorSpec) -> int:
    """How many int8 scales the tensor needs: the length of axis 1, or 1 for fewer than two axes."""
    return spec.shape[1] if len(spec.shape) >= 2 else 1


def encode(array: Array, coding: Coding, tensor_index: int) -> Buffer:
    """One frame from one tensor. `tensor_index` is the tensor's place in its cut: it picks the int8 scales.

    A raw frame of an array that is already little-endian and C contiguous is a view of it, so the array must not be
    changed while the frame is in use. Raises `InputError` where the array does not fit the coding and `UserError` where
    the JPEG library is missing.
    """
    if coding.kind == "raw":
        return raw_frame(array)
    if coding.kind == "int8":
        return raw_frame(_quantise(array, _scales(coding, tensor_index, array.shape)))
    return _encode_jpeg(array, coding.quality)


def check_frame(frame_nbytes: int, coding: Coding, spec: TensorSpec, rows: int) -> None:
    """Refuse a frame whose length cannot be right, before anything is decoded or allocated.

    raw and int8 have one possible length. A JPEG frame has at least its lengths and at most what the worst image takes.
    Raises `PeerError("size")`.
    """
    if coding.kind == "jpeg":
        low, high = _jpeg_bounds(spec.at(rows))
        if not low <= frame_nbytes <= high:
            raise PeerError("size", f"{spec.name}: a jpeg frame of {frame_nbytes} bytes, expected {low} to {high}")
        return
    item = 1 if coding.kind == "int8" else dtype_of(spec.dtype).itemsize
    expected = item * math.prod(spec.at(rows))
    if frame_nbytes != expected:
        raise PeerError("size", f"{spec.name}: a {coding.name} frame of {frame_nbytes} bytes, expected {expected}")


def decode_into(
    frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, rows: int, out: npt.NDArray[np.generic]
) -> None:
    """Write the tensor that `frame` holds into `out`, which is C contiguous, of `spec.dtype` and shape `spec.at(rows)`.

    Raises `PeerError("size")` for a wrong length, `PeerError("codec")` for contents that cannot be decoded, and
    `UserError` where the JPEG library is missing. After an error `out` holds anything.
    """
    check_frame(len(frame) if isinstance(frame, bytes | bytearray) else frame.nbytes, coding, spec, rows)
    if coding.kind == "raw":
        little = dtype_of(spec.dtype).newbyteorder("<")
        np.copyto(out, np.frombuffer(frame, little).reshape(out.shape))
    elif coding.kind == "int8":
        quantised = np.frombuffer(frame, np.int8).reshape(out.shape)
        np.multiply(quantised, _scales(coding, tensor_index, out.shape), out=out, casting="same_kind")
    else:
        _decode_jpeg(frame, spec, out)


def calibrate_int8(arrays: Iterable[Array]) -> tuple[float, ...]:
    """Scales of one tensor from samples of it, each of shape (rows, channels, ...): the largest finite magnitude of a
    channel over all samples, divided by 127. A channel that is always 0 gets 1.

    Raises `UserError` where there is no sample or their channels differ.
    """
    peak: npt.NDArray[np.float64] | None = None
    for array in arrays:
        wide = array.astype(np.float64)
        others = tuple(axis for axis in range(wide.ndim) if wide.ndim < 2 or axis != 1)
        finite = np.abs(np.where(np.isfinite(wide), wide, 0.0))
        largest = np.atleast_1d(np.max(finite, axis=others, initial=0.0))
        if peak is not None and peak.shape != largest.shape:
            raise UserError(f"samples of one tensor have {peak.shape[0]} and {largest.shape[0]} channels")
        peak = largest if peak is None else np.maximum(peak, largest)
    if peak is None:
        raise UserError("int8 scales need at least one sample")
    # A scale that float32 cannot hold would be 0 on the wire's other side.
    smallest = float(np.finfo(np.float32).tiny)
    return tuple(1.0 if p == 0.0 else max(p / INT8_LIMIT, smallest) for p in peak.tolist())


def _scales(coding: Coding, tensor_index: int, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The tensor's scales, shaped to be broadcast along axis 1 (a scalar for fewer than two axes)."""
    expected = shape[1] if len(shape) >= 2 else 1
    if tensor_index >= len(coding.scales) or len(coding.scales[tensor_index]) != expected:
        raise InputError(f"coding {coding.name}: tensor {tensor_index} needs {expected} scales")
    scales = np.asarray(coding.scales[tensor_index], np.float32)
    return scales.reshape(-1, *(1,) * (len(shape) - 2)) if len(shape) >= 2 else scales.reshape(())


def _quantise(array: Array, scales: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    """`clip(round(x / scale), -127, 127)`, halves to even."""
    with np.errstate(over="ignore"):
        scaled = np.divide(array, scales, dtype=np.float32, casting="same_kind")
    scaled = np.asarray(scaled)  # a tensor without axes comes back as a plain number
    np.rint(scaled, out=scaled)
    np.clip(scaled, -INT8_LIMIT, INT8_LIMIT, out=scaled)
    # Clipped, the sum is a number unless an element is not: one cheap pass instead of a mask.
    if math.isnan(float(scaled.sum())):
        scaled[np.isnan(scaled)] = 0.0
    return scaled.astype(np.int8)


def _simplejpeg() -> ModuleType:
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        raise UserError("the jpeg coding needs the package simplejpeg (it is in the extras edge and cloud)") from None


def _jpeg_bounds(shape: tuple[int, ...]) -> tuple[int, int]:
    """Least and most bytes of a frame of `shape[0]` JPEG streams, 4:2:0, each with its length."""
    if len(shape) != 4 or shape[3] != 3:
        raise InputError(f"the jpeg coding is for tensors of shape (rows, height, width, 3), not {shape}")
    images, height, width = shape[:3]
    # Three bytes a pixel of the padded image, as libjpeg-turbo's tjBufSize for 4:2:0.
    worst = 3 * (-(-height // 16) * 16) * (-(-width // 16) * 16) + JPEG_HEADER_BOUND
    return images * LENGTH_BYTES, images * (LENGTH_BYTES + worst)


def _encode_jpeg(array: Array, quality: int) -> Buffer:
    _jpeg_bounds(array.shape)
    if array.dtype != np.uint8:
        raise InputError(f"the jpeg coding is for uint8, not {array.dtype}")
    if array.size == 0 and array.shape[0] > 0:
        raise InputError(f"the jpeg coding cannot hold an image of no pixels, shape {array.shape}")
    library = _simplejpeg()
    streams: list[bytes] = [library.encode_jpeg(np.ascontiguousarray(image), quality, "RGB", "420") for image in array]
    return struct.pack(f"<{len(streams)}I", *map(len, streams)) + b"".join(streams)


def _decode_jpeg(frame: Buffer, spec: TensorSpec, out: npt.NDArray[np.generic]) -> None:
    library = _simplejpeg()
    images, height, width = out.shape[:3]
    view = memoryview(frame)
    lengths = struct.unpack_from(f"<{images}I", view)
    at = images * LENGTH_BYTES
    if at + sum(lengths) != view.nbytes:
        raise PeerError("codec", f"{spec.name}: jpeg lengths add up to {at + sum(lengths)}, not {view.nbytes} bytes")
    for index, length in enumerate(lengths):
        stream = view[at : at + length]
        at += length
        try:
            stated: tuple[int, int] = library.decode_jpeg_header(stream)[:2]
            if stated != (height, width):
                raise PeerError("codec", f"{spec.name}: a jpeg of {stated}, expected {(height, width)}")
            # Inside a scan a byte 0xff is never followed by 0xda, so that this finds markers only.
            scans = bytes(stream).count(b"\xff\xda")
            if scans > MAX_JPEG_SCANS:
                raise PeerError("codec", f"{spec.name}: a jpeg of {scans} scans, expected at most {MAX_JPEG_SCANS}")
            library.decode_jpeg(stream, "RGB", buffer=out[index])
        except (ValueError, RuntimeError, MemoryError) as reason:
            raise PeerError("codec", f"{spec.name}: image {index} is not a jpeg that can be read: {reason}") from None
