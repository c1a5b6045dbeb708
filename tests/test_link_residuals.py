"""The distribution of residuals, with samples of which only a lower bound is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.link_residuals import WINDOW, Residuals

SAMPLES = st.lists(st.tuples(st.integers(-20, 20), st.booleans()), max_size=40)


def filled(samples: list[tuple[int, bool]]) -> Residuals:
    residuals = Residuals()
    for value, censored in samples:
        residuals.add(float(value), censored=censored)
    return residuals


def textbook(samples: list[tuple[int, bool]], value: float) -> float:
    """Kaplan and Meier as their paper has it: one factor for each event, with one more sample that never comes."""
    stays = 1.0
    for time in sorted({v for v, censored in samples if not censored and v <= value}):
        risk = 1 + sum(v >= time for v, _ in samples)
        stays *= 1 - sum(v == time and not censored for v, censored in samples) / risk
    return 1 - stays


@given(SAMPLES, st.floats(-25, 25))
def test_it_is_the_product_limit_estimate(samples: list[tuple[int, bool]], value: float) -> None:
    assert filled(samples).below(value) == pytest.approx(textbook(samples, value), abs=1e-9)


@given(SAMPLES, st.floats(0.01, 0.999))
def test_a_quantile_is_the_least_sample_that_so_many_are_at_most(samples: list[tuple[int, bool]], share: float) -> None:
    residuals = filled(samples)
    events = sorted({v for v, censored in samples if not censored})
    enough = [v for v in events if textbook(samples, v) >= share - 1e-9]
    if enough:
        assert residuals.quantile(share) == enough[0]
    else:
        assert residuals.quantile(share) > max((v for v, _ in samples), default=0)


def test_cancelled_attempts_do_not_make_a_slow_link_look_fast() -> None:
    """Exponential residuals of mean 1, each cancelled after a time of mean 1 as well: the middle is ln 2 all the same."""
    rng = random.Random(5)
    told: list[float] = []
    naive: list[float] = []
    for _ in range(40):
        residuals, seen = Residuals(), []
        for _ in range(WINDOW):
            took, waited = rng.expovariate(1.0), rng.expovariate(1.0)
            residuals.add(min(took, waited), censored=waited < took)
            seen += [took] if took <= waited else []
        told.append(residuals.quantile(0.5))
        naive.append(sorted(seen)[len(seen) // 2])
    assert sum(told) / len(told) == pytest.approx(0.693, abs=0.1)
    assert sum(naive) / len(naive) < 0.5, "without the cancelled ones it looks faster than it is"


def test_nothing_is_ever_certain_and_a_lone_sample_is_no_quantile() -> None:
    residuals = filled([(1, False)] * 9)
    assert residuals.below(1e9) == pytest.approx(0.9)
    assert residuals.quantile(0.9) == 1.0
    assert residuals.quantile(0.95) > 1.0
    assert filled([]).below(0.0) == 0.0


def test_samples_take_the_places_of_seeds_and_then_of_the_oldest() -> None:
    residuals = Residuals((9.0, 8.0))
    residuals.add(1.0)
    assert residuals.below(8.5) == pytest.approx(2 / 3)
    residuals.add(1.0)
    assert residuals.below(2.0) == pytest.approx(2 / 3)
    for _ in range(WINDOW):
        residuals.add(2.0, censored=True)
    assert len(residuals) == WINDOW
    assert residuals.below(5.0) == 0.0


def test_what_is_overdue_is_judged_by_those_that_took_as_long_and_the_less_likely_the_longer_it_is() -> None:
    residuals = filled([(1, False)] * 60 + [(10, False)] * 60)
    assert residuals.between(2.0, 10.0) > 0.9
    assert residuals.between(2.0, 5.0) < 0.1
    assert residuals.between(5.0, 5.0) == 0.0
    waiting = [residuals.between(after, after + 2.0) for after in (10.0, 20.0, 50.0, 200.0)]
    assert waiting == sorted(waiting, reverse=True)
    assert waiting[0] < 0.2
    assert waiting[-1] < 0.01
