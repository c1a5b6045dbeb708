"""Messages to frames and back: one typed msgpack header, then one raw frame for each tensor.

Nothing that a peer sends is believed before it is checked, and whatever is wrong with it ends in `PeerError` with a fixed
word, never in another exception. The header decodes straight into typed structs, so that a deep or huge nest of lists
is refused where it starts instead of being built first. Each role has its own decoder: a node cannot be made to build what
only a client may say.

Rejected: an untyped decoder with checks afterwards (1 MiB of nested lists costs it 300 ms), and a header frame for each
tensor (more frames, more system calls, nothing gained).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec
import numpy as np

from shared.errors import InvariantBroken, PeerError
from shared.padding import padding_faults
from shared.request import Array, Buffer
from shared.wire.families import family_faults
from shared.wire.messages import (
    FULL_PRESSURE,
    MAX_CLASSES,
    MAX_HEADER,
    MAX_TENSORS,
    AgentMessage,
    AnswerHeader,
    AskLetters,
    Attach,
    Attached,
    Bye,
    Cancel,
    ClientMessage,
    CloseStream,
    Drain,
    EdgeMessage,
    Final,
    Hello,
    Infer,
    Measure,
    Measured,
    Message,
    ModelInfo,
    NodeList,
    NodeMessage,
    OpenStream,
    Pressure,
    Probe,
    ProbeReply,
    Provisional,
    Refusal,
    Reply,
    StreamState,
    Submit,
    Tensor,
    ToldLetters,
    Welcome,
    Withdraw,
)

MAX_TOTAL = 64 << 20
"""Bytes of a whole message where the caller sets no other limit."""

MAX_WORD = 128
"""Characters of a name, a reason or a digest in a header."""

MAX_AXES = 16
"""Axes of a tensor."""

MAX_ELEMENTS = 1 << 40
"""Elements of a tensor, far above what any message may carry, so that no product grows without bound."""

MAX_NUMBER = (1 << 63) - 1
"""The largest of the numbers that count or name something."""

MAX_SPAN_NS = 1 << 50
"""The longest time span that is believed, 13 days: sums and differences of a few stay within 64 bits."""

MAX_DETAIL = 512
"""Characters of free text that `encode` keeps where the whole would not fit into a header."""

KNOWN_TENSORS = 256
"""So many tensors' bytes are remembered, since the messages of a plan hold the same ones."""

ITEMSIZE = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
}
"""Element types that may cross the wire, with their bytes."""

REASONS = ("frames", "header", "size", "shape", "dtype", "range", "word")
"""Every reason that a decoder gives. `frames`: the number of frames is not one more than the number of tensors, or one is
not a single piece of memory. `header`: not msgpack, too long, of an unknown kind or with a field of another type. `size`: a
frame's length does not fit its tensor, or the whole is over the limit. `shape`: a negative axis, too many axes or too
many elements. `dtype`: an unknown element type. `range`: a number outside its range. `word`: a name or reason that is too
long."""

_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in ITEMSIZE}
_NAMES = {np.dtype(name): name for name in ITEMSIZE}
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message, tensors: Sequence[Array | Buffer] = ()) -> list[bytes | memoryview]:
    """Header frame and one frame for each tensor.

    Arrays that are little-endian and C contiguous become views without a copy; others are converted first. Buffers travel
    as they are. The caller has put what the frames hold into the message's own `tensors`. Free text (`detail`) is
    shortened where the header would grow too long.

    Raises `InvariantBroken` where the header is too long all the same: names are bounded where they are read in.
    """
    header = _encoder.encode(message)
    if len(header) > MAX_HEADER:
        header = _shortened(message)
    if not tensors:
        return [header]
    return [header, *[raw_frame(t) if isinstance(t, np.ndarray) else memoryview(t) for t in tensors]]


def raw_frame(array: Array) -> memoryview:
    """The bytes of an array, little-endian, C order: a view where the array is so already, else of a converted copy."""
    if not (_LITTLE and array.dtype.isnative):
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array.reshape(-1).view(_BYTE).data


_LITTLE = np.little_endian
_BYTE = np.dtype(np.uint8)


def tensor_of(array: Array) -> Tensor:
    """The header's entry for an array that travels raw."""
    return Tensor(_NAMES.get(array.dtype) or array.dtype.name, array.shape)


def array_of(tensor: Tensor, frame: Buffer) -> Array:
    """A read-only view of a raw frame as an array of `tensor`'s dtype and shape; nothing is copied.

    The frame's length has been checked by the decoder.
    """
    array: Array = np.frombuffer(frame, _DTYPES[tensor.dtype]).reshape(tensor.shape)
    array.flags.writeable = False
    return array


def _shortened(message: Message) -> bytes:
    detail = getattr(message, "detail", "")
    if isinstance(message, Refusal | Final | Measured | ToldLetters) and detail:
        header = _encoder.encode(msgspec.structs.replace(message, detail=message.detail[:MAX_DETAIL]))
        if len(header) <= MAX_HEADER:
            return header
    raise InvariantBroken(f"the header of a {type(message).__name__} does not fit into {MAX_HEADER} bytes")


M = TypeVar("M", bound=Message)


class _Decoder(Generic[M]):
    """Decoder of one role's messages."""

    def __init__(self, kind: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kind)

    def __call__(self, frames: Sequence[Buffer], max_total: int = MAX_TOTAL) -> tuple[M, tuple[Buffer, ...]]:
        """The message and its tensors' frames. Raises `PeerError` for whatever is wrong with them."""
        count = len(frames)
        if not 1 <= count <= MAX_TENSORS + 1:
            raise PeerError("frames", f"{count} frames; from 1 to {MAX_TENSORS + 1} may come")
        sizes: list[int] = []
        for frame in frames:
            if isinstance(frame, memoryview):
                if not frame.c_contiguous:
                    raise PeerError("frames", "a frame that is not a single piece of memory")
                sizes.append(frame.nbytes)
            else:
                sizes.append(len(frame))
        if sizes[0] > MAX_HEADER:
            raise PeerError("header", f"{sizes[0]} bytes; at most {MAX_HEADER} may come")
        try:
            message = self._decoder.decode(frames[0])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PeerError("header", str(error)) from None
        check(message, sizes, max_total)
        return message, tuple(frames[1:])


decode_edge: _Decoder[EdgeMessage] = _Decoder(EdgeMessage)
"""Decode what an edge may say (used by a node)."""

decode_node: _Decoder[NodeMessage] = _Decoder(NodeMessage)
"""Decode what a node may say (used by an edge)."""

decode_client: _Decoder[ClientMessage] = _Decoder(ClientMessage)
"""Decode what a client may say (used by an agent)."""

decode_agent: _Decoder[AgentMessage] = _Decoder(AgentMessage)
"""Decode what an agent may say (used by a client)."""


def check(message: Message, sizes: Sequence[int], max_total: int) -> None:
    """Hold a decoded message against its frames, the header's first, of so many bytes, and the protocol's limits. Raises
    `PeerError`."""
    match message:
        case Infer():
            # The bits of all at once: one that is negative or above 2^63 - 1 makes their union so.
            named = message.incarnation | message.sequence | message.attempt
            _check_numbers(named | message.cut | message.priority | message.sent_ns)
            _check_rows(message.rows)
            _check_spans(abs(message.budget_ns))
            _check_words(message.contract, message.coding)
            _check_tensors(message.tensors, sizes, max_total, raw=False)
        case Reply():
            named = message.incarnation | message.sequence | message.attempt
            _check_numbers(named | message.cut | message.sent_ns | message.load.credits)
            _check_rows(message.rows)
            _check_words(message.contract, message.coding)
            _check_spans(message.load.wait_ns, *message.stages.values())
            if message.pressure:
                _check_pressure(message.pressure)
            _check_tensors(message.tensors, sizes, max_total, raw=True)
        case Probe():
            _check_numbers(message.number, message.sent_ns, message.last_sent_ns, message.last_received_ns)
            _check_tensors(message.tensors, sizes, max_total, raw=True)
        case Submit():
            _check_numbers(message.sequence, message.priority, message.stream)
            _check_numbers(message.scheduled_ns, message.deadline_ns)
            _check_rows(message.rows)
            _check_words(message.model)
            _check_tensors(message.tensors, sizes, max_total, raw=True)
        case Provisional():
            _check_numbers(message.sequence)
            _check_answer(message.answer, sizes, max_total)
        case Final(answer=AnswerHeader() as answer):
            _check_numbers(message.sequence)
            _check_words(message.reason)
            _check_answer(answer, sizes, max_total)
        case Measured() | ToldLetters():
            _check_numbers(message.number)
            _check_tensors(message.tensors, sizes, max_total, raw=True)
        case _:
            _check_tensors((), sizes, max_total, raw=True)
            _check_small(message)


def _check_small(message: Message) -> None:
    match message:
        case Cancel():
            _check_numbers(message.incarnation, message.sequence, message.attempt)
        case Hello():
            _check_numbers(message.protocol, message.incarnation, message.path)
            _check_words(message.peer, *message.contracts)
        case Drain():
            _check_numbers(message.incarnation)
        case NodeList():
            _check_numbers(message.epoch, *[entry.connections for entry in message.nodes])
            for entry in message.nodes:
                _check_words(entry.name, entry.endpoint, *entry.more)
        case Welcome():
            _check_numbers(message.protocol, message.incarnation, message.credits, message.paths)
            _check_words(message.node, *message.contracts)
        case Refusal():
            _check_numbers(message.incarnation, message.sequence, message.attempt)
            _check_numbers(message.sent_ns, message.load.credits)
            _check_spans(message.load.wait_ns)
            _check_pressure(message.pressure)
            _check_words(message.reason)
        case ProbeReply():
            _check_numbers(message.number, message.probe_sent_ns, message.received_ns, message.sent_ns)
            _check_numbers(message.load.credits)
            _check_spans(message.load.wait_ns)
            _check_pressure(message.pressure)
        case Attach():
            _check_numbers(message.protocol, message.incarnation)
            _check_words(message.client)
        case Attached():
            _check_numbers(message.protocol, message.incarnation)
            _check_words(message.agent)
            for info in message.models:
                _check_model(info)
            for fault in family_faults(message.models):
                raise PeerError("shape", fault)
        case Withdraw():
            _check_numbers(message.sequence)
        case OpenStream():
            _check_numbers(message.stream, message.priority)
            _check_rows(message.rows)
            _check_spans(message.period_ns, message.deadline_ns)
            _check_words(message.model)
        case CloseStream():
            _check_numbers(message.stream)
        case StreamState():
            _check_numbers(message.stream)
            _check_words(message.rung, message.reason)
        case Final():
            _check_numbers(message.sequence)
            _check_words(message.reason)
            if message.kind == "answer":
                raise PeerError("header", "an answer without its answer")
        case Measure():
            _check_numbers(message.protocol, message.number)
            _check_words(message.model)
            for rows in message.batches:
                _check_rows(rows)
        case AskLetters():
            _check_numbers(message.protocol, message.number, message.letter)
        case Bye():
            _check_words(message.reason)
        case _:
            pass


def _check_model(info: ModelInfo) -> None:
    _check_words(info.name, info.contract, *info.outputs)
    _check_rows(info.max_batch)
    for name, dtype, shape in info.inputs:
        _check_words(name)
        tensor_nbytes(Tensor(dtype, shape))
        if 0 in shape[:1]:
            raise PeerError("shape", f"input {name!r} of model {info.name!r} has no rows")
    if info.padding is not None:
        shapes = {name: shape for name, _, shape in info.inputs}
        for fault in padding_faults(info.padding, shapes, info.outputs):
            raise PeerError("shape", f"the padding of model {info.name!r}: {fault}")


def _check_answer(answer: AnswerHeader, sizes: Sequence[int], max_total: int) -> None:
    _check_words(answer.node or "", answer.rung, answer.contract, answer.fidelity.name)
    _check_numbers(answer.cut or 0)
    _check_tensors(answer.tensors, sizes, max_total, raw=True)


def _check_numbers(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= MAX_NUMBER:
            raise PeerError("range", f"{number} where 0 to 2^63 - 1 may come")


def _check_spans(*spans_ns: int) -> None:
    for span_ns in spans_ns:
        if not 0 <= span_ns <= MAX_SPAN_NS:
            raise PeerError("range", f"a span of {span_ns} ns where 0 to {MAX_SPAN_NS} may come")


def _check_pressure(pressure: Pressure) -> None:
    if len(pressure) > MAX_CLASSES:
        raise PeerError("range", f"a pressure of {len(pressure)} classes where at most {MAX_CLASSES} may come")
    for share in pressure:
        if not 0 <= share <= FULL_PRESSURE:
            raise PeerError("range", f"a pressure of {share} where 0 to {FULL_PRESSURE} may come")


def _check_rows(rows: int) -> None:
    if not 1 <= rows < 1 << 31:
        raise PeerError("range", f"{rows} rows")


def _check_words(*words: str) -> None:
    for word in words:
        if len(word) > MAX_WORD:
            raise PeerError("word", f"{len(word)} characters where at most {MAX_WORD} may come")


def _check_tensors(tensors: Sequence[Tensor], sizes: Sequence[int], max_total: int, *, raw: bool) -> None:
    if len(tensors) != len(sizes) - 1:
        raise PeerError("frames", f"{len(tensors)} tensors in {len(sizes) - 1} frames")
    carried = decoded = 0
    for frame, tensor in enumerate(tensors, 1):
        size, nbytes = sizes[frame], tensor_nbytes(tensor)
        if raw and size != nbytes:
            told = f"tensor {frame - 1} ({tensor.dtype}, {tensor.shape})"
            raise PeerError("size", f"{told} in {size} bytes, not {nbytes}")
        carried += size
        decoded += nbytes
    if carried > max_total or decoded > max_total:
        raise PeerError("size", f"{max(carried, decoded)} bytes; at most {max_total} may come")


@lru_cache(KNOWN_TENSORS)
def tensor_nbytes(tensor: Tensor) -> int:
    """Bytes of the raw tensor. Raises `PeerError` for an element type or a shape that no message may have."""
    itemsize = ITEMSIZE.get(tensor.dtype)
    if itemsize is None:
        raise PeerError("dtype", f"{tensor.dtype[:MAX_WORD]!r} is not one of {', '.join(ITEMSIZE)}")
    if len(tensor.shape) > MAX_AXES:
        raise PeerError("shape", f"{len(tensor.shape)} axes; at most {MAX_AXES} may come")
    elements = 1
    empty = False
    for axis in tensor.shape:
        if not 0 <= axis <= MAX_ELEMENTS:
            raise PeerError("shape", f"an axis of {axis}")
        elements *= axis or 1
        empty |= axis == 0
        if elements > MAX_ELEMENTS:
            raise PeerError("shape", "too many elements")
    return 0 if empty else elements * itemsize
