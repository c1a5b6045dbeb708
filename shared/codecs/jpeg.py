"""`jpeg`: each row of a uint8 image tensor as a JPEG stream, 4:2:0 or 4:4:4, at a quality.

4:2:0 keeps a quarter of the colour samples, which costs thin coloured things (lane marks, lamps, text) more than the
eye sees; 4:4:4 keeps all of them for a quarter to a third more bytes (quality 90). The receiver reads either in any coding.

Rejected: PIL (1.6 times as long for a 192×192 image, and cannot decode into a buffer).

Decoding allocates a copy of one stream, beside what libjpeg-turbo takes: of a progressive stream that is the coefficients
of the image, 2 bytes each. A header that states another size than the tensor's is refused before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.codecs.images import LENGTH_BYTES, image_fault, image_shape, images_of, join_streams, part_streams
from shared.codecs.libraries import library
from shared.errors import PeerError
from shared.plan import Coding, CodingKind
from shared.request import Array, Buffer, TensorSpec

HEADER_BOUND = 2048
"""Bytes that a JPEG may spend on its headers and tables, as libjpeg-turbo's own `tjBufSize` has it."""

MAX_SCANS = 16
"""Scans of one JPEG stream: baseline has 1, progressive about 10. Each costs a pass over the whole image for a few bytes
of stream, so that without a bound a small frame could keep a node busy for seconds."""


class Jpeg:
    """The codec of the kind `jpeg`."""

    kind: CodingKind = "jpeg"
    fields: frozenset[str] = frozenset({"quality", "subsampling"})

    def fault(self, coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
        """One tensor of images, at a quality of 1 to 100."""
        fault = image_fault("jpeg", tensors)
        if fault is None and not 1 <= coding.quality <= 100:
            return f"quality {coding.quality} is not one of 1 to 100"
        return fault

    def encode(self, array: Array, coding: Coding, tensor_index: int) -> Buffer:
        """The rows' streams, baseline."""
        images = images_of(array, "jpeg")
        simplejpeg = library("simplejpeg", "jpeg")
        subsampling = coding.subsampling or "420"
        streams: list[bytes] = [simplejpeg.encode_jpeg(image, coding.quality, "RGB", subsampling) for image in images]
        return join_streams(streams)

    def bounds(self, coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
        """From nothing but the lengths to what the worst image takes, as libjpeg-turbo's `tjBufSize` has it: 3 bytes a pixel
        of the image padded to 16 for 4:2:0, 6 of one padded to 8 for 4:4:4."""
        images, height, width = image_shape("jpeg", spec.at(rows))
        block, pixel_bytes = (8, 6) if coding.subsampling == "444" else (16, 3)
        worst = pixel_bytes * (-(-height // block) * block) * (-(-width // block) * block) + HEADER_BOUND
        return images * LENGTH_BYTES, images * (LENGTH_BYTES + worst)

    def decode(
        self, frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, out: npt.NDArray[np.generic]
    ) -> None:
        """Each stream straight into its row."""
        simplejpeg = library("simplejpeg", "jpeg")
        images, height, width = out.shape[:3]
        for index, stream in enumerate(part_streams(frame, images, f"{spec.name}: jpeg")):
            try:
                stated: tuple[int, int] = simplejpeg.decode_jpeg_header(stream)[:2]
                if stated != (height, width):
                    raise PeerError("codec", f"{spec.name}: a jpeg of {stated}, expected {(height, width)}")
                # Inside a scan a byte 0xff is never followed by 0xda, so that this finds markers only.
                scans = bytes(stream).count(b"\xff\xda")
                if scans > MAX_SCANS:
                    raise PeerError("codec", f"{spec.name}: a jpeg of {scans} scans, expected at most {MAX_SCANS}")
                simplejpeg.decode_jpeg(stream, "RGB", buffer=out[index])
            except (ValueError, RuntimeError, MemoryError) as reason:
                raise PeerError(
                    "codec", f"{spec.name}: image {index} is not a jpeg that can be read: {reason}"
                ) from None
