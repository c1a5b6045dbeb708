"""The monitor's figures, and when they mean that the machine itself stood still."""

from __future__ import annotations

from hil.monitor import Monitor, Noise
from shared.lateness import LatenessFigures


def test_a_machine_stalled_where_too_many_wake_ups_were_late_or_one_was_very_late() -> None:
    figures = LatenessFigures(count=1000, late_share=0.019, max_ms=20.0)
    assert Noise(late_ms=2, share=0.01).stalled(figures)
    assert not Noise(late_ms=2, share=0.02, worst_ms=50).stalled(figures)
    assert Noise(late_ms=2, share=0.02, worst_ms=10).stalled(figures), "one stall of 20 ms"


def test_the_process_counts_wake_ups_and_ends_with_its_input() -> None:
    with Monitor(late_ms=2) as monitor:
        seen = 0
        while seen < 3:
            seen += monitor.take().count
    assert monitor.ended
