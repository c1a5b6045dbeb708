"""Whatever a frame holds, each codec gives a tensor or a `PeerError`, and never allocates more than its file states.

Frames are made by the hundred: random bytes, true frames with bytes changed, added or cut off, and frames whose own headers
claim more than there is room for. `tracemalloc` sees what Python and numpy allocate; what a C library may allocate is
bounded by the size that its stream states, which the tests of lying headers cover.
"""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
import qoi
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_codecs import picture

from shared.codecs import check_frame, decode_into, encode, frame_bounds
from shared.errors import PeerError
from shared.plan import RAW, Coding
from shared.request import TensorSpec

ROWS = 2
TENSOR = TensorSpec("t", "float32", (1, 3, 5, 7))
IMAGE = TensorSpec("image", "uint8", (1, 24, 20, 3))
PLACES = [
    (RAW, TENSOR),
    (RAW, TensorSpec("q", "int8", (1, 3, 5, 7))),
    (Coding("fp16", "fp16"), TENSOR),
    (Coding("int8", "int8", scales=((0.1, 0.2, 0.3),)), TENSOR),
    (Coding("int2", "intn", scales=((0.1,),), bits=2), TENSOR),
    (Coding("int4", "intn", scales=((0.1, 0.2, 0.3),), bits=4), TENSOR),
    (Coding("int7", "intn", scales=((0.1, 0.2, 0.3),), bits=7), TENSOR),
    (Coding("pca", "pca", scales=((0.02,),), basis=(np.eye(3, dtype="<f4").tobytes(),)), TENSOR),
    (Coding("jpeg90", "jpeg", quality=90), IMAGE),
    (Coding("jpeg90-444", "jpeg", quality=90, subsampling="444"), IMAGE),
    (Coding("qoi", "qoi"), IMAGE),
]
SLACK = 16 << 10
"""What errors, views and the like may take beside the tensor."""


def true_frame(coding: Coding, spec: TensorSpec) -> bytes:
    if spec is IMAGE:
        return bytes(encode(picture(24, 20, ROWS), coding, 0))
    values = np.random.default_rng(0).standard_normal(spec.at(ROWS)) * 2
    return bytes(encode(values.astype(spec.dtype), coding, 0))


FRAMES = [true_frame(coding, spec) for coding, spec in PLACES]


def taken_or_refused(frame: bytes | bytearray | memoryview, coding: Coding, spec: TensorSpec) -> str:
    """Decode a frame: the word of its refusal, or empty. Fails for any other exception, and for more memory than a copy
    of the frame and twice the tensor."""
    out = np.zeros(spec.at(ROWS), spec.dtype)
    word = ""
    tracemalloc.start()
    try:
        decode_into(frame, coding, 0, spec, ROWS, out)
    except PeerError as refused:
        word = refused.reason
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 2 * out.nbytes + memoryview(frame).nbytes + SLACK
    assert word in {"", "size", "codec"}
    return word


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Import every library and make every context, so that their own memory is not counted as a frame's."""
    for frame, (coding, spec) in zip(FRAMES, PLACES, strict=True):
        decode_into(frame, coding, 0, spec, ROWS, np.zeros(spec.at(ROWS), spec.dtype))


@settings(deadline=None, max_examples=150)
@given(place=st.integers(0, len(PLACES) - 1), frame=st.binary(max_size=400), sized=st.booleans())
@example(place=4, frame=b"", sized=True)
def test_any_bytes_are_a_tensor_or_refused(place: int, frame: bytes, sized: bool) -> None:
    coding, spec = PLACES[place]
    if sized:
        low, high = frame_bounds(coding, spec, ROWS)
        frame = frame.ljust(low, b"\0")[:high]
    word = taken_or_refused(memoryview(b"\xc1" + frame)[1:], coding, spec)
    assert not (sized and word == "size")


changes = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 40), st.integers(0, 5000)),
        st.one_of(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]), st.integers(0, 255)),
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=200)
@given(
    place=st.integers(0, len(PLACES) - 1),
    changed=changes,
    kept=st.one_of(st.just(1.0), st.floats(0, 1)),
    added=st.one_of(st.just(b""), st.binary(max_size=30)),
)
def test_a_damaged_frame_is_a_tensor_or_refused(
    place: int, changed: list[tuple[int, int]], kept: float, added: bytes
) -> None:
    coding, spec = PLACES[place]
    frame = bytearray(FRAMES[place])
    for at, byte in changed:
        frame[at % len(frame)] = byte
    taken_or_refused(frame[: round(kept * len(frame))] + added, coding, spec)


@pytest.mark.parametrize("place", range(len(PLACES)))
def test_a_frame_outside_its_bounds_is_refused_before_it_is_read(place: int) -> None:
    coding, spec = PLACES[place]
    low, high = frame_bounds(coding, spec, ROWS)
    assert low <= len(FRAMES[place]) <= high
    for wrong in (low - 1, high + 1):
        with pytest.raises(PeerError, match=f"frame of {wrong} bytes, expected") as refused:
            check_frame(wrong, coding, spec, ROWS)
        assert refused.value.reason == "size"
        assert taken_or_refused(bytes(max(0, wrong)), coding, spec) == "size"


# --- streams that claim more than there is room for --------------------------------------------------------------------

BYTES = Coding("int8z", "intn", scales=((1.0,),), bits=8)
FLAT = TensorSpec("t", "float32", (1, 1, 1000))


def flat(frame: bytes) -> str:
    """Decode a frame of 1,000 elements of one byte each, in 64 KB at most."""
    out = np.zeros(FLAT.at(1), np.float32)
    tracemalloc.start()
    try:
        decode_into(frame, BYTES, 0, FLAT, 1, out)
    except PeerError as refused:
        return refused.detail
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 10
    return ""


def test_a_zstd_frame_must_state_the_tensors_own_size_and_keep_to_it() -> None:
    right = zstandard.ZstdCompressor(level=1).compress(bytes(1000))
    assert flat(right) == ""
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(4 << 20))
    assert len(bomb) < 1000
    assert "states 4194304 bytes, expected 1000" in flat(bomb)
    assert "states 999 bytes" in flat(zstandard.ZstdCompressor().compress(bytes(999)))
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    assert "expected 1000" in flat(silent)
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(4 << 20))
    assert "expected 1000" in flat(streamed)


def test_a_zstd_frame_that_holds_more_or_less_than_it_states_is_refused() -> None:
    header = b"\x28\xb5\x2f\xfd\x60" + struct.pack("<H", 1000 - 256)  # one segment, a size of two bytes
    for held in (0, 999, 1001, 4000, 1 << 16, (1 << 17) - 1):
        repeated = struct.pack("<I", held << 3 | 1 << 1 | 1)[:3] + b"\x05"  # one last block: a byte, repeated
        assert "not a zstd frame that can be read" in flat(header + repeated)
    exact = struct.pack("<I", 1000 << 3 | 1 << 1 | 1)[:3] + b"\x05"
    assert flat(header + exact) == ""


def test_nothing_may_stand_behind_or_before_a_zstd_frame() -> None:
    right = zstandard.ZstdCompressor(level=1).compress(bytes(1000))
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"
    for frame in (right + right, right + b"\0", right + skippable, skippable + right, right[:-1]):
        assert flat(frame) != ""


def framed(*streams: bytes) -> bytes:
    return struct.pack(f"<{len(streams)}I", *map(len, streams)) + b"".join(streams)


@pytest.mark.parametrize(
    "header",
    [
        (b"qoif", 1 << 31, 1 << 31, 3, 0),
        (b"qoif", 20_000, 20_000, 3, 0),
        (b"qoif", 24, 20, 3, 0),  # the two sides exchanged
        (b"qoif", 20, 24, 4, 0),
        (b"qoif", 20, 24, 0, 0),
        (b"qoig", 20, 24, 3, 0),
        (b"qoif", 0, 24, 3, 0),
    ],
)
def test_a_qoi_of_another_size_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, header: tuple[bytes, int, int, int, int]
) -> None:
    coding, spec = PLACES[-1]
    stream = bytearray(qoi.encode(picture(24, 20)[0]))
    struct.pack_into(">4sIIBB", stream, 0, *header)
    monkeypatch.setattr(qoi, "decode", lambda _: pytest.fail("was decoded"))
    with pytest.raises(PeerError, match="a qoi header of") as refused:
        decode_into(framed(bytes(stream), bytes(stream)), coding, 0, spec, ROWS, np.zeros(spec.at(ROWS), np.uint8))
    assert refused.value.reason == "codec"


def test_qoi_streams_that_end_early_late_or_lie_about_their_lengths_are_refused() -> None:
    coding, spec = PLACES[-1]
    one, two = (qoi.encode(image) for image in picture(24, 20, 2))
    assert taken_or_refused(framed(one, two), coding, spec) == ""
    for frame in (
        framed(one, two[:-1]),
        framed(one, two[:-8]),
        framed(one[:13], two + bytes(200)),
        framed(one + two, b""),
        struct.pack("<2I", len(one) + 1, len(two)) + one + two,
        struct.pack("<2I", 0xFFFFFFFF, 0xFFFFFFFF) + one + two,
    ):
        assert taken_or_refused(frame, coding, spec) == "codec"
