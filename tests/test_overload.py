"""Which group gives way when executors cannot serve all that wait in time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from shared.events import Row
from shared.latency import WorkKey
from shared.overload import GIVES, goes_first, served
from shared.plan import RAW, SegmentRange
from shared.queue import Job, Offer

MS = 1_000_000
WHOLE = SegmentRange(0, 0, 1)


def offer(number: int, rows: int, takes_ms: float, latest_ms: float, priority: int = 0) -> Offer:
    contract = str(number)
    takes, latest = int(takes_ms * MS), int(latest_ms * MS)
    row = Row(number, 1, (), RAW)
    head = Job(number, contract, WHOLE, row, latest + takes, priority, False, WorkKey(contract, WHOLE))
    return Offer((priority, latest, number), head, rows, takes, latest, 0, latest, whole=True)


def in_order(*offers: Offer) -> list[Offer]:
    return sorted(offers, key=lambda one: one.place)


def test_where_all_can_be_in_time_the_one_that_must_start_soonest_goes_first() -> None:
    few, many = offer(1, 1, 5, 2), offer(2, 8, 10, 6)
    assert served(in_order(few, many), [0]) == [few, many]
    assert goes_first(in_order(few, many), [0]) is few


def test_where_not_all_can_the_one_that_serves_the_fewest_for_its_time_gives_way() -> None:
    few, many = offer(1, 1, 5, 2), offer(2, 8, 10, 2.5)
    assert served(in_order(few, many), [0]) == [many]


def test_what_would_start_a_little_late_is_not_given_up() -> None:
    few, many = offer(1, 1, 5, 2), offer(2, 8, 10, 5 - GIVES * 10)
    assert served(in_order(few, many), [0]) == [few, many]
    assert served(in_order(few, offer(2, 8, 10, 5 - GIVES * 10 - 0.1)), [0]) != [few, many]


def test_executors_that_become_free_are_counted() -> None:
    few, many = offer(1, 1, 5, 2), offer(2, 8, 10, 2.5)
    assert served(in_order(few, many), [0, 2 * MS]) == [few, many]
    assert served(in_order(few, many), [0, 5 * MS]) == [many]


def test_the_more_important_class_gives_way_to_nobody() -> None:
    few, many = offer(1, 1, 5, 2), offer(2, 8, 10, 2.5, priority=1)
    assert served(in_order(few, many), [0]) == [few]


def test_one_that_is_too_late_already_is_still_an_offer() -> None:
    late = offer(1, 1, 5, -3)
    assert served([late], [0]) == [late]


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 25)), min_size=1, max_size=6),
    st.lists(st.integers(0, 10), max_size=2),
)
def test_of_launches_that_take_equally_long_those_are_kept_that_serve_most(
    each: list[tuple[int, int]], others_free_ms: list[int]
) -> None:
    offers = in_order(*(offer(i, rows, 5, latest) for i, (rows, latest) in enumerate(each)))
    free = [0, *(at * MS for at in others_free_ms)]

    def in_time(some: Sequence[Offer]) -> bool:
        at = sorted(free)
        for one in some:
            if at[0] > one.latest_ns + GIVES * one.takes_ns:
                return False
            at = sorted([at[0] + one.takes_ns, *at[1:]])
        return True

    subsets = [some for n in range(1, len(offers) + 1) for some in combinations(offers, n)]
    most = max(sum(one.rows for one in some) for some in subsets if in_time(some))
    found = served(offers, free)
    assert in_time(found)
    assert sum(one.rows for one in found) == most
