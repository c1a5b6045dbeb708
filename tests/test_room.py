"""Whether a lesser launch leaves room for what is more important."""

from __future__ import annotations

import random

import pytest

from shared.room import Demand, keeps_room

MS = 1_000_000


def demand(per_s: float = 50.0, takes_ms: float = 2.0, budget_ms: float = 10.0) -> Demand:
    return Demand(per_s / 1e9, takes_ms * MS, takes_ms * MS, (budget_ms - takes_ms) * MS)


def free(*ms: float) -> list[int]:
    return [int(at * MS) for at in ms]


def test_where_nothing_more_important_comes_there_is_room() -> None:
    assert keeps_room([], free(1e6), 0)


def test_the_only_executor_may_be_taken_for_as_long_as_the_slack() -> None:
    assert keeps_room([demand()], free(7.9), 0)
    assert not keeps_room([demand()], free(8.1), 0)


def test_another_executor_that_is_idle_makes_room_while_it_suffices() -> None:
    assert keeps_room([demand(50)], free(50.0, 0.0), 0)
    assert not keeps_room([demand(450)], free(50.0, 0.0), 0), "bursts of 450 a second of 2 ms each need both"
    assert keeps_room([demand(450)], free(0.0, 0.0, 0.0), 0)


def test_each_class_counts() -> None:
    loose = demand(50, takes_ms=2.0, budget_ms=100.0)
    tight = demand(50, takes_ms=2.0, budget_ms=10.0)
    assert keeps_room([loose], free(60.0), 0)
    assert not keeps_room([loose, tight], free(60.0), 0)


def test_times_are_relative_to_now() -> None:
    now = 10**15
    assert keeps_room([demand()], [now - 5 * MS], now)
    assert not keeps_room([demand()], [now + 9 * MS], now)


@pytest.mark.parametrize("executors", [1, 2, 4])
def test_where_there_is_room_no_draw_of_even_arrivals_is_late(executors: int) -> None:
    """Arrivals no denser than the demand's bound, served first come first served by list scheduling, all begin in time."""
    rng = random.Random(executors)
    held = 0
    for _ in range(300):
        per_s, takes = rng.uniform(10, 400 * executors), rng.uniform(0.5, 4.0)
        one = demand(per_s, takes_ms=takes, budget_ms=takes + rng.uniform(1.0, 20.0))
        busy = free(*(rng.choice([0.0, rng.uniform(0.0, 20.0)]) for _ in range(executors)))
        if not keeps_room([one], busy, 0):
            continue
        held += 1
        at, servers = 0.0, list(busy)
        while at < max(busy):
            first = min(range(executors), key=servers.__getitem__)
            begins = max(at, servers[first])
            assert begins - at <= one.slack_ns + 1
            servers[first] = int(begins + one.first_ns)
            at += 1e9 / per_s
    assert held > 30
