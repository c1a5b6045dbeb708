"""The codec takes what it wrote, and refuses everything else with one word."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.errors import InvariantBroken, PeerError
from shared.request import EXACT, Array, Fidelity, TensorSpec
from shared.wire import codec
from shared.wire import messages as m
from shared.wire.codec import (
    ITEMSIZE,
    MAX_SPAN_NS,
    REASONS,
    array_of,
    decode_agent,
    decode_client,
    decode_edge,
    decode_node,
    encode,
    raw_frame,
    tensor_of,
)

LOAD = m.Load(1_000, 4)
IMAGE = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
ENTRY = tensor_of(IMAGE)


def infer(tensors: tuple[m.Tensor, ...] = (ENTRY,), **changes: Any) -> m.Infer:
    values: dict[str, Any] = {
        "incarnation": 7,
        "sequence": 12,
        "attempt": 0,
        "contract": "c" * 64,
        "cut": 1,
        "coding": "raw",
        "rows": 2,
        "priority": 1,
        "budget_ns": 9_000_000,
        "sent_ns": 123,
        "tensors": tensors,
    }
    return m.Infer(**{**values, **changes})


def reply(tensors: tuple[m.Tensor, ...] = (ENTRY,), **changes: Any) -> m.Reply:
    values: dict[str, Any] = {
        "incarnation": 7,
        "sequence": 12,
        "attempt": 0,
        "contract": "c" * 64,
        "cut": 1,
        "coding": "raw",
        "rows": 2,
        "tensors": tensors,
        "stages": {"tail": 5, "codec": 1},
        "sent_ns": 9,
        "load": LOAD,
    }
    return m.Reply(**{**values, **changes})


def submit(tensors: tuple[m.Tensor, ...] = (ENTRY,)) -> m.Submit:
    return m.Submit(1, "faces", 2, 10, 20, 1, 0, False, tensors)


HEADER = m.AnswerHeader("edge", None, "whole", None, EXACT, "c" * 64, {"rung": 4}, (ENTRY,))
RUNG = m.AnswerHeader("cloud", "n1", "small", 1, Fidelity("rung", "small", 0.9), "c" * 64, {}, ())

SAID = [
    (decode_edge, m.Hello(1, "car", 3, "data", ("c" * 64,))),
    (decode_edge, infer()),
    (decode_edge, m.Cancel(1, 2, 3)),
    (decode_edge, m.Probe(1, 2, 0, 0)),
    (decode_edge, m.Measure(1, 2, "5ca1ab1e", (1, 4), 30.0, 20.0)),
    (decode_edge, m.AskLetters(1, 2, 3)),
    (decode_edge, m.Bye("closing")),
    (decode_node, m.Welcome(1, "n1", 3, (), 8)),
    (decode_node, reply()),
    (decode_node, m.Refusal(1, 2, 3, "overload", "no room", 5, LOAD)),
    (decode_node, m.ProbeReply(1, 2, 3, 4, LOAD)),
    (decode_node, m.Measured(2, "running", 0.5)),
    (decode_node, m.ToldLetters(2, "not here")),
    (decode_client, m.Attach(1, "app", 3)),
    (decode_client, submit()),
    (decode_client, m.Withdraw(4)),
    (decode_agent, m.Attached(1, "edge", 3, (m.ModelInfo("f", "c", (("x", "uint8", (1, 2)),), ("y",), True, 8),))),
    (decode_agent, m.Provisional(1, HEADER)),
    (decode_agent, m.Final(1, "answer", HEADER)),
    (decode_agent, m.Final(1, "missed", None, "uplink", "stalled")),
]


def frames_of(message: Any) -> list[bytes]:
    tensors = getattr(message, "tensors", None) or getattr(getattr(message, "answer", None), "tensors", ())
    return [bytes(frame) for frame in encode(message, [IMAGE] * len(tensors))]


@pytest.mark.parametrize(("decode", "message"), SAID, ids=lambda value: type(value).__name__)
def test_every_message_comes_back_as_it_was(decode: Any, message: Any) -> None:
    frames = frames_of(message)
    back, tensors = decode(frames)
    assert back == message
    assert tensors == tuple(frames[1:])


@pytest.mark.parametrize(("decode", "message"), SAID, ids=lambda value: type(value).__name__)
def test_a_role_may_not_say_what_another_may(decode: Any, message: Any) -> None:
    for other in (decode_edge, decode_node, decode_client, decode_agent):
        both = m.Bye | m.Measure | m.Measured | m.AskLetters | m.ToldLetters
        if other is not decode and not isinstance(message, both):
            with pytest.raises(PeerError) as refused:
                other(frames_of(message))
            assert refused.value.reason == "header"


arrays = st.builds(
    lambda dtype, shape: np.arange(math.prod(shape)).reshape(shape).astype(dtype),
    st.sampled_from(sorted(ITEMSIZE)),
    st.lists(st.integers(0, 5), max_size=4),
)


@given(st.lists(arrays, max_size=5))
def test_arrays_of_every_type_and_shape_come_back(tensors: list[Array]) -> None:
    message = reply(tuple(tensor_of(t) for t in tensors))
    back, frames = decode_node([bytes(f) for f in encode(message, tensors)])
    assert isinstance(back, m.Reply)
    for entry, frame, tensor in zip(back.tensors, frames, tensors, strict=True):
        array = array_of(entry, frame)
        assert array.dtype == tensor.dtype
        assert array.shape == tensor.shape
        assert np.array_equal(array, tensor)
        assert not array.flags.writeable


def test_contiguous_little_endian_arrays_are_not_copied() -> None:
    array = np.zeros((4, 5), dtype=np.float32)
    frame = raw_frame(array)
    array[0, 0] = 1.0
    assert np.frombuffer(frame, dtype=np.float32)[0] == 1.0


@pytest.mark.parametrize("array", [IMAGE.astype(">f4"), IMAGE.transpose(2, 0, 1), IMAGE[:, ::2]])
def test_other_layouts_are_converted(array: Array) -> None:
    native = np.ascontiguousarray(array.astype(np.float32))
    assert bytes(raw_frame(array)) == native.tobytes()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([], "frames"),
        ([b""], "header"),
        ([b"\x80"], "header"),
        ([encode(m.Cancel(1, 2, 3))[0], b"extra"], "frames"),
        ([encode(infer())[0]], "frames"),
        ([b"\x81\xa1t\xa5hello"] * 70, "frames"),
        ([b"\x00" * (m.MAX_HEADER + 1)], "header"),
        ([b"\x93\x01\x02\x03"], "header"),
        ([encode(m.Cancel(1, 2, 3))[0] + b"\x00"], "header"),
        ([encode(m.Cancel(-1, 2, 3))[0]], "range"),
        ([encode(m.Cancel(1, 2, 1 << 63))[0]], "range"),
        ([encode(m.Probe(1, 1 << 63, 0, 0))[0]], "range"),
        ([encode(m.Probe(1, 2, -1, 0))[0]], "range"),
        (encode(infer(sent_ns=-1), [IMAGE]), "range"),
        (encode(infer(budget_ns=MAX_SPAN_NS + 1), [IMAGE]), "range"),
        (encode(infer(budget_ns=-MAX_SPAN_NS - 1), [IMAGE]), "range"),
        ([encode(m.Hello(1, "n" * 200, 3, "data", ()))[0]], "word"),
        (encode(infer(rows=0), [IMAGE]), "range"),
        (encode(infer((m.Tensor("float32", (-2, 3, 4)),)), [IMAGE]), "shape"),
        (encode(infer((m.Tensor("float32", (1 << 33, 1 << 33)),)), [IMAGE]), "shape"),
        (encode(infer((m.Tensor("float32", (0, 1 << 39, 1 << 39)),)), [b""]), "shape"),
        (encode(infer((m.Tensor("float32", (1,) * 40),)), [IMAGE]), "shape"),
        (encode(infer((m.Tensor("float32", (1 << 30,)),)), [b"small"]), "size"),
        (encode(infer((m.Tensor("object", (2,)),)), [IMAGE]), "dtype"),
    ],
)
def test_each_violation_has_its_word(frames: list[bytes], reason: str) -> None:
    with pytest.raises(PeerError) as refused:
        decode_edge(frames)
    assert refused.value.reason == reason
    assert reason in REASONS


@pytest.mark.parametrize(
    "message",
    [
        reply((), stages={"tail": -1}),
        reply((), stages={"cloud_queue": MAX_SPAN_NS + 1}),
        reply((), sent_ns=-5),
        reply((), load=m.Load(MAX_SPAN_NS + 1, 4)),
        m.Refusal(1, 2, 3, "overload", "", 1 << 63, LOAD),
        m.ProbeReply(1, 2, -3, 4, LOAD),
        m.ProbeReply(1, 2, 3, 4, m.Load(0, -1)),
    ],
)
def test_an_edge_believes_no_time_that_is_none(message: Any) -> None:
    with pytest.raises(PeerError) as refused:
        decode_node(encode(message))
    assert refused.value.reason == "range"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inputs": (("x", "complex64", (1, 2)),)}, "dtype"),
        ({"inputs": (("x", "uint8", (0, 2)),)}, "shape"),
        ({"inputs": (("x", "uint8", (1, -2)),)}, "shape"),
        ({"max_batch": 0}, "range"),
        ({"name": "m" * 200}, "word"),
    ],
)
def test_a_client_believes_no_model_that_is_none(changes: dict[str, Any], reason: str) -> None:
    fine = m.ModelInfo("f", "c", (("x", "uint8", (1, 2)),), ("y",), True, 8)
    with pytest.raises(PeerError) as refused:
        decode_agent(encode(m.Attached(1, "edge", 3, (msgspec.structs.replace(fine, **changes),))))
    assert refused.value.reason == reason


@pytest.mark.parametrize("length", [0, 95, 97])
def test_a_raw_frame_must_have_its_tensors_length(length: int) -> None:
    for decode, message in (
        (decode_node, reply()),
        (decode_client, submit()),
        (decode_agent, m.Provisional(1, HEADER)),
    ):
        with pytest.raises(PeerError) as refused:
            decode([encode(message)[0], b"\x00" * length])
        assert refused.value.reason == "size"


def test_a_message_over_the_given_total_is_refused() -> None:
    frames = encode(submit(), [IMAGE])
    decode_client(frames, IMAGE.nbytes)
    with pytest.raises(PeerError) as refused:
        decode_client(frames, IMAGE.nbytes - 1)
    assert refused.value.reason == "size"


def test_an_answer_without_its_answer_is_refused() -> None:
    with pytest.raises(PeerError):
        decode_agent(encode(m.Final(1, "answer", None)))


def test_unknown_keys_are_ignored() -> None:
    fields = msgspec.msgpack.decode(encode(m.Cancel(1, 2, 3))[0])
    message, _ = decode_edge([msgspec.msgpack.encode({**fields, "later": [1, 2]})])
    assert message == m.Cancel(1, 2, 3)


def test_long_free_text_is_shortened_and_long_names_are_a_bug() -> None:
    message, _ = decode_node(encode(m.Refusal(1, 2, 3, "failed", "x" * 9_000, 5, LOAD)))
    assert isinstance(message, m.Refusal)
    assert message.detail == "x" * codec.MAX_DETAIL
    with pytest.raises(InvariantBroken):
        encode(m.Hello(1, "car", 3, "data", ("c" * 64,) * 100))


def decodes_or_is_refused(frames: list[bytes]) -> None:
    for decode in (decode_edge, decode_node, decode_client, decode_agent):
        word = ""
        tensors: tuple[object, ...] = ()
        try:
            _, tensors = decode(frames)
        except PeerError as error:
            word = error.reason
        assert word in REASONS if word else len(tensors) == len(frames) - 1


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_random_bytes_decode_or_are_refused(frames: list[bytes]) -> None:
    decodes_or_is_refused(frames)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SAID), st.data())
def test_damaged_messages_decode_or_are_refused(said: tuple[Any, Any], data: st.DataObject) -> None:
    frames = frames_of(said[1])
    index = data.draw(st.integers(0, len(frames) - 1))
    damaged = bytearray(frames[index])
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
            damaged[bit // 8] ^= 1 << bit % 8
    frames[index] = bytes(damaged)
    decodes_or_is_refused(frames)


bombs = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=30,
)


@given(st.sampled_from(["hello", "infer", "reply", "submit", "final", "nothing"]), bombs, st.data())
def test_well_formed_msgpack_of_any_structure_decodes_or_is_refused(
    tag: str, value: object, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(["protocol", "tensors", "stages", "load", "answer", "contracts"]))
    decodes_or_is_refused([msgspec.msgpack.encode({"t": tag, key: value})])


@pytest.mark.parametrize(
    "opening", [b"\x91", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x81", b"\xdf\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("prefix", [b"", b"\x82\xa1t\xa5infer\xa7tensors", b"\x82\xa1t\xa5infer\xa5other"])
def test_nested_lists_and_false_lengths_are_refused(prefix: bytes, opening: bytes) -> None:
    header = (prefix + opening * m.MAX_HEADER)[: m.MAX_HEADER]
    with pytest.raises(PeerError):
        decode_edge([header])


def test_a_scalar_of_a_plan_is_the_same_at_any_number_of_rows() -> None:
    rate = TensorSpec("rate", "int64", ())
    assert m.tensor_table([rate], 2) == ((m.Tensor("int64", ()),),) * 3
