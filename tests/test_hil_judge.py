"""Figures, the oracle and the judge: what a run is held against, and that every rule can break."""

from __future__ import annotations

import numpy as np
import pytest

from hil.emulator.shape import GilbertElliott, Shape
from hil.ledger import Entry
from hil.links.trace import Direction, Trace
from hil.scenarios.figures import ArmFigures, RunFigures, figures, marks
from hil.scenarios.judge import judge
from hil.scenarios.oracle import Course, Request, oracle_share
from hil.scenarios.scenario import Budgets, Fault, Noise, Scenario
from hil.scenarios.timeline import Struck
from hil.stalls import Stall

MS = 1_000_000
DUE = 20.0
PERIOD = 33 * MS
NOISE = Noise(stall_ms=4.0)


def entry(number: int, kind: str = "on_time", ms: float = 8.0, node: str = "node-a") -> Entry:
    source = "" if kind in ("missed", "lost") else "cloud" if node else "edge"
    return Entry(number * PERIOD, kind, round(ms * MS), source, "whole", "exact", node=node if source else "")


def arm(entries: list[Entry], stalls: tuple[Stall, ...] = ()) -> ArmFigures:
    return figures(entries, marks(entries, stalls, NOISE, DUE), DUE, 0)


def control(late: int = 0, frames: int = 400) -> ArmFigures:
    return arm([entry(n, "missed" if n < late else "on_time", node="") for n in range(frames)])


def broken(
    scenario: Scenario, test: ArmFigures, other: ArmFigures, struck: tuple[Struck, ...] = (), **more: object
) -> list[str]:
    given = {"hung": 0, "sums": (), "oracle": 1.0, **more}
    judgement = judge(scenario, RunFigures(test, other, **given), struck)
    assert not judgement.noisy
    return [rule.expected for rule in judgement.broken]


def scenario(*faults: Fault, **budgets: float) -> Scenario:
    return Scenario(name="x", about="y", faults=faults, budgets=Budgets(**budgets))


def good(frames: int = 400) -> list[Entry]:
    return [entry(n) for n in range(frames)]


def test_a_frame_is_marked_where_a_stall_lies_between_its_time_and_its_deadline() -> None:
    entries = [entry(0), entry(1), entry(2)]
    stalls = (Stall(PERIOD + 19 * MS, 5 * MS), Stall(2 * PERIOD - 6 * MS, 5 * MS), Stall(2 * PERIOD + 5 * MS, 3 * MS))
    assert marks(entries, stalls, NOISE, DUE) == [False, True, False]
    assert marks(entries, (Stall(-30 * MS, 31 * MS),), NOISE, DUE) == [True, False, False], "one that began before"
    assert marks(entries, (Stall(-30 * MS, 200 * MS),), NOISE, DUE) == [True, True, True]
    for at_ms, marked in ((10, False), (16, False), (17, True), (21, True), (22, False)):
        assert marks(entries, (Stall(at_ms * MS - MS, MS),), NOISE, DUE)[0] == marked, "a short one, at the deadline"
    assert marks(entries, (Stall(0, 60 * MS), Stall(50 * MS, 5 * MS)), NOISE, DUE)[1], "a long one of another core"
    assert marks(entries, (Stall(-30 * MS, 31 * MS),), Noise(stall_ms=4.0, after_ms=32.0), DUE) == [True, True, False]


def test_shares_are_of_the_frames_that_are_not_marked() -> None:
    entries = [entry(0, "missed"), entry(1), entry(2, node=""), entry(3, "late", 25.0)]
    figures = arm(entries, (Stall(5 * MS, 6 * MS),))
    assert (figures.frames, figures.marked, figures.unmarked) == (4, 1, 3)
    assert (figures.on_time, figures.missed, figures.late) == (2, 1, 1)
    assert figures.share == pytest.approx(2 / 3)
    assert figures.cloud_share == pytest.approx(1 / 3)
    assert figures.by_source == {"edge": 1, "node-a": 2}
    assert figures.adds_up
    assert [point.marked for point in figures.timeline] == [True, False, False, False]


def test_a_good_run_breaks_nothing() -> None:
    assert broken(scenario(cloud_share=0.9, cloud_below_oracle=0.05), arm(good()), control()) == []


@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        (Entry(0, "lost"), "no request lost"),
        (Entry(0, "on_time", 8 * MS, "cloud", "whole", "exact", duplicates=1, node="node-a"), "no request lost"),
        (
            Entry(0, "on_time", 8 * MS, "cloud", "whole", "exact", why_wrong="off by 3", node="node-a"),
            "no request lost",
        ),
        (Entry(0, "on_time", 26 * MS, "cloud", "whole", "exact", node="node-a"), "nothing late is called on time"),
        (
            Entry(0, "on_time", 20 * MS, "cloud", "whole", "exact", node="node-a", elapsed_ns=20 * MS + 1),
            "nothing late is called on time",
        ),
    ],
    ids=["lost", "doubled", "wrong", "told late", "told late by itself"],
)
def test_what_may_never_happen_is_found_in_either_arm(spoilt: Entry, told: str) -> None:
    for test, other in ((arm([spoilt, *good()]), control()), (arm(good()), arm([spoilt, *good()]))):
        assert any(words.startswith(told) for words in broken(scenario(), test, other))


def test_a_request_that_hangs_and_sums_that_differ_are_found() -> None:
    assert "no request lost, hung, doubled or wrong" in broken(scenario(), arm(good()), control(), hung=1)
    assert "every request has one outcome, also by the clients' own sums" in broken(
        scenario(), arm(good()), control(), sums=("one too many",)
    )


def test_more_than_a_point_below_the_control_is_too_much() -> None:
    late = [entry(n, "missed" if n < 5 else "on_time") for n in range(400)]
    (told,) = broken(scenario(), arm(late), control())
    assert told.startswith("at least 99.0% on time")
    assert broken(scenario(), arm(late), control(late=2)) == []
    assert broken(scenario(), arm([*late[1:], entry(400)]), control()) == []


def test_few_frames_show_nothing() -> None:
    assert broken(scenario(), arm(good(299)), control()) == ["at least 300 frames of each arm"]


def test_the_clouds_share_is_held_against_its_budget_and_the_oracle() -> None:
    by_edge = [entry(n, node="node-a" if n < 360 else "") for n in range(400)]
    assert broken(scenario(cloud_share=0.9), arm(by_edge), control()) == []
    assert len(broken(scenario(cloud_share=0.91), arm(by_edge), control())) == 1
    assert broken(scenario(cloud_below_oracle=0.05), arm(by_edge), control(), oracle=0.95) == []
    assert len(broken(scenario(cloud_below_oracle=0.05), arm(by_edge), control(), oracle=0.96)) == 1


KILL = Fault(at_s=3.0, kind="kill", on="node-a", for_s=2.0)


def test_how_long_service_was_away_is_held_against_its_budget() -> None:
    struck = (Struck(0, 3000.0, 5000.0, ("node-a",)),)
    away = [entry(n, "missed" if 3.0 <= n * 0.033 < 6.5 else "on_time", node="node-b") for n in range(1000)]
    fine = [entry(n, node="" if 3.0 <= n * 0.033 < 5.5 else "node-b") for n in range(1000)]
    other = control(frames=1000)
    for budget, limits in (("back_s", (1.4, 1.6)), ("cloud_back_s", (1.4, 1.6)), ("over_s", (3.4, 3.6))):
        told = broken(scenario(KILL, **{budget: limits[0]}), arm(away), other, struck)
        assert any("until a frame is" in words for words in told)
        told = broken(scenario(KILL, **{budget: limits[1]}), arm(away), other, struck)
        assert not any("until a frame is" in words for words in told)
    assert broken(scenario(KILL, back_s=0.1, cloud_back_s=0.6), arm(fine), other, struck) == []
    assert broken(scenario(KILL, cloud_back_s=0.4), arm(fine), other, struck) != []
    assert broken(scenario(KILL, over_s=2.6), arm(good(1000)), other, struck) != [], (
        "the struck node itself does not count"
    )


def test_frames_during_which_the_machine_stalled_do_not_count_as_away() -> None:
    struck = (Struck(0, 3000.0, 5000.0, ("node-a",)),)
    away = [entry(n, "missed" if 3.0 <= n * 0.033 < 4.0 else "on_time", node="node-b") for n in range(1000)]
    other = control(frames=1000)
    stalls = tuple(Stall(n * PERIOD, 5 * MS) for n in range(100, 125))
    told = [words for words in broken(scenario(KILL, over_s=0.4), arm(away), other, struck) if "until" in words]
    assert told
    assert not [
        words for words in broken(scenario(KILL, over_s=0.4), arm(away, stalls), other, struck) if "until" in words
    ]
    assert [words for words in broken(scenario(KILL, over_s=0.2), arm(away, stalls), other, struck) if "until" in words]


def test_frames_that_a_fault_costs_are_counted_beside_the_controls() -> None:
    struck = (Struck(0, 3000.0, 5000.0, ("node-a",)),)
    late = [entry(n, "late" if n in (92, 93) else "on_time", 8.0) for n in range(1000)]
    other = [entry(n, "late" if n == 95 else "on_time", node="") for n in range(1000)]
    assert broken(scenario(KILL, late_at_faults=1), arm(late), arm(other), struck) == []
    assert len(broken(scenario(KILL, late_at_faults=0), arm(late), arm(other), struck)) == 1


def test_a_machine_that_stalls_or_a_control_that_is_late_lets_shares_go_unjudged() -> None:
    late = arm([entry(n, "missed" if n < 40 else "on_time") for n in range(400)])
    for test, other in (
        (late, control(late=9)),
        (arm(good(), tuple(Stall(n * PERIOD, 9 * MS) for n in range(400))), control()),
    ):
        judgement = judge(scenario(cloud_share=1.0), RunFigures(test, other, 0, (), 1.0), ())
        assert judgement.noisy
        assert not judgement.broken
        assert not judgement.holds
        assert judgement.word == "too noisy to judge"
    lost = judge(scenario(), RunFigures(arm([Entry(0, "lost"), *good()]), control(late=9), 0, (), 1.0), ())
    assert lost.word == "BROKEN", "noise is no excuse for what is lost"


REQUEST = Request(12_500, 1_000, 1.0)


def share(course: Course, times_ns: list[int] | None = None, dead: tuple[tuple[int, int], ...] = ()) -> float:
    return oracle_share(scenario(), {"air": course}, dead, REQUEST, times_ns or [0])


def test_an_oracle_knows_delay_rate_and_what_is_lost() -> None:
    assert share(Course(up=Shape(delay_ms=8.0), down=Shape(delay_ms=8.0))) == 1.0
    assert share(Course(up=Shape(delay_ms=8.6), down=Shape(delay_ms=8.6))) == 0.0
    assert share(Course(up=Shape(delay_ms=1.0, rate_mbit=10.0))) == 1.0, "10 ms for the bytes"
    assert share(Course(up=Shape(delay_ms=1.0, rate_mbit=6.0))) == 0.0, "17 ms for the bytes"
    assert share(Course(up=Shape(loss=0.01))) == pytest.approx(0.99**9)
    assert share(Course(up=Shape(bursts=GilbertElliott.of(0.01, 3.0)))) == pytest.approx(0.99**9)


def test_an_oracle_knows_faults() -> None:
    second = 1000 * MS
    away = Course(shut=((2 * second, 3 * second),))
    times = [second, 2 * second, 3 * second - 10 * MS, 3 * second]
    assert [share(away, [at]) for at in times] == [1.0, 0.0, 1.0, 1.0]
    assert [share(Course(), [at], ((2 * second, 3 * second),)) for at in times] == [1.0, 0.0, 0.0, 1.0]
    slow = Shape(delay_ms=30.0)
    assert [share(Course(others=(((second, 2 * second), slow, slow),)), [at]) for at in times] == [0.0, 1.0, 1.0, 1.0]
    assert oracle_share(scenario(), {"a": away, "b": Course()}, (), REQUEST, times) == 1.0, "the better link counts"


def test_an_oracle_reads_a_trace_where_it_was() -> None:
    def side(*delays: float) -> Direction:
        size = len(delays)
        return Direction(np.array(delays), np.zeros(size), np.zeros(size), np.zeros(size, np.bool_))

    trace = Trace(100_000, side(1.0, 50.0), side(1.0, 1.0))
    assert [share(Course(trace=trace, into_ns=into * MS)) for into in (0, 50, 100, 150, 200)] == [
        1.0,
        1.0,
        0.0,
        0.0,
        1.0,
    ]
