"""Zstandard frames (RFC 8878) that hold a number of bytes that the reader knows already, or knows the limits of.

Contexts are used again, one of each kind for each thread, since making one costs more than a small tensor's compression
and a context serves one thread at a time. They are scratch memory and carry nothing from one call to the next, which is
why they may outlive a call in a module that otherwise only computes.

A frame is refused unless its header states the expected number of bytes, which then is all that decoding
allocates: zstd's own buffers never exceed what a header states by more than a block (128 KiB). Checked before and after.
"""

from __future__ import annotations

from threading import local
from typing import Protocol, cast

from shared.codecs.libraries import library
from shared.errors import PeerError
from shared.request import Buffer

LEVEL = 1
LEAST_BYTES = 9
"""Bytes of the shortest frame that states its size: magic, descriptor, size and one empty block."""


class _Compressor(Protocol):
    def compress(self, data: Buffer) -> bytes: ...


class _Decompressor(Protocol):
    def decompress(
        self, data: Buffer, max_output_size: int, *, read_across_frames: bool, allow_extra_data: bool
    ) -> bytes: ...


class Zstd(local):
    """Compression and decompression with contexts of the calling thread's own, for codings of a kind. Raises `UserError`
    where the package `zstandard` is missing."""

    _compressor: _Compressor | None = None
    _decompressor: _Decompressor | None = None

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def compress(self, data: Buffer) -> bytes:
        """One frame, which states the size of `data`, contiguous."""
        if self._compressor is None:
            self._compressor = cast(_Compressor, library("zstandard", self._kind).ZstdCompressor(level=LEVEL))
        return self._compressor.compress(data)

    def decompress(self, frame: Buffer, nbytes: int, what: str) -> bytes:
        """The `nbytes` bytes that a frame holds. Raises `PeerError("codec")`, which names `what`, where it holds anything
        else, or there is anything behind it."""
        return self.decompress_between(frame, nbytes, nbytes, what)

    def decompress_between(self, frame: Buffer, least_nbytes: int, most_nbytes: int, what: str) -> bytes:
        """The bytes that a frame holds, of a number between these two. Raises `PeerError("codec")`, which names `what`, where
        it holds more or fewer, or there is anything behind it."""
        zstandard = library("zstandard", self._kind)
        if self._decompressor is None:
            self._decompressor = cast(_Decompressor, zstandard.ZstdDecompressor())
        try:
            stated: int = zstandard.get_frame_parameters(frame).content_size
            if not least_nbytes <= stated <= most_nbytes:
                expected = f"{least_nbytes}" + (f" to {most_nbytes}" if most_nbytes > least_nbytes else "")
                raise PeerError("codec", f"{what}: a zstd frame that states {stated} bytes, expected {expected}")
            data = self._decompressor.decompress(frame, stated, read_across_frames=False, allow_extra_data=False)
        except (zstandard.ZstdError, MemoryError) as reason:
            raise PeerError("codec", f"{what}: not a zstd frame that can be read: {reason}") from None
        if len(data) != stated:
            raise PeerError("codec", f"{what}: a zstd frame of {len(data)} bytes, expected {stated}")
        return data


def most_bytes(nbytes: int) -> int:
    """The most bytes of a frame of `nbytes` bytes, as zstd's own `ZSTD_compressBound`."""
    block = 128 << 10
    return nbytes + (nbytes >> 8) + ((block - nbytes) >> 11 if nbytes < block else 0)
