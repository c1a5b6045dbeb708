"""What a faulty peer puts on the wire instead of what it ought to. Pure: a message goes in, frames come out.

Damage is done to headers, and frames are cut: what changes the numbers of a tensor and nothing else is not recognised by
anyone (`docs/promise.md`), TCP and the link are trusted for that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from hil.scenarios.scenario import What
from shared.request import Array, Buffer
from shared.wire.codec import ITEMSIZE
from shared.wire.messages import Message, Reply, Tensor

Encode = Callable[[Message, Sequence[Array | Buffer]], list[bytes | memoryview]]
"""`shared.wire.codec.encode`."""

FLIPS = 8


def meddled(
    what: What, message: Message, tensors: Sequence[Array | Buffer], encode: Encode, rng: random.Random
) -> list[bytes | memoryview]:
    """The frames of `message` after the fault `what`, which leaves alone what it is not for: `identity`, `shape` and `cut`
    are for replies; `mute` changes nothing here, since nothing is sent."""
    if what == "corrupt":
        header, *rest = encode(message, tensors)
        return [_flipped(bytes(header), rng), *rest]
    if what == "truncate":
        return _cut_short(encode(message, tensors), rng)
    if isinstance(message, Reply):
        if what == "identity":
            return encode(_another(message, rng), tensors)
        if what == "cut":
            return encode(msgspec.structs.replace(message, cut=message.cut + 1), tensors)
        if what == "shape":
            return _reshaped(message, tensors, encode)
    return encode(message, tensors)


def _flipped(header: bytes, rng: random.Random) -> bytes:
    """The header with some of its bits turned over."""
    damaged = bytearray(header)
    for _ in range(rng.randint(1, FLIPS)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _cut_short(frames: list[bytes | memoryview], rng: random.Random) -> list[bytes | memoryview]:
    """One frame ends early."""
    which = rng.randrange(len(frames))
    whole = bytes(frames[which])
    return [whole[: rng.randrange(len(whole))] if number == which else frame for number, frame in enumerate(frames)]


def _another(reply: Reply, rng: random.Random) -> Reply:
    """The reply as if it answered another request, another attempt, or an earlier start of the edge."""
    which = rng.randrange(3)
    if which == 0:
        return msgspec.structs.replace(reply, sequence=reply.sequence + 1)
    if which == 1:
        return msgspec.structs.replace(reply, attempt=reply.attempt + 1)
    return msgspec.structs.replace(reply, incarnation=reply.incarnation - 1)


def _reshaped(reply: Reply, tensors: Sequence[Array | Buffer], encode: Encode) -> list[bytes | memoryview]:
    """Well-formed outputs whose last axis is one shorter than the plan's."""
    _, *frames = encode(reply, tensors)
    told: list[Tensor] = []
    cut: list[bytes] = []
    for tensor, frame in zip(reply.tensors, frames, strict=True):
        shape = (*tensor.shape[:-1], max(0, tensor.shape[-1] - 1))
        size = ITEMSIZE[tensor.dtype]
        for axis in shape:
            size *= axis
        told.append(Tensor(tensor.dtype, shape))
        cut.append(bytes(frame)[:size])
    return encode(msgspec.structs.replace(reply, tensors=tuple(told)), cut)
