"""What background work and twice the highest rate are held against, each rule seen to fail."""

from __future__ import annotations

from msgspec.structs import replace

from cloud.launches import LaunchCount
from hil.background_rules import LESSER_PER_S, TIGHT, TIGHT_DEVICE, TIMES, Background, Stretch, lesser, sum_up
from hil.load.figures import Figures, figures_of
from hil.load.rows import REJECTED, Recorder
from hil.load.search import Found
from hil.overload_rules import Overload, Pair, Side, executed_rows, told

MS = 1_000_000


def figures(requests: int, missed: int = 0, seconds: float = 10.0) -> Figures:
    notes = Recorder()
    for number in range(requests):
        place = notes.asked(0, number * MS, (number + 10) * MS, number * MS)
        if number < missed:
            notes.refused(place, REJECTED, "expired", number * MS)
        else:
            notes.answered(place, {}, (number + 3) * MS)
    return figures_of(notes.rows(), seconds)


def stretch(times: float, requests: int = 10_000, missed: int = 0, why: str = "", aside: int = 0) -> Stretch:
    kept = figures(requests, missed)
    return Stretch(
        times, figures(requests + aside, missed), kept, figures(100, 20) if times else None, why, node_busy=0.2
    )


def acts(**missed: int) -> Background:
    return sum_up([stretch(times, missed=missed.get(f"at_{times:g}", 1)) for times in TIMES])


def verdicts(found: Background) -> dict[float, str]:
    return {loss.times: loss.verdict for loss in found.losses}


def test_the_tight_class_takes_three_tenths_of_the_executor_and_the_background_up_to_five_times_all_of_it() -> None:
    assert TIGHT.rate_per_s * TIGHT_DEVICE.launch_ms(1) / 1e3 == 0.3
    assert (TIGHT.priority, TIGHT.deadline_ms) == (0, 10.0)
    assert lesser(5.0).rate_per_s == 5 * LESSER_PER_S
    assert lesser(1.0).priority == 2
    assert TIMES == (0.0, 1.0, 2.0, 5.0)


def test_a_tight_class_that_misses_no_more_beside_the_background_holds() -> None:
    found = acts()
    assert verdicts(found) == {1.0: "holds", 2.0: "holds", 5.0: "holds"}
    assert found.holds
    assert found.acts[3].lesser_on_time_per_s == 8.0


def test_one_that_loses_more_than_a_tenth_of_a_point_is_found() -> None:
    found = acts(at_5=60)
    assert verdicts(found)[5.0] == "BROKEN"
    assert verdicts(found)[2.0] == "holds"
    assert not found.holds


def test_with_too_few_requests_nothing_is_said() -> None:
    few = sum_up([stretch(times, requests=200) for times in TIMES])
    assert set(verdicts(few).values()) == {"too few requests to tell: measure for more seconds"}
    assert verdicts(acts(at_5=14))[5.0].startswith("too few")
    assert not few.holds


def test_stretches_in_which_the_load_generator_was_late_do_not_count() -> None:
    good = [stretch(times) for times in TIMES]
    found = sum_up([*good, stretch(5.0, missed=5_000, why="late"), stretch(1.0, aside=7)])
    assert found.holds
    assert [act.left_out for act in found.acts] == [0, 0, 0, 1]
    assert found.acts[1].aside == 7
    nothing = sum_up([replace(each, why="late") for each in good])
    assert all(loss.told == "" and loss.verdict.startswith("nothing to judge") for loss in nothing.losses)
    assert found.losses[0].told.startswith("+0.000 (standard error ")


def side(on_time: int, executed: int = 0, held_up: int = 0, overdue: int = 0, why: str = "") -> Side:
    return Side(100.0, figures(on_time), executed or on_time, on_time, held_up, overdue, {}, 0.3, why)


def overload(beyond: Side) -> Overload:
    found = Found(0.99, 100.0, 105.0, "target", ())
    return Overload(found, (Pair(side(1000), beyond),))


def test_at_twice_the_rate_each_limit_is_seen_to_break() -> None:
    assert overload(side(910)).holds
    assert overload(side(890)).pairs[0].broken == ("goodput falls by 11.0%",)
    assert overload(side(1000, executed=1001)).holds
    assert overload(side(1000, executed=1002)).pairs[0].broken == ("2 of 1002 rows were executed for nothing",)
    assert overload(side(1000, executed=1002, held_up=2)).holds
    assert overload(side(1000, overdue=1)).pairs[0].broken == ("no word of 1 requests by the deadline",)


def test_a_run_that_the_load_generator_bounded_does_not_hold_and_breaks_nothing() -> None:
    found = overload(side(1000, why="late"))
    assert found.pairs[0].broken == ()
    assert not found.holds


def test_what_a_node_executed_is_read_from_its_own_count() -> None:
    counts = [LaunchCount("c", 0, 0, 2, 1, 3), LaunchCount("c", 0, 0, 2, 8, 2)]
    assert executed_rows(counts) == 19
    assert told({"refused-expired": 3, "rows": 7, "overdue": 0}) == {"refused-expired": 3}
