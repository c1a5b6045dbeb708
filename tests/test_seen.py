"""What a node remembers of the attempts of an edge: none is ever taken for new twice, and what is new is taken for it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import make_plan

from cloud.journal import NODE, build_session, node_setup
from cloud.seen import BITS, REMEMBERED, Seen
from shared.events import Received
from shared.journal.state import write_state
from shared.settings import CloudSettings
from shared.wire.messages import PROTOCOL, Hello

STEPS = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 2, 7, 300]), st.integers(0, 400), st.sampled_from([1, 1, 2, 3, 1 << 40])),
    max_size=300,
)


def bits(seen: Seen) -> int:
    return sum(word.bit_count() for words in seen._words.values() for word in words.values())


@given(STEPS)
def test_no_attempt_is_new_twice_and_a_new_one_that_is_not_far_behind_is_new(steps: list[tuple[int, int, int]]) -> None:
    """Sequences rise in steps of all sizes; some come again, some come late."""
    seen = Seen(1)
    seen._limit = 40
    taken: set[tuple[int, int]] = set()
    top = 0
    for step, behind, attempt in steps:
        top += step
        sequence = max(0, top - behind) if behind % 3 == 0 else top
        new = seen.first_time(sequence, attempt)
        higher = sum(other // BITS > sequence // BITS for other, _ in taken)
        if (sequence, attempt) in taken:
            assert not new
        elif higher < 40:
            assert new
        if new:
            taken.add((sequence, attempt))
        assert bits(seen) == seen._count <= 40 + BITS * len(seen._words)
    again = Seen.of(1, seen.kept())
    assert (again._words, again._count, again._floor) == (seen._words, seen._count, seen._floor)
    for sequence, attempt in taken:
        assert not seen.first_time(sequence, attempt)
        assert not again.first_time(sequence, attempt)


@pytest.mark.parametrize("apart", [1, 5, BITS, 10_000])
def test_the_last_attempts_are_remembered_whatever_lies_between_them(apart: int) -> None:
    seen = Seen(1)
    for number in range(3 * REMEMBERED):
        assert seen.first_time(number * apart, 1)
    assert REMEMBERED <= seen._count <= REMEMBERED + BITS
    first_known = 3 * REMEMBERED - seen._count
    assert seen.first_time(first_known * apart + 1, 2), "a second attempt, at what is still remembered"
    for number in range(3 * REMEMBERED):
        assert not seen.first_time(number * apart, 1)


def test_an_attempt_has_sequences_of_its_own() -> None:
    seen = Seen(1)
    assert seen.first_time(7, 1)
    assert seen.first_time(7, 2)
    assert not seen.first_time(7, 1)
    assert not seen.first_time(7, 2)
    assert not seen.first_time(-1, 1), "there are none below 0"


def test_of_an_edge_that_has_left_little_is_kept() -> None:
    """They are twice as many as may be there, and are held until others take their places."""
    seldom, often, apart = Seen(1), Seen(1), Seen(1)
    for number in range(2 * REMEMBERED):
        if number < 4:
            seldom.first_time(number, 1)
        often.first_time(number, 1)
        apart.first_time(number * BITS, 1)
    assert seldom.kept() == (-1, 1, 0, 0b1111)
    assert bytes_of(seldom.kept()) < 200
    assert bytes_of(often.kept()) < 2_500
    assert len(apart.kept()) <= 1 + 3 * (REMEMBERED + 1)


def bytes_of(kept: tuple[int, ...]) -> int:
    return sys.getsizeof(kept) + sum(sys.getsizeof(number) for number in kept)


def test_what_often_asks_takes_few_words() -> None:
    seen = Seen(1)
    for sequence in range(100_000):
        seen.first_time(sequence, 1)
    assert sum(len(words) for words in seen._words.values()) <= REMEMBERED // BITS + 2


def test_a_snapshot_of_a_node_grows_little_with_what_its_edges_have_asked() -> None:
    """It is taken by the loop, which looks at nothing else meanwhile."""
    contract, plan = make_plan()
    settings = CloudSettings()
    setup = node_setup(settings, {contract: plan}, "node", 7)
    session = build_session(setup)
    fixed = NODE.fixed_of(session, setup)
    for name in ("a", "b", "c", "d"):
        session.handle(Received(name, Hello(PROTOCOL, name, 1, "data", (contract,)), ()), 1_000_000_000)
    before = len(write_state(session, NODE.known, fixed))
    for peer in session.peers.all():
        for sequence in range(5_000):
            peer.attempts.first_time(sequence, 1)
    assert len(write_state(session, NODE.known, fixed)) < before + 4 * 500
