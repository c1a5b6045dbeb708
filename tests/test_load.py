"""The load generator's decisions: what is sent when, what is counted, who was too slow, which rate is next, what differs."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from hil.load.cli import parse_in_flight, parse_rates
from hil.load.compare import compare
from hil.load.figures import EPSILON_NS, figures_of
from hil.load.histogram import Histogram, histogram, together
from hil.load.report import Environment, Load, LoadReport, read_report
from hil.load.rows import MISSED, ON_TIME, REJECTED, Recorder
from hil.load.search import MOST_REPEATS, RateSearch
from hil.load.sender import Sender, allowed_share, bottleneck, late_limit_ns, sender_of
from hil.load.source import Source, parse_arrivals, schedule
from hil.stalls import Stall
from hil.written import write_json
from shared.errors import InvariantBroken, UserError
from shared.lateness import LatenessFigures

MS = 1_000_000


# --- what is sent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("process", "cv"), [("periodic", 0.0), ("poisson", 1.0), ("gamma", 3.0)])
def test_gaps_have_the_rate_and_the_variation_that_was_asked_for(process: str, cv: float) -> None:
    source = Source(rate_per_s=1000.0, process=process, cv=cv or 1.0)  # type: ignore[arg-type]
    drawn = schedule([source], 60.0, 3)
    gaps = np.diff(drawn.at_ns)
    assert len(drawn.at_ns) == pytest.approx(60_000, rel=0.05)
    assert min(gaps) >= 0
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(cv, rel=0.05, abs=1e-4)
    assert drawn == schedule([source], 60.0, 3)
    assert drawn != schedule([source], 60.0, 4)


def test_one_source_sends_the_same_whatever_is_beside_it() -> None:
    tight, other = Source(rate_per_s=100.0), Source(rate_per_s=400.0)
    alone = schedule([tight], 5.0, 1)
    both = schedule([tight, other], 5.0, 1)
    assert [at for at, owner in zip(both.at_ns, both.source, strict=True) if owner == 0] == alone.at_ns
    assert both.at_ns == sorted(both.at_ns)
    assert len(both.at_ns) == pytest.approx(2500, rel=0.1)


def test_a_closed_loop_has_no_schedule_and_too_many_requests_are_refused() -> None:
    assert schedule([Source(in_flight=4)], 5.0, 1).at_ns == []
    with pytest.raises(UserError, match="requests in one run"):
        schedule([Source(rate_per_s=1e6)], 3600.0, 1)


def test_what_is_to_be_sent_is_read_or_refused_by_name() -> None:
    assert parse_arrivals("gamma:2.5") == ("gamma", 2.5)
    assert parse_arrivals("poisson") == ("poisson", 1.0)
    for wrong in ("gamma", "gamma:", "gamma:x", "gamma:nan", "gamma:0", "poisson:2", "bursty", ""):
        with pytest.raises(UserError, match="expected periodic, poisson or gamma:CV"):
            parse_arrivals(wrong)
    assert parse_rates("100,200.5") == [100.0, 200.5]
    assert parse_rates("100..300:100") == [100.0, 200.0, 300.0]
    for wrong in ("", "x", "100,", "0", "nan", "inf", "1e9", "100..50:10", "1..2:0", "1..1000:0.1", "1..2"):
        with pytest.raises(UserError, match="--rate"):
            parse_rates(wrong)
    assert parse_in_flight("1, 2,16") == [1, 2, 16]
    for wrong in ("0", "x", "-1", "1,,2", "10001", "1.5", "9" * 40):
        with pytest.raises(UserError, match="--in-flight"):
            parse_in_flight(wrong)


# --- what is counted ---------------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_the_values_to_a_256th_and_far_ones_need_many() -> None:
    values = np.random.default_rng(1).lognormal(15.0, 1.0, 20_000).astype(np.int64)
    found = histogram(values)
    ordered = np.sort(values)
    assert found.count == len(values)
    assert found.most_ns == ordered[-1]
    for share in (0.5, 0.9, 0.99, 0.999, 0.9999):
        exact = ordered[math.ceil(share * len(values)) - 1] / 1e6
        told = found.quantile_ms(share)
        assert told is not None
        assert exact <= told <= exact * (1 + 1 / 256)
    few = histogram(values[:999])
    assert few.quantile_ms(0.999) is None
    assert histogram(values[:1000]).quantile_ms(0.999) is not None
    assert Histogram().quantile_ms(0.5) is None


def test_a_histogram_of_parts_is_that_of_all_and_small_values_are_exact() -> None:
    values = np.arange(0, 3000, 7, dtype=np.int64) ** 2
    assert together((histogram(values[:100]), histogram(values[100:]))) == histogram(values)
    assert histogram(np.array([-5, 0, 1, 255], np.int64)).steps == ((0, 2), (1, 1), (255, 1))


def recorded() -> Recorder:
    """Ten requests, one a millisecond, each due 10 ms later: eight on time, one missed, one without a word."""
    notes = Recorder()
    for number in range(10):
        place = notes.asked(0, (100 + number) * MS, (110 + number) * MS, (100 + number) * MS)
        if number < 8:
            notes.answered(place, {}, (105 + number) * MS)
    notes.refused(8, MISSED, "uplink", 118 * MS)
    return notes


def test_every_request_is_in_one_kind_and_the_shares_are_of_all() -> None:
    found = figures_of(recorded().rows(), 2.0)
    assert found.kinds == {"on_time": 8, "late": 0, "missed": 1, "rejected": 0, "superseded": 0, "silent": 1}
    assert found.requests == sum(found.kinds.values()) == 10
    assert found.on_time_share == 0.8
    assert (found.offered_per_s, found.on_time_per_s) == (5.0, 4.0)
    assert found.missed_by == {"uplink": 1}
    assert found.overdue == 1  # the one without a word
    assert found.latency.count == 8
    assert found.most_ms == 5.0


def test_on_time_is_by_the_senders_clock_and_a_late_answer_names_where_its_time_went() -> None:
    notes = Recorder()
    for number, (stages, sent_ms, ended_ms) in enumerate(
        [
            ({"tail": 2 * MS, "cloud_queue": 6 * MS}, 0, 11),
            ({"tail": 2 * MS}, 0, 11),
            ({"tail": 2 * MS}, 7, 11),
            ({"tail": 2 * MS}, 0, 10),
        ]
    ):
        place = notes.asked(0, 0, 10 * MS, sent_ms * MS)
        assert place == number
        notes.answered(place, stages, ended_ms * MS)
    found = figures_of(notes.rows(), 1.0)
    assert found.kinds["on_time"] == 1
    assert found.late_by == {"cloud_queue": 1, "sending": 1, "way": 1}


def test_word_after_the_deadline_counts_as_overdue_and_a_second_end_as_doubled() -> None:
    notes = Recorder()
    for late_ns in (0, EPSILON_NS, EPSILON_NS + 1):
        place = notes.asked(0, 0, 10 * MS, 0)
        assert notes.refused(place, REJECTED, "expired", 10 * MS + late_ns)
        assert not notes.answered(place, {}, 10 * MS)
    found = figures_of(notes.rows(), 1.0)
    assert (found.overdue, found.doubled) == (1, 3)
    assert found.rejected_by == {"expired": 3}
    with pytest.raises(InvariantBroken):
        notes.refused(0, ON_TIME, "", 0)


def test_requests_under_way_while_the_machine_stood_still_are_found() -> None:
    rows = recorded().rows()  # scheduled at 100 to 109 ms, due at 110 to 119 ms
    assert not rows.held_up(()).any()
    assert rows.held_up([Stall(50 * MS, 49 * MS), Stall(120 * MS, MS)]).sum() == 0
    assert rows.held_up([Stall(50 * MS, 53 * MS)]).tolist() == [True] * 4 + [False] * 6
    assert rows.held_up([Stall(115 * MS, 3 * MS)]).tolist() == [False] * 5 + [True] * 5
    assert rows.held_up([Stall(20 * MS, 10 * MS), Stall(104 * MS, MS)]).sum() == 6
    assert len(rows.since(105 * MS)) == 5


# --- whether the load generator was too slow ---------------------------------------------------------------------------


def sender(late: int = 0, busy: float = 0.2, unsent: int = 0, source: Source | None = None) -> Sender:
    notes = Recorder()
    for number in range(100):
        notes.asked(0, 0, 10 * MS, late_limit_ns(10 * MS) if number < late else 100_000)
    return sender_of(notes.rows(), source or Source(rate_per_s=100.0), busy, busy, unsent)


def test_a_run_is_not_judged_where_the_load_generator_sent_late_too_often() -> None:
    assert late_limit_ns(10 * MS) == 500_000
    assert bottleneck(sender(late=1), 0.01) == ""
    assert "sent 2.00% of the requests more than 0.5 ms late (limit 1.00%)" in bottleneck(sender(late=2), 0.01)
    assert bottleneck(sender(late=2), 0.05) == ""
    assert bottleneck(sender(late=50, source=Source(in_flight=4)), 0.01) == ""  # a closed loop has no schedule


def test_a_run_is_not_judged_where_its_thread_or_its_connection_had_no_room() -> None:
    assert "was at work for 95% of the time" in bottleneck(sender(busy=0.95), 0.01)
    assert "did not take 3 requests" in bottleneck(sender(unsent=3), 0.01)


def test_what_may_be_sent_late_leaves_room_for_the_share_that_is_judged() -> None:
    assert allowed_share(0.9) == allowed_share(0.99) == pytest.approx(0.01)
    assert allowed_share(0.999) == pytest.approx(0.001)
    assert allowed_share(0.999, 0.2) == 0.2
    with pytest.raises(UserError, match="late share"):
        allowed_share(0.99, 1.5)


# --- the highest rate --------------------------------------------------------------------------------------------------


def searched(holds_up_to: float, judged_up_to: float = 1e9, start: float = 10.0) -> RateSearch:
    seeking = RateSearch(start, 0.99)
    runs = 0
    while seeking.rate is not None:
        seeking.told(1.0 if seeking.rate <= holds_up_to else 0.5, seeking.rate <= judged_up_to)
        runs += 1
        assert runs < 60
    return seeking


@pytest.mark.parametrize("capacity", [3.0, 10.0, 317.0, 12_345.0])
@pytest.mark.parametrize("start", [0.1, 10.0, 5_000.0])
def test_a_search_closes_in_on_the_highest_rate_that_holds_from_wherever_it_begins(
    capacity: float, start: float
) -> None:
    found = searched(capacity, start=start).found()
    assert found.next_per_s is not None
    assert found.rate_per_s <= capacity < found.next_per_s <= found.rate_per_s * 1.05
    assert found.bounded_by == "target"


def test_a_search_says_where_the_load_generator_bounds_it_after_trying_again() -> None:
    found = searched(1e9, judged_up_to=300.0).found()
    assert found.bounded_by == "load generator"
    assert found.rate_per_s <= 300.0 < (found.next_per_s or 0.0)
    assert [each.verdict for each in found.tries if each.rate_per_s == 320.0] == ["not judged"] * (1 + MOST_REPEATS)


def test_a_run_that_shows_nothing_is_repeated_and_then_counts_as_if_it_had_not_been() -> None:
    seeking = RateSearch(10.0, 0.99)
    seeking.told(0.0, False)
    assert seeking.rate == 10.0
    seeking.told(1.0, True)
    assert seeking.rate == 20.0


def test_a_search_ends_where_nothing_and_where_everything_holds() -> None:
    nothing = searched(0.0).found()
    assert (nothing.rate_per_s, nothing.bounded_by) == (0.0, "target")
    seeking = RateSearch(500.0, 0.99, most_per_s=900.0)
    seeking.told(1.0, True)
    assert seeking.rate == 900.0
    seeking.told(1.0, True)
    assert seeking.rate is None
    everything = searched(1e9).found()
    assert (everything.rate_per_s, everything.next_per_s, everything.bounded_by) == (1e6, None, "nothing")


# --- reports -----------------------------------------------------------------------------------------------------------

HERE = Environment("a", "cpu", 2, "Linux 6", "CPython 3.11", 0.1, {"headtail": "0.1.0"})


def report(rate: float = 100.0, slower: int = 1, why: str = "", here: Environment = HERE) -> LoadReport:
    notes = Recorder()
    for number in range(200):
        place = notes.asked(0, number * MS, (10 + number) * MS, number * MS)
        notes.answered(place, {}, (number + (2 + number % 4) * slower) * MS)
    source = Source(rate_per_s=rate)
    figures = figures_of(notes.rows(), 0.2)
    fared = sender_of(notes.rows(), source, 0.1, 0.2, 0)
    run = Load(source, figures, fared, why, LatenessFigures(), stalled=False)
    found = searched(rate).found()
    return LoadReport(here, "tcp://n:1", "m", "c", "raw", 1, 1.0, (run,), found)


def test_a_comparison_gives_ratios_of_runs_that_belong_together() -> None:
    found = compare(report(), report(slower=2))
    assert found.conditions == ()
    told = {ratio.what: ratio.ratio for ratio in found.ratios}
    assert told["p50 ms"] == pytest.approx(2.0, rel=0.01)
    assert told["on time"] == 1.0
    assert told["highest rate with 0.99 on time, 1/s"] == 1.0
    assert told["p99.9 ms"] is None
    other = compare(report(), report(rate=200.0))
    assert (len(other.only_first), len(other.only_second)) == (1, 1)
    assert [ratio.run for ratio in other.ratios] == ["search"]


def test_a_comparison_says_what_was_not_the_same_and_what_is_to_be_doubted() -> None:
    there = msgspec.structs.replace(HERE, cores=8, load=3.0, versions={"headtail": "0.2.0"})
    found = compare(report(why="the load generator was late"), report(here=there))
    assert found.conditions == ("cores: 2 and 8", "headtail: 0.1.0 and 0.2.0", "load before: 0.1 and 3")
    assert found.doubts == ("first, 100/s, poisson, 10 ms, class 1: the load generator was late",)


def test_a_report_is_read_as_it_was_written_and_anything_else_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("reports") / "a.json"
    write_json(path, report())
    assert read_report(path) == report()
    for wrong in (b"{}", b"nothing", b"\xff", b"[" * 100_000):
        path.write_bytes(wrong)
        with pytest.raises(UserError, match=r"a\.json: not a report"):
            read_report(path)
    write_json(path, report())
    path.write_bytes(path.read_bytes().replace(b'"on_time": ', b'"in_time": ', 1))
    with pytest.raises(UserError, match=r"a\.json: not a report .* kinds: expected how many of the"):
        read_report(path)
    with pytest.raises(UserError, match=r"none\.json: No such file"):
        read_report(path.with_name("none.json"))
