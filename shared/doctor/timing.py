"""Measures wake-ups and collections in this very process, in the state in which agent and node run.

The timer is the loop's own, a timerfd behind epoll. Every wake-up that a stall swallowed counts (see `Lateness.add_period`).
The busy thread does nothing but keep the interpreter, which no executor does for long: it shows the worst that a thread of
the process can do to the loop.
"""

from __future__ import annotations

import gc
import select
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from shared.doctor.facts import Collector, Wakes
from shared.lateness import Lateness, LatenessFigures
from shared.process import YOUNG_OBJECTS, OwnProcess
from shared.timer import make_timer

PERIOD_NS = 1_000_000
ROUNDS = 5
PYTHON_SWITCH_US = 5_000.0
"""Python's own switch interval."""

PYTHON_SECONDS = 1.0
"""How long wake-ups are measured at Python's own switch interval, at most: it is a comparison, not a finding."""


class Hog:
    """A thread that keeps the interpreter busy between `work` and `rest`. A context manager."""

    def __init__(self) -> None:
        self._busy = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._main, name="hog", daemon=True)

    def work(self) -> None:
        """Be busy from now on."""
        self._busy.set()

    def rest(self) -> None:
        """Wait for more."""
        self._busy.clear()

    def __enter__(self) -> Hog:
        self._thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._over = True
        self._busy.set()
        self._thread.join()

    def _main(self) -> None:
        while not self._over:
            self._busy.wait()
            while self._busy.is_set() and not self._over:
                sum(range(100))


def wake_ups(seconds: float, lateness: Lateness) -> None:
    """Wait for a timer of 1 ms for `seconds`, and count how late each wake-up comes."""
    timer = make_timer()
    with select.epoll() as epoll:
        epoll.register(timer.fileno(), select.EPOLLIN | select.EPOLLET)
        due = time.monotonic_ns() + PERIOD_NS
        end = due + int(seconds * 1e9)
        while due < end:
            timer.set(due)
            epoll.poll(-1, 1)
            now = time.monotonic_ns()
            if now < due:
                continue
            lateness.add_period(now - due, PERIOD_NS)
            due += ((now - due) // PERIOD_NS + 1) * PERIOD_NS
    timer.close()


def measure_wakes(seconds: float, switch_us: float, hog: Hog) -> Wakes:
    """`Wakes` of `seconds` each, as under `OwnProcess(switch_us)`. The busy thread is there already, so that process settings
    have been applied to it."""
    with OwnProcess(switch_us):
        alone = _figures(seconds)
        with _working(hog):
            busy = _figures(seconds)
    with OwnProcess(PYTHON_SWITCH_US), _working(hog):
        python = _figures(min(seconds, PYTHON_SECONDS))
    return Wakes(seconds, switch_us, alone, busy, python)


def measure_collector() -> Collector:
    """Collections of this process's heap, which holds the libraries that an agent holds."""
    objects = len(gc.get_objects())
    whole_ms = max(_collect(2) for _ in range(ROUNDS))
    with OwnProcess(sys.getswitchinterval() * 1e6):
        young_ms = 0.0
        for _ in range(ROUNDS):
            young = [[number] for number in range(YOUNG_OBJECTS)]
            young_ms = max(young_ms, _collect(1))
            young.clear()
    return Collector(objects, whole_ms, young_ms)


def _figures(seconds: float) -> LatenessFigures:
    lateness = Lateness()
    wake_ups(seconds, lateness)
    return lateness.figures()


@contextmanager
def _working(hog: Hog) -> Generator[None, None, None]:
    hog.work()
    try:
        yield
    finally:
        hog.rest()


def _collect(generation: int) -> float:
    began_ns = time.monotonic_ns()
    gc.collect(generation)
    return (time.monotonic_ns() - began_ns) / 1e6
