"""`qoi`: each row of a uint8 image tensor as a QOI stream (the Quite OK Image format, qoiformat.org), without loss.

It was chosen over JPEG XL at effort 1. Three photographs of `skimage.data` (astronaut, chelsea, coffee), scaled to
320 x 320 and 416 x 416, one thread; size as a share of the raw bytes, times in raw copies of the same image:

                        size           encode       decode
    QOI (qoi)           0.58 to 0.68   80 to 105    65 to 75
    JPEG XL (libjxl)    0.37 to 0.51   80 to 105    475 to 535
    zstd level 1        0.86 to 0.95

JPEG XL is a quarter to a third smaller, but:

* A hostile stream: QOI states its size in the first 14 bytes, is decoded in one pass that writes each pixel once, and
  allocates that image and nothing else. A JPEG XL stream of the right dimensions can still hold
  other frames, patches, splines, extra channels and colour profiles, and no binding for Python bounds their memory or time.
* Decoding takes seven times as long, on the node, which many devices share.
* Weight: the package qoi is one module of half a megabyte over a decoder in Rust (wheels for x86-64; elsewhere pip builds
  it); imagecodecs, which has both formats and wheels for ARM, weighs 45 MB, and pylibjxl is a young binding of one author.
* QOI's specification is one page and final, so that an independent client is an afternoon's work.

Where bytes count more than that, jpeg at quality 90 is 6 to 8 times smaller than QOI.

Decoding allocates one image beside the tensor. What a stream has behind its end marker is not read.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from shared.codecs.images import LENGTH_BYTES, image_fault, image_shape, images_of, join_streams, part_streams
from shared.codecs.libraries import library
from shared.errors import PeerError
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec

HEADER = struct.Struct(">4sIIBB")
"""Magic, width, height, channels, colour space."""
MAGIC = b"qoif"
END_BYTES = 8
LONGEST_RUN = 62
"""Pixels that one byte can stand for."""
WORST_PIXEL_BYTES = 4


class Qoi:
    """The codec of the kind `qoi`."""

    kind: CodingKind = "qoi"
    fields: frozenset[str] = frozenset()

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """One tensor of images."""
        return image_fault("qoi", tensors)

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """The rows' streams, of three channels."""
        images = images_of(array, "qoi")
        qoi = library("qoi", "qoi")
        streams: list[bytes] = [qoi.encode(image) for image in images]
        return join_streams(streams)

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """From an image of one colour to one in which no pixel is like another."""
        images, height, width = image_shape("qoi", spec.at(rows))
        around = LENGTH_BYTES + HEADER.size + END_BYTES
        pixels = height * width
        return images * (around + -(-pixels // LONGEST_RUN)), images * (around + WORST_PIXEL_BYTES * pixels)

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """Each stream, then a copy into its row."""
        qoi = library("qoi", "qoi")
        images, height, width = out.shape[:3]
        wanted = (MAGIC, width, height, 3)
        for index, stream in enumerate(part_streams(frame, images, f"{spec.name}: qoi")):
            if stream.nbytes < HEADER.size:
                raise PeerError("codec", f"{spec.name}: a qoi stream of {stream.nbytes} bytes has no header")
            stated = HEADER.unpack_from(stream)[:4]
            if stated != wanted:
                raise PeerError("codec", f"{spec.name}: a qoi header of {stated}, expected {wanted}")
            try:
                pixels: npt.NDArray[np.uint8] = qoi.decode(stream)
            except (ValueError, RuntimeError, MemoryError) as reason:
                raise PeerError(
                    "codec", f"{spec.name}: image {index} is not a qoi that can be read: {reason}"
                ) from None
            if pixels.shape != (height, width, 3):
                raise PeerError("codec", f"{spec.name}: a qoi of {pixels.shape}, expected {(height, width, 3)}")
            np.copyto(out[index], pixels)
