"""Slots in a debug run: what nobody holds is filled with a pattern, and who comes too late or writes too late is found."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from executor_rig import ONE, ROWS, Rig, Scripted, ScriptedInterrupt, double, identity_run, vector
from tiny import make_bundle

from shared.bundle import Bundle, load_bundle
from shared.errors import InvariantBroken, ModelError
from shared.events import Row
from shared.executors.buffers import Slot
from shared.plan import RAW
from shared.request import Array, TensorSpec

SPECS = (TensorSpec("x", "float32", (1, 4)), TensorSpec("n", "int64", (1, 2)))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(poison=True)
    yield rig
    for executor in rig.open:
        executor.close()


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(make_bundle(tmp_path_factory.mktemp("bundles"), "identity", elements=4, max_batch=ROWS))


def test_what_is_read_of_a_slot_that_was_given_back_is_no_number() -> None:
    slot = Slot(SPECS, 2, batchable=True, poison=True)
    slot.enter(0)
    feeds = slot.feeds(2)
    for array in feeds.values():
        array[:] = 7
    slot.leave()
    assert np.isnan(feeds["x"]).all()
    assert (feeds["n"] == -1).all()


def test_what_is_written_to_a_slot_that_was_given_back_is_found_by_the_next_run() -> None:
    slot = Slot(SPECS, 2, batchable=True, poison=True)
    slot.enter(3)
    late = slot.place(1, 1, 1)
    slot.leave()
    late[:] = 1
    with pytest.raises(InvariantBroken, match="written to after generation 3 had left it"):
        slot.enter(4)


@pytest.mark.parametrize("generation", [4, 5])
def test_a_lease_that_is_over_is_found_by_its_generation(generation: int) -> None:
    slot = Slot(SPECS, 2, batchable=True, poison=True)
    slot.enter(5)
    slot.leave()
    with pytest.raises(InvariantBroken, match=f"generation {generation} of a slot that 5 has used"):
        slot.enter(generation)
    slot.enter(9)


@pytest.mark.parametrize("rows", [1, 3])
def test_tensors_begin_where_a_line_of_the_cache_does_and_do_not_overlap(rows: int) -> None:
    slots = [Slot(SPECS, rows, batchable=True) for _ in range(9)]
    places: list[tuple[int, int]] = []
    for slot in slots:
        for index, spec in enumerate(SPECS):
            array = slot.place(index, 0, rows)
            assert (array.shape, array.dtype.name, array.flags.c_contiguous) == (spec.at(rows), spec.dtype, True)
            assert array.ctypes.data % 64 == 0
            places.append((array.ctypes.data, array.ctypes.data + array.nbytes))
    places.sort()
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


def test_without_the_setting_nothing_is_filled_or_checked() -> None:
    slot = Slot(SPECS, 2, batchable=True)
    slot.enter(5)
    feeds = slot.feeds(1)
    feeds["x"][:] = 7
    slot.leave()
    slot.enter(1)
    assert (feeds["x"] == 7).all()


def test_runs_of_every_end_leave_their_slot_as_it_was(rig: Rig, identity: Bundle) -> None:
    def thirteen_fails(feeds: Mapping[str, Array], interrupt: ScriptedInterrupt) -> tuple[Array, ...]:
        if (feeds["x"] == 13).any():
            raise ModelError("thirteen")
        return double(feeds, interrupt)

    executor = rig.make(identity, Scripted(identity, thirteen_fails))
    bad = Row(2, 1, (vector(13, 13, 13, 13),), RAW)
    for generation, rows in enumerate([(ONE,), (ONE, bad), (bad,), (ONE,)]):
        run = msgspec.structs.replace(identity_run(identity, *rows, run=generation), generation=generation)
        executor.submit(run)
        results = {result.job: result for result in rig.finished().results}
        assert ("thirteen" in results[2].error) if bad in rows else True
        if ONE in rows:
            np.testing.assert_array_equal(results[1].outputs[0], ONE.inputs[0] * 2)


def test_a_run_with_an_old_lease_fails_and_is_told(rig: Rig, identity: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    told: queue.SimpleQueue[threading.ExceptHookArgs] = queue.SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", told.put)
    executor = rig.make(identity, Scripted(identity, double))
    executor.submit(msgspec.structs.replace(identity_run(identity, ONE), generation=2))
    rig.finished()
    executor.submit(msgspec.structs.replace(identity_run(identity, ONE, run=2), generation=1))
    assert "InvariantBroken" in rig.failed().detail
    assert told.get(timeout=30).exc_type is InvariantBroken


def test_what_is_handed_on_of_a_poisoned_slot_is_a_copy(rig: Rig, identity: Bundle) -> None:
    executor = rig.make(identity, Scripted(identity, lambda feeds, _: (feeds["x"],)))
    executor.submit(identity_run(identity, ONE))
    np.testing.assert_array_equal(rig.finished().results[0].outputs[0], ONE.inputs[0])
