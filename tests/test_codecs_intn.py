"""`intn`: the frame is what `docs/protocol.md` says, to the bit, within its bounds, and scales are fitted well. The formulas
are written out here once more, with other means than the codec's."""

from __future__ import annotations

import math
import threading

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from test_codecs import decoded

from shared.codecs import calibrate_intn, check_frame, encode, frame_bounds
from shared.errors import InputError, UserError
from shared.plan import Coding
from shared.request import TensorSpec

FLOATS = ("float16", "float32", "float64")


def intn(bits: int, *scales: float) -> Coding:
    return Coding(f"int{bits}", "intn", bits=bits, scales=(scales,))


def unpacked(frame: bytes, bits: int, elements: int) -> list[int]:
    """The steps of an intn frame, by the page's words."""
    data = zstandard.ZstdDecompressor().decompress(frame)
    if bits > 4:
        return [byte - 256 if byte > 127 else byte for byte in data]
    halves = [half for byte in data for half in (byte & 15, byte >> 4)]
    return [half - 16 if half > 7 else half for half in halves][:elements]


@settings(deadline=None)
@given(
    bits=st.integers(2, 8),
    dtype=st.sampled_from(FLOATS),
    shape=arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    single=st.booleans(),
    data=st.data(),
)
def test_intn_is_the_formula_of_the_page_to_the_bit(
    bits: int, dtype: str, shape: tuple[int, ...], single: bool, data: st.DataObject
) -> None:
    array = data.draw(arrays_of.arrays(np.dtype(dtype), shape, elements=st.floats(-60, 60, width=16)))
    count = 1 if single or len(shape) < 2 else shape[1]
    scales = data.draw(st.lists(st.floats(0.125, 4, width=32), min_size=count, max_size=count))
    coding = intn(bits, *scales)
    spec = TensorSpec("t", dtype, shape)
    frame = bytes(encode(array, coding, 0))
    check_frame(len(frame), coding, spec, 1)
    packed = math.ceil(array.size / 2) if bits <= 4 else array.size
    assert zstandard.get_frame_parameters(frame).content_size == packed
    limit = 2 ** (bits - 1) - 1
    steps: list[int] = []
    read: list[float] = []
    for place in np.ndindex(*shape):
        scale = np.float32(scales[0] if count == 1 else scales[place[1]])
        step = max(-limit, min(limit, round(float(np.float32(array[place]) / scale))))
        steps.append(step)
        read.append(float(np.float32(step) * scale))
    assert unpacked(frame, bits, array.size) == steps
    back = decoded(frame, coding, spec, 1)
    assert back.tobytes() == np.array(read).reshape(shape).astype(np.float32).astype(dtype).tobytes()


@pytest.mark.parametrize("bits", range(2, 9))
def test_intn_clips_and_has_an_answer_for_what_is_not_a_number(bits: int) -> None:
    limit = 2 ** (bits - 1) - 1
    array = np.array([0.5, 1.5, -1e9, 1e9, np.inf, -np.inf, np.nan], np.float32)
    steps = unpacked(bytes(encode(array, intn(bits, 1.0), 0)), bits, array.size)
    assert steps == [0, min(2, limit), -limit, limit, limit, -limit, 0]


@settings(deadline=None)
@given(bits=st.integers(2, 8), seed=st.integers(0, 99))
def test_intn_is_within_half_a_step_inside_its_range_for_every_row(bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    limit = 2 ** (bits - 1) - 1
    scales = rng.uniform(0.1, 2.0, 5).astype(np.float32)
    array = rng.uniform(-1, 1, (3, 5, 7)).astype(np.float32) * scales[:, None] * limit
    coding = intn(bits, *scales.tolist())
    back = decoded(encode(array, coding, 0), coding, TensorSpec("t", "float32", (1, 5, 7)), 3)
    assert np.all(np.abs(back - array) <= 0.5001 * scales[:, None])


def test_intn_refuses_scales_of_another_number() -> None:
    with pytest.raises(InputError, match="tensor 0 needs 3 scales"):
        encode(np.zeros((1, 3), np.float32), intn(4, 1.0, 1.0), 0)
    with pytest.raises(InputError, match="tensor 1 needs 3 scales"):
        encode(np.zeros((1, 3), np.float32), intn(4, 1.0), 1)


@pytest.mark.parametrize("bits", [2, 4, 5, 8])
def test_the_worst_tensor_stays_within_the_bound_of_an_intn_frame(bits: int) -> None:
    limit = 2 ** (bits - 1) - 1
    for size in (0, 1, 2, 999, 300_000):
        noise = np.random.default_rng(size).integers(-limit, limit + 1, (1, 1, size)).astype(np.float32)
        frame = encode(noise, intn(bits, 1.0), 0)
        low, high = frame_bounds(intn(bits, 1.0), TensorSpec("t", "float32", (1, 1, size)), 1)
        assert low <= len(frame) <= high
    zeros = encode(np.zeros((1, 1, 300_000), np.float32), intn(bits, 1.0), 0)
    assert len(zeros) < 300


def test_intn_may_be_used_by_several_threads_at_once() -> None:
    tensors = [np.full((1, 4, 50_000), value, np.float32) for value in range(4)]
    spec = TensorSpec("t", "float32", tensors[0].shape)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            back = decoded(encode(tensors[number], intn(4, 1.0), 0), intn(4, 1.0), spec, 1)
            if not np.array_equal(back, tensors[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


# --- calibration ------------------------------------------------------------------------------------------------


def loss(samples: list[np.ndarray], bits: int, scales: tuple[float, ...]) -> float:
    coding = intn(bits, *scales)
    spec = TensorSpec("t", "float32", samples[0].shape)
    return sum(float(((decoded(encode(s, coding, 0), coding, spec, 1) - s) ** 2).sum()) for s in samples)


@pytest.mark.parametrize("bits", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("form", ["dense", "relu", "heavy"])
def test_calibration_comes_close_to_the_best_of_all_clips(bits: int, form: str) -> None:
    rng = np.random.default_rng(bits)
    samples = [rng.standard_normal((1, 1, 12, 12)).astype(np.float32) for _ in range(8)]
    if form == "relu":
        samples = [np.maximum(sample - 0.5, 0) for sample in samples]
    if form == "heavy":
        samples = [sample**3 for sample in samples]
    end = max(float(np.abs(sample).max()) for sample in samples) / (2 ** (bits - 1) - 1)
    found = loss(samples, bits, calibrate_intn(samples, bits))
    assert found <= 1.0001 * loss(samples, bits, (end,))
    assert found <= 1.2 * min(loss(samples, bits, (share / 20 * end,)) for share in range(1, 21))


def test_four_bits_cut_off_a_lone_outlier_and_eight_bits_of_few_values_do_not() -> None:
    sample = np.random.default_rng(0).uniform(-1, 1, (1, 1, 4000)).astype(np.float32)
    sample[0, 0, 0] = 3.0
    (scale,) = calibrate_intn([sample], 4)
    assert 0.9 < scale * 7 < 1.3
    few = np.array([[[0.0, 1.0, -127.0]]], np.float32)
    assert calibrate_intn([few], 8) == pytest.approx((1.0,))


def test_calibration_by_channel_by_tensor_and_of_odd_tensors() -> None:
    sample = np.array([[[7.0, 7.0], [0.0, np.nan], [14.0, -np.inf]]], np.float32)
    assert calibrate_intn([sample], 4) == pytest.approx((1.0, 1.0, 2.0))
    assert len(calibrate_intn([sample], 4, per_channel=False)) == 1
    assert calibrate_intn([np.array(7.0, np.float32)], 4) == pytest.approx((1.0,))
    assert calibrate_intn([np.zeros((1, 2, 0), np.float32)], 4) == (1.0, 1.0)
    assert calibrate_intn([np.zeros((1, 0, 2), np.float32)], 4) == ()
    with pytest.raises(UserError, match="at least one sample"):
        calibrate_intn([], 4)
    with pytest.raises(UserError, match="2 and 3 channels"):
        calibrate_intn([np.zeros((1, 2)), np.zeros((1, 3))], 4)
    with pytest.raises(UserError, match="9 bits: expected 2 to 8"):
        calibrate_intn([sample], 9)


def test_a_channel_of_many_values_is_judged_by_some_of_them_and_its_peak_by_all() -> None:
    sample = np.zeros((1, 1024, 60, 60), np.float32)
    sample[:, 0] = np.random.default_rng(0).standard_normal((60, 60))
    sample[:, 1, 59, 7] = 5.0
    scales = calibrate_intn([sample], 4)
    assert scales[0] == pytest.approx(calibrate_intn([sample[:, :1]], 4)[0], rel=0.1)
    assert scales[1:3] == pytest.approx((5.0 / 7, 1.0))
