"""Codecs: round trips, bounds, and that no frame, however damaged, raises anything but a `PeerError`."""

from __future__ import annotations

import io
import math
import struct

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from shared.codecs import calibrate_int8, channels, check_frame, decode_into, dtype_of, encode
from shared.errors import InputError, PeerError, UserError
from shared.plan import RAW, Coding
from shared.request import Array, TensorSpec

JPEG = Coding("jpeg90", "jpeg", quality=90)
DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool")


def decoded(frame: bytes | bytearray | memoryview, coding: Coding, spec: TensorSpec, rows: int) -> Array:
    out = np.full(spec.at(rows), 7, dtype_of(spec.dtype))
    decode_into(frame, coding, 0, spec, rows, out)
    return out


def picture(height: int, width: int, rows: int = 1, seed: int = 0) -> Array:
    """Smooth images, so that JPEG comes close."""
    y, x = np.mgrid[0:height, 0:width]
    base = 127 + 60 * np.sin(x / 17 + seed) + 60 * np.cos(y / 23)
    image = np.stack([base, base[::-1], 255 - base], axis=-1).clip(0, 255).astype(np.uint8)
    return np.stack([np.roll(image, 3 * row, axis=1) for row in range(rows)])


@given(
    dtype=st.sampled_from(DTYPES),
    shape=arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    data=st.data(),
)
def test_raw_gives_back_every_bit(dtype: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    array = data.draw(arrays_of.arrays(np.dtype(dtype), shape))
    frame = bytes(encode(array, RAW, 0))
    assert decoded(frame, RAW, TensorSpec("t", dtype, shape), 1).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, ::2],
        np.asfortranarray,
        lambda a: a.transpose(0, 2, 1),
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: a[::-1],
    ],
)
def test_raw_frames_are_little_endian_c_order_whatever_the_array_is(view) -> None:
    array = view(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    frame = bytes(encode(array, RAW, 0))
    assert frame == array.astype("<f4").tobytes(order="C")


def test_a_raw_frame_of_a_contiguous_array_is_not_copied() -> None:
    array = np.zeros(8, np.float32)
    frame = encode(array, RAW, 0)
    array[:] = 1.0
    assert bytes(frame) == np.ones(8, np.float32).tobytes()


def test_raw_decodes_from_a_frame_that_is_not_aligned() -> None:
    array = np.arange(6, dtype=np.float64)
    shifted = memoryview(b"\0" + array.tobytes())[1:]
    assert np.array_equal(decoded(shifted, RAW, TensorSpec("t", "float64", (6,)), 1), array)


def test_bfloat16_passes_raw_bit_for_bit() -> None:
    dtype = dtype_of("bfloat16")
    array = np.arange(256, dtype=np.uint16).view(dtype).reshape(1, 256)
    frame = bytes(encode(array, RAW, 0))
    out = np.zeros((1, 256), dtype)
    decode_into(frame, RAW, 0, TensorSpec("t", "bfloat16", (1, 256)), 1, out)
    assert out.tobytes() == array.tobytes() == frame


@pytest.mark.parametrize("name", ["object", "nonsense", "V", "U"])
def test_an_element_type_that_cannot_travel_is_named(name: str) -> None:
    with pytest.raises(UserError, match=name):
        dtype_of(name)


@settings(deadline=None)
@given(
    shape=arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    dtype=st.sampled_from(("float32", "float16", "float64")),
    data=st.data(),
)
def test_int8_is_within_half_a_step_inside_its_range(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    limit = 100.0
    array = data.draw(arrays_of.arrays(np.dtype(dtype), shape, elements=st.floats(-limit, limit, width=16)))
    scales = calibrate_int8([array])
    spec = TensorSpec("t", dtype, shape)
    assert len(scales) == channels(spec)
    coding = Coding("int8", "int8", scales=(scales,))
    frame = encode(array, coding, 0)
    assert len(bytes(frame)) == math.prod(shape)
    back = decoded(frame, coding, spec, 1).astype(np.float64)
    step = np.asarray(scales).reshape(-1, *(1,) * (len(shape) - 2)) if len(shape) >= 2 else scales[0]
    slack = 1e-3 * limit if dtype == "float16" else 1e-4 * limit
    assert np.all(np.abs(back - array.astype(np.float64)) <= 0.5 * np.asarray(step) + slack)


def test_int8_rounds_halves_to_even_per_channel_and_clips() -> None:
    coding = Coding("int8", "int8", scales=((1.0, 2.0),))
    array = np.array([[[0.5, 1.5, -1.5, 500.0], [1.0, 3.0, -3.0, -500.0]]], np.float32)
    assert np.frombuffer(encode(array, coding, 0), np.int8).tolist() == [0, 2, -2, 127, 0, 2, -2, -127]


def test_int8_has_a_stated_answer_for_what_is_not_a_number() -> None:
    coding = Coding("int8", "int8", scales=((1.0,),))
    array = np.array([np.nan, np.inf, -np.inf, 3.0], np.float32)
    assert np.frombuffer(encode(array, coding, 0), np.int8).tolist() == [0, 127, -127, 3]


def test_int8_takes_the_scales_of_its_own_tensor() -> None:
    coding = Coding("int8", "int8", scales=((1.0,), (2.0,)))
    array = np.array([8.0], np.float32)
    assert np.frombuffer(encode(array, coding, 1), np.int8)[0] == 4
    with pytest.raises(InputError, match="tensor 2 needs 1 scales"):
        encode(array, coding, 2)


def test_calibration_covers_all_samples_and_ignores_what_is_not_finite() -> None:
    first = np.array([[[1.0, -12.7], [0.0, 0.0]]], np.float32)
    second = np.array([[[2.0, np.inf], [0.0, np.nan]]], np.float32)
    assert calibrate_int8([first, second]) == pytest.approx((0.1, 1.0))
    with pytest.raises(UserError, match="at least one sample"):
        calibrate_int8([])
    with pytest.raises(UserError, match="2 and 3 channels"):
        calibrate_int8([np.zeros((1, 2)), np.zeros((1, 3))])


@pytest.mark.parametrize("rows", [1, 3])
def test_jpeg_comes_close_for_every_row(rows: int) -> None:
    images = picture(48, 40, rows)
    frame = encode(images, JPEG, 0)
    back = decoded(frame, JPEG, TensorSpec("image", "uint8", (1, 48, 40, 3)), rows)
    assert np.abs(back.astype(int) - images.astype(int)).mean() < 8


def test_jpeg_frames_start_with_the_lengths_of_their_streams() -> None:
    frame = bytes(encode(picture(16, 16, 2), JPEG, 0))
    first, second = struct.unpack_from("<2I", frame)
    assert len(frame) == 8 + first + second
    assert simplejpeg.decode_jpeg_header(frame[8 : 8 + first]) == (16, 16, "YCbCr", "420")


def test_jpeg_encodes_an_image_that_is_not_contiguous() -> None:
    images = picture(32, 32)
    assert encode(images[:, :, ::-1], JPEG, 0) == encode(np.ascontiguousarray(images[:, :, ::-1]), JPEG, 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_worst_image_stays_within_the_bound_of_a_jpeg_frame(seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 2, (2, 33, 47, 3), dtype=np.uint8) * np.uint8(255)
    best = Coding("jpeg100", "jpeg", quality=100)
    frame = encode(noise, best, 0)
    check_frame(len(frame), best, TensorSpec("image", "uint8", (1, 33, 47, 3)), 2)


def test_a_jpeg_of_another_size_is_refused_before_it_is_decoded() -> None:
    spec = TensorSpec("image", "uint8", (1, 64, 64, 3))
    stream = simplejpeg.encode_jpeg(np.zeros((4000, 4000, 3), np.uint8), 1, "RGB", "420")[:10_000]
    with pytest.raises(PeerError, match=r"a jpeg of \(4000, 4000\)") as refused:
        decoded(struct.pack("<I", len(stream)) + stream, JPEG, spec, 1)
    assert refused.value.reason == "codec"


def test_progressive_grey_and_cmyk_jpegs_are_images_or_refused_and_many_scans_are_refused() -> None:
    spec = TensorSpec("image", "uint8", (1, 64, 64, 3))
    image = Image.fromarray(picture(64, 64)[0])

    def framed(stream: bytes) -> bytes:
        return struct.pack("<I", len(stream)) + stream

    for mode in ("RGB", "L", "CMYK"):
        stored = io.BytesIO()
        image.convert(mode).save(stored, "JPEG", progressive=True)
        stream = stored.getvalue()
        if mode == "CMYK":
            with pytest.raises(PeerError):
                decoded(framed(stream), JPEG, spec, 1)
            continue
        assert decoded(framed(stream), JPEG, spec, 1).std() > 10
    stored = io.BytesIO()
    image.save(stored, "JPEG", progressive=True)
    stream = stored.getvalue()
    scan = stream[stream.rindex(b"\xff\xda") : -2]
    bomb = stream[:-2] + scan * 20 + stream[-2:]
    with pytest.raises(PeerError, match="scans, expected at most 16"):
        decoded(framed(bomb), JPEG, spec, 1)


def test_jpeg_lengths_that_lie_are_refused() -> None:
    spec = TensorSpec("image", "uint8", (1, 16, 16, 3))
    frame = bytearray(encode(picture(16, 16, 2), JPEG, 0))
    struct.pack_into("<I", frame, 0, 0xFFFFFFFF)
    with pytest.raises(PeerError, match="lengths add up"):
        decoded(frame, JPEG, spec, 2)


def test_jpeg_is_only_for_colour_images_of_bytes() -> None:
    with pytest.raises(InputError, match="uint8"):
        encode(np.zeros((1, 8, 8, 3), np.float32), JPEG, 0)
    with pytest.raises(InputError, match="shape"):
        encode(np.zeros((1, 8, 8), np.uint8), JPEG, 0)
    with pytest.raises(InputError, match="no pixels"):
        encode(np.zeros((1, 0, 8, 3), np.uint8), JPEG, 0)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_damaged_jpeg_is_an_image_or_a_peers_error_and_nothing_else(data: st.DataObject) -> None:
    spec = TensorSpec("image", "uint8", (1, 24, 24, 3))
    frame = bytearray(encode(picture(24, 24, 2), JPEG, 0))
    kind = data.draw(st.sampled_from(("flip", "cut", "noise")))
    if kind == "flip":
        for _ in range(data.draw(st.integers(1, 8))):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    elif kind == "cut":
        frame = frame[: data.draw(st.integers(0, len(frame) - 1))]
    else:
        frame = bytearray(data.draw(st.binary(max_size=300)))
    try:
        decoded(frame, JPEG, spec, 2)
        reason = "codec"
    except PeerError as refused:
        reason = refused.reason
    assert reason in {"size", "codec"}


@given(size=st.integers(0, 200), coding=st.sampled_from((RAW, Coding("int8", "int8", scales=((1.0, 1.0, 1.0),)))))
def test_only_the_one_right_length_passes(size: int, coding: Coding) -> None:
    spec = TensorSpec("t", "float32", (1, 3, 5))
    right = 2 * 15 * (4 if coding.kind == "raw" else 1)
    if size == right:
        check_frame(size, coding, spec, 2)
        return
    with pytest.raises(PeerError, match="expected") as refused:
        decoded(bytes(size), coding, spec, 2)
    assert refused.value.reason == "size"


def test_a_tensor_of_no_elements_has_an_empty_frame() -> None:
    spec = TensorSpec("t", "float32", (1, 0, 4))
    for coding in (RAW, Coding("int8", "int8", scales=((),))):
        frame = encode(np.zeros((2, 0, 4), np.float32), coding, 0)
        assert len(frame) == 0
        assert decoded(frame, coding, spec, 2).shape == (2, 0, 4)


def test_a_missing_jpeg_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "simplejpeg", None)
    with pytest.raises(UserError, match="simplejpeg"):
        encode(picture(16, 16), JPEG, 0)
