"""Bytes that may be spent: on requests of a stream by the hour, on keeping a connection warm by the second."""

from __future__ import annotations

import random
from itertools import pairwise

from edge.link_budget import HOUR_NS, Budget
from edge.link_warm import EVERY_NS, LASTS_NS, KeepWarm

S = 1_000_000_000
STREAM = ("camera", 1)


def test_in_no_hour_a_stream_spends_more_than_its_budget() -> None:
    rng = random.Random(3)
    budget = Budget(10e6, 8)
    spent: list[tuple[int, int]] = []
    now = 0
    while now < 3 * HOUR_NS:
        now += int(rng.expovariate(1.0) * S) if rng.random() < 0.9999 else rng.randrange(HOUR_NS // 2)
        nbytes = rng.randrange(20_000)
        if budget.left(STREAM, now) >= nbytes:
            budget.spend(STREAM, nbytes, now)
            spent.append((now, nbytes))
    worst = max(sum(n for at, n in spent if begin <= at < begin + HOUR_NS) for begin, _ in spent[::50])
    assert 8e6 < worst <= 10e6


def test_streams_have_budgets_of_their_own_and_no_budget_is_no_limit() -> None:
    budget = Budget(60e3, 8)
    budget.spend(STREAM, 900, 0)
    assert budget.left(STREAM, 0) == 100
    assert budget.left(("camera", 2), 0) == 1000
    assert budget
    assert not Budget(0.0, 8)
    for number in range(20):
        budget.spend(("many", number), 1, 1)
    assert len(budget._buckets) == 8


def sent(warm: KeepWarm, until_ns: int) -> list[tuple[int, int]]:
    """When a driver that obeys `next_at` sends how much."""
    found: list[tuple[int, int]] = []
    now = 0
    while (at := warm.next_at()) is not None and at <= until_ns:
        now = max(now + 1, at)
        nbytes = warm.due(now)
        assert nbytes > 0, "the wake-up that was asked for found nothing to do"
        found.append((now, nbytes))
    return found


def test_padding_is_sent_within_its_budget_for_a_while_after_the_last_request() -> None:
    warm = KeepWarm(64_000)
    warm.used(100_000, 0)
    pads = sent(warm, 60 * S)
    assert pads
    assert pads[-1][0] <= LASTS_NS
    assert sum(nbytes for _, nbytes in pads) <= 64_000 * 11
    assert sum(nbytes for _, nbytes in pads) >= 64_000 * 9
    assert all(b - a >= EVERY_NS for (a, _), (b, _) in pairwise(pads))


def test_a_small_payload_is_kept_warm_entirely() -> None:
    warm = KeepWarm(64_000)
    warm.used(5_000, 0)
    pads = sent(warm, 60 * S)
    assert {nbytes for _, nbytes in pads} == {5_000}
    assert all(b - a <= EVERY_NS + 1 for (a, _), (b, _) in pairwise(pads))


def test_a_connection_in_use_or_never_used_needs_none() -> None:
    assert KeepWarm(64_000).next_at() is None
    off = KeepWarm(0.0)
    off.used(1000, 0)
    assert off.next_at() is None
    late = KeepWarm(64_000)
    late.used(1000, 0)
    assert late.due(LASTS_NS + 1) == 0
    assert late.next_at() is None, "nothing would ever be done at that wake-up"
    warm = KeepWarm(64_000)
    for frame in range(100):
        warm.used(100_000, frame * S // 30)
        assert warm.due(frame * S // 30 + S // 31) == 0
