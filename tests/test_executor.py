"""The executor on its thread: what it answers, with real sessions, and how a row, a batch or a run fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from executor_rig import (
    ONE,
    PATIENCE_S,
    ROWS,
    Rig,
    Scripted,
    ScriptedInterrupt,
    as_frames,
    double,
    identity_run,
    reference,
    run_of,
    until_stopped,
    vector,
)
from tiny import inputs_for, make_bundle, run_chain

from shared import codecs
from shared.bundle import Bundle, load_bundle
from shared.errors import InvariantBroken, ModelError
from shared.events import Failed, Finished, Row
from shared.executors.ort import load_programs
from shared.plan import RAW, Coding, SegmentRange
from shared.request import Array
from shared.settings import Execution


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    for executor in rig.open:
        executor.close()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(make_bundle(tmp_path_factory.mktemp("bundles"), "chain", max_batch=ROWS))


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(make_bundle(tmp_path_factory.mktemp("bundles"), "identity", elements=4, max_batch=ROWS))


# --- answers -----------------------------------------------------------------------------------------------------------


def test_each_row_of_a_batch_gets_its_own_answer(rig: Rig, chain: Bundle) -> None:
    """Rows of different sizes, arrays and frames together."""
    images = [inputs_for(chain.plan, rows, seed=rows)[0] for rows in (1, 2, 1)]
    rows = (
        Row(7, 1, (images[0],), RAW),
        Row(8, 2, as_frames(chain, 0, "raw", (images[1],)), RAW),
        Row(9, 1, (images[2],), RAW),
    )
    rig.real(chain).submit(run_of(chain, *rows))
    finished = rig.finished()
    assert [result.job for result in finished.results] == [7, 8, 9]
    for image, result in zip(images, finished.results, strict=True):
        expected = reference(chain, image)
        np.testing.assert_allclose(result.outputs[0], expected["logits"], rtol=1e-5, atol=1e-6)
        assert np.array_equal(result.outputs[1], expected["best"])
    assert finished.began_ns < finished.ended_ns
    assert 0 < finished.codec_ns < finished.ended_ns - finished.began_ns


@pytest.mark.parametrize(
    ("cut", "coding"), [(0, "raw"), (0, "jpeg90"), (1, "raw"), (1, "int8"), (2, "raw"), (2, "int8")]
)
def test_head_then_tail_equals_the_whole_behind_the_same_codec(rig: Rig, chain: Bundle, cut: int, coding: str) -> None:
    executor = rig.real(chain)
    chosen = chain.plan.cuts[cut].coding(coding)
    assert chosen is not None
    image = inputs_for(chain.plan)[0]
    executor.submit(run_of(chain, Row(1, 1, (image,), RAW, chosen), part=SegmentRange(0, 0, cut)))
    frames = rig.finished().results[0].outputs
    expected: dict[str, Array] = {}
    for i, (spec, frame) in enumerate(zip(chain.plan.cuts[cut].tensors, frames, strict=True)):
        codecs.check_frame(len(frame), chosen, spec, 1)
        expected[spec.name] = np.empty(spec.shape, spec.dtype)
        codecs.decode_into(bytes(frame), chosen, i, spec, 1, expected[spec.name])
    executor.submit(run_of(chain, Row(2, 1, frames, chosen), part=SegmentRange(0, cut, 3), run=2, slot=1))
    made = rig.finished().results[0].outputs
    known = run_chain(chain.path, chain.plan.programs[0].segments[cut:], expected)
    np.testing.assert_allclose(made[0], known["logits"], rtol=1e-5, atol=1e-6)
    if coding == "raw":
        np.testing.assert_allclose(made[0], reference(chain, image)["logits"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cut", [1, 2])
def test_a_batch_in_two_pieces_gives_what_it_gives_in_one(rig: Rig, chain: Bundle, cut: int) -> None:
    """What a row gave at the cut, a view of the batch's tensors, is what it begins the next piece with."""
    images = [inputs_for(chain.plan, rows, seed=rows)[0] for rows in (1, 2, 1)]
    executor = rig.real(chain)
    executor.submit(
        run_of(chain, *(Row(i, len(x), (x,), RAW) for i, x in enumerate(images)), part=SegmentRange(0, 0, cut))
    )
    between = [result.outputs for result in rig.finished().results]
    rows = [Row(i, len(images[i]), between[i], RAW) for i in (2, 1, 0)]
    executor.submit(run_of(chain, *rows, part=SegmentRange(0, cut, 3), run=2, slot=1))
    for result in rig.finished().results:
        assert not result.error
        np.testing.assert_allclose(
            result.outputs[0], reference(chain, images[result.job])["logits"], rtol=1e-5, atol=1e-6
        )


def test_a_row_that_cannot_be_decoded_fails_alone(rig: Rig, chain: Bundle) -> None:
    coding = chain.plan.cuts[0].coding("jpeg90")
    assert coding is not None
    images = [inputs_for(chain.plan, seed=seed)[0] for seed in range(3)]
    frames = [as_frames(chain, 0, "jpeg90", (image,))[0] for image in images]
    damaged = frames[1][:40] + bytes(len(frames[1]) - 40)
    executor = rig.real(chain)
    rows = tuple(Row(i, 1, (frame,), coding) for i, frame in enumerate((frames[0], damaged, frames[2])))
    executor.submit(run_of(chain, *rows))
    first, second, third = rig.finished().results
    assert "image" in second.error
    assert second.outputs == ()
    for index, result in ((0, first), (2, third)):
        decoded = np.empty(images[0].shape, np.uint8)
        codecs.decode_into(frames[index], coding, 0, chain.plan.inputs[0], 1, decoded)
        assert result.error == ""
        np.testing.assert_allclose(result.outputs[0], reference(chain, decoded)["logits"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((b"\0" * 15,), "size"),
        ((np.zeros((1, 3), np.float32),), "expected float32"),
        ((np.zeros((1, 4), np.float64),), "expected float32"),
        ((), "0 tensors, expected 1"),
    ],
)
def test_a_row_that_does_not_fit_is_named(rig: Rig, identity: Bundle, inputs: tuple[Array, ...], message: str) -> None:
    rig.real(identity).submit(identity_run(identity, Row(2, 1, inputs, RAW), ONE))
    bad, good = rig.finished().results
    assert message in bad.error
    assert np.array_equal(good.outputs[0], ONE.inputs[0])


def test_an_answer_is_not_overwritten_by_the_next_run_in_the_same_slot(rig: Rig, tmp_path: Path) -> None:
    """Outputs that are tensors of the entry, passed along, would lie in the slot."""
    bundle = load_bundle(make_bundle(tmp_path, "passing", elements=4, max_batch=ROWS))
    executor = rig.real(bundle)
    one, two = vector(1, 1, 1, 1), vector(2, 2, 2, 2)
    for encode in (None, RAW):
        part = SegmentRange(0, 0, 2)
        executor.submit(run_of(bundle, Row(1, 1, (one,), RAW, encode), part=part))
        held = rig.finished().results[0].outputs
        before = [bytes(memoryview(output)) for output in held]
        executor.submit(run_of(bundle, Row(2, 1, (two,), RAW, encode), Row(3, 1, (two,), RAW), part=part, run=2))
        rig.finished()
        assert [bytes(memoryview(output)) for output in held] == before


def test_an_identity_models_answer_is_not_its_slot(rig: Rig, identity: Bundle) -> None:
    executor = rig.real(identity)
    executor.submit(identity_run(identity, ONE))
    held = rig.finished().results[0].outputs[0]
    executor.submit(identity_run(identity, Row(2, 1, (vector(9, 9, 9, 9),), RAW), run=2))
    rig.finished()
    assert np.array_equal(held, ONE.inputs[0])


def test_a_model_that_hands_its_input_back_is_copied(rig: Rig, identity: Bundle) -> None:
    executor = rig.make(identity, Scripted(identity, lambda feeds, _: (feeds["x"],)))
    executor.submit(identity_run(identity, ONE, Row(2, 1, (vector(5, 5, 5, 5),), RAW)))
    held = [result.outputs[0] for result in rig.finished().results]
    executor.submit(identity_run(identity, Row(3, 2, (np.zeros((2, 4), np.float32),), RAW), run=2))
    rig.finished()
    assert np.array_equal(np.concatenate(held), np.concatenate([ONE.inputs[0], vector(5, 5, 5, 5)]))


def test_an_empty_range_only_encodes_and_decodes(rig: Rig, chain: Bundle) -> None:
    jpeg = chain.plan.cuts[0].coding("jpeg90")
    assert jpeg is not None
    image = inputs_for(chain.plan)[0]
    executor = rig.real(chain)
    executor.submit(run_of(chain, Row(1, 1, (image,), RAW, jpeg), part=SegmentRange(0, 0, 0), slot=-1))
    finished = rig.finished()
    assert [bytes(frame) for frame in finished.results[0].outputs] == list(as_frames(chain, 0, "jpeg90", (image,)))
    assert 0 < finished.codec_ns <= finished.ended_ns - finished.began_ns
    frames = as_frames(chain, 0, "raw", (image,))
    executor.submit(run_of(chain, Row(1, 1, frames, RAW), part=SegmentRange(0, 0, 0), slot=-1))
    assert np.array_equal(rig.finished().results[0].outputs[0], image)


def test_an_encoding_that_does_not_fit_fails_its_row_only(rig: Rig, identity: Bundle) -> None:
    wrong = Coding("int8", "int8", scales=((1.0,),))
    rig.real(identity).submit(
        identity_run(identity, Row(1, 1, ONE.inputs, RAW, wrong), Row(2, 1, ONE.inputs, RAW, RAW))
    )
    bad, good = rig.finished().results
    assert "needs 4 scales" in bad.error
    assert bytes(good.outputs[0]) == ONE.inputs[0].tobytes()


def test_a_plan_that_cannot_be_batched_runs_one_row(rig: Rig, tmp_path: Path) -> None:
    bundle = load_bundle(make_bundle(tmp_path, "chain", batchable=False))
    executor = rig.make(bundle, load_programs(bundle, Execution(), "edge", 1))
    image = inputs_for(bundle.plan)[0]
    executor.submit(run_of(bundle, Row(1, 1, (image,), RAW)))
    made = rig.finished().results[0].outputs
    np.testing.assert_allclose(made[0], reference(bundle, image)["logits"], rtol=1e-5, atol=1e-6)
    executor.submit(run_of(bundle, Row(1, 1, (image,), RAW), Row(2, 1, (image,), RAW)))
    assert rig.failed().reason == "error"


# --- failures ----------------------------------------------------------------------------------------------------------


def test_a_bad_item_does_not_fail_its_batch(rig: Rig, identity: Bundle) -> None:
    def poisoned(feeds: Mapping[str, Array], interrupt: ScriptedInterrupt) -> tuple[Array, ...]:
        if (feeds["x"] == 13).any():
            raise ModelError("thirteen")
        return double(feeds, interrupt)

    programs = Scripted(identity, poisoned)
    rows = [Row(job, 1, (vector(job, job, job, job),), RAW) for job in (12, 13, 14)]
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, *rows))
    results = rig.finished().results
    assert [result.error for result in results] == ["", "thirteen", ""]
    assert [result.outputs[0][0, 0] for result in (results[0], results[2])] == [24, 28]
    assert programs.calls == 4
    executor.submit(identity_run(identity, rows[1], run=2))
    assert rig.finished().results[0].error == "thirteen"
    assert programs.calls == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contract": "0" * 64}, "is not loaded here"),
        ({"range": SegmentRange(0, 0, 2)}, "is not loaded here"),
        ({"range": SegmentRange(3, 0, 1)}, "is not loaded here"),
        ({"slot": 2}, "no slot 2"),
        ({"slot": -1}, "no slot -1"),
        ({"rows": tuple(Row(i, 1, ONE.inputs, RAW) for i in range(5))}, "more rows than the 4"),
    ],
)
def test_a_run_that_cannot_be_meant_fails_and_the_next_is_served(
    rig: Rig, identity: Bundle, change: dict[str, object], message: str
) -> None:
    executor = rig.real(identity)
    executor.submit(msgspec.structs.replace(identity_run(identity, ONE), **change))
    failed = rig.failed()
    assert failed.reason == "error"
    assert message in failed.detail
    executor.submit(identity_run(identity, ONE, run=2))
    assert rig.finished().run == 2


def test_a_run_does_not_begin_after_its_latest_time(rig: Rig, identity: Bundle) -> None:
    programs = Scripted(identity, double)
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, ONE, latest_ns=time.monotonic_ns() - 1))
    assert rig.failed().reason == "window"
    assert programs.calls == 0


def test_the_latest_time_is_checked_when_the_run_would_begin_and_not_when_it_was_given(
    rig: Rig, identity: Bundle
) -> None:
    released = threading.Event()

    def first_waits(feeds: Mapping[str, Array], interrupt: ScriptedInterrupt) -> tuple[Array, ...]:
        assert released.wait(PATIENCE_S)
        return double(feeds, interrupt)

    programs = Scripted(identity, first_waits)
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, ONE))
    assert programs.began.wait(PATIENCE_S)
    latest_ns = time.monotonic_ns() + 1_000
    executor.submit(identity_run(identity, ONE, run=2, latest_ns=latest_ns))
    while time.monotonic_ns() <= latest_ns:
        pass
    released.set()
    assert rig.finished().run == 1
    assert rig.failed().reason == "window"
    assert programs.calls == 1


def test_an_executor_takes_one_run_behind_the_one_that_runs(rig: Rig, identity: Bundle) -> None:
    programs = Scripted(identity, until_stopped)
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, ONE, run=1))
    executor.submit(identity_run(identity, ONE, run=2))
    with pytest.raises(InvariantBroken, match=r"run 3 .* holds \[1, 2\]"):
        executor.submit(identity_run(identity, ONE, run=3))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_bug_fails_the_run_that_met_it_is_told_and_the_next_is_served(
    rig: Rig, identity: Bundle, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    seen: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", seen.put)

    def bug(_: Mapping[str, Array], interrupt: ScriptedInterrupt) -> tuple[Array, ...]:
        programs.work = double
        raise ZeroDivisionError

    programs = Scripted(identity, bug)
    executor = rig.make(identity, programs)
    one, two = identity_run(identity, ONE, run=1), identity_run(identity, ONE, run=2)
    if in_place:
        failed, finished = executor.run_in_place(one), executor.run_in_place(two)
    else:
        executor.submit(one)
        failed = rig.failed()
        executor.submit(two)
        finished = rig.finished()
    assert failed == Failed(1, "error", "a bug of the executor: ZeroDivisionError")
    assert seen.get(timeout=PATIENCE_S).exc_type is ZeroDivisionError
    assert isinstance(finished, Finished)
    assert finished.run == 2
