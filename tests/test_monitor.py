"""The monitor's figures, and when they mean that the machine itself stood still."""

from __future__ import annotations

import os
import time

from hil.monitor import Monitor, Noise
from hil.stalls import Seen, Stall, together
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


def test_a_core_can_be_watched_alone_and_what_was_late_is_told_with_its_time() -> None:
    before = time.monotonic_ns()
    with Monitor(late_ms=0.0001, core=min(os.sched_getaffinity(0))) as monitor:
        seen = monitor.take_all()
        while not seen.stalls:
            seen = monitor.take_all()
    assert all(before < stall.due_ns < time.monotonic_ns() and stall.late_ns >= 100 for stall in seen.stalls)
    assert seen.figures.count >= len(seen.stalls)


def test_of_several_cores_the_worst_counts() -> None:
    one = Seen(LatenessFigures(10, 0.1, 0.5, 0.6, 9.0, 0.1), (Stall(5, 1),))
    other = Seen(LatenessFigures(20, 0.2, 0.4, 0.7, 8.0, 0.2), (Stall(3, 2), Stall(7, 2)))
    assert together([one, other]) == Seen(
        LatenessFigures(30, 0.2, 0.5, 0.7, 9.0, 0.2), (Stall(3, 2), Stall(5, 1), Stall(7, 2))
    )
