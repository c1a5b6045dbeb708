"""How the tensors of a cut become frames and frames become tensors again.

Decoding writes straight into its destination, the row's place in a batch-shaped buffer, so that a received tensor is
copied exactly once (twice where a library cannot decode into a buffer). Sizes are checked before a byte is touched, and
what a stream says of its own size before anything is decoded or allocated: a stream that claims to be larger than its
place is refused, not decoded and cropped. So decoding takes no more memory than a small multiple of the tensor's own size,
which each kind's file states.

A kind lives in one file, behind `shared.codecs.codec.Codec`. To add one to headtail:

1. write its file, with a class that has the members of `Codec`;
2. add the fields that only it needs to `shared.plan.Coding`, behind the others and with a default, so that plans of before
   keep their contract digests;
3. name it in `CODECS` below;
4. describe its frame in `docs/protocol.md`, and let `partitioner.ways` offer it.

Another package brings one by an entry point (`shared.codecs.installed`; `docs/python.md` shows how).

Rejected: a kind that registers itself when it is imported (what a plan means would depend on what had been imported
before; a kind is a part of the contract, which both sides and the digest must know); one frame for all tensors (a frame
for each lets the receiver check and place each one alone).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared.codecs.calibration import calibrate_int8, calibrate_intn
from shared.codecs.codec import Codec, registered
from shared.codecs.elements import channels, dtype_of
from shared.codecs.half import Half
from shared.codecs.installed import FIELDS, OfferedCodec, installed
from shared.codecs.int8 import Int8
from shared.codecs.intn import IntN
from shared.codecs.jpeg import Jpeg
from shared.codecs.pca import Pca
from shared.codecs.qoi import Qoi
from shared.codecs.raw import Raw
from shared.errors import PeerError, UserError
from shared.plan import Coding
from shared.request import Array, Buffer, TensorSpec

__all__ = [
    "CODECS",
    "Codec",
    "calibrate_int8",
    "calibrate_intn",
    "channels",
    "check_frame",
    "codec_of",
    "coding_fault",
    "decode_into",
    "dtype_of",
    "encode",
    "frame_bounds",
    "offering",
]

PCA = Pca()
CODECS = registered(Raw(), Half(), Int8(), IntN(), Jpeg(), Qoi(), PCA)
"""The codec of each kind that headtail has itself, read-only."""


def codec_of(kind: str) -> Codec:
    """The codec of a kind, of headtail's own or of another package. Raises `UserError` that names the kind where it is not
    there, or is there and cannot be used."""
    codec = CODECS.get(kind)
    if codec is not None:
        return codec
    return installed(kind)


def offering(kind: str) -> OfferedCodec:
    """The codec of a kind that a plan has only where it is asked for, of headtail's own or of another package. Raises
    `UserError` that names the kind where it is offered in any case, or as `codec_of`."""
    if kind == PCA.kind:
        return PCA
    if kind in CODECS or kind.rstrip("0123456789") in {"int", "jpeg"}:  # as their codings are called
        raise UserError(f"codec {kind!r} is headtail's own: it is offered without being asked for")
    return installed(kind)


def encode(array: Array, coding: Coding, tensor_index: int) -> Buffer:
    """One frame from one tensor. `tensor_index` is the tensor's place in its cut: it picks the scales.

    A raw frame of an array that is already little-endian and C contiguous is a view of it, so the array must not be
    changed while the frame is in use. Raises `InputError` where the array does not fit the coding and `UserError` where
    a library is missing.
    """
    return codec_of(coding.kind).encode(array, coding, tensor_index)


def frame_bounds(coding: Coding, spec: TensorSpec, rows: int) -> tuple[int, int]:
    """The least and the most bytes that a frame of `spec` at `rows` rows may have: what room and limits are counted with.

    Raises `InputError` where the coding is not for such tensors.
    """
    return codec_of(coding.kind).bounds(coding, spec, rows)


def check_frame(frame_nbytes: int, coding: Coding, spec: TensorSpec, rows: int) -> None:
    """Refuse a frame whose length cannot be right, before anything is decoded or allocated.

    raw, fp16 and int8 have one possible length. Raises `PeerError("size")`.
    """
    low, high = codec_of(coding.kind).bounds(coding, spec, rows)
    if not low <= frame_nbytes <= high:
        expected = f"{low}" if low == high else f"{low} to {high}"
        raise PeerError("size", f"{spec.name}: a {coding.name} frame of {frame_nbytes} bytes, expected {expected}")


def decode_into(
    frame: Buffer, coding: Coding, tensor_index: int, spec: TensorSpec, rows: int, out: npt.NDArray[np.generic]
) -> None:
    """Write the tensor that `frame` holds into `out`, which is C contiguous, of `spec.dtype` and shape `spec.at(rows)`.

    Raises `PeerError("size")` for a wrong length, `PeerError("codec")` for contents that cannot be decoded, and
    `UserError` where a library is missing. After an error `out` holds anything.
    """
    check_frame(memoryview(frame).nbytes, coding, spec, rows)
    codec_of(coding.kind).decode(frame, coding, tensor_index, spec, out)


def coding_fault(coding: Coding, tensors: tuple[TensorSpec, ...]) -> str | None:
    """Why a cut of these tensors cannot travel in `coding`, in words; None where it can."""
    try:
        codec = codec_of(coding.kind)
    except UserError as reason:
        return str(reason)
    for field, default in FIELDS.items():
        if field not in codec.fields and getattr(coding, field) != default:
            return f"{field} is given, which a coding of kind {coding.kind} does not have"
    return codec.fault(coding, tensors)
