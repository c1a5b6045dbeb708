"""The timer fires at its moment, not before, and can be moved and disarmed."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterator

import pytest

from shared.timer import CtypesTimer, Timer, make_timer

BOUND_S = 30.0


@pytest.fixture(params=["ctypes", "default"])
def timer(request: pytest.FixtureRequest) -> Iterator[Timer]:
    made = CtypesTimer() if request.param == "ctypes" else make_timer()
    yield made
    made.close()


def fired(timer: Timer, bound_s: float) -> bool:
    return bool(select.select([timer.fileno()], [], [], bound_s)[0])


def test_it_fires_no_earlier_than_asked(timer: Timer) -> None:
    at_ns = time.monotonic_ns() + 3_000_000
    timer.set(at_ns)
    assert fired(timer, BOUND_S)
    assert time.monotonic_ns() >= at_ns


@pytest.mark.parametrize("at_ns", [0, 1, -5])
def test_a_moment_that_has_passed_fires_at_once(timer: Timer, at_ns: int) -> None:
    timer.set(at_ns)
    assert fired(timer, BOUND_S)


def test_acknowledging_silences_it_until_it_is_set_again(timer: Timer) -> None:
    timer.set(1)
    assert fired(timer, BOUND_S)
    timer.ack()
    timer.ack()
    assert not fired(timer, 0)
    timer.set(2)
    assert fired(timer, BOUND_S)


def test_setting_replaces_and_none_disarms(timer: Timer) -> None:
    timer.set(1)
    timer.set(time.monotonic_ns() + 3_600_000_000_000)
    assert not fired(timer, 0)
    timer.set(1)
    timer.set(None)
    assert not fired(timer, 0)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="timers of Python itself came with 3.13")
def test_newer_pythons_use_their_own_timer() -> None:
    made = make_timer()
    assert not isinstance(made, CtypesTimer)
    made.close()
