"""Traces of links: lookup, resampling, CSV and logs of echoes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil.links.echoes import EchoLog, probed, read_echoes, split, to_trace, usual_step_us
from hil.links.files import read_link
from hil.links.trace import Conditions, Direction, Moment, Trace, runs
from hil.links.trace_csv import read_trace, write_trace
from shared.errors import UserError

HEAD = "# headtail link trace 1\n"


def direction(delay: list[float], rate: float = 0.0, loss: float = 0.0, outage: list[int] | None = None) -> Direction:
    many = len(delay)
    out = np.array(outage or [0] * many, np.bool_)
    return Direction(np.array(delay), np.full(many, rate), np.full(many, loss), out)


def same(first: Trace, second: Trace) -> bool:
    fields = ("delay_ms", "rate_mbit", "loss", "outage")
    pairs = ((first.up, second.up), (first.down, second.down))
    arrays = all(np.array_equal(getattr(a, field), getattr(b, field)) for a, b in pairs for field in fields)
    return arrays and (first.step_us, first.halved) == (second.step_us, second.halved)


SMALL = Trace(10_000, direction([1.0, 2.0, 3.0], 5.0, 0.1, [0, 1, 0]), direction([4.0, 5.0, 6.0]))


def test_the_shape_at_a_time_is_that_of_its_step_and_a_trace_begins_again_after_its_end() -> None:
    second = Moment(Conditions(2.0, 5.0, 0.1, True), Conditions(5.0, 0.0, 0.0, False))
    assert SMALL.at(10_000) == SMALL.at(19_999) == SMALL.at(10_000 + 7 * SMALL.duration_us) == second
    assert SMALL.at(0).up.delay_ms == SMALL.at(9_999).up.delay_ms == SMALL.at(30_000).up.delay_ms == 1.0
    assert (SMALL.next_change_us(0), SMALL.next_change_us(9_999), SMALL.next_change_us(10_000)) == (
        10_000,
        10_000,
        20_000,
    )


@given(st.integers(0, 10**9), st.sampled_from([1, 2, 5]))
def test_a_finer_trace_answers_the_same_at_every_time(time_us: int, parts: int) -> None:
    assert SMALL.resampled(10_000 // parts).at(time_us) == SMALL.at(time_us)


def test_a_coarser_trace_has_means_and_is_out_where_half_of_it_was() -> None:
    coarse = SMALL.resampled(20_000)
    assert coarse.at(0).up == Conditions(1.5, 5.0, 0.1, True)
    assert coarse.at(20_000).up == Conditions(3.0, 5.0, 0.1, False)
    assert coarse.up.loss.max() <= 1.0
    mixed = Trace(
        10_000, Direction(np.ones(3), np.array([4.0, 8.0, 0.0]), np.zeros(3), np.zeros(3, np.bool_)), SMALL.down
    )
    assert mixed.resampled(30_000).up.rate_mbit.tolist() == [6.0]


def test_a_step_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"steps of 10000 us cannot be resampled to 15000 us"):
        SMALL.resampled(15_000)
    with pytest.raises(UserError, match="more than 10000000"):
        Trace(10**8, SMALL.up, SMALL.down).resampled(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (direction([1.0, 2.0]), r"down_delay_ms has the shape \(2,\); expected \(3,\)"),
        (direction([1.0, -2.0, 1.0]), "down_delay_ms is -2.0 in step 1; expected a number of 0 or more"),
        (direction([1.0, float("nan"), 1.0]), "down_delay_ms is nan in step 1"),
        (direction([1.0, 2.0, 3.0], loss=1.5), "down_loss is 1.5 in step 0; expected a number from 0 to 1"),
    ],
)
def test_a_wrong_array_is_named(wrong: Direction, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Trace(10_000, SMALL.up, wrong)


def test_runs_are_found_at_the_ends_too() -> None:
    assert runs(np.array([1, 1, 0, 1, 0, 0, 1], np.bool_)) == [(0, 2), (3, 4), (6, 7)]
    assert runs(np.zeros(3, np.bool_)) == []


delays = st.floats(0, 1e6)
chances = st.floats(0, 1)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    many = draw(st.integers(2, 12))

    def values(of: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=many, max_size=many)))

    def side(delay: np.ndarray) -> Direction:
        return Direction(delay, values(delays), values(chances), values(st.booleans()))

    halved = draw(st.booleans())
    up = values(delays)
    return Trace(draw(st.integers(1, 10**7)), side(up), side(up if halved else values(delays)), halved)


@given(traces())
def test_a_trace_survives_csv_to_the_last_bit(trace: Trace) -> None:
    assert same(read_trace(write_trace(trace), "x.csv"), trace)


def test_what_a_file_leaves_out_is_nought_and_a_round_trip_is_halved() -> None:
    trace = read_trace(HEAD + "# made by hand\nt_ms,rtt_ms\n\n0,30\n20,50\n", "x.csv")
    assert trace.halved
    assert trace.at(20_000) == Moment(Conditions(25.0, 0.0, 0.0, False), Conditions(25.0, 0.0, 0.0, False))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_ms,rtt_ms\n0,1\n", r"x\.csv, line 1: not a link trace"),
        (HEAD, r"x\.csv: the file is empty"),
        (HEAD + "t_ms,rtt_ms\n0,1\n", r"x\.csv: 1 rows; expected at least two"),
        (HEAD + "t_ms,rtt_ms,speed\n0,1,2\n", r"x\.csv: the column 'speed' is unknown"),
        (HEAD + "t_ms,rtt_ms,rtt_ms\n0,1,2\n", r"x\.csv, line 2: a column is named twice"),
        (HEAD + "t_ms,up_delay_ms\n0,1\n10,1\n", r"x\.csv: expected the columns t_ms and either rtt_ms or both"),
        (HEAD + "t_ms,rtt_ms,up_delay_ms\n0,1,1\n10,1,1\n", r"x\.csv: expected the columns t_ms and either"),
        (HEAD + "t_ms,rtt_ms\n0,1\n10,1,1\n", r"x\.csv, line 4: 3 cells; expected 2"),
        (HEAD + "t_ms,rtt_ms\n0,1\n10,fast\n", r"x\.csv, line 4: rtt_ms is 'fast'; expected a number of 0 or more"),
        (HEAD + "t_ms,rtt_ms\n0,1\n10,inf\n", r"x\.csv, line 4: rtt_ms is 'inf'"),
        (
            HEAD + "t_ms,rtt_ms,up_loss\n0,1,0\n# x\n10,1,1.5\n",
            r"x\.csv, line 5: up_loss is '1\.5'; expected a number from",
        ),
        (HEAD + "t_ms,rtt_ms,up_outage\n0,1,0\n10,1,0.5\n", r"x\.csv, line 4: up_outage is '0\.5'; expected 0 or 1"),
        (HEAD + "t_ms,rtt_ms\n0,1\n10,1\n30,1\n", r"x\.csv, line 5: t_ms is 30; expected 20, since steps are even"),
        (HEAD + "t_ms,rtt_ms\n0,1\n10," + "9" * 200_000, r"x\.csv, line 4: not a row of CSV: field larger"),
        (HEAD + "t_ms,rtt_ms\n0,1\n0,1\n", r"x\.csv, line 4: t_ms is 0; expected more than 0"),
    ],
)
def test_a_bad_trace_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_trace(text, "x.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_ms,delay\n0,1\n", r"e\.csv: expected the columns t_ms and rtt_ms; it has t_ms, delay"),
        ("t_ms,rtt_ms\n0,1\n5,-1\n", r"e\.csv, line 3: rtt_ms is '-1'; expected a number of 0 or more, or nothing"),
        ("t_ms,rtt_ms\n5,1\n4,1\n", r"e\.csv, line 3: t_ms is 4; expected at least 5"),
        ("t_ms,rtt_ms\n0,\n5,\n", r"e\.csv: expected at least two echoes"),
    ],
)
def test_a_bad_echo_log_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_echoes(text, "e.csv")


def sawtooth() -> EchoLog:
    """Echoes every 10 ms with a round trip of 20 ms, but for a link that stands still from 100 ms to 300."""
    sent = np.arange(0.0, 1000.0, 10.0)
    return EchoLog(sent, np.where((sent >= 100) & (sent < 300), 320 - sent, 20.0))


def test_a_sawtooth_of_round_trips_is_an_outage_and_the_outage_gives_the_sawtooth_back() -> None:
    log = sawtooth()
    trace = to_trace(log, 10_000, held_ms=1.0)
    assert runs(trace.outage) == [(10, 30)]
    assert set(trace.round_trip_ms.tolist()) == {20.0}
    on_its_way_back = log.sent_ms == 90.0
    expected = np.where(on_its_way_back, 300 + 10 - 90.0, log.rtt_ms)
    assert probed(trace)[: log.rtt_ms.size] == pytest.approx(expected)


def test_two_lots_that_come_back_apart_leave_the_link_open_between_them() -> None:
    log = sawtooth()
    late = (log.sent_ms >= 290) & (log.sent_ms < 600)
    log = EchoLog(log.sent_ms, np.where(late, 620 - log.sent_ms, log.rtt_ms))
    assert runs(to_trace(log, 10_000, held_ms=1.0).outage) == [(10, 30), (31, 60)]


def test_lost_echoes_are_a_loss_whose_round_trip_is_theirs() -> None:
    log = read_echoes(
        "t_ms,speed,rtt_ms\n" + "".join(f"{10 * i},9,{'' if i % 4 == 3 else 20}\n" for i in range(40)), "e"
    )
    trace = to_trace(log, 40_000)
    assert (1 - trace.up.loss) * (1 - trace.down.loss) == pytest.approx(np.full(10, 0.75))
    assert set(trace.round_trip_ms.tolist()) == {20.0}


def test_time_that_nobody_watched_is_closed_up() -> None:
    log = EchoLog(np.array([0.0, 10, 20, 5000, 5010, 5020]), np.full(6, 20.0))
    assert to_trace(log, 10_000).steps == 6
    assert to_trace(log, 10_000, unseen_ms=9000.0).steps == 503


def test_a_step_follows_the_usual_interval_of_a_log() -> None:
    assert usual_step_us(EchoLog(np.arange(0.0, 550, 54.6), np.ones(11))) == 55_000
    assert usual_step_us(EchoLog(np.arange(11.0), np.ones(11))) == 10_000


def test_an_echo_waits_for_each_direction_and_one_that_never_passes_has_no_time() -> None:
    trace = Trace(
        10_000, direction([1.0] * 6, outage=[0, 1, 1, 0, 0, 1]), direction([2.0] * 6, outage=[0, 0, 0, 1, 0, 0])
    )
    assert probed(trace)[:5].tolist() == [3.0, 32.0, 22.0, 12.0, 3.0]
    assert np.isnan(probed(trace)[5])


def test_halves_share_no_step_and_cut_no_outage() -> None:
    outage = [0] * 19 + [1] * 3 + [0] * 58
    trace = Trace(10_000, direction([float(i) for i in range(80)], outage=outage), direction([0.0] * 80))
    first, second = split(trace, 100.0)
    assert sorted(first.up.delay_ms.tolist() + second.up.delay_ms.tolist()) == list(range(80))
    assert runs(second.outage) == [(9, 12)]
    assert not first.outage.any()
    with pytest.raises(UserError, match=r"do not hold four blocks of 0\.3 s"):
        split(trace, 300.0)


def test_a_log_that_spans_too_little_or_too_much_is_refused_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "drive.csv"
    for last in ("0.1", "1e12"):
        path.write_text(f"t_ms,rtt_ms\n0,10\n{last},11\n", encoding="utf-8")
        with pytest.raises(UserError, match=r"drive.csv: the echoes span .* ms; expected 2 to"):
            read_link(path, unseen_ms=1e15)
