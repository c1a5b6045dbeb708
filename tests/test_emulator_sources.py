"""Schedules of shapes on virtual time: each change counts from its own moment."""

from __future__ import annotations

import pytest

from hil.emulator.fates import Fates
from hil.emulator.shape import Passing, Shape
from hil.emulator.sources import Constant, Schedule, Step
from hil.emulator.way import Way
from shared.errors import UserError

MS = 1_000_000
SLOW, FAST = Shape(delay_ms=50.0), Shape(delay_ms=1.0)


def test_a_schedule_tells_the_shape_at_each_time_and_when_it_changes() -> None:
    schedule = Schedule((Step(0, SLOW), Step(10, FAST), Step(30, SLOW)))
    assert [schedule.at(ms * MS) for ms in (0, 9, 10, 29, 30, 1000)] == [SLOW, SLOW, FAST, FAST, SLOW, SLOW]
    assert [schedule.next_ns(ms * MS) for ms in (0, 10, 29)] == [10 * MS, 30 * MS, 30 * MS]
    assert schedule.next_ns(30 * MS) is None


def test_a_schedule_that_repeats_begins_again() -> None:
    schedule = Schedule((Step(0, SLOW), Step(10, FAST)), repeat_ms=25)
    assert [schedule.at(ms * MS) for ms in (24, 25, 34, 35, 60)] == [FAST, SLOW, SLOW, FAST, FAST]
    assert [schedule.next_ns(ms * MS) for ms in (0, 10, 25, 35)] == [10 * MS, 25 * MS, 35 * MS, 50 * MS]


@pytest.mark.parametrize(
    ("steps", "repeat_ms", "word"),
    [
        ((), 0, "first"),
        ((Step(1, SLOW),), 0, "first"),
        ((Step(0, SLOW), Step(0, FAST)), 0, "step 2"),
        ((Step(0, SLOW), Step(9, FAST)), 9, "repeats"),
    ],
)
def test_a_schedule_out_of_order_is_refused(steps: tuple[Step, ...], repeat_ms: float, word: str) -> None:
    with pytest.raises(UserError, match=word):
        Schedule(steps, repeat_ms)


def test_a_change_counts_from_its_moment_even_where_nobody_looked_then() -> None:
    way = Way(Fates(1), 0)
    way.play(Schedule((Step(0, Shape(rate_mbit=8.0)), Step(2, Shape(rate_mbit=80.0)))), 5 * MS)
    way.offer(bytes(1000), 6 * MS + MS // 2)
    assert way.next_ns(6 * MS + MS // 2) == 7 * MS
    # Half of the packet at the old rate, the rest ten times as fast.
    assert way.take(7 * MS + MS // 20 - 1) == []
    assert len(way.take(7 * MS + MS // 20)) == 1


def test_an_outage_in_a_schedule_begins_and_ends_by_itself() -> None:
    stalled = Shape(delay_ms=1.0, passing=Passing.STALLED)
    way = Way(Fates(1), 0)
    way.play(Schedule((Step(0, FAST), Step(10, stalled), Step(40, FAST))), 0)
    way.offer(b"before" * 4, 5 * MS)
    assert way.take(6 * MS) == [b"before" * 4]
    way.offer(b"within" * 4, 12 * MS)
    assert way.take(39 * MS) == []
    assert way.next_ns(39 * MS) == 40 * MS
    assert way.take(41 * MS) == [b"within" * 4]
    assert way.next_ns(41 * MS) is None


def test_a_new_source_replaces_the_one_that_plays() -> None:
    way = Way(Fates(1), 0)
    way.play(Schedule((Step(0, FAST), Step(10, SLOW))), 0)
    way.play(Constant(Shape()), 5 * MS)
    way.offer(b"x" * 20, 20 * MS)
    assert way.take(20 * MS) == [b"x" * 20]
