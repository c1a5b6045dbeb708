"""Models of links: what a synthetic trace is like, by shares, means and distributions that are known in closed form."""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec
import numpy as np
import pytest
from link_models import FOUR, good, model

from hil.links.generator import generate, round_trips
from hil.links.model import LinkModel, State, check_model, time_shares, visit_shares
from hil.links.model_file import read_model, write_model
from hil.links.quantiles import autocorrelation, greatest_gap, typical_ratio, unrounded
from hil.links.trace import runs
from shared.errors import UserError

LONG_MS = 1_800_000.0


def made(of: LinkModel, seed: int = 1, duration_ms: float = LONG_MS):
    return generate(of, duration_ms, np.random.default_rng(seed))


def test_same_seed_same_trace_and_another_seed_another() -> None:
    first, again, other = made(FOUR, 1, 5000.0), made(FOUR, 1, 5000.0), made(FOUR, 2, 5000.0)
    assert np.array_equal(first.trace.round_trip_ms, again.trace.round_trip_ms)
    assert np.array_equal(first.trace.up.rate_mbit, again.trace.up.rate_mbit)
    assert not np.array_equal(first.trace.round_trip_ms, other.trace.round_trip_ms)
    assert first.trace.steps == 500


def test_shares_of_time_are_exact_where_they_can_be_worked_out_by_hand() -> None:
    two = model(
        good(dwell_ms=3000.0, next=(0.0, 1.0)), State(name="outage", dwell_ms=1000.0, next=(0.5, 0.5), outage=True)
    )
    assert visit_shares(two) == pytest.approx([1 / 3, 2 / 3])
    assert time_shares(two) == pytest.approx([0.6, 0.4])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_trace_spends_its_time_as_the_chain_says(seed: int) -> None:
    """About 500 visits to the largest states: three standard errors of a share are below 0.06."""
    long = made(FOUR, seed)
    shares = np.bincount(long.states, minlength=4) / long.states.size
    assert np.abs(shares - time_shares(FOUR)).max() < 0.06
    assert np.array_equal(long.trace.outage, long.states >= 2)


def test_geometric_stays_have_the_mean_and_spread_of_a_geometric_law() -> None:
    lengths = np.array([end - start for start, end in runs(made(flip(200.0, 300.0, 0.0)).states == 0)], np.float64)
    assert lengths.mean() == pytest.approx(20.0, rel=0.06)
    assert lengths.std() == pytest.approx(math.sqrt(20 * 19), rel=0.08)


def test_outages_have_the_quantiles_of_their_log_normal_law() -> None:
    lengths = [10.0 * (end - start) for start, end in runs(made(flip(200.0, 3000.0, 0.5)).trace.outage)]
    median = 3000 * math.exp(-0.125)
    for level in (0.1, 0.5, 0.9):
        expected = median * math.exp(0.5 * NormalDist().inv_cdf(level))
        assert float(np.quantile(lengths, level)) == pytest.approx(expected, rel=0.1)


def flip(good_ms: float, out_ms: float, sigma: float) -> LinkModel:
    out = State(name="out", dwell_ms=out_ms, next=(1.0, 0.0), dwell="lognormal", dwell_sigma=sigma, outage=True)
    return model(good(dwell_ms=good_ms, next=(0.0, 1.0)), out)


def test_an_outage_of_no_spread_always_lasts_the_same() -> None:
    assert {end - start for start, end in runs(made(flip(200.0, 300.0, 0.0)).trace.outage[500:-500])} >= {30}
    lengths = [end - start for start, end in runs(made(flip(200.0, 300.0, 0.0)).trace.outage)][1:-1]
    assert set(lengths) == {30}


def test_the_body_is_log_normal_and_the_tail_pareto_from_where_it_joins() -> None:
    state = good(tail_share=0.05, tail_alpha=2.0, cap_ms=1000.0)
    levels = np.array([0.1, 0.5, 0.9, 0.95, 0.9875, 1 - 1e-12])
    normals = np.array([NormalDist().inv_cdf(level) for level in levels])
    delays = round_trips(state, normals)
    joint = 12 + 6 * math.exp(0.4 * NormalDist().inv_cdf(0.95))
    assert delays[:3] == pytest.approx(12 + 6 * np.exp(0.4 * normals[:3]))
    assert delays[3:] == pytest.approx([joint, joint * 2, 1000.0], rel=1e-6)


def test_delays_and_rates_have_their_medians_spreads_and_memories() -> None:
    long = made(
        model(good(delay_memory_ms=80.0, rate_mbit=(20.0, 60.0), rate_sigma=(0.3, 0.5), rate_memory_ms=500.0))
    ).trace
    logs = np.log(long.round_trip_ms - 12)
    assert np.median(long.round_trip_ms) == pytest.approx(18.0, rel=0.02)
    assert logs.std() == pytest.approx(0.4, rel=0.03)
    assert autocorrelation(logs, 8) == pytest.approx(math.exp(-1), abs=0.03)
    up = np.log(long.up.rate_mbit)
    assert (up.mean(), up.std()) == pytest.approx((math.log(20.0), 0.3), rel=0.06)
    assert autocorrelation(up, 50) == pytest.approx(math.exp(-1), abs=0.06)
    assert abs(float(np.corrcoef(up, np.log(long.down.rate_mbit))[0, 1])) < 0.1


def test_losses_have_their_mean_and_come_in_bursts_of_their_length() -> None:
    state = good(burst_share=0.1, burst_ms=100.0, burst_loss=(0.5, 0.3), other_loss=(0.01, 0.0))
    long = made(model(state)).trace
    bursts = long.up.loss == 0.5
    assert state.mean_loss == pytest.approx((0.059, 0.03))
    assert (long.up.loss.mean(), long.down.loss.mean()) == pytest.approx(state.mean_loss, rel=0.06)
    assert np.mean([end - start for start, end in runs(bursts)]) == pytest.approx(10.0, rel=0.06)
    assert np.array_equal(bursts, long.down.loss == 0.3)


def test_the_way_up_has_its_share_of_the_round_trip() -> None:
    long = made(msgspec.structs.replace(model(good()), up_share=0.75), duration_ms=5000.0).trace
    assert long.up.delay_ms == pytest.approx(3 * long.down.delay_ms, abs=0.01)


def test_an_outage_keeps_the_delays_of_the_open_state_before_it_and_loses_nothing() -> None:
    long = made(flip(200.0, 300.0, 0.0), duration_ms=60_000.0).trace
    assert long.round_trip_ms[long.outage].min() > 12.0
    assert long.up.loss[long.outage].max() == 0.0


def test_a_set_survives_its_file() -> None:
    assert read_model(write_model(FOUR), "x.toml") == FOUR


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next": (0.5,)}, r"x: state 'good': next sums to 0\.5; expected 1"),
        ({"next": (0.5, 0.5)}, r"x: state 'good': next has 2 entries; expected 1, one a state"),
        ({"median_ms": 0.0}, r"x: state 'good': median_ms is 0; expected a number from"),
        ({"sigma": float("nan")}, r"x: state 'good': sigma is nan"),
        ({"dwell_ms": 5.0}, r"x: state 'good': dwell_ms is 5; expected a number from 10"),
        ({"tail_share": 0.1, "cap_ms": 1.0}, r"x: state 'good': cap_ms is 1; expected a number from 18"),
        ({"burst_share": 0.1}, r"x: state 'good': burst_ms is 0; expected a number from 10"),
        ({"burst_loss": (0.0, 1.5)}, r"x: state 'good': burst_loss is 1\.5; expected a number from 0 to 1"),
        ({"outage": True}, r"x: every state is an outage"),
    ],
)
def test_a_wrong_set_is_refused_with_its_state_and_key(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_model(model(good(**change)), "x")


def test_a_state_that_nothing_leads_to_is_refused() -> None:
    lost = State(name="lost", dwell_ms=100.0, next=(1.0, 0.0), outage=True)
    with pytest.raises(UserError, match="some state is never reached"):
        check_model(model(good(next=(1.0, 0.0)), lost), "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", r"s\.toml: not valid TOML"),
        ("name = " + "[" * 20_000, r"s\.toml: not valid TOML: brackets stand too deep"),
        ("name = " + "9" * 5_000, r"s\.toml: holds a number that is too long"),
        ("name = 3", r"s\.toml: Expected `str`, got `int` - at `\$\.name`"),
        (
            write_model(FOUR).replace("median_ms", "mean_ms", 1),
            r"s\.toml: Object contains unknown field `mean_ms`.*states\[0\]",
        ),
    ],
)
def test_a_bad_set_file_is_refused_with_its_key(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_model(text, "s.toml")


def test_whole_milliseconds_are_spread_without_moving_their_mean() -> None:
    spread = unrounded(np.array([3.0, 1.0, 1.0, 1.0, 2.0, 2.0]))
    assert spread == pytest.approx([2 / 3, 1.0, 4 / 3, 1.75, 2.25, 3.0])


def test_distances_are_nought_for_the_same_and_a_factor_for_a_multiple() -> None:
    values = np.random.default_rng(1).lognormal(3.0, 0.5, 2000)
    assert greatest_gap(values, values) == 0.0
    assert typical_ratio(values, 2 * values) == pytest.approx(2.0)
    assert greatest_gap(values, 1000 * values) == 1.0
