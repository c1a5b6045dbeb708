"""The histogram of lateness: its quantiles, its worst, and what a stall counts for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.lateness import MOST_NS, Lateness, LatenessFigures

MS = 1_000_000


def test_quantiles_are_those_of_the_samples_to_a_step() -> None:
    lateness = Lateness(90 * MS)
    for late_ms in range(1, 101):
        lateness.add(late_ms * MS)
    figures = lateness.figures()
    assert figures.count == 100
    assert 50 <= figures.p50_ms < 50 * 65 / 64
    assert 99 <= figures.p99_ms < 99 * 65 / 64
    assert figures.p999_ms == figures.max_ms == 100
    assert figures.late_share == 0.11


@given(st.lists(st.integers(-1000, MOST_NS), min_size=1, max_size=200))
def test_no_quantile_is_below_the_samples_own_nor_above_it_by_more_than_a_step(samples: list[int]) -> None:
    lateness = Lateness()
    for sample in samples:
        lateness.add(sample)
    figures = lateness.figures()
    ordered = sorted(max(0, sample) / MS for sample in samples)
    for share, found_ms in ((0.5, figures.p50_ms), (0.99, figures.p99_ms), (0.999, figures.p999_ms)):
        exact_ms = ordered[-(-len(ordered) * round(share * 1000) // 1000) - 1]
        assert exact_ms <= found_ms <= exact_ms * 65 / 64
    assert figures.max_ms == ordered[-1]
    assert figures.count == len(samples)


def test_what_came_early_is_punctual_and_what_came_hours_late_is_the_worst() -> None:
    lateness = Lateness()
    lateness.add(-5)
    assert lateness.figures().max_ms == 0
    lateness.add(7200 * 1000 * MS)
    assert lateness.figures().max_ms == 7200 * 1000


def test_a_stall_counts_every_wake_up_that_it_swallowed() -> None:
    lateness = Lateness(2 * MS)
    for _ in range(980):
        lateness.add_period(0, MS)
    lateness.add_period(20 * MS, MS)
    figures = lateness.figures()
    assert figures.count == 1000
    assert figures.late_share == pytest.approx(0.019)


def test_clearing_starts_anew() -> None:
    lateness = Lateness()
    lateness.add(5 * MS)
    lateness.clear()
    assert lateness.figures() == LatenessFigures()
