"""The monitor's figures, and when they mean that the machine itself stood still."""

from __future__ import annotations

from hil.lateness import Lateness, LatenessFigures
from hil.monitor import Monitor, Noise

MS = 1_000_000


def test_quantiles_are_those_of_the_samples_to_a_step() -> None:
    lateness = Lateness()
    for late_ms in range(1, 101):
        lateness.add(late_ms * MS)
    figures = lateness.figures(late_ms=90)
    assert figures.count == 100
    assert 50 <= figures.p50_ms < 50.02
    assert 99 <= figures.p99_ms < 99.02
    assert figures.max_ms == 100
    assert figures.late_share == 0.11


def test_a_stall_counts_every_wake_up_that_it_swallowed() -> None:
    lateness = Lateness()
    for _ in range(980):
        lateness.add_period(0, MS)
    lateness.add_period(20 * MS, MS)
    figures = lateness.figures(late_ms=2)
    assert figures.count == 1000
    assert figures.late_share == 0.019
    assert Noise(late_ms=2, share=0.01).stalled(figures)
    assert not Noise(late_ms=2, share=0.02, worst_ms=50).stalled(figures)
    assert Noise(late_ms=2, share=0.02, worst_ms=10).stalled(figures), "one stall of 20 ms"


def test_clearing_starts_anew() -> None:
    lateness = Lateness()
    lateness.add(5 * MS)
    lateness.clear()
    assert lateness.figures() == LatenessFigures()


def test_the_process_counts_wake_ups_and_ends_with_its_input() -> None:
    with Monitor(late_ms=2) as monitor:
        seen = 0
        while seen < 3:
            seen += monitor.take().count
    assert monitor.ended
