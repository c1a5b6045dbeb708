"""The rows of a model's drawing: an order that can run, folds that stop at marked cuts, lanes that never share a place."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from partitioner.inspections.folding import Border, Part, fold, reading_order


@st.composite
def graphs(draw: st.DrawFn) -> list[Part]:
    count = draw(st.integers(1, 60))
    parts: list[Part] = []
    for index in range(count):
        later = (
            st.lists(st.integers(index + 1, count - 1), max_size=4, unique=True) if index + 1 < count else st.just([])
        )
        cost = draw(st.floats(0.0, 100.0, allow_nan=False))
        parts.append(Part(f"p{index}", {"Conv": 1}, cost, tuple(sorted(draw(later)))))
    return parts


def ends_of(rows: tuple[int, ...]) -> list[int]:
    return list(itertools.accumulate(rows))


@given(graphs(), st.integers(1, 40), st.lists(st.integers(0, 59), unique=True, max_size=12))
def test_rows_hold_every_part_once_and_no_fold_crosses_a_marked_cut(
    parts: list[Part], most: int, places: list[int]
) -> None:
    borders = [Border(n, place, 1000 - n) for n, place in enumerate(sorted(p for p in places if p < len(parts)))]
    folded = fold(parts, [[0]], [len(parts) - 1], borders, most)
    ends = ends_of(tuple(row.parts for row in folded.rows))
    assert ends[-1] == len(parts)
    assert sum(row.operators["Conv"] for row in folded.rows) == len(parts)
    assert len(folded.rows) <= max(most, len(borders) + 1)
    assert abs(sum(row.cost for row in folded.rows) - sum(part.cost for part in parts)) < 1e-6
    starts = [0, *ends]
    assert {starts[row]: border for row, border in folded.marks.items()} == {b.before: b for b in borders}


@given(graphs(), st.integers(1, 40))
def test_lanes_never_share_a_place_and_every_use_is_drawn(parts: list[Part], most: int) -> None:
    folded = fold(parts, [], [], (), most)
    spans: dict[int, list[tuple[int, int]]] = {}
    for lane in folded.lanes:
        spans.setdefault(lane.lane, []).append((lane.start, lane.ends[-1]))
    for taken in spans.values():
        for (a, b), (c, d) in itertools.combinations(taken, 2):
            assert b <= c or d <= a
    starts = [0, *ends_of(tuple(row.parts for row in folded.rows))]
    row_of = [sum(start <= index for start in starts[1:]) for index in range(len(parts))]
    drawn = {(lane.start, end) for lane in folded.lanes for end in lane.ends}
    drawn |= {(row, row + 1) for row in folded.links}
    used = {(row_of[index], row_of[user]) for index, part in enumerate(parts) for user in part.users}
    assert drawn == {(a, b) for a, b in used if a != b}


@given(graphs())
def test_the_reading_order_can_run(parts: list[Part]) -> None:
    order = reading_order([7 * n % 60 for n in range(len(parts))], [part.users for part in parts])
    place = {group: index for index, group in enumerate(order)}
    assert sorted(order) == list(range(len(parts)))
    assert all(place[index] < place[user] for index, part in enumerate(parts) for user in part.users)


def test_a_branch_is_read_to_its_end_before_the_next() -> None:
    users = [[1, 3], [2], [5], [4], [5], []]
    assert reading_order([0, 1, 2, 3, 4, 5], users) == [0, 1, 2, 3, 4, 5]


def chain(count: int) -> list[Part]:
    return [Part(f"p{n}", {"Conv": 1}, 1.0, (n + 1,) if n + 1 < count else ()) for n in range(count)]


def test_with_many_cuts_the_input_and_those_that_send_less_than_all_before_are_marked() -> None:
    sizes = [50, 400, 300, 350, 300, 200, 220]
    borders = [Border(n, n, size) for n, size in enumerate(sizes)]
    folded = fold(chain(7), [[0]], [6], borders, 110, 3)
    assert sorted(border.number for border in folded.marks.values()) == [0, 1, 2, 5]
    assert folded.others == {3: 1, 4: 1, 6: 1}
    everything = fold(chain(7), [[0]], [6], borders, 110, 7)
    assert len(everything.marks) == 7
    assert everything.others == {}


def test_of_too_many_such_cuts_those_with_the_largest_drops_are_marked() -> None:
    borders = [Border(n, n, size) for n, size in enumerate([50, 1000, 990, 500, 495, 100, 99])]
    folded = fold(chain(7), [[0]], [6], borders, 110, 3)
    assert sorted(border.number for border in folded.marks.values()) == [0, 1, 3, 5]


def test_what_costs_most_is_not_folded() -> None:
    parts = [Part(f"p{n}", {"Conv": 1}, 100.0 if n == 20 else 1.0, (n + 1,) if n < 49 else ()) for n in range(50)]
    folded = fold(parts, [[0]], [49], (), 10)
    assert len(folded.rows) <= 10
    assert [row.parts for row in folded.rows if row.cost >= 100.0] == [1]
