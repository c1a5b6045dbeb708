"""Private copies of large arrays, in memory that is used again once nobody holds it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest

from shared.request import Array
from shared.reuse import LEAST_BYTES, MOST_KEPT, Reuse

F4 = np.dtype("float32")
LARGE = LEAST_BYTES // 4


def address(array: Array) -> int:
    """Where an array's memory begins."""
    return int(array.__array_interface__["data"][0])


def filled(value: float, count: int = LARGE) -> Array:
    """An array of the caller's."""
    return np.full((1, count), value, F4)


def test_what_nobody_holds_any_more_is_used_again() -> None:
    reuse = Reuse()
    first = reuse.copy(filled(1.0), F4)
    at = address(first)
    del first
    assert address(reuse.copy(filled(2.0), F4)) == at
    assert reuse.kept_bytes == LEAST_BYTES


HOLDS: list[Callable[[Array], object]] = [
    lambda array: array,
    lambda array: array[0, :3],
    lambda array: array.reshape(-1).view(np.uint8),
    lambda array: array.data.cast("B"),
    lambda array: np.frombuffer(array.data.cast("B")[8:16], np.uint8),
    lambda array: {"inputs": (array,)},
]


@pytest.mark.parametrize("hold", HOLDS)
def test_what_somebody_holds_a_part_of_is_never_written_to(hold: Callable[[Array], object]) -> None:
    reuse = Reuse()
    first = reuse.copy(filled(1.0), F4)
    at = address(first)
    held = hold(first)
    del first
    for _ in range(3):
        other = reuse.copy(filled(2.0), F4)
        assert address(other) != at
        del other
    del held
    gc.collect()
    assert at in {address(reuse.copy(filled(3.0), F4)) for _ in range(3)}


@pytest.mark.parametrize(
    "given",
    [
        filled(0.5),
        np.random.default_rng(1).random((3, LARGE), F4),
        np.random.default_rng(2).random((LARGE, 2), F4).T,
        np.random.default_rng(3).random((1, 2 * LARGE), F4)[:, ::2],
        filled(7.0).astype(">f4"),
        filled(7.0, 3),
        np.float32(4.0).reshape(()),
    ],
)
def test_a_copy_is_what_was_given_in_order_and_apart_from_it(given: Array) -> None:
    made = Reuse().copy(given, F4)
    assert made.dtype == F4
    assert made.dtype.isnative
    assert made.shape == given.shape
    assert made.flags.c_contiguous
    assert made.flags.writeable
    np.testing.assert_array_equal(made, given)
    assert not np.may_share_memory(made, given)


def test_no_more_is_kept_than_may_be_and_what_is_free_goes_for_another_size() -> None:
    reuse = Reuse(most_bytes=3 * LEAST_BYTES)
    for _ in range(3):
        held = [reuse.copy(filled(1.0), F4) for _ in range(5)]
        assert reuse.kept_bytes == 3 * LEAST_BYTES
        del held
    reuse.copy(filled(1.0, 2 * LARGE), F4)
    assert reuse.kept_bytes == 3 * LEAST_BYTES
    reuse.copy(filled(1.0, 4 * LARGE), F4)
    assert reuse.kept_bytes == 3 * LEAST_BYTES, "what is too large by itself takes no room from others"


def test_the_number_that_is_kept_has_a_limit() -> None:
    reuse = Reuse()
    held = [reuse.copy(filled(float(number)), F4) for number in range(MOST_KEPT + 5)]
    assert reuse.kept_bytes == MOST_KEPT * LEAST_BYTES
    assert [float(array[0, -1]) for array in held] == [float(number) for number in range(MOST_KEPT + 5)]


def test_threads_never_get_the_same_memory() -> None:
    reuse = Reuse()
    wrong: list[int] = []

    def ask(number: int) -> None:
        given = filled(float(number))
        for _ in range(300):
            mine = reuse.copy(given, F4)
            other = reuse.copy(given, F4)
            if not (mine == number).all() or address(mine) == address(other):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_finalizer_that_copies_at_any_moment_disturbs_nobody() -> None:
    reuse = Reuse()
    held = [reuse.copy(filled(1.0), F4) for _ in range(MOST_KEPT - 2)]

    class Last:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            reuse.copy(filled(2.0), F4)

    threshold = gc.get_threshold()
    try:
        for number in range(2000):
            gc.disable()
            Last()
            gc.set_threshold(1 + number % 12)
            gc.enable()
            assert reuse.kept_bytes >= len(held) * LEAST_BYTES
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
