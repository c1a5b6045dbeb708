"""The offset interval against two clocks whose true offset the model knows, each drifting by up to 100 parts per million."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared.offset import OffsetInterval

MS = 1_000_000
QUARTZ_PPM = 100
TICK_NS = 1
"""Readings are whole nanoseconds, of two clocks."""

drifts = st.integers(-QUARTZ_PPM, QUARTZ_PPM) | st.sampled_from([-QUARTZ_PPM, QUARTZ_PPM])
delays = st.integers(0, 20 * MS) | st.integers(0, 50) | st.sampled_from([0, 60_000 * MS])
pauses = st.integers(0, 100 * MS) | st.integers(1, 30_000) | st.sampled_from([3_600_000 * MS])


class Clock:
    """A host's clock: `start` when the world begins, and `ppm` faster than the world."""

    def __init__(self, start: int, ppm: int) -> None:
        self.start = start
        self.rate = 1 + Fraction(ppm, 1_000_000)

    def read(self, at: int) -> int:
        return self.start + int(at * self.rate)


class OffsetMachine(RuleBasedStateMachine):
    """Messages of either direction take any time on their way and come in any order; the interval is asked at any time."""

    @initialize(own=drifts, peer=drifts, ahead=st.integers(-(10**15), 10**15))
    def start(self, own: int, peer: int, ahead: int) -> None:
        self.at = 0
        self.own = Clock(10**15, own)
        self.peer = Clock(2 * 10**15 + ahead, peer)
        self.interval = OffsetInterval()
        self.to_us: list[int] = []
        self.to_peer: list[int] = []
        self.receipts: list[tuple[int, int]] = []
        self.known = False

    @property
    def now(self) -> int:
        return self.own.read(self.at)

    @rule(pause=pauses)
    def time_passes(self, pause: int) -> None:
        self.at += pause

    @rule(step=st.integers(1, 20_000), times=st.integers(1, 300))
    def the_interval_is_asked_again_and_again(self, step: int, times: int) -> None:
        for _ in range(times):
            self.at += step
            self.interval.bounds(self.now)

    @rule(delay=delays)
    def a_message_of_the_peer_comes_in_after(self, delay: int) -> None:
        sent = self.peer.read(self.at)
        self.at += delay
        self.interval.peer_sent(sent, self.now)
        self.known = True

    @rule()
    def the_peer_sends_a_message(self) -> None:
        self.to_us.append(self.peer.read(self.at))

    @precondition(lambda self: self.to_us)
    @rule(which=st.integers(0, 100))
    def a_message_that_was_under_way_comes_in(self, which: int) -> None:
        self.interval.peer_sent(self.to_us.pop(which % len(self.to_us)), self.now)
        self.known = True

    @rule()
    def we_send_a_message(self) -> None:
        self.to_peer.append(self.now)

    @precondition(lambda self: self.to_peer)
    @rule(which=st.integers(0, 100))
    def the_peer_dates_our_message(self, which: int) -> None:
        self.receipts.append((self.to_peer.pop(which % len(self.to_peer)), self.peer.read(self.at)))

    @precondition(lambda self: self.receipts)
    @rule(which=st.integers(0, 100))
    def we_learn_when_it_came_in(self, which: int) -> None:
        sent, received = self.receipts.pop(which % len(self.receipts))
        self.interval.peer_received(sent, received, self.now)
        self.known = True

    @rule(up=delays, down=delays)
    def a_probe_comes_back(self, up: int, down: int) -> None:
        sent = self.now
        self.at += up
        dated = self.peer.read(self.at)
        self.at += down
        self.interval.peer_received(sent, dated, self.now)
        self.interval.peer_sent(dated, self.now)
        self.known = True

    @rule(jump=st.integers(1, 10**13), theirs=st.booleans())
    def a_host_was_suspended_and_the_interval_is_told(self, jump: int, theirs: bool) -> None:
        """The clock of the host stood still while the other's went on. What is under way is dated by the old epoch."""
        (self.own if theirs else self.peer).start += jump
        self.to_us, self.to_peer, self.receipts = [], [], []
        self.interval.reset()
        self.known = False

    @invariant()
    def the_true_offset_is_inside(self) -> None:
        if not hasattr(self, "interval"):
            return
        true = self.peer.read(self.at) - self.now
        low, high = self.interval.bounds(self.now)
        assert low is None or low <= true + TICK_NS, f"low is {low - true} ns above the true offset"
        assert high is None or high >= true - TICK_NS, f"high is {true - high} ns below the true offset"
        assert self.known or (low is None and high is None)
        assert not self.known or low is not None or high is not None, "all that was known is forgotten"


TestOffset = OffsetMachine.TestCase
TestOffset.settings = settings(max_examples=150, stateful_step_count=30)


def test_an_interval_between_hosts_that_talk_is_as_narrow_as_the_round_trip() -> None:
    interval = OffsetInterval()
    for number in range(1, 101):
        sent = number * 100 * MS
        interval.peer_received(sent, sent + 5_000 * MS + 300_000, sent + 800_000)
        interval.peer_sent(sent + 5_000 * MS + 300_000, sent + 800_000)
    low, high = interval.bounds(100 * 100 * MS + 800_000)
    assert low is not None
    assert high is not None
    assert low <= 5_000 * MS <= high
    assert high - low < MS
