"""Whatever comes in, each decoder gives a message or refuses with one of its words, and never allocates more than a small
multiple of the longest header that it reads.

`tests/test_codec.py` says what each refusal is for; here hostile frames are made by the thousand: random bytes, true messages
with a part replaced, nests, sizes that are only claimed, any number of frames, and each kind of buffer.
"""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_codec import SAID, frames_of

from shared.errors import PeerError
from shared.request import Buffer
from shared.wire import messages as m
from shared.wire.codec import REASONS, decode_agent, decode_client, decode_edge, decode_node

DECODERS = (decode_edge, decode_node, decode_client, decode_agent)
MOST_BYTES = 24 * m.MAX_HEADER
"""What decoding may allocate at its peak, message included, whatever is claimed: 24 bytes for each that a header may have.
The densest header is one of short strings, of which each byte makes 20."""


@contextmanager
def few_bytes() -> Generator[None]:
    """What is done inside must not allocate more than `MOST_BYTES` at its peak."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES


def taken_or_refused(frames: Sequence[Buffer]) -> list[Any]:
    """Hand the frames to every decoder: the messages that came of it, of at most one kind each."""
    taken: list[Any] = []
    for decode in DECODERS:
        message, tensors, word, detail = None, (), "", ""
        with few_bytes():
            try:
                message, tensors = decode(frames)
            except PeerError as error:
                word, detail = error.reason, error.detail
        if message is None:
            assert word in REASONS
            assert len(detail) < 2 * m.MAX_HEADER
        else:
            assert [id(frame) for frame in tensors] == [id(frame) for frame in frames[1:]]
            taken.append(message)
    return taken


# --- frames -----------------------------------------------------------------------------------------------------------


def as_bytes(data: bytes) -> Buffer:
    return data


def as_bytearray(data: bytes) -> Buffer:
    return bytearray(data)


def as_view(data: bytes) -> Buffer:
    return memoryview(data)


def as_part(data: bytes) -> Buffer:
    """A view into the middle of something longer."""
    return memoryview(b"\xc1" * 3 + data + b"\xc1" * 5)[3 : 3 + len(data)]


def as_words(data: bytes) -> Buffer:
    """A view whose items are wider than a byte, where the length allows it."""
    return memoryview(array("I", data)) if len(data) % 4 == 0 else memoryview(data)


def as_every_other(data: bytes) -> Buffer:
    """A view that skips bytes: what is meant lies in no one piece of memory."""
    spread = bytearray(2 * len(data))
    spread[::2] = data
    return memoryview(spread)[::2]


def as_grid(data: bytes) -> Buffer:
    """A view of two axes, where the length allows it."""
    return memoryview(data).cast("B", (2, len(data) // 2)) if data and len(data) % 2 == 0 else memoryview(data)


WHOLE: list[Callable[[bytes], Buffer]] = [as_bytes, as_bytearray, as_view, as_part, as_words, as_grid]
KINDS = [*WHOLE, as_every_other]

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.sampled_from([-1, 0, 1 << 31, 1 << 40, (1 << 50) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    st.floats(),
    st.text(max_size=140),
    st.binary(max_size=20),
    st.sampled_from([[], {}, [[]], [["float32", [1]]], ["float32", [1]], {"": 0}, "é" * 130, "\0"]),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=9)),
    st.builds(msgpack.Timestamp, st.integers(-(1 << 40), 1 << 40), st.integers(0, 999_999_999)),
)


def parts(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a nest of maps and lists."""
    found = [path]
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        found += parts(value, (*path, key))
    return found


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The nest with the part at `path` replaced."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


# --- tests ------------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=200), max_size=4), st.sampled_from(KINDS))
def test_random_bytes(frames: list[bytes], kind: Callable[[bytes], Buffer]) -> None:
    taken_or_refused([kind(frame) for frame in frames])


@settings(max_examples=200)
@given(st.sampled_from(SAID), st.lists(st.sampled_from(WHOLE), min_size=2, max_size=2))
def test_a_true_message_is_taken_from_every_kind_of_buffer(
    said: tuple[Any, Any], kinds: list[Callable[[bytes], Buffer]]
) -> None:
    frames = [kind(frame) for kind, frame in zip(kinds, frames_of(said[1]), strict=False)]
    assert said[1] in taken_or_refused(frames)


@pytest.mark.parametrize("place", [0, 1])
def test_a_frame_that_is_not_one_piece_of_memory_is_refused(place: int) -> None:
    frames: list[Buffer] = list(frames_of(SAID[1][1]))
    frames[place] = as_every_other(bytes(frames[place]))
    with pytest.raises(PeerError) as refused:
        decode_edge(frames)
    assert refused.value.reason == "frames"


@settings(max_examples=600)
@given(st.sampled_from(SAID), st.data())
def test_true_messages_with_parts_replaced(said: tuple[Any, Any], data: st.DataObject) -> None:
    frames: list[Buffer] = list(frames_of(said[1]))
    tree = msgpack.unpackb(frames[0])
    for _ in range(data.draw(st.integers(1, 3))):
        tree = replaced(tree, data.draw(st.sampled_from(parts(tree))), data.draw(odd))
    frames[0] = data.draw(st.sampled_from(KINDS))(msgpack.packb(tree))
    taken_or_refused(frames)


@settings(max_examples=300)
@given(st.sampled_from(SAID), st.data())
def test_true_messages_with_bytes_cut_out_put_in_and_changed(said: tuple[Any, Any], data: st.DataObject) -> None:
    frames = frames_of(said[1])
    header = bytearray(frames[0])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(header)))
        gone = data.draw(st.integers(0, 8))
        header[at : at + gone] = data.draw(st.binary(max_size=8))
    taken_or_refused([bytes(header), *frames[1:]])


@settings(max_examples=200)
@given(st.sampled_from(SAID), st.lists(st.binary(max_size=100), max_size=3), st.integers(0, 3))
def test_frames_too_many_too_few_and_of_another_length(said: tuple[Any, Any], more: list[bytes], kept: int) -> None:
    frames = frames_of(said[1])[:kept] + more
    for message in taken_or_refused(frames):
        tensors = getattr(message, "tensors", None) or getattr(getattr(message, "answer", None), "tensors", ())
        assert len(tensors) == len(frames) - 1


@pytest.mark.parametrize("count", [0, m.MAX_TENSORS + 1, m.MAX_TENSORS + 2, 100_000])
def test_any_number_of_frames(count: int) -> None:
    taken_or_refused([frames_of(SAID[0][1])[0]] * count)


LONG = {
    "lists": b"\x91",
    "wide lists": b"\xdc\xff\xff",
    "huge lists": b"\xdd\xff\xff\xff\xff",
    "maps": b"\x81\xa1a",
    "wide maps": b"\xde\xff\xff",
    "huge maps": b"\xdf\xff\xff\xff\xff",
    "text": b"\xdb\xff\xff\xff\xff",
    "binary": b"\xc6\xff\xff\xff\xff",
    "extensions": b"\xc9\xff\xff\xff\xff\x01",
    "empty strings": b"\xa0",
    "short strings": b"\xa2ab",
    "tensors": b"\x92\xa0\x90",
    "numbers": b"\xcd\x12\x34",
    "long numbers": b"\xcf" + b"\x7f" * 8,
    "reserved": b"\xc1",
}


def array_at(key: str, tag: str, opening: bytes) -> bytes:
    """A header of kind `tag` whose `key` holds a list that is as long as claimed, full of `opening`."""
    head = b"\x82\xa1t" + msgpack.packb(tag) + msgpack.packb(key)
    count = (m.MAX_HEADER - len(head) - 3) // len(opening)
    return head + b"\xdc" + count.to_bytes(2, "big") + opening * count


@pytest.mark.parametrize("opening", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("tag", ["hello", "welcome", "infer", "reply", "submit", "attached", "provisional", "unknown"])
def test_nests_and_claims(tag: str, opening: bytes) -> None:
    """After each key that holds a list or a map, and after one that is unknown, as deep or as long as a header can be."""
    for key in ("contracts", "tensors", "stages", "load", "models", "answer", "other"):
        head = b"\x82\xa1t" + msgpack.packb(tag) + msgpack.packb(key)
        taken_or_refused([(head + opening * m.MAX_HEADER)[: m.MAX_HEADER]])
        taken_or_refused([array_at(key, tag, opening)])
    taken_or_refused([(opening * m.MAX_HEADER)[: m.MAX_HEADER]])


@pytest.mark.parametrize(
    "message",
    [
        m.Hello(1, "car", 3, "data", ("",) * 4000),
        m.Hello(1, "car", 3, "data", ("ab",) * 1300),
        m.Reply(1, 2, 3, "c", 0, "raw", 1, (m.Tensor("", ()),) * 1000, {}, 1, m.Load(1, 1)),
        m.Reply(1, 2, 3, "c", 0, "raw", 1, (m.Tensor("float32", tuple(range(1000, 2200))),), {}, 1, m.Load(1, 1)),
        m.Attached(1, "edge", 3, (m.ModelInfo("f", "c", (("x", "uint8", (1, 2)),) * 5, ("y",) * 9, True, 8),) * 25),
    ],
    ids=lambda message: type(message).__name__,
)
def test_the_densest_headers_stay_below_the_bound(message: Any) -> None:
    header = msgspec.msgpack.encode(message)
    assert m.MAX_HEADER * 3 // 4 < len(header) <= m.MAX_HEADER
    taken_or_refused([header])


def test_a_header_over_the_limit_is_refused_before_it_is_read() -> None:
    header = msgspec.msgpack.encode(m.Hello(1, "car", 3, "data", ("",) * 200_000))
    for kind in WHOLE:
        frame = kind(header)
        with few_bytes(), pytest.raises(PeerError) as refused:
            decode_edge([frame])
        assert refused.value.reason == "header"
