"""The parts of the scheduler: latency model, queue, memory, reserve, clock offset, link estimate, credits."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_plan

from cloud.credit import Credits
from edge.account import cloud_stages, local_stages
from edge.hold import HoldMargin
from edge.link import RATE_SAMPLES, LinkEstimate
from shared.errors import InvariantBroken
from shared.events import Row
from shared.latency import COLD_NS, Latency, WorkKey
from shared.memory import Arena, ArenaFigures, PoolKey
from shared.offset import OffsetInterval
from shared.plan import RAW, SegmentRange
from shared.queue import DeadlineQueue, Job
from shared.reserve import Promise, first_broken
from shared.settings import Link
from shared.slots import SlotClass

MS = 1_000_000
KEY = WorkKey("c", SegmentRange(0, 0, 1))


# --- latency -----------------------------------------------------------------------------------------------------------


def test_the_profile_is_read_between_its_batch_sizes() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0))
    latency = Latency.of([(contract, plan)], "edge")
    key = WorkKey(contract, SegmentRange(1, 0, 1))
    assert [latency.typical(key, rows) / MS for rows in (1, 2, 3, 8)] == [2.0, 2.5, 3.0, 5.5]


def test_another_slowdown_than_the_profiles_scales_the_edge() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0))
    latency = Latency.of([(contract, plan)], "edge", slowdown=3.0)
    assert latency.typical(WorkKey(contract, SegmentRange(1, 0, 1))) == 6 * MS


def test_a_codec_adds_its_own_time() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0))
    latency = Latency.of([(contract, plan)], "edge")
    head = SegmentRange(0, 0, 1)
    assert latency.typical(WorkKey(contract, head, encode="int8")) - latency.typical(WorkKey(contract, head)) == 100_000


def test_an_unknown_range_is_guessed_pessimistically_and_learned() -> None:
    latency = Latency()
    assert latency.typical(KEY) == COLD_NS
    assert latency.pessimistic(KEY) > COLD_NS
    for _ in range(64):
        latency.observe(KEY, 1, 1 * MS)
    assert latency.pessimistic(KEY) == 1 * MS


def test_one_stall_does_not_change_the_promise() -> None:
    contract, plan = make_plan(edge_ms=(4.0, 2.0))
    latency = Latency.of([(contract, plan)], "edge")
    key = WorkKey(contract, SegmentRange(1, 0, 1))
    for _ in range(63):
        latency.observe(key, 1, 2 * MS)
    latency.observe(key, 1, 30 * MS)
    assert latency.pessimistic(key) == 2 * MS


# --- queue -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.booleans()), max_size=60))
def test_a_group_is_always_in_order_and_complete(items: list[tuple[int, int, bool]]) -> None:
    queue = DeadlineQueue(1000)
    kept = {}
    for number, (priority, deadline, removed) in enumerate(items):
        job = Job(number, "c", KEY.range, Row(number, 1, (), RAW), deadline, priority, False, KEY)
        assert queue.push(job)
        kept[number] = job
        if removed:
            victim = random.Random(number).choice(list(kept))
            assert queue.remove(victim) == kept.pop(victim)
    assert [j.order for lane in queue.lanes() for j in queue.ready(lane, 0)] == sorted(j.order for j in kept.values())
    assert len(queue) == len(kept)
    assert queue.remove(10_000) is None


# --- memory ------------------------------------------------------------------------------------------------------------


def slots(count: int, first: int = 0, rows: int = 4, nbytes: int = 400) -> SlotClass:
    """So many slots at one entry of one plan."""
    return SlotClass("c", 0, first, count, rows, nbytes)


def test_a_slot_is_free_when_its_holder_lets_go() -> None:
    key = PoolKey("c", 0, 0)
    arena = Arena([slots(1)])
    lease = arena.acquire(key, 1)
    assert lease is not None
    assert arena.acquire(key, 1) is None
    arena.release(lease)
    assert arena.in_use() == 0
    again = arena.acquire(key, 1)
    assert again is not None
    assert again.generation == lease.generation + 1


def test_a_release_by_who_no_longer_holds_is_found_out() -> None:
    key = PoolKey("c", 0, 0)
    arena = Arena([slots(1)])
    lease = arena.acquire(key, 1)
    assert lease is not None
    arena.release(lease)
    arena.acquire(key, 1)
    with pytest.raises(InvariantBroken, match="is not held"):
        arena.release(lease)


@given(st.lists(st.integers(0, 3), max_size=100))
def test_slots_are_never_lent_twice(moves: list[int]) -> None:
    key = PoolKey("c", 0, 0)
    arena = Arena([slots(3)])
    out = []
    for move in moves:
        if move:
            lease = arena.acquire(key, 1)
            assert (lease is None) == (len(out) == 3)
            out += [lease] if lease is not None else []
        elif out:
            arena.release(out.pop(0))
        assert len({lease.slot for lease in out}) == len(out) == arena.in_use()
        arena.validate()


def test_an_arena_counts_what_was_leased_what_was_refused_and_what_the_rows_left_unused() -> None:
    arena = Arena([slots(2), slots(1, first=1, rows=1, nbytes=100)])
    one, two = PoolKey("c", 0, 0), PoolKey("c", 0, 1)
    assert arena.figures() == ArenaFigures(slots=3, nbytes=900)
    assert arena.figures().hit_rate == 1.0
    leases = [arena.acquire(one, 1), arena.acquire(one, 4), arena.acquire(two, 1)]
    assert [arena.acquire(one, 1), arena.acquire(two, 1), arena.acquire(PoolKey("d", 0, 0), 1)] == [None] * 3
    for lease in leases[:2]:
        assert lease is not None
        arena.release(lease)
    figures = arena.figures()
    assert (figures.in_use, figures.high_water, figures.leases, figures.refused) == (1, 3, 3, 3)
    assert figures.hit_rate == 0.5
    assert figures.unused_share == pytest.approx(300 / 900), "one row of four, of 400 bytes, beside two that are full"
    arena.validate()


def test_more_rows_than_a_slot_holds_get_none() -> None:
    arena = Arena([slots(1)])
    assert arena.acquire(PoolKey("c", 0, 0), 5) is None


@pytest.mark.parametrize("wrong", ["_in_use", "_leases", "_used_bytes", "_high_water"])
def test_figures_that_disagree_with_the_slots_are_found_out(wrong: str) -> None:
    arena = Arena([slots(2)])
    arena.acquire(PoolKey("c", 0, 0), 2)
    arena.validate()
    setattr(arena, wrong, 0 if wrong == "_high_water" else 1_000)
    with pytest.raises(InvariantBroken):
        arena.validate()


# --- reserve -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), max_size=6))
def test_one_executor_is_judged_exactly(work: list[tuple[int, int]]) -> None:
    promises = [Promise(i, d, by) for i, (d, by) in enumerate(work)]
    broken = first_broken([0], promises)
    end, late = 0, None
    for p in sorted(promises, key=lambda p: (p.deadline_ns, p.job)):
        end += p.duration_ns
        late = late or (p if end > p.deadline_ns else None)
    assert broken == late


# --- clock offset ------------------------------------------------------------------------------------------------------


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=30),
)
def test_the_interval_always_holds_the_true_offset(offset: int, flights: list[tuple[int, int]]) -> None:
    interval = OffsetInterval()
    now = 10**9
    for there, back in flights:
        received = now + there
        interval.peer_received(now, received + offset, received + back)
        least = interval.peer_sent(received + offset, received + back)
        assert least == interval.bounds(received + back)[0]
        now = received + back + 10**7
        low, high = interval.bounds(now)
        assert low is not None
        assert high is not None
        assert low <= offset <= high


def test_the_interval_widens_with_age() -> None:
    interval = OffsetInterval()
    interval.peer_sent(1000, 1000)
    interval.peer_received(1000, 1000, 1000)
    assert interval.bounds(1000) == (0, 0)
    assert interval.bounds(1000 + 10**9) == (-201_000, 201_000)


# --- link --------------------------------------------------------------------------------------------------------------


def test_before_anything_is_measured_the_prior_predicts() -> None:
    link = LinkEstimate(Link(rate_mbit=8.0, rtt_ms=2.0))
    assert link.network_ns(1000) == 2 * MS + 1 * MS
    assert link.extra_ns(1000, 0) == 0


def test_a_slower_link_is_believed_when_most_of_what_is_remembered_says_so() -> None:
    link = LinkEstimate(Link(rate_mbit=800.0, rtt_ms=2.0))
    for _ in range(RATE_SAMPLES):
        link.exchanged(10_000, 3 * MS)
    assert link.network_ns(10_000) == 3 * MS
    for _ in range(RATE_SAMPLES // 2):
        link.exchanged(10_000, 12 * MS)
    assert link.network_ns(10_000) == 3 * MS
    link.exchanged(10_000, 12 * MS)
    assert link.network_ns(10_000) == 12 * MS


def test_an_answer_that_never_came_teaches_that_the_link_is_slow() -> None:
    link = LinkEstimate(Link(rate_mbit=800.0, rtt_ms=2.0))
    for _ in range(RATE_SAMPLES):
        link.exchanged(10_000, 3 * MS)
    for _ in range(RATE_SAMPLES // 2 + 1):
        link.gave_up(10_000, 9 * MS)
    assert link.network_ns(10_000) == 9 * MS
    link.gave_up(10_000, 1 * MS)
    assert link.network_ns(10_000) == 9 * MS, "having waited less than predicted says nothing"


# --- time accounts -----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**7), min_size=9, max_size=9), st.floats(0, 1))
def test_the_stages_of_a_cloud_answer_add_up(steps: list[int], share: float) -> None:
    arrived = 10**9
    began = arrived + steps[0]
    ended = began + steps[1]
    sent = ended + steps[2]
    node = {"cloud_queue": steps[3], "codec": steps[4], "tail": steps[5]}
    received = sent + sum(node.values()) + steps[6]
    until = received + steps[7]
    stages = cloud_stages(arrived, sent, received, (began, ended, steps[1] // 2), node, share, until)  # type: ignore[arg-type]
    assert sum(stages.values()) == until - arrived
    assert min(stages.values(), default=0) >= 0


def test_the_stages_of_a_local_answer_add_up() -> None:
    assert local_stages(100, 130, 180, 200) == {"edge_queue": 30, "rung": 50, "hold": 20}


def test_the_hold_margin_follows_late_wake_ups_within_its_bounds() -> None:
    margin = HoldMargin(1 * MS, 2 * MS)
    assert margin.margin_ns() == 1 * MS
    for _ in range(1023):
        margin.woke(100_000)
    margin.woke(30 * MS)
    assert margin.margin_ns() == 1 * MS, "one in a thousand is beyond the p99.9"
    margin.woke(1_700_000)
    margin.woke(30 * MS)
    assert margin.margin_ns() == 2 * MS


# --- credits -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["join", "take", "back", "leave"])), max_size=200)
)
def test_no_more_credit_is_lent_than_there_is(moves: list[tuple[str, str]]) -> None:
    credit = Credits(5)
    out = dict.fromkeys("abcdefgh", 0)
    joined: set[str] = set()
    for peer, move in moves:
        if move == "join":
            credit.join(peer)
            joined.add(peer)
        elif move == "take":
            took = credit.take(peer)
            assert not took or peer in joined
            out[peer] += took
        elif move == "back" and out[peer]:
            credit.give_back(peer)
            out[peer] -= 1
        elif move == "leave":
            credit.leave(peer)
            joined.discard(peer)
            out[peer] = 0
        credit.validate()
        assert sum(out.values()) <= 5


def test_one_edge_may_have_all_and_two_share_evenly() -> None:
    credit = Credits(8)
    assert credit.join("a") == 8
    assert credit.join("b") == 0
    assert credit.granted("a") == 4
    assert credit.granted("b") == 4
