"""How many rows a launch must have for the executors to keep up, found from what comes."""

from __future__ import annotations

import pytest

from shared.events import Row
from shared.latency import Latency, WorkKey
from shared.plan import RAW, Profile, RangeTime, SegmentRange
from shared.queue import Job
from shared.targets import EVERY_NS, Targets

MS = 1_000_000
WHOLE = SegmentRange(0, 0, 1)


def latency(alpha_ms: float = 1.0, beta_ms: float = 5.0, *contracts: str) -> Latency:
    times = tuple(
        RangeTime(0, 0, 1, b, (alpha_ms * b + beta_ms) * 1e3, (alpha_ms * b + beta_ms) * 1e3) for b in (1, 64)
    )
    profile = Profile("cloud", "d", "p", 1, 1.0, 0.0, times)
    return Latency.of_profiles([(c, profile) for c in contracts or ("a",)])


def job(number: int, now: int, budget_ms: float, contract: str = "a", priority: int = 0) -> Job:
    key = WorkKey(contract, WHOLE)
    return Job(number, contract, WHOLE, Row(number, 1, (), RAW), now + int(budget_ms * MS), priority, False, key)


def fed(
    targets: Targets, per_s: float, seconds: float, budget_ms: float, contract: str = "a", priority: int = 0
) -> int:
    """Feed an even stream; the time at its end."""
    count = int(per_s * seconds)
    for number in range(count):
        now = int(number * 1e9 / per_s)
        targets.came(job(number, now, budget_ms, contract, priority), now)
    now = int(seconds * 1e9)
    targets.find(now)
    return now


def test_while_launches_of_one_row_keep_up_the_aim_is_one_row() -> None:
    targets = Targets(1, latency(), {"a": 64})
    now = fed(targets, 100, 5, 25)
    assert targets.of(job(1, now, 25)) == 1
    assert not targets.aims


@pytest.mark.parametrize(("per_s", "least", "most"), [(400, 4, 5), (600, 7, 8), (700, 10, 12)])
def test_the_aim_is_the_smallest_batch_that_all_but_sustains_the_rate(per_s: float, least: int, most: int) -> None:
    # One executor and l(b) = b + 5 ms: b / (b + 5) rows a millisecond, so that b = 5 r / (FULL - r) sustain a rate r.
    targets = Targets(1, latency(), {"a": 64})
    now = fed(targets, per_s, 5, 25)
    assert least <= targets.of(job(1, now, 25)) <= most
    assert targets.aims


def test_more_executors_need_smaller_batches() -> None:
    of = []
    for executors in (1, 2, 4):
        targets = Targets(executors, latency(), {"a": 64})
        of.append(targets.of(job(1, fed(targets, 600, 5, 25), 25)))
    assert of == sorted(of, reverse=True)
    assert of[-1] == 1


def test_what_is_less_important_never_raises_the_aim() -> None:
    targets = Targets(1, latency(1.0, 5.0, "a", "b"), {"a": 64, "b": 64})
    fed(targets, 100, 5, 25, "a", priority=0)
    now = fed(targets, 900, 5, 25, "b", priority=1)
    assert targets.of(job(1, now, 25, "a", 0)) == 1
    assert targets.of(job(1, now, 25, "b", 1)) > 5


def test_what_is_more_important_takes_its_share_first() -> None:
    alone = Targets(1, latency(1.0, 5.0, "a", "b"), {"a": 64, "b": 64})
    now = fed(alone, 200, 5, 25, "b", priority=1)
    beside = Targets(1, latency(1.0, 5.0, "a", "b"), {"a": 64, "b": 64})
    fed(beside, 100, 5, 25, "a", priority=0)
    fed(beside, 200, 5, 25, "b", priority=1)
    assert beside.of(job(1, now, 25, "b", 1)) > alone.of(job(1, now, 25, "b", 1))


def test_where_batching_gains_nothing_the_aim_stays_one_row_however_much_comes() -> None:
    targets = Targets(1, latency(5.0, 0.0), {"a": 64})
    now = fed(targets, 2000, 5, 25)
    assert targets.of(job(1, now, 25)) == 1


def test_the_aim_follows_what_came_of_late() -> None:
    targets = Targets(1, latency(), {"a": 64})
    now = fed(targets, 500, 5, 25)
    assert targets.of(job(1, now, 25)) > 1
    later = now + 3_000_000_000
    targets.find(later)
    assert targets.of(job(1, later, 25)) == 1


def test_a_kind_that_comes_no_more_is_forgotten() -> None:
    targets = Targets(1, latency(), {"a": 64})
    now = fed(targets, 500, 1, 25)
    assert targets.demands(1, now)
    targets.find(now + 60_000_000_000)
    assert targets.demands(1, now + 60_000_000_000) == []


def test_it_says_when_it_should_be_asked_again() -> None:
    targets = Targets(1, latency(), {"a": 64})
    now = fed(targets, 500, 1, 25)
    assert targets.due_ns == now + EVERY_NS
