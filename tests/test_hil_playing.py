"""A trace that the rig itself plays, moment by moment."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hil.links.trace import Direction, Moment, Trace
from hil.scenarios.playing import Playing
from shared.errors import UserError

PATIENCE_S = 30.0


def trace() -> Trace:
    delays = np.array([1.0, 2.0, 3.0])
    zeros = np.zeros(3)
    way = Direction(delays, zeros, zeros, np.zeros(3, np.bool_))
    return Trace(10_000, way, way, False)


def test_every_moment_is_told_again_and_again_until_it_is_stopped() -> None:
    told: list[float] = []
    enough = threading.Event()

    def apply(moment: Moment) -> None:
        told.append(moment.up.delay_ms)
        if told.count(3.0) >= 2:
            enough.set()

    playing = Playing(trace(), apply)
    assert enough.wait(PATIENCE_S)
    playing.stop()
    assert set(told) == {1.0, 2.0, 3.0}
    assert not any(thread.name == "hil-trace" for thread in threading.enumerate())


def test_a_network_that_fails_ends_it_and_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    tried = threading.Event()

    def apply(moment: Moment) -> None:
        tried.set()
        raise UserError("the proxy has ended")

    playing = Playing(trace(), apply)
    assert tried.wait(PATIENCE_S)
    playing.stop()
    assert "the trace is played no further: the proxy has ended" in capfd.readouterr().err
