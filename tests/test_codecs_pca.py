"""`pca`: the frame is what `docs/protocol.md` says, within its bounds, and bases are fitted well. The formulas are written
out here once more, with other means than the codec's."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from graphs import classifier
from hypothesis import given, settings
from hypothesis import strategies as st
from test_codecs import decoded
from test_plan import write_images

from partitioner.build import make
from partitioner.options import LinkGuess, PlanOptions
from partitioner.own_codings import check_codecs
from shared.bundle import load_bundle
from shared.codecs import CODECS, calibrate_intn, check_frame, coding_fault, encode, frame_bounds
from shared.codecs.pca_basis import find_spectrum, fit_basis, offered
from shared.errors import InputError, PeerError, UserError
from shared.plan import Coding
from shared.request import Array, TensorSpec


def pca(step: float, mean: list[float], *components: list[float]) -> Coding:
    basis = b"".join(struct.pack(f"<{len(mean)}f", *vector) for vector in (mean, *components))
    return Coding("pca", "pca", scales=((step,),), basis=(basis,))


def mixed(rows: int, seed: int, sources: int = 3, channels: int = 12) -> list[Array]:
    """Tensors whose channels are mixed from a few smooth sources, with a little noise: each of one row."""
    mixing = np.random.default_rng(99).standard_normal((channels, sources))
    rng = np.random.default_rng(seed)
    made: list[Array] = []
    for _ in range(rows):
        values = mixing @ rng.standard_normal((sources, 64)).cumsum(axis=1)
        values += 5.0 + 0.01 * rng.standard_normal(values.shape)
        made.append(values.reshape(1, channels, 8, 8).astype(np.float32))
    return made


def decibels(held: list[Array], coding: Coding) -> float:
    """Signal over noise of what comes out of the frames of these tensors."""
    spec = TensorSpec("t", "float32", held[0].shape)
    noise = sum(float(((decoded(encode(a, coding, 0), coding, spec, 1) - a) ** 2).sum()) for a in held)
    signal = sum(float(((a - a.mean(axis=(0, 2, 3), keepdims=True)) ** 2).sum()) for a in held)
    return 10 * math.log10(signal / noise)


@settings(deadline=None, max_examples=60)
@given(
    channels=st.integers(1, 5),
    positions=st.integers(0, 5),
    rows=st.integers(1, 3),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    data=st.data(),
)
def test_the_frame_is_the_formula_of_the_page_to_the_bit(
    channels: int, positions: int, rows: int, dtype: str, data: st.DataObject
) -> None:
    # Components that are signed unit vectors, and numbers of few binary places: every product and sum is exact.
    order = data.draw(st.permutations(range(channels)))[: data.draw(st.integers(1, channels))]
    signs = [data.draw(st.sampled_from([-1.0, 1.0])) for _ in order]
    mean = [data.draw(st.integers(-8, 8)) / 4 for _ in range(channels)]
    components = [[sign * (c == at) for c in range(channels)] for at, sign in zip(order, signs, strict=True)]
    coding = pca(0.25, mean, *components)
    numbers = st.one_of(st.integers(-160, 160), st.integers(-2000, 2000))
    eighths = data.draw(st.lists(numbers, min_size=rows * channels * positions, max_size=rows * channels * positions))
    array = (np.array(eighths, np.float64) / 8).reshape(rows, channels, positions).astype(dtype)
    near, far = bytearray(), bytearray()
    read = np.broadcast_to(np.array(mean)[None, :, None], array.shape).copy()
    for row in range(rows):
        for at, sign in zip(order, signs, strict=True):
            for place in range(positions):
                step = round(sign * (float(array[row, at, place]) - mean[at]) / 0.25)
                near += struct.pack("b", step if -127 <= step <= 127 else -128)
                far += b"" if -127 <= step <= 127 else struct.pack("<h", step)
                read[row, at, place] += sign * step * 0.25
    frame = bytes(encode(array, coding, 0))
    spec = TensorSpec("t", dtype, (1, channels, positions))
    check_frame(len(frame), coding, spec, rows)
    assert zstandard.ZstdDecompressor().decompress(frame) == bytes(near + far)
    assert np.array_equal(decoded(frame, coding, spec, rows), read.astype(dtype))


def test_what_no_byte_holds_follows_and_what_is_not_a_number_is_nothing() -> None:
    coding = pca(1.0, [0.0], [1.0])
    array = np.array([[[127.0, 128.0, -300.4, 1e9, -np.inf, np.nan]]], np.float32)
    spec = TensorSpec("t", "float32", array.shape)
    back = decoded(encode(array, coding, 0), coding, spec, 1)
    assert back.tolist() == [[[127.0, 128.0, -300.0, 32767.0, -32767.0, 0.0]]]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x01\x02\x03", "states 3 bytes, expected 4 to 12"),
        (b"\x80" * 4 + bytes(9), "states 13 bytes, expected 4 to 12"),
        (b"\x80\x01\x01\x01" + b"\x00", "half a step stands at the end"),
        (b"\x80\x80\x01\x01" + b"\x00\x00", "1 steps follow, and more are announced"),
        (b"\x01\x01\x01\x01" + b"\x00\x00", "1 steps follow, 0 are announced"),
    ],
)
def test_steps_that_do_not_add_up_are_refused(data: bytes, fault: str) -> None:
    coding = pca(1.0, [0.0, 0.0], [1.0, 0.0])
    frame = zstandard.ZstdCompressor().compress(data)
    with pytest.raises(PeerError, match=fault) as refused:
        decoded(frame, coding, TensorSpec("t", "float32", (1, 2, 4)), 1)
    assert refused.value.reason == "codec"


def test_the_worst_tensor_stays_within_the_bound_of_a_frame() -> None:
    rng = np.random.default_rng(1)
    array = rng.integers(-30_000, 30_000, (2, 3, 5_000)).astype(np.float32)
    coding = pca(1.0, [0.0] * 3, *np.eye(3).tolist())
    low, high = frame_bounds(coding, TensorSpec("t", "float32", (1, 3, 5_000)), 2)
    frame = encode(array, coding, 0)
    assert 2 * array.size < len(frame) <= high
    assert low <= len(encode(np.zeros_like(array), coding, 0)) < 100


FLOAT = TensorSpec("t", "float32", (1, 3, 4))
ONE = [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("coding", "spec", "fault"),
    [
        (pca(1.0, ONE, ONE), TensorSpec("t", "uint8", (1, 3, 4)), "'t' is uint8, pca is for floating types"),
        (pca(1.0, ONE, ONE), TensorSpec("t", "float32", (3,)), "'t' has no channels"),
        (pca(0.0, ONE, ONE), FLOAT, "the step of 't' is not one positive number"),
        (pca(1e-60, ONE, ONE), FLOAT, "the step of 't' is not one positive number"),
        (pca(1.0, ONE), FLOAT, "a basis of 12 bytes for the 3 channels of 't'"),
        (pca(1.0, [1.0] * 4, [1.0] * 4), FLOAT, "a basis of 32 bytes for the 3 channels of 't'"),
        (pca(1.0, ONE, *[ONE] * 4), FLOAT, "a basis of 60 bytes for the 3 channels of 't'"),
        (pca(1.0, ONE, [math.nan, 0.0, 0.0]), FLOAT, "the basis of 't' holds what is not a number"),
        (Coding("pca", "pca", scales=((1.0,),)), FLOAT, "bases for 0 tensors, the cut has 1"),
        (Coding("int8", "int8", scales=((1.0,) * 3,), basis=(b"",)), FLOAT, "basis is given, which a coding of kind int8"),
    ],
)  # fmt: skip
def test_a_basis_that_does_not_fit_is_refused_with_what_is_wrong(coding: Coding, spec: TensorSpec, fault: str) -> None:
    assert fault in (coding_fault(coding, (spec,)) or "")
    assert coding_fault(pca(1.0, ONE, ONE), (FLOAT,)) is None


def test_a_tensor_of_other_channels_is_refused() -> None:
    with pytest.raises(InputError, match="tensor 0 of shape \\(1, 4, 4\\) has no basis"):
        encode(np.zeros((1, 4, 4), np.float32), pca(1.0, ONE, ONE), 0)


def test_a_basis_survives_the_plans_json() -> None:
    (coding, *_) = offered("pca", (TensorSpec("t", "float32", (1, 12, 8, 8)),), [mixed(2, 0)])
    assert msgspec.json.decode(msgspec.json.encode(coding), type=Coding) == coding


# --- fitting --------------------------------------------------------------------------------------------------------


def test_eight_samples_give_a_basis_that_beats_four_bits_at_less_noise() -> None:
    fit, held = mixed(8, 0), mixed(4, 1)
    spec = TensorSpec("t", "float32", fit[0].shape)
    four = Coding("int4", "intn", bits=4, scales=(calibrate_intn(fit, 4),))
    twenty = next(coding for coding in offered("pca", (spec,), [fit]) if coding.name == "pca20")
    sizes = [sum(len(encode(a, coding, 0)) for a in held) for coding in (four, twenty)]
    assert len(twenty.basis[0]) // (4 * 12) - 1 == 3  # the three sources, and nothing of the noise
    assert sizes[1] * 1.4 < sizes[0]
    assert decibels(held, twenty) > decibels(held, four)


@pytest.mark.parametrize("level_db", [10, 20, 30])
def test_the_noise_is_what_was_asked_for_or_less(level_db: int) -> None:
    fit = mixed(8, 0, sources=12)
    values = np.concatenate([sample.reshape(12, 64) for sample in fit], axis=1).astype(np.float64)
    allowed = values.var(axis=1).mean() / 10 ** (level_db / 10)
    step, basis = fit_basis(find_spectrum(fit), level_db)
    coding = Coding("pca", "pca", scales=((step,),), basis=(basis,))
    spec = TensorSpec("t", "float32", fit[0].shape)
    noise = np.mean([((decoded(encode(a, coding, 0), coding, spec, 1) - a) ** 2).mean() for a in fit])
    assert 0.1 * allowed < noise < 1.1 * allowed


def test_bases_of_odd_tensors() -> None:
    flat = np.full((1, 3, 4), 7.0, np.float32)
    step, basis = fit_basis(find_spectrum([flat]), 20)
    coding = Coding("pca", "pca", scales=((step,),), basis=(basis,))
    assert coding_fault(coding, (FLOAT,)) is None
    assert np.allclose(decoded(encode(flat, coding, 0), coding, FLOAT, 1), 7.0)
    broken = np.where(np.arange(12).reshape(1, 3, 4) == 5, np.inf, 1.0).astype(np.float32)
    assert all(math.isfinite(value) for value in np.frombuffer(fit_basis(find_spectrum([broken]), 20)[1], "<f4"))
    with pytest.raises(UserError, match="at least one sample"):
        find_spectrum([])
    with pytest.raises(UserError, match="3 and 2 channels"):
        find_spectrum([flat, flat[:, :2]])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 12, 8, 8), "uint8"), ((1, 12), "float32"), ((1, 1, 64), "float32"), ((1, 513, 2), "float32")],
)
def test_a_basis_is_offered_only_where_one_can_be_fitted(shape: tuple[int, ...], dtype: str) -> None:
    assert offered("pca", (TensorSpec("t", dtype, shape),), [[np.zeros(shape, dtype)]]) == ()


def test_pca_is_asked_for_and_the_others_are_not() -> None:
    check_codecs(["pca"])
    for kind in CODECS:
        if kind != "pca":
            with pytest.raises(UserError, match="is offered without being asked for"):
                check_codecs([kind])


def test_a_plan_sends_a_cut_in_pca_where_it_is_asked_for_and_proves_it(tmp_path: Path) -> None:
    options = PlanOptions(
        model=classifier(64).save(tmp_path / "net.onnx"),
        out=tmp_path / "net.plan",
        calibration=write_images(tmp_path / "images"),
        shapes=("1,3,64,64",),
        preprocess="image",
        link=LinkGuess(0.1, 1.0),
        force_cuts=("stem",),
        lower_rungs=False,
        quick=True,
        codecs=("pca",),
    )
    made = make(options)
    tried = {coded.coding.name: coded for coded in made.weighing.loaded["stem"].coded}
    assert {"pca25", "pca20", "pca15"} <= tried.keys()
    assert tried["pca15"].bytes_up < tried["pca25"].bytes_up < tried["int8"].bytes_up
    assert all(0.0 <= tried[name].agreement <= 1.0 for name in tried)
    bundle = load_bundle(options.out)
    kinds = {coding.kind for cut in bundle.plan.cuts for coding in cut.codings}
    assert "pca" in kinds
    assert any(check.startswith("pca") for check in {r.coding for r in bundle.plan.routes})
