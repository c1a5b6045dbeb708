"""Which nodes are left alone for a while, and for how long."""

from __future__ import annotations

import random

from edge.outliers import MS, SAMPLES, Outliers
from edge.subset import ranked
from shared.settings import Outliers as Settings

NAMES = ("a", "b", "c")


def outliers(*names: str, **fields: object) -> Outliers:
    made = Outliers(Settings(**fields), random.Random(1))  # type: ignore[arg-type]
    made.know(names or NAMES)
    return made


def fail(made: Outliers, name: str, times: int, now: int = 0) -> None:
    for _ in range(times):
        made.failed(name, now)


def test_a_node_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    made = outliers(failures=5, pause_ms=(1000.0, 60_000.0))
    fail(made, "a", 4)
    made.answered("a", 1.0, 0)
    fail(made, "a", 4)
    assert not made.ejected("a", 0)
    fail(made, "a", 1)
    assert made.ejected("a", 999 * MS)
    assert not made.ejected("a", 1251 * MS)


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_good_while() -> None:
    made = outliers(failures=3, pause_ms=(1000.0, 5000.0))
    now, spans = 0, []
    for _ in range(5):
        fail(made, "a", 3 if not spans else 1, now)
        end = next(at for at in range(now, now + 10_000 * MS, MS) if not made.ejected("a", at))
        spans.append((end - now) / MS)
        now = end
    assert all(low <= span <= 1.26 * low for span, low in zip(spans, (1000, 2000, 4000, 5000, 5000), strict=True))
    for _ in range(10 * SAMPLES):
        made.answered("a", 1.0, now)
    fail(made, "a", 2, now)
    assert not made.ejected("a", now)
    fail(made, "a", 1, now)
    assert not made.ejected("a", now + 1251 * MS)


def test_a_node_that_returns_and_fails_at_once_is_left_alone_at_once() -> None:
    made = outliers(failures=5, pause_ms=(1000.0, 60_000.0))
    fail(made, "a", 5)
    later = 2000 * MS
    assert not made.ejected("a", later)
    fail(made, "a", 1, later)
    assert made.ejected("a", later)


def test_failing_while_it_is_left_alone_does_not_lengthen_the_pause() -> None:
    made, same = outliers(failures=5), outliers(failures=5)
    for each in (made, same):
        fail(each, "a", 5)
    fail(made, "a", 50, 100 * MS)
    ends = [next(at for at in range(0, 5000 * MS, MS) if not each.ejected("a", at)) for each in (made, same)]
    assert ends[0] == ends[1]


def test_doing_well_while_it_is_left_alone_ends_the_pause() -> None:
    made = outliers(failures=5)
    fail(made, "a", 5)
    for _ in range(SAMPLES - 1):
        made.answered("a", 1.0, 0)
    assert made.ejected("a", 0)
    made.failed("a", 0)
    for _ in range(SAMPLES - 1):
        made.answered("a", 1.0, 0)
    assert made.ejected("a", 0), "one that failed in between has not done well in a row"
    made.answered("a", 1.0, 0)
    assert not made.ejected("a", 0)


def test_never_more_than_half_of_the_nodes_are_left_alone() -> None:
    made = outliers()
    for name in NAMES:
        fail(made, name, 50)
    assert [made.ejected(name, 0) for name in NAMES] == [True, False, False]
    alone = outliers("a")
    fail(alone, "a", 50)
    assert not alone.ejected("a", 0)


def test_a_node_that_is_far_slower_than_its_peers_is_left_alone() -> None:
    made = outliers(slower=3.0)
    for _ in range(SAMPLES):
        for name, slowness in (("a", 4.0), ("b", 1.0), ("c", 1.3)):
            made.answered(name, slowness, 0)
    assert [made.ejected(name, 1) for name in NAMES] == [True, False, False]


def test_where_all_are_slow_none_is_left_alone() -> None:
    made = outliers(slower=3.0)
    for _ in range(SAMPLES):
        for name in NAMES:
            made.answered(name, 9.0, 0)
    assert not any(made.ejected(name, 1) for name in NAMES)


def test_one_slow_run_is_no_slow_node() -> None:
    made = outliers(slower=3.0)
    for _ in range(SAMPLES):
        made.answered("b", 1.0, 0)
    made.answered("a", 50.0, 0)
    assert not made.ejected("a", 0)


def test_another_process_of_the_same_name_is_no_outlier() -> None:
    made = outliers()
    fail(made, "a", 5)
    made.restarted("a")
    assert not made.ejected("a", 0)


def test_where_others_leave_the_fleet_those_that_are_left_alone_are_asked_again() -> None:
    made = outliers("a", "b", "c", "d")
    fail(made, "a", 5)
    fail(made, "b", 5, 10)
    assert [made.ejected(name, 20) for name in "abcd"] == [True, True, False, False]
    made.know(("a", "b"))
    assert [made.ejected(name, 20) for name in "ab"] == [False, True]
    made.know(("b",))
    assert not made.ejected("b", 20)


def test_nobody_is_left_alone_where_that_is_switched_off() -> None:
    made = outliers(failures=0)
    fail(made, "a", 50)
    assert not made.ejected("a", 0)


def test_edges_spread_over_nodes_and_only_those_of_a_node_that_leaves_move() -> None:
    nodes = [f"n{i}" for i in range(8)]
    before = {f"edge{i}": ranked(f"edge{i}", "c" * 64, nodes)[:2] for i in range(400)}
    load = [sum(name in used for used in before.values()) for name in nodes]
    assert min(load) > 60
    assert max(load) < 140
    left = [name for name in nodes if name != "n3"]
    for edge, used in before.items():
        now = ranked(edge, "c" * 64, left)[:2]
        assert [name for name in used if name != "n3"] == [name for name in now if name in used]
    assert ranked("edge1", "c" * 64, reversed(nodes)) == ranked("edge1", "c" * 64, nodes)
    assert (
        before["edge1"] != ranked("edge1", "d" * 64, nodes)[:2]
        or before["edge2"] != ranked("edge2", "d" * 64, nodes)[:2]
    )
