"""The kinds for images beside plain `jpeg`: `qoi`, which loses nothing, and JPEG of full colour."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import qoi
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from test_codecs import decoded, picture

from shared.codecs import check_frame, encode, frame_bounds
from shared.errors import InputError
from shared.plan import Coding
from shared.request import TensorSpec

QOI = Coding("qoi", "qoi")
FULL = Coding("jpeg90-444", "jpeg", quality=90, subsampling="444")


@settings(deadline=None)
@given(rows=st.integers(0, 3), height=st.integers(1, 20), width=st.integers(1, 70), noise=st.booleans(), data=st.data())
def test_qoi_gives_back_every_bit(rows: int, height: int, width: int, noise: bool, data: st.DataObject) -> None:
    images = picture(height, width, rows) if rows else np.zeros((0, height, width, 3), np.uint8)
    if noise:
        rng = np.random.default_rng(data.draw(st.integers(0, 99)))
        images = rng.integers(0, data.draw(st.sampled_from([1, 2, 256])), images.shape, dtype=np.uint8)
    spec = TensorSpec("image", "uint8", (1, height, width, 3))
    frame = encode(images, QOI, 0)
    check_frame(len(frame), QOI, spec, rows)
    assert np.array_equal(decoded(frame, QOI, spec, rows), images)


def test_qoi_frames_are_lengths_and_then_streams_that_any_reader_of_qoi_reads() -> None:
    images = picture(16, 24, 2)
    frame = bytes(encode(images, QOI, 0))
    first, second = struct.unpack_from("<2I", frame)
    assert len(frame) == 8 + first + second
    stream = frame[8 : 8 + first]
    assert stream[:14] == b"qoif" + struct.pack(">IIBB", 24, 16, 3, 0)
    assert stream[-8:] == b"\0" * 7 + b"\x01"
    assert np.array_equal(qoi_by_hand(stream), images[0])
    assert np.array_equal(qoi.decode(frame[8 + first :]), images[1])


def qoi_by_hand(stream: bytes) -> np.ndarray:
    """A reader of the format's own page."""
    width, height = struct.unpack_from(">II", stream, 4)
    seen = [(0, 0, 0, 0)] * 64
    pixel, pixels, at = (0, 0, 0, 255), [], 14
    while len(pixels) < width * height:
        tag = stream[at]
        at += 1
        red, green, blue, alpha = pixel
        if tag == 0xFE:
            pixel = (*stream[at : at + 3], alpha)
            at += 3
        elif tag >> 6 == 0:
            pixel = seen[tag]
        elif tag >> 6 == 1:
            steps = (tag >> 4 & 3) - 2, (tag >> 2 & 3) - 2, (tag & 3) - 2
            pixel = ((red + steps[0]) % 256, (green + steps[1]) % 256, (blue + steps[2]) % 256, alpha)
        elif tag >> 6 == 2:
            step, rest = (tag & 63) - 32, stream[at]
            at += 1
            pixel = (
                (red + step - 8 + (rest >> 4)) % 256,
                (green + step) % 256,
                (blue + step - 8 + (rest & 15)) % 256,
                alpha,
            )
        else:
            pixels += [pixel] * (tag & 63)
        seen[(pixel[0] * 3 + pixel[1] * 5 + pixel[2] * 7 + pixel[3] * 11) % 64] = pixel
        pixels.append(pixel)
    return np.array(pixels, np.uint8)[:, :3].reshape(height, width, 3)


@pytest.mark.parametrize("side", [1, 17, 64])
def test_the_least_and_the_worst_image_stay_within_the_bounds_of_a_qoi_frame(side: int) -> None:
    spec = TensorSpec("image", "uint8", (1, side, side, 3))
    low, high = frame_bounds(QOI, spec, 2)
    assert len(encode(np.zeros((2, side, side, 3), np.uint8), QOI, 0)) == low
    noise = np.random.default_rng(0).integers(0, 256, (2, side, side, 3), dtype=np.uint8)
    assert low < len(encode(noise, QOI, 0)) <= high


@pytest.mark.parametrize("seed", range(3))
def test_the_worst_image_stays_within_the_bound_of_a_full_colour_jpeg_frame(seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 2, (2, 33, 47, 3), dtype=np.uint8) * np.uint8(255)
    best = Coding("best", "jpeg", quality=100, subsampling="444")
    frame = encode(noise, best, 0)
    check_frame(len(frame), best, TensorSpec("image", "uint8", (1, 33, 47, 3)), 2)


def test_a_full_colour_jpeg_keeps_colours_that_the_other_halves() -> None:
    stripes = np.zeros((1, 64, 64, 3), np.uint8)
    stripes[:, :, ::2] = (255, 0, 0)
    stripes[:, :, 1::2] = (0, 0, 255)
    spec = TensorSpec("image", "uint8", (1, 64, 64, 3))
    half = Coding("jpeg90", "jpeg", quality=90)
    frames = {coding: bytes(encode(stripes, coding, 0)) for coding in (FULL, half)}
    forms = [simplejpeg.decode_jpeg_header(frame[4:])[3] for frame in frames.values()]
    assert forms == ["444", "420"]
    full, halved = (
        np.abs(decoded(frame, coding, spec, 1).astype(int) - stripes).mean() for coding, frame in frames.items()
    )
    assert full < 10 < 50 < halved
    # A receiver reads either in either coding, since a stream says what it is.
    assert np.array_equal(decoded(frames[FULL], half, spec, 1), decoded(frames[FULL], FULL, spec, 1))


def test_a_coding_without_loss_gives_the_picture_that_was_taken() -> None:
    image = np.asarray(Image.fromarray(picture(48, 40)[0]).rotate(3))[None]
    assert np.array_equal(decoded(encode(image, QOI, 0), QOI, TensorSpec("image", "uint8", (1, 48, 40, 3)), 1), image)
    with pytest.raises(InputError, match="uint8, not float32"):
        encode(image.astype(np.float32), QOI, 0)
    with pytest.raises(InputError, match="the qoi coding is for tensors of shape"):
        encode(image[0], QOI, 0)
    with pytest.raises(InputError, match="no pixels"):
        encode(np.zeros((1, 0, 8, 3), np.uint8), QOI, 0)
