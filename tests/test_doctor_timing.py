"""The measurement counts every period, however slow the machine is, and leaves no thread and no setting behind."""

from __future__ import annotations

import gc
import sys
import threading

import pytest

from shared.doctor.timing import Hog, measure_collector, measure_wakes, wake_ups
from shared.lateness import Lateness


def test_every_period_is_counted_seen_or_swallowed() -> None:
    lateness = Lateness()
    wake_ups(0.05, lateness)
    assert lateness.figures().count >= 50


def test_all_three_are_measured_and_nothing_is_left_changed() -> None:
    before = sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()
    with Hog() as hog:
        wakes = measure_wakes(0.05, 250.0, hog)
    assert min(figures.count for figures in (wakes.alone, wakes.busy, wakes.busy_python)) >= 50
    assert wakes.switch_us == 250.0
    assert (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()) == before


def test_the_busy_thread_works_only_when_it_is_told_and_ends() -> None:
    with Hog() as hog:
        (thread,) = (thread for thread in threading.enumerate() if thread.name == "hog")
        hog.work()
        hog.rest()
        assert thread.is_alive()
    assert not thread.is_alive()


def test_a_collection_of_everything_takes_time_and_objects() -> None:
    collector = measure_collector()
    assert collector.objects > 1000
    assert collector.whole_ms > 0
    assert collector.young_ms > 0
    assert gc.get_freeze_count() == pytest.approx(0)
