"""The highest offered rate that a policy serves in time: goodput."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from hil.goodput.arrivals import offer
from hil.goodput.case import Case
from hil.goodput.policies import POLICIES
from hil.goodput.world import Played, play

STEPS = 9


class Point(msgspec.Struct, frozen=True):
    """Share in time at an offered rate, and requests in time a second."""

    rate_per_s: float
    share: float
    on_time_per_s: float


class Goodput(msgspec.Struct, frozen=True):
    """What a search found for one policy and seed: the highest rate at which the judged requests' share in time was at
    least the one asked for, and the run at that rate (None where there is none). `step_per_s`: how finely it was searched.
    `points`: all that was tried, by rate."""

    case: str
    policy: str
    seed: int
    rate_per_s: float
    step_per_s: float
    points: tuple[Point, ...]
    played: Played | None = None


def run(case: Case, policy: str, rate_per_s: float, requests: int, seed: int) -> Played:
    """One run at one rate."""
    with _no_collector():
        return play(case, offer(case, rate_per_s, requests, seed), POLICIES[policy](case), seed)


def search(case: Case, name: str, policy: str, share: float, requests: int, seed: int, steps: int = STEPS) -> Goodput:
    """Bisect between nothing and the most that any policy can serve. The arrivals of a seed at one rate are those at another
    but for the scale of time, so that policies and rates are compared on the same draw."""
    judged = [m.judged for m in case.each]
    low, high = 0.0, case.most_per_s()
    best: Played | None = None
    points: list[Point] = []
    for _ in range(steps):
        rate = (low + high) / 2
        played = run(case, policy, rate, requests, seed)
        found = played.share(judged)
        points.append(Point(rate, found, rate * found))
        if found >= share:
            low, best = rate, played
        else:
            high = rate
    points.sort(key=lambda point: point.rate_per_s)
    return Goodput(name, policy, seed, low, high - low, tuple(points), best)


@contextmanager
def _no_collector() -> Generator[None, None, None]:
    """A run makes no cycles, and collecting while it goes on takes a tenth of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
