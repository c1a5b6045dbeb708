"""The credit book against a model: what is lent never exceeds the capacity, nobody has out more than was granted, and a
peer whose requests have all ended gets an even share again."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cloud.credit import LESS, PAUSE_NS, TURN, Credits
from shared.errors import InvariantBroken

NAMES = ("one", "two", "three", "four", "five")
names = st.sampled_from(NAMES)


class CreditMachine(RuleBasedStateMachine):
    """Peers come, go and come again; requests come in and end, of peers that are there and of others."""

    @initialize(capacity=st.integers(1, 12), turn=st.sampled_from([1, 3, TURN]))
    def start(self, capacity: int, turn: int) -> None:
        self.capacity = capacity
        self.credits = Credits(capacity, turn)
        self.out: dict[str, int] = {}
        self.resting: set[str] = set()
        self.now = 0
        self.late_ones: set[str] = set()
        """Those whose requests waited too long."""

    @rule(peer=names, passes=st.sampled_from([0, PAUSE_NS // 2, PAUSE_NS]))
    def late(self, peer: str, passes: int) -> None:
        self.now += passes
        before = self.credits.granted(peer)
        self.credits.late(peer, self.now)
        after = self.credits.granted(peer)
        assert min(before, max(self.out.get(peer, 0), int(LESS * before))) <= after <= before
        if peer in self.out:
            self.late_ones.add(peer)

    @rule(peer=names, answers=st.integers(1, 40))
    def timely(self, peer: str, answers: int) -> None:
        before = self.credits.granted(peer)
        for _ in range(answers):
            self.credits.timely(peer)
        assert self.credits.granted(peer) >= before

    @rule(peer=names)
    def join(self, peer: str) -> None:
        granted = self.credits.join(peer)
        self.out.setdefault(peer, 0)
        assert self.out[peer] <= granted <= self.capacity

    @rule(peer=names)
    def leave(self, peer: str) -> None:
        self.credits.leave(peer)
        self.out.pop(peer, None)
        self.resting.discard(peer)
        self.late_ones.discard(peer)
        assert self.credits.out(peer) == self.credits.granted(peer) == 0

    @rule(peer=names)
    def take(self, peer: str) -> None:
        granted = self.credits.granted(peer)
        taken = self.credits.take(peer)
        assert taken == (self.out.get(peer, 0) < granted), "a granted credit is refused, or one that was not is taken"
        if taken:
            self.out[peer] += 1

    @rule(peer=names)
    def give_back(self, peer: str) -> None:
        if peer in self.out and self.out[peer] == 0:
            with pytest.raises(InvariantBroken):
                self.credits.give_back(peer)
            return
        self.credits.give_back(peer)
        if peer in self.out:
            self.out[peer] -= 1

    @rule(peer=names)
    def rest(self, peer: str) -> None:
        before = self.credits.granted(peer)
        was_resting = peer in self.resting
        self.credits.rest(peer)
        after = self.credits.granted(peer)
        self.resting.discard(peer)
        if peer in self.out and after < before:
            assert after == self.out[peer], "what is out is called back"
            assert len(self.out) > self.capacity, "credit is taken although there is enough"
            self.resting.add(peer)
        elif not was_resting:
            assert after == before

    @rule()
    def everything_ends(self) -> None:
        for peer, out in self.out.items():
            for _ in range(out):
                self.credits.give_back(peer)
            self.out[peer] = 0
        for peer in self.late_ones:
            for _ in range(self.capacity**2):
                self.credits.timely(peer)
        self.late_ones.clear()
        for peer in self.out:
            self.credits.granted(peer)  # what one has too much is free for the others once it was told
        granted = {peer: self.credits.granted(peer) for peer in self.out}
        if self.out:
            share = max(1, self.capacity // len(self.out))
            idle = [got for peer, got in granted.items() if peer not in self.resting]
            assert all(share - 1 <= got <= share for got in idle) or self.capacity < len(self.out)
            resting = len(self.resting & set(self.out))
            assert sum(granted.values()) >= min(self.capacity, len(self.out) - resting), "credit is lost"

    @rule(peer=names)
    def tell(self, peer: str) -> None:
        granted = self.credits.granted(peer)
        assert granted == self.credits.granted(peer), "asking alone changes what is granted"
        assert self.out.get(peer, 0) <= granted, "what is out was not granted"
        assert granted <= max(self.out.get(peer, 0), self.capacity // max(1, len(self.out)), 1), "more than a share"

    @invariant()
    def no_more_is_out_than_there_is(self) -> None:
        if hasattr(self, "credits"):
            self.credits.validate()
            assert {peer: self.credits.out(peer) for peer in NAMES} == {peer: self.out.get(peer, 0) for peer in NAMES}
            assert sum(self.out.values()) <= self.capacity


TestCredits = CreditMachine.TestCase
TestCredits.settings = settings(max_examples=100, stateful_step_count=50)


def test_in_a_crowd_idle_credit_goes_round_and_every_peer_has_its_turn() -> None:
    book = Credits(3)
    crowd = [f"peer{i}" for i in range(10)]
    had: dict[str, int] = dict.fromkeys(crowd, 0)
    for peer in crowd:
        book.join(peer)
    for _ in range(60):
        for peer in crowd:
            book.rest(peer)
            had[peer] += book.granted(peer)
            book.validate()
    assert min(had.values()) >= 5
    assert sum(had.values()) >= 60 * 2


def test_a_peer_that_uses_its_credit_keeps_it_in_a_crowd_for_its_turn() -> None:
    book = Credits(1, turn=10)
    assert [book.join("busy"), book.join("other")] == [1, 0]
    for _ in range(10):
        book.rest("busy")
        assert book.take("busy")
        book.give_back("busy")
        book.rest("other")
        assert book.granted("other") == 0
    assert book.take("busy")
    book.rest("busy")
    assert (book.granted("busy"), book.granted("other")) == (1, 0), "what is out is not called back"
    book.give_back("busy")
    assert (book.granted("busy"), book.granted("other")) == (0, 1)
    book.validate()


def test_in_a_crowd_in_which_all_are_busy_every_peer_has_its_turn() -> None:
    book = Credits(3)
    crowd = [f"peer{i}" for i in range(10)]
    asked: dict[str, int] = dict.fromkeys(crowd, 0)
    for peer in crowd:
        book.join(peer)
    for _ in range(30 * TURN):
        for peer in crowd:
            book.rest(peer)
            if book.take(peer):
                asked[peer] += 1
        for peer in crowd:
            if book.out(peer):
                book.give_back(peer)
                book.granted(peer)
        book.validate()
    fair = 30 * TURN * 3 / 10
    assert 0.7 * fair < min(asked.values()) <= max(asked.values()) < 1.3 * fair
    assert sum(asked.values()) > 0.9 * 30 * TURN * 3


def test_peers_keep_idle_credit_where_there_is_enough_for_all() -> None:
    book = Credits(2)
    book.join("one")
    book.join("two")
    for _ in range(5):
        book.rest("one")
    assert (book.granted("one"), book.granted("two")) == (1, 1)
