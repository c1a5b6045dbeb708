"""The estimate of one connection: delay by size, TCP's start, how sure, and how trust is lost and comes back."""

from __future__ import annotations

import random

import pytest

from edge.link import ENOUGH, STALE_NS, LinkEstimate
from edge.link_startup import FIRST_BYTES, RTO_NS, Startup
from edge.nodes import MS, Node
from edge.paths import Path, Sent
from shared.settings import Link

RTT = 4 * MS
FAST = 40.0
"""Nanoseconds a byte: 200 Mbit/s."""


def known(rtt_ns: int = RTT, per_byte: float = FAST, nbytes: int = 10_000) -> LinkEstimate:
    """An estimate that has seen a link without jitter."""
    link = LinkEstimate(Link())
    for step in range(20):
        link.probed(rtt_ns)
        took = rtt_ns + int(nbytes * per_byte)
        link.exchanged(nbytes, took)
        link.finished(nbytes, link.network_ns(nbytes), took - link.network_ns(nbytes), 0, step * MS)
    return link


# --- the start of TCP --------------------------------------------------------------------------------------------------


def test_a_cold_connection_waits_for_acknowledgements_and_a_warm_one_does_not() -> None:
    """100 KB at 4 ms: 14.6, 29.2 and 56.2 KB in three rounds; of the first two the bytes themselves take 0.6 and 1.2 ms."""
    startup = Startup()
    cold = startup.wait_ns(100_000, 0, RTT, FAST)
    assert cold == pytest.approx(sum(RTT - n * FAST for n in (14_600, 29_200)), rel=0.01)
    startup.sent(100_000, 0, RTT)
    assert startup.wait_ns(100_000, 33 * MS, RTT, FAST) == 0


def test_an_idle_connection_falls_back_by_half_in_each_time_out() -> None:
    startup = Startup()
    for frame in range(5):
        startup.sent(100_000, frame * 33 * MS, RTT)
    full = startup.window(4 * 33 * MS, RTT)
    idle = RTO_NS + RTT
    assert startup.window(4 * 33 * MS + idle, RTT) == full // 2
    assert startup.window(4 * 33 * MS + 60 * idle, RTT) == FIRST_BYTES


def test_a_new_connection_is_predicted_to_be_slower_and_catches_up() -> None:
    link = known(nbytes=100_000)
    for frame in range(3):
        link.sent(100_000, frame * 33 * MS)
    assert link.extra_ns(100_000, 99 * MS) == 0
    link.connected()
    assert link.extra_ns(100_000, 99 * MS) > 1.5 * RTT
    assert link.extra_ns(1000, 99 * MS) == 0, "little fits into the first window"


def test_where_cold_connections_turn_out_not_to_wait_none_is_foreseen_any_more() -> None:
    link = known(nbytes=100_000)
    for _ in range(5):
        link.connected()
        startup, _ = link.sent(100_000, 0)
        link.exchanged(100_000, RTT + int(100_000 * FAST), 0, startup)
    link.connected()
    assert link.extra_ns(100_000, 0) == 0
    assert link.network_ns(100_000) == pytest.approx(RTT + 100_000 * FAST)


# --- sizes -------------------------------------------------------------------------------------------------------------


def test_large_exchanges_say_more_of_the_rate_than_small_ones() -> None:
    """In an exchange of 5 KB a millisecond more is 200 ns a byte, five times what a byte takes."""
    rng = random.Random(2)
    link = known()
    for _ in range(3):
        link.exchanged(5_000, RTT + int(5_000 * FAST) + rng.randrange(MS, 3 * MS))
        link.exchanged(100_000, RTT + int(100_000 * FAST) + rng.randrange(MS))
    assert link.network_ns(100_000) == pytest.approx(RTT + 100_000 * FAST, rel=0.15)


def test_what_waits_to_be_sent_is_waited_for() -> None:
    link = known()
    link.sent(14_000, 0)
    assert link.extra_ns(1000, 0) == pytest.approx(14_000 * FAST, rel=0.01)
    assert link.extra_ns(1000, int(14_000 * FAST)) == 0


def test_an_answer_shows_that_all_before_it_has_left() -> None:
    link = known()
    upto = 0
    for number in range(10):
        _, upto = link.sent(14_000, number)
    assert link.extra_ns(1000, 10) > 9 * 14_000 * FAST
    assert link.passed(upto, 9, 0, 10) == 0
    assert link.extra_ns(1000, 10) == 0


def test_what_an_exchange_waited_behind_another_says_nothing_of_the_rate() -> None:
    """Two requests were held up by the same gap of 200 ms: the second of them by the first."""
    link = known()
    rate = link.per_byte_ns
    _, first = link.sent(10_000, 0)
    _, second = link.sent(10_000, 30 * MS)
    link.passed(first, 0, 0, 200 * MS)
    waited = link.passed(second, 30 * MS, 0, 200 * MS + int(10_000 * FAST))
    assert 165 * MS <= waited <= 170 * MS
    link.exchanged(10_000, 170 * MS + int(10_000 * FAST), waited)
    assert link.per_byte_ns == pytest.approx(rate, rel=0.1)


# --- how sure ----------------------------------------------------------------------------------------------------------


def test_before_anything_was_seen_it_is_pessimistic() -> None:
    link = LinkEstimate(Link(rtt_ms=2.0))
    assert link.chance(1000, 2 * MS, -1, 0) == 0.0
    assert 0.2 <= link.chance(1000, 2 * MS, 1 * MS, 0) <= 0.5
    assert link.chance(1000, 2 * MS, 100 * MS, 0) < 0.95
    assert link.margin_ns(1000, 2 * MS, 0) > 8 * MS


def test_a_few_exchanges_make_it_sure() -> None:
    link = known()
    assert link.chance(10_000, link.network_ns(10_000), 1, 20 * MS) > 0.9


def test_sizes_are_judged_by_themselves_once_there_is_enough_of_them_and_while_that_is_fresh() -> None:
    """Large exchanges take twice as long as predicted, small ones what was predicted."""
    link = LinkEstimate(Link())
    for step in range(100):
        link.finished(1_000, 2 * MS, 0, 10 * MS, step * MS)
        if step < ENOUGH:
            link.finished(100_000, 2 * MS, 2 * MS, 10 * MS, step * MS)
    now = 100 * MS
    assert link.chance(100_000, 2 * MS, 1 * MS, now) == 0.0
    assert link.chance(1_000, 2 * MS, 1 * MS, now) > 0.95
    assert link.chance(100_000, 2 * MS, 1 * MS, now + STALE_NS) > 0.7, "it may have changed: worth a try"


def test_a_promise_of_95_in_100_that_is_broken_too_often_is_made_wider() -> None:
    link = LinkEstimate(Link())
    rng = random.Random(1)
    missed = 0
    for step in range(4000):
        spread = 3.0 if step // 40 % 5 == 0 else 1.0  # a fifth of the time the link is three times as bad
        took = int(rng.expovariate(1.0) * spread * 2 * MS)
        sure = link.margin_ns(1000, 2 * MS, step * MS)
        missed += took > sure
        link.finished(1000, 2 * MS, took, sure, step * MS)
    assert 0.04 <= missed / 4000 <= 0.06


# --- trust -------------------------------------------------------------------------------------------------------------


def asked(path: Path, now: int) -> Sent:
    network = path.estimate.network_ns(10_000)
    margin = path.estimate.margin_ns(10_000, network, now)
    return Sent(now, now + network, now + 30 * MS, 10_000, False, network, 0, 0, now + network + margin, 0)


def test_within_one_frame_of_a_stall_its_connection_is_hardly_hoped_for_any_more() -> None:
    path = Node("a", Link()).paths[0]
    path.estimate = known()
    path.out[1, 1] = asked(path, 0)
    assert path.still(20 * MS, 1 * MS) == 1.0
    chances = [path.still(at * MS + 20 * MS, at * MS) for at in (33, 66, 100, 300)]
    assert chances[0] < 0.5
    assert chances[-1] < 0.1
    assert chances == sorted(chances, reverse=True)


def test_an_answer_that_came_later_than_another_was_sent_holds_up_nothing() -> None:
    path = Node("a", Link()).paths[0]
    path.estimate = known()
    path.out[1, 1] = asked(path, 0)
    path.answered(asked(path, 10 * MS), 0, 15 * MS)
    assert path.still(63 * MS, 33 * MS) == 1.0


def test_after_a_stall_trust_comes_back_slowly() -> None:
    link = known()
    network = link.network_ns(10_000)
    sure = link.chance(10_000, network, MS, 0)
    link.recovered(0, 200 * MS)
    chances = [link.chance(10_000, network, MS, at * MS) for at in (0, 50, 100, 150, 200)]
    assert chances == sorted(chances)
    assert (chances[0], chances[-1]) == (pytest.approx(0.3 * sure), sure)
    assert chances[2] == pytest.approx(sure / 2)


def test_a_new_address_is_a_new_link() -> None:
    link = known(rtt_ns=40 * MS)
    link.reset()
    fresh = LinkEstimate(Link())
    assert link.network_ns(10_000) == fresh.network_ns(10_000)
    assert link.chance(10_000, 2 * MS, 1 * MS, 0) == fresh.chance(10_000, 2 * MS, 1 * MS, 0)


def test_of_probes_that_a_gap_held_up_the_last_one_counts_alone() -> None:
    link = known(rtt_ns=20 * MS)
    for number in range(7):
        link.probed(20 * MS, 100 * MS * number, 100 * MS * number + 20 * MS)
    for number in range(7, 12):
        sent = 100 * MS * number
        link.probed(1150 * MS - sent, sent, 1150 * MS)
    assert link.rtt_ns == 20 * MS, "five of them took 50 to 450 ms, all of which was the gap"


def test_probes_that_come_back_one_after_the_other_all_count() -> None:
    link = known(rtt_ns=20 * MS)
    for number in range(4):
        link.probed(150 * MS, 100 * MS * number, 100 * MS * number + 150 * MS)
    assert link.rtt_ns == 150 * MS, "a round trip that is longer than the time between two probes is no gap"


def test_four_stalls_in_a_row_do_not_spoil_the_rate_and_a_fifth_is_a_change() -> None:
    link = known()
    usual = link.network_ns(10_000)
    for _ in range(4):
        link.exchanged(10_000, 100 * MS)
    assert link.network_ns(10_000) == pytest.approx(usual, rel=0.05)
    link.exchanged(10_000, 100 * MS)
    assert link.network_ns(10_000) == pytest.approx(100 * MS, rel=0.05)


# --- what an answer needs at least -------------------------------------------------------------------------------------

AHEAD = 7_000 * MS
"""How much the node's clock is ahead,"""
HIGH = AHEAD + RTT // 2
"""and at most, as far as the edge knows."""


def came_back(link: LinkEstimate, after_ns: int = RTT // 2) -> LinkEstimate:
    """A probe's answer came after this time."""
    link.came_back(after_ns - AHEAD)
    return link


def test_before_anything_was_seen_an_answer_may_need_no_time_at_all() -> None:
    assert LinkEstimate(Link(rtt_ms=50.0, rate_mbit=1.0)).least_ns(1_000_000, HIGH) == 0
    assert came_back(known()).least_ns(1_000_000, None) == 0, "nothing is known of the node's clock"


def test_an_answer_needs_what_the_node_is_mistaken_by_the_way_back_and_half_of_what_its_bytes_take() -> None:
    link = came_back(known())
    assert link.least_ns(0, HIGH) == RTT
    assert link.least_ns(0, AHEAD) == RTT // 2
    assert link.least_ns(100_000, HIGH) == pytest.approx(RTT + 100_000 * FAST / 2, rel=0.01)


def test_without_an_exchange_nothing_is_known_of_bytes() -> None:
    assert came_back(LinkEstimate(Link(rate_mbit=1.0))).least_ns(100_000, HIGH) == RTT


def test_an_answer_never_leaves_more_than_there_is() -> None:
    assert came_back(known(), -RTT).least_ns(0, AHEAD) == 0


def test_a_shorter_way_back_counts_at_once_and_longer_ones_slowly() -> None:
    link = came_back(known(), RTT)
    came_back(link, RTT // 2)
    assert link.least_ns(0, AHEAD) == RTT // 2
    came_back(link, 10 * RTT)
    assert link.least_ns(0, AHEAD) < 0.7 * RTT
    for _ in range(300):
        came_back(link, 10 * RTT)
    assert link.least_ns(0, AHEAD) == pytest.approx(10 * RTT, rel=0.02)
    link.reset()
    assert link.least_ns(0, AHEAD) == 0
