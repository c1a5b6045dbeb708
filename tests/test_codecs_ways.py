"""Codings on their way: an edge and its nodes, and the executors of both sides, with kinds that a plan may name."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from executor_rig import ROWS, Rig, reference, run_of
from plans import Y, make_plan
from test_pair import TWO, pair_of
from tiny import inputs_for, make_bundle

from hil.pair import MS, stamp
from shared.bundle import Bundle, load_bundle
from shared.codecs import frame_bounds
from shared.events import Row
from shared.plan import RAW, CodecTime, Coding, Cut, Plan, Route, SegmentRange, contract_digest
from shared.request import Array, TensorSpec

QOI = Coding("qoi", "qoi")
FULL = Coding("jpeg100-444", "jpeg", quality=100, subsampling="444")
IMAGE = TensorSpec("x", "uint8", (1, 8, 8, 3))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    for executor in rig.open:
        executor.close()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(make_bundle(tmp_path_factory.mktemp("bundles"), "chain", max_batch=ROWS))


def image_plan(codec_us: float) -> tuple[str, Plan]:
    """An image whose one route sends it as QOI, which takes `codec_us` to encode and to decode."""
    _, plan = make_plan(routes=(Route(0, "qoi", 1.0, 220, 200),))
    times = (CodecTime(0, "qoi", codec_us, codec_us),)
    plan = msgspec.structs.replace(
        plan,
        cuts=(Cut("x", (IMAGE,), (RAW, QOI)), *plan.cuts[1:]),
        profiles=tuple(msgspec.structs.replace(profile, codecs=times) for profile in plan.profiles),
    )
    return contract_digest(plan), plan


def image(seed: int) -> tuple[Array, ...]:
    return (np.random.default_rng(seed).integers(0, 256, IMAGE.shape, dtype=np.uint8),)


def test_an_input_is_encoded_without_loss_on_the_device_and_the_answer_is_exact() -> None:
    pair = pair_of(image_plan(100.0), nodes=TWO[:1])
    sequence = pair.ask(image(0))
    pair.run(20)
    answer = pair.answer(sequence)
    assert (answer.source, answer.cut, str(answer.fidelity), answer.agreement) == ("cloud", 0, "exact", 1.0)
    assert (answer.outputs["y"] == stamp(list(image(0)), 0, [(Y.shape, "float32")])[0]).all()
    assert answer.stages["head"] >= 0.1 * MS
    (run,) = [run for run in pair.nodes["a"].launched if not run.range.empty]
    assert run.rows[0].decode == QOI
    low, high = frame_bounds(QOI, IMAGE, 1)
    assert low <= memoryview(run.rows[0].inputs[0]).nbytes <= high


def test_the_time_that_a_lossless_coding_takes_counts_where_a_way_is_chosen() -> None:
    pair = pair_of(image_plan(20_000.0), nodes=TWO[:1])
    sequence = pair.ask(image(0))
    pair.run(20)
    assert pair.answer(sequence).source == "edge"


@pytest.mark.parametrize("coding", [QOI, FULL], ids=lambda coding: coding.name)
def test_images_of_a_batch_pass_from_head_to_tail(rig: Rig, chain: Bundle, coding: Coding) -> None:
    executor = rig.real(chain)
    images = [inputs_for(chain.plan, rows, seed=rows)[0] for rows in (2, 1)]
    nothing = SegmentRange(0, 0, 0)
    sent = []
    for number, array in enumerate(images):
        row = Row(number, len(array), (array,), RAW, coding)
        executor.submit(run_of(chain, row, part=nothing, run=number, slot=-1))
        sent.append(rig.finished().results[0].outputs)
    rows = tuple(Row(i, len(array), frames, coding) for i, (array, frames) in enumerate(zip(images, sent, strict=True)))
    executor.submit(run_of(chain, *rows, run=9))
    for array, result in zip(images, rig.finished().results, strict=True):
        assert result.error == ""
        if coding is QOI:
            np.testing.assert_allclose(result.outputs[0], reference(chain, array)["logits"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_middle_tensor_passes_in_steps_and_a_damaged_one_fails_alone(rig: Rig, chain: Bundle, bits: int) -> None:
    executor = rig.real(chain)
    known = chain.plan.cuts[1].coding("int8")
    assert known is not None
    scales = tuple(tuple(scale * (127 / (2 ** (bits - 1) - 1)) for scale in each) for each in known.scales)
    coding = Coding("steps", "intn", bits=bits, scales=scales)
    array = inputs_for(chain.plan)[0]
    executor.submit(run_of(chain, Row(1, 1, (array,), RAW, coding), part=SegmentRange(0, 0, 1)))
    (frame,) = rig.finished().results[0].outputs
    rows = (Row(1, 1, (frame,), coding), Row(2, 1, (bytes(frame)[:-1],), coding), Row(3, 1, (frame,), coding))
    executor.submit(run_of(chain, *rows, part=SegmentRange(0, 1, 3), run=2, slot=1))
    first, second, third = rig.finished().results
    assert "not a zstd frame that can be read" in second.error
    assert first.error == third.error == ""
    assert np.array_equal(first.outputs[0], third.outputs[0])
    if bits == 8:
        np.testing.assert_allclose(first.outputs[0], reference(chain, array)["logits"], atol=0.5)
