"""The executor on its thread: aborting, closing, standing for a slower device, and being built."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from executor_rig import (
    ONE,
    PATIENCE_S,
    ROWS,
    Rig,
    Scripted,
    as_frames,
    double,
    identity_run,
    run_of,
    until_stopped,
)
from tiny import inputs_for, make_bundle

from shared.bundle import Bundle, load_bundle
from shared.errors import SettingsError
from shared.events import Event, Failed, Finished, Row
from shared.executors.build import build_executors
from shared.executors.ort import load_programs
from shared.executors.programs import Interrupt
from shared.plan import RAW, SegmentRange
from shared.request import Array
from shared.settings import Batching, Execution, Memory


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


# --- what a model gives ------------------------------------------------------------------------------------------------


def test_an_output_of_another_shape_than_the_plan_says_is_an_error_and_no_answer(rig: Rig, identity: Bundle) -> None:
    executor = rig.make(identity, Scripted(identity, lambda feeds, _: (feeds["x"][:, :2],)))
    executor.submit(identity_run(identity, ONE))
    result = rig.finished().results[0]
    assert "'y' came out as float32(1, 2), the plan says float32(1, 4)" in result.error
    assert result.outputs == ()


# --- abort and close ---------------------------------------------------------------------------------------------------


def test_abort_stops_a_run_and_drops_one_that_waits(rig: Rig, identity: Bundle) -> None:
    programs = Scripted(identity, until_stopped)
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, ONE, run=1))
    assert programs.began.wait(PATIENCE_S)
    executor.submit(identity_run(identity, ONE, run=2))
    executor.abort(2)
    assert rig.failed() == Failed(2, "aborted")
    executor.abort(1)
    assert rig.failed() == Failed(1, "aborted")
    assert programs.calls == 1
    programs.work = double
    executor.submit(identity_run(identity, ONE, run=3))
    assert rig.finished().run == 3


def test_abort_stops_work_of_the_real_runtime(rig: Rig, chain: Bundle) -> None:
    """Sessions that are run over and over end only by the runtime's own flag."""
    real = load_programs(chain, Execution(), "edge", 1)
    began = threading.Event()

    class Endless:
        plan = chain.plan
        interrupt = real.interrupt

        def run(self, part: SegmentRange, feeds: Mapping[str, Array], interrupt: Interrupt) -> tuple[Array, ...]:
            while True:
                real.run(part, feeds, interrupt)
                began.set()

    executor = rig.make(chain, Endless())
    executor.submit(run_of(chain, Row(1, 1, inputs_for(chain.plan), RAW)))
    assert began.wait(PATIENCE_S)
    executor.abort(1)
    assert rig.failed() == Failed(1, "aborted")


def test_a_failed_batch_is_not_tried_again_once_aborted(rig: Rig, identity: Bundle) -> None:
    programs = Scripted(identity, until_stopped)
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, ONE, Row(2, 1, ONE.inputs, RAW)))
    assert programs.began.wait(PATIENCE_S)
    executor.abort(1)
    assert rig.failed() == Failed(1, "aborted")
    assert programs.calls == 1


def test_abort_of_what_is_over_or_unknown_does_nothing(rig: Rig, identity: Bundle) -> None:
    executor = rig.real(identity)
    executor.submit(identity_run(identity, ONE, run=1))
    assert rig.finished().run == 1
    executor.abort(1)
    executor.abort(99)
    executor.submit(identity_run(identity, ONE, run=2))
    assert rig.finished().run == 2


def test_close_ends_what_runs_and_what_waits_and_refuses_the_rest(rig: Rig, identity: Bundle) -> None:
    programs = Scripted(identity, until_stopped)
    executor = rig.make(identity, programs)
    executor.submit(identity_run(identity, ONE, run=1))
    assert programs.began.wait(PATIENCE_S)
    executor.submit(identity_run(identity, ONE, run=2))
    executor.close()
    assert {rig.failed().run, rig.failed().run} == {1, 2}
    executor.submit(identity_run(identity, ONE, run=3))
    assert rig.failed() == Failed(3, "error", "the executor is closed")
    executor.close()


def test_submitting_and_aborting_from_another_thread_gives_one_end_for_each_run(rig: Rig, identity: Bundle) -> None:
    executor = rig.make(identity, Scripted(identity, double))
    ends: list[int] = []
    for run in range(1, 301):
        executor.submit(identity_run(identity, ONE, run=run, slot=run % 2))
        if run % 3 == 0:
            executor.abort(run)
        event = rig.next()
        assert isinstance(event, Finished | Failed)
        ends.append(event.run)
    assert ends == list(range(1, 301))
    assert rig.events.empty()


# --- standing for a slower device --------------------------------------------------------------------------------------


def test_a_slowed_run_takes_at_least_the_profiled_time_more(rig: Rig, tmp_path: Path) -> None:
    bundle = load_bundle(make_bundle(tmp_path, "identity", elements=4, slowdown=2.0, microseconds=500.0))
    executor = rig.real(bundle, slowdown=3.0)
    executor.submit(identity_run(bundle, ONE))
    finished = rig.finished()
    # The profile holds 500 us times its own slowdown of 2: this machine takes 500 us, and twice that is waited.
    assert finished.ended_ns - finished.began_ns >= 1_000_000


def test_an_abort_wakes_a_slowed_run(rig: Rig, tmp_path: Path) -> None:
    bundle = load_bundle(make_bundle(tmp_path, "identity", elements=4, microseconds=1e9))
    programs = Scripted(bundle, double)
    executor = rig.make(bundle, programs, slowdown=10.0)
    executor.submit(identity_run(bundle, ONE))
    assert programs.began.wait(PATIENCE_S)
    executor.abort(1)
    assert rig.failed() == Failed(1, "aborted")


def test_work_that_comes_during_the_wait_does_not_shorten_it(rig: Rig, tmp_path: Path) -> None:
    bundle = load_bundle(make_bundle(tmp_path, "identity", elements=4, microseconds=10_000.0))
    programs = Scripted(bundle, double)
    executor = rig.make(bundle, programs, slowdown=3.0)
    executor.submit(identity_run(bundle, ONE, run=1))
    assert programs.began.wait(PATIENCE_S)
    executor.submit(identity_run(bundle, ONE, run=2, slot=1))
    for run in (1, 2):
        finished = rig.finished()
        assert finished.run == run
        assert finished.ended_ns - finished.began_ns >= 20_000_000


def test_codecs_are_slowed_as_well(rig: Rig, chain: Bundle) -> None:
    """20 us to encode and 15 us to decode a row, as the profile of these bundles says."""
    image = inputs_for(chain.plan, 2)[0]
    frames = as_frames(chain, 0, "raw", (image,))
    executor = rig.real(chain, slowdown=101.0)
    executor.submit(run_of(chain, Row(1, 2, frames, RAW, RAW), part=SegmentRange(0, 0, 0), slot=-1))
    finished = rig.finished()
    assert finished.codec_ns >= 100 * 2 * 35_000
    assert finished.ended_ns - finished.began_ns >= finished.codec_ns


# --- all together ------------------------------------------------------------------------------------------------------


def test_executors_are_built_from_bundles_and_settings(chain: Bundle, identity: Bundle) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    executors = build_executors(
        [chain, identity], Execution(executors=2), Memory(), Batching(max_batch_size=2), side="edge", sink=events.put
    )
    try:
        image = inputs_for(chain.plan)[0]
        executors[0].submit(run_of(chain, Row(1, 1, (image,), RAW), run=1, slot=3))
        executors[1].submit(run_of(chain, Row(2, 1, (image,), RAW), part=SegmentRange(1, 0, 1), run=2))
        ends = {event.run: event for event in (events.get(timeout=PATIENCE_S) for _ in range(2))}
        assert all(isinstance(end, Finished) for end in ends.values())
        executors[1].submit(identity_run(identity, ONE, run=3))
        assert isinstance(events.get(timeout=PATIENCE_S), Finished)
    finally:
        for executor in executors:
            executor.close()


def test_slots_that_do_not_fit_are_refused_before_anything_is_loaded(identity: Bundle, tmp_path: Path) -> None:
    big = load_bundle(make_bundle(tmp_path, "identity", elements=1 << 20, max_batch=ROWS, golden=1))
    with pytest.raises(SettingsError, match=r"need 32 MB and the limit is 16 MB"):
        build_executors(
            [big], Execution(), Memory(preallocated_memory_mb=16), Batching(), side="edge", sink=lambda _: None
        )
    with pytest.raises(SettingsError, match="two bundles are named 'identity'"):
        build_executors([identity, big], Execution(), Memory(), Batching(), side="edge", sink=lambda _: None)
