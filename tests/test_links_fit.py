"""Fitting: a set made of a synthetic trace finds that trace's own numbers again, and the verbs do it on files."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from link_models import FOUR, good, model
from typer.testing import CliRunner

from hil.hil_cli import group
from hil.links.checked_fit import check
from hil.links.fit import fit, hill, memory_ms, shifted_lognormal
from hil.links.generator import generate
from hil.links.model import LinkModel, State, check_model, time_shares
from hil.links.model_file import read_model
from hil.links.states import CONGESTED, DEFAULT, EDGE, GOOD, HAND_OVER, OUTAGE, Thresholds, classify, count
from hil.links.summary import distances, summarise
from hil.links.trace import Direction, Trace
from hil.links.trace_csv import DELAYS, MARK, OPTIONAL, ROUND_TRIP, TIME, read_trace
from shared.errors import UserError

SETS = sorted((Path(__file__).parent.parent / "configs" / "links").glob("*.toml"))
RUNNER = CliRunner()


def link(delay: list[float], outage: list[int] | None = None, loss: float = 0.0) -> Trace:
    many = len(delay)
    out = np.array(outage or [0] * many, np.bool_)
    side = Direction(np.array(delay) / 2, np.zeros(many), np.full(many, loss), out)
    return Trace(100_000, side, side, halved=True)


@st.composite
def anything(draw: st.DrawFn) -> Trace:
    """A trace of values that repeat, are nought, or lie far apart, in which something passes."""
    many = draw(st.integers(2, 600))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))

    def some(values: list[float]) -> np.ndarray:
        return rng.choice(draw(st.lists(st.sampled_from(values), min_size=1, max_size=4)), many)

    def side() -> Direction:
        outage = some([0.0, 0.0, 1.0]) > 0
        outage[0] = False
        delay = some([0.0, 1e-3, 5.0, 5.001, 80.0, 20_000.0])
        return Direction(delay, some([0.0, 1e-3, 50.0, 1e5]), some([0.0, 1e-9, 0.2, 1.0]), outage)

    return Trace(draw(st.sampled_from([1000, 12_345, 100_000])), side(), side())


def test_levels_losses_and_lengths_of_gaps_make_the_states() -> None:
    calm = [10.0] * 100
    delays = calm + [20.0] * 30 + [40.0] * 30 + calm
    outage = [0] * 160 + [1] * 10 + [0] * 20 + [1] * 11 + [0] * 59
    states = classify(link(delays, outage), Thresholds(window_ms=100.0))
    expected = (
        [GOOD] * 100 + [CONGESTED] * 30 + [EDGE] * 30 + [HAND_OVER] * 10 + [GOOD] * 20 + [OUTAGE] * 11 + [GOOD] * 59
    )
    assert states.tolist() == expected
    assert set(classify(link(calm, loss=0.06), DEFAULT).tolist()) == {EDGE}


def test_a_state_of_few_steps_counts_as_the_usual_one() -> None:
    assert set(classify(link([10.0] * 100 + [20.0] * 19), Thresholds(window_ms=100.0)).tolist()) == {GOOD}


def test_a_trace_in_which_nothing_passes_is_refused() -> None:
    with pytest.raises(UserError, match="one outage from start to end"):
        classify(link([10.0] * 3, [1] * 3), DEFAULT)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_counting_closes_the_ring_so_that_shares_of_time_are_those_of_the_series(series: list[int]) -> None:
    visits = count(np.array(series, np.intp))
    sums = {state: int(lengths.sum()) for state, lengths in visits.lengths.items()}
    assert sums == {state: series.count(state) for state in set(series)}
    assert visits.jumps.sum(axis=1) == pytest.approx(np.ones(len(visits.present)))
    made = model(
        *(
            State(
                name=str(state),
                dwell_ms=10 * float(visits.lengths[state].mean()),
                next=tuple(visits.jumps[index].tolist()),
                median_ms=1.0,
            )
            for index, state in enumerate(visits.present)
        )
    )
    shares = [series.count(state) / len(series) for state in visits.present]
    assert time_shares(made) == pytest.approx(shares)


def test_moments_of_known_laws_are_found() -> None:
    rng = np.random.default_rng(1)
    floor, median, sigma = shifted_lognormal(12 + 6 * np.exp(0.4 * rng.standard_normal(100_000)))
    assert (floor, median, sigma) == pytest.approx((12, 6, 0.4), rel=0.05)
    assert shifted_lognormal(20.0 - 6 * np.exp(0.2 * rng.standard_normal(1000)))[0] == 0.0
    assert hill(5.0 * (1 - rng.random(100_000)) ** (-1 / 2.5), 5.0) == pytest.approx(2.5, rel=0.02)
    series = [0.0]
    for fresh in rng.standard_normal(49_999).tolist():
        series.append(math.exp(-1 / 8) * series[-1] + fresh)
    everywhere = np.ones(len(series), np.bool_)
    assert memory_ms(np.array(series), everywhere, 10.0) == pytest.approx(80.0, rel=0.1)
    assert memory_ms(rng.standard_normal(50_000), everywhere, 10.0) < 3.0
    assert memory_ms(np.arange(100.0), everywhere[:100], 10.0) == pytest.approx(1000.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fit_finds_the_parameters_of_a_synthetic_trace_again(seed: int) -> None:
    """Half an hour in steps of 10 ms, some 110 hand-overs and 12 outages. Mean stays come within 20 % of the trace's own,
    median round trips within 2 %, rates within 10 %, spreads and tail within 15 %, mean losses within 15 % or 0.05 % of all,
    memories within 30 %, bursts within 25 %."""
    synthetic = generate(FOUR, 1_800_000.0, np.random.default_rng(seed))
    found = {state.name: state for state in fit(synthetic.trace, "found", DEFAULT).states}
    true = {state.name: state for state in FOUR.states}
    for name, index in (("good", 0), ("congested", 1), ("hand_over", 2), ("outage", 3)):
        own = synthetic.states == index
        visits = int((own & ~np.roll(own, 1)).sum())
        assert found[name].dwell_ms == pytest.approx(10 * own.sum() / visits, rel=0.2)
    assert [found[name].outage for name in ("hand_over", "outage")] == [True, True]
    assert found["hand_over"].dwell_sigma == pytest.approx(0.3, rel=0.15)
    for name in ("good", "congested"):
        median = found[name].floor_ms + found[name].median_ms
        assert median == pytest.approx(true[name].floor_ms + true[name].median_ms, rel=0.02)
        assert found[name].rate_mbit == pytest.approx(true[name].rate_mbit, rel=0.1)
        assert found[name].mean_loss == pytest.approx(true[name].mean_loss, rel=0.15, abs=0.0005)
    assert found["good"].sigma == pytest.approx(0.4, rel=0.15)
    assert found["good"].tail_alpha == pytest.approx(4.0, rel=0.15)
    assert found["good"].rate_sigma == pytest.approx((0.3, 0.5), rel=0.15)
    assert found["good"].delay_memory_ms == pytest.approx(80.0, rel=0.3)
    assert found["good"].rate_memory_ms == pytest.approx(1000.0, rel=0.3)
    assert (found["good"].burst_share, found["good"].burst_ms) == pytest.approx((0.02, 60.0), rel=0.25)
    agreed = classify(synthetic.trace, DEFAULT) == np.array([GOOD, CONGESTED, HAND_OVER, OUTAGE])[synthetic.states]
    assert agreed.mean() > 0.98


def test_a_fit_of_a_fit_is_alike_and_another_link_is_not() -> None:
    first = generate(FOUR, 600_000.0, np.random.default_rng(1)).trace
    again = generate(fit(first, "again", DEFAULT), 600_000.0, np.random.default_rng(2)).trace
    other = generate(model(good(median_ms=30.0)), 600_000.0, np.random.default_rng(2)).trace
    near, far = (distances(first, second)[0] for second in (again, other))
    assert near.greatest_gap < 0.1 < 0.4 < far.greatest_gap
    assert near.typical_ratio < 1.1 < 1.3 < far.typical_ratio


@given(anything())
def test_whatever_a_trace_holds_its_fit_is_a_set_that_plays(trace: Trace) -> None:
    found = fit(trace, "found", DEFAULT)
    check_model(found, "found")
    made = generate(found, 1000.0, np.random.default_rng(1)).trace
    assert made.steps == math.ceil(1_000_000 / trace.step_us)
    assert [figure.name for figure in summarise(made)] == [figure.name for figure in summarise(trace)]


def test_a_held_back_half_of_another_kind_shows_as_a_distance() -> None:
    rng = np.random.default_rng(1)
    even = (np.arange(2000) // 100) % 2 == 0
    same = link((20 + rng.random(2000)).tolist())
    different = link((np.where(even, 20, 60) + rng.random(2000)).tolist())
    assert check(same, DEFAULT, 10_000.0, 1)[0].held_back[0].greatest_gap < 0.1
    halves = check(different, DEFAULT, 10_000.0, 1)[0]
    assert halves.fitted[0].greatest_gap < 0.1
    assert (halves.held_back[0].greatest_gap, halves.halves[0].greatest_gap) == pytest.approx((1.0, 1.0), abs=0.01)


def test_figures_of_a_small_trace_are_those_worked_out_by_hand() -> None:
    trace = link([10.0] * 50 + [30.0] * 50, [0] * 90 + [1] * 10)
    figures = {figure.name: figure.value for figure in summarise(trace)}
    assert figures["duration"] == 10.0
    assert (figures["round trip p10"], figures["round trip p90"]) == (10.0, 30.0)
    assert (figures["outage share"], figures["outages"]) == (10.0, 6.0)
    assert figures["outage length p50"] == figures["outage length longest"] == 1000.0
    assert figures["loss up"] == 0.0
    assert math.isnan(figures["rate up p50"])


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_a_set_that_comes_with_headtail_plays_as_it_says(path: Path) -> None:
    chosen = read_model(path.read_text(encoding="utf-8"), path.name)
    assert chosen.name == path.stem
    assert chosen.about
    assert chosen.sources
    synthetic = generate(chosen, 1_200_000.0, np.random.default_rng(1))
    trace = synthetic.trace
    low = min(state.floor_ms for state in chosen.states if not state.outage)
    assert trace.round_trip_ms.min() >= low - 0.002
    assert trace.up.rate_mbit.min() > 0
    shares = time_shares(chosen)
    out = sum(share for share, state in zip(shares.tolist(), chosen.states, strict=True) if state.outage)
    assert float(trace.outage.mean()) == pytest.approx(out, abs=0.08)


def test_the_manual_names_every_key_and_column() -> None:
    manual = (Path(__file__).parent.parent / "docs" / "hil.md").read_text(encoding="utf-8")
    keys = {*State.__struct_fields__, *LinkModel.__struct_fields__} - {"states"}
    missing = [name for name in sorted({*keys, TIME, ROUND_TRIP, *DELAYS, *OPTIONAL}) if f"`{name}`" not in manual]
    assert not missing
    assert MARK in manual
    assert all(f"`{path.stem}`" in manual for path in SETS)


def test_there_are_seven_sets() -> None:
    assert len(SETS) == 7


def test_generate_fit_and_compare_work_on_files(tmp_path: Path) -> None:
    trace, found, again = tmp_path / "a.csv", tmp_path / "found.toml", tmp_path / "b.csv"
    urban = next(path for path in SETS if path.stem == "urban_5g")
    made = RUNNER.invoke(group(), ["generate", str(urban), "--seconds", "60", "--seed", "3", "-o", str(trace)])
    assert made.exit_code == 0, made.output
    assert read_trace(trace.read_text(), "a").steps == 6000
    fitted = RUNNER.invoke(group(), ["fit", str(trace), "-o", str(found), "--name", "mine"])
    assert fitted.exit_code == 0, fitted.output
    assert "part held back" in fitted.output
    assert read_model(found.read_text(), "found").name == "mine"
    step = ["generate", str(found), "--seconds", "60", "--step-ms", "20", "-o", str(again)]
    assert RUNNER.invoke(group(), step).exit_code == 0
    assert read_trace(again.read_text(), "b").step_us == 20_000
    compared = RUNNER.invoke(group(), ["compare", str(trace), str(again)])
    assert compared.exit_code == 0, compared.output
    rows = {line[:16].strip(): line.split() for line in compared.output.splitlines()}
    assert float(rows["round trip p50"][3]) == pytest.approx(float(rows["round trip p50"][5]), rel=0.1)


def test_a_log_of_echoes_is_fitted_as_it_is(tmp_path: Path) -> None:
    log, found = tmp_path / "log.csv", tmp_path / "found.toml"
    rows = "".join(f"{50 * i},{20 + i % 7},8.5\n" for i in range(1200))
    log.write_text("# a drive\nt_ms,rtt_ms,speed_mps\n" + rows)
    result = RUNNER.invoke(group(), ["fit", str(log), "-o", str(found)])
    assert result.exit_code == 0, result.output
    assert "holds no rates" in result.output
    state = read_model(found.read_text(), "found").states[0]
    assert state.floor_ms + state.median_ms == pytest.approx(23.0, abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{}/none.csv", "-o", "{}/x.toml"], "none.csv: cannot be read: No such file or directory"),
        (["fit", "{}/short.csv", "-o", "{}/x.toml"], "do not hold four blocks of 10 s"),
        (["fit", "{}/short.csv", "-o", "{}/x.toml", "--edge", "1.1"], "--edge 1.1 is below --congested 1.6"),
        (["fit", "{}/short.csv", "-o", "{}/x.toml", "--step-ms", "0"], "--step-ms is 0; expected 1 to 1000"),
        (["generate", "{}/short.csv", "-o", "{}/x.toml"], "short.csv: not valid TOML"),
        (["generate", str(SETS[0]), "-o", "{}/no/x.csv"], "no/x.csv: cannot be written: No such file or directory"),
        (
            ["generate", str(SETS[0]), "-o", "{}/x.toml", "--step-ms", "2000"],
            "with --step-ms: step_ms is 2000; expected",
        ),
        (["compare", "{}/short.csv", "{}/bad.csv"], "bad.csv, line 3: rtt_ms is 'x'"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "short.csv").write_text("t_ms,rtt_ms\n" + "".join(f"{50 * i},20\n" for i in range(20)))
    (tmp_path / "bad.csv").write_text("t_ms,rtt_ms\n0,1\n50,x\n")
    result = RUNNER.invoke(group(), [argument.replace("{}", str(tmp_path)) for argument in arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "x.toml").exists()


def test_a_step_of_another_length_plays_the_same_link() -> None:
    coarse = generate(msgspec.structs.replace(FOUR, step_ms=50.0), 1_800_000.0, np.random.default_rng(1)).trace
    fine = generate(FOUR, 1_800_000.0, np.random.default_rng(2)).trace
    assert distances(coarse, fine)[0].greatest_gap < 0.06
    assert float(coarse.outage.mean()) == pytest.approx(float(fine.outage.mean()), abs=0.02)
