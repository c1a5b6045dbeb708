"""Frames of images: the lengths of the rows' streams, then the streams. What `jpeg` and `qoi` share."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np

from shared.errors import InputError, PeerError
from shared.plan import CodingKind
from shared.request import Array, Buffer, TensorSpec

LENGTH_BYTES = 4
"""Bytes of the length of each stream, little-endian (all lengths come first)."""

MOST_SIDE = 65_500
"""The most pixels of a side of an image, as libjpeg has it."""


def image_fault(kind: CodingKind, tensors: tuple[TensorSpec, ...]) -> str | None:
    """Why a cut of these tensors is not one of images, in words; None where it is."""
    spec = tensors[0]
    fits = len(tensors) == 1 and spec.dtype == "uint8" and len(spec.shape) == 4 and spec.shape[3] == 3
    if not fits or 0 in spec.shape:
        return f"{kind} is for one uint8 tensor of shape (rows, height, width, 3)"
    if max(spec.shape[1:3]) > MOST_SIDE:
        return f"{kind} is for images of at most {MOST_SIDE} pixels a side"
    return None


def image_shape(kind: CodingKind, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Rows, height and width of a tensor of images. Raises `InputError` for any other shape."""
    if len(shape) != 4 or shape[3] != 3:
        raise InputError(f"the {kind} coding is for tensors of shape (rows, height, width, 3), not {shape}")
    return shape[0], shape[1], shape[2]


def images_of(array: Array, kind: CodingKind) -> Iterator[Array]:
    """The images of a tensor, each C contiguous. Raises `InputError` where it is not one of images."""
    image_shape(kind, array.shape)
    if array.dtype != np.uint8:
        raise InputError(f"the {kind} coding is for uint8, not {array.dtype}")
    if array.size == 0 and array.shape[0] > 0:
        raise InputError(f"the {kind} coding cannot hold an image of no pixels, shape {array.shape}")
    return (np.ascontiguousarray(image) for image in array)


def join_streams(streams: Sequence[bytes]) -> bytes:
    """One frame from the rows' streams."""
    return struct.pack(f"<{len(streams)}I", *map(len, streams)) + b"".join(streams)


def part_streams(frame: Buffer, images: int, what: str) -> Iterator[memoryview]:
    """The streams of a frame of `images` rows, which has room for their lengths. Raises `PeerError("codec")`, which names
    `what`, where the lengths are not those of the rest of the frame."""
    view = memoryview(frame)
    lengths = struct.unpack_from(f"<{images}I", view)
    at = images * LENGTH_BYTES
    if at + sum(lengths) != view.nbytes:
        raise PeerError("codec", f"{what} lengths add up to {at + sum(lengths)}, not {view.nbytes} bytes")
    for length in lengths:
        yield view[at : at + length]
        at += length
