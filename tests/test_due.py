from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.due import NEVER_NS, TIMES_EACH, DueTimes


def test_requests_come_when_they_are_due_the_soonest_first() -> None:
    times = DueTimes({1, 2, 3}, 3)
    for at_ns, number in ((30, 1), (10, 2), (20, 3), (40, 2)):
        times.add(at_ns, number)
    assert times.soonest() == 10
    assert list(times.due(25)) == [2, 3]
    assert times.soonest() == 30
    assert list(times.due(100)) == [1, 2]
    assert times.soonest() == NEVER_NS


def test_requests_that_ended_are_not_due() -> None:
    open_ = {1, 2}
    times = DueTimes(open_, 2)
    times.add(10, 1)
    times.add(20, 2)
    open_.discard(1)
    assert times.soonest() == 20
    seen = []
    times.add(30, 2)
    for number in times.due(40):
        seen.append(number)
        open_.discard(number)
    assert seen == [2]


@given(st.lists(st.integers(0, 10**9), max_size=300))
def test_times_of_requests_that_ended_never_pile_up(moments: list[int]) -> None:
    """One request stays open at the front; all others end at once, long before they are due."""
    open_ = {0}
    times = DueTimes(open_, 4)
    times.add(-1, 0)
    for number, at_ns in enumerate(moments, start=1):
        open_.add(number)
        times.add(at_ns, number)
        open_.discard(number)
        assert len(times) <= TIMES_EACH * 4
    assert times.soonest() == -1
