from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.agents import GREET_NS
from edge.client_events import (
    AgentAttached,
    AgentLost,
    Ask,
    Asked,
    ClientAction,
    ClientEvent,
    Closed,
    Connected,
    Drop,
    Greet,
    Unsent,
)
from edge.outcomes import RETRY_BATCH, RETRY_NS, Outcomes
from edge.owed import SETTLE_NS
from shared.events import ClockJumped, Hold, Resolve, Tick, WakeAt, Withdrawn
from shared.request import EXACT, Answer, Fidelity, Missed, Outcome, Rejected, Superseded

MS = 1_000_000
D = 10 * MS


def answer(agreement: float = 1.0, **stages: int) -> Answer:
    fidelity = EXACT if agreement == 1.0 else Fidelity("rung", "small", agreement)
    return Answer({"y": np.zeros(1, np.float32)}, "edge", None, "whole", None, fidelity, "c", stages=dict(stages))  # type: ignore[arg-type]


class Bench:
    """One machine on virtual time, with what it asked for kept apart."""

    def __init__(self, max_open: int = 8, incarnation: int | None = 1, *, standby: bool = False) -> None:
        self.machine = Outcomes("c", max_open, standby=standby)
        self.now = 0
        self.wake_ns: int | None = None
        self.outcomes: dict[int, list[Outcome]] = {}
        self.asked: list[int] = []
        self.asked_of: list[tuple[int, int]] = []
        self.dropped: list[int] = []
        self.dropped_at: list[tuple[int, int]] = []
        self.greeted = 0
        self.greeted_at: list[tuple[int, int]] = []
        if incarnation is not None:
            self.do(Connected())
            self.do(AgentAttached(incarnation))

    def do(self, *events: ClientEvent) -> list[ClientAction]:
        actions: list[ClientAction] = []
        for event in events:
            actions += self.machine.handle(event, self.now)
        self._note(actions)
        return actions

    def _note(self, actions: Iterable[ClientAction]) -> None:
        for action in actions:
            match action:
                case Resolve():
                    self.outcomes.setdefault(action.sequence, []).append(action.outcome)
                case Ask():
                    self.asked.append(action.sequence)
                    self.asked_of.append((action.sequence, action.agent))
                case Drop():
                    self.dropped.append(action.sequence)
                    self.dropped_at.append((action.sequence, action.agent))
                case Greet():
                    self.greeted += 1
                    self.greeted_at.append((self.now, action.agent))
                case WakeAt():
                    self.wake_ns = action.at_ns

    def until(self, now: int) -> None:
        while self.wake_ns is not None and self.wake_ns <= now:
            self.now, self.wake_ns = max(self.now, self.wake_ns), None
            self.do(Tick())
        self.now = now

    def ask(self, sequence: int, deadline_ns: int = D, scheduled_ns: int = 0) -> None:
        self.do(Asked(sequence, scheduled_ns, deadline_ns))

    def outcome(self, sequence: int = 1) -> Outcome:
        (outcome,) = self.outcomes[sequence]
        return outcome


def test_a_request_is_asked_of_the_agent_and_its_answer_delivered() -> None:
    bench = Bench()
    bench.ask(1)
    assert bench.asked == [1]
    bench.now = 4 * MS
    bench.do(Resolve("c", 1, answer(tail=3 * MS)))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.on_time
    assert outcome.elapsed_ns == 4 * MS
    assert outcome.stages == {"tail": 3 * MS, "client": 1 * MS}


def test_without_a_word_from_the_agent_the_request_is_missed_at_its_deadline_and_not_before() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D - 1)
    assert bench.outcomes == {}
    bench.until(D)
    assert bench.outcome() == Missed("agent", "the agent did not answer", D)


def test_a_pushed_answer_is_delivered_on_time_when_the_agent_falls_silent() -> None:
    bench = Bench()
    bench.ask(1)
    bench.now = 3 * MS
    bench.do(Hold("c", 1, answer(0.9, rung=2 * MS)))
    bench.until(D - SETTLE_NS - 1)
    assert bench.outcomes == {}
    bench.until(D)
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.on_time
    assert outcome.agreement == 0.9
    assert outcome.stages == {"rung": 2 * MS, "client": 1 * MS, "hold": D - SETTLE_NS - 3 * MS}
    assert sum(outcome.stages.values()) == outcome.elapsed_ns


def test_a_pushed_answer_survives_the_loss_of_the_agent() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Hold("c", 1, answer(0.9)), AgentLost())
    bench.until(D)
    assert isinstance(bench.outcome(), Answer)


@pytest.mark.parametrize(("first", "second", "kept"), [(0.9, 0.8, 0.9), (0.8, 0.9, 0.9), (0.9, 0.9, 0.9)])
def test_a_worse_answer_never_replaces_a_better_one(first: float, second: float, kept: float) -> None:
    bench = Bench()
    bench.ask(1)
    one, two = answer(first, rung=1), answer(second, rung=2)
    bench.now = MS
    bench.do(Hold("c", 1, one), Hold("c", 1, two))
    bench.until(D)
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.agreement == kept
    assert outcome.stages["rung"] == (1 if second < first else 2)


def test_a_final_that_points_at_the_pushed_answer_delivers_it() -> None:
    bench = Bench()
    bench.ask(1)
    pushed = answer(0.9)
    bench.do(Hold("c", 1, pushed), Resolve("c", 1, Missed("agent"), held=True))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.agreement == 0.9


def test_a_final_that_points_at_an_answer_that_never_came_is_a_miss() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Resolve("c", 1, Missed("agent"), held=True))
    assert isinstance(bench.outcome(), Missed)


def test_the_stage_that_the_agent_blames_is_kept() -> None:
    bench = Bench()
    bench.ask(1)
    bench.now = MS
    bench.do(Resolve("c", 1, Missed("uplink", "stalled")))
    assert bench.outcome() == Missed("uplink", "stalled", MS)


def test_what_comes_for_unknown_or_finished_requests_is_counted_and_ignored() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D)
    bench.do(Resolve("c", 1, answer()), Hold("c", 1, answer()), Resolve("c", 77, answer()))
    assert isinstance(bench.outcome(), Missed)
    assert set(bench.outcomes) == {1}
    assert bench.machine.counts.ignored == 3


def test_an_answer_that_overtakes_the_timer_after_the_deadline_is_late_not_on_time() -> None:
    bench = Bench()
    bench.ask(1)
    bench.now = D + 1
    bench.do(Resolve("c", 1, answer()))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert not outcome.on_time
    assert bench.machine.counts.late == 1


def test_an_answer_at_the_very_deadline_is_on_time() -> None:
    bench = Bench()
    bench.ask(1)
    bench.now = D
    bench.do(Resolve("c", 1, answer()))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.on_time


def test_time_counts_from_the_scheduled_time_and_not_from_the_call() -> None:
    bench = Bench()
    bench.now = 2 * MS
    bench.ask(1, scheduled_ns=0)
    bench.now = 5 * MS
    bench.do(Resolve("c", 1, answer()))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.elapsed_ns == 5 * MS


def test_stages_beyond_the_elapsed_time_are_not_believed() -> None:
    bench = Bench()
    bench.ask(1)
    bench.now = MS
    bench.do(Resolve("c", 1, answer(tail=2 * MS)))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert sum(outcome.stages.values()) == outcome.elapsed_ns == MS
    assert bench.machine.counts.misaccounted == 1


def test_a_request_past_its_deadline_is_missed_at_once_by_the_sender() -> None:
    bench = Bench()
    bench.now = D
    bench.ask(1)
    outcome = bench.outcome()
    assert isinstance(outcome, Missed)
    assert outcome.stage == "client"
    assert bench.asked == []


def test_one_more_than_allowed_open_is_rejected_at_once() -> None:
    bench = Bench(max_open=2)
    for sequence in (1, 2, 3):
        bench.ask(sequence)
    outcome = bench.outcome(3)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "too-many-open"
    bench.do(Resolve("c", 1, answer()))
    bench.ask(4)
    assert bench.asked == [1, 2, 4]


def test_requests_wait_for_the_agent_and_are_asked_once_it_attaches() -> None:
    bench = Bench(incarnation=None)
    bench.ask(1)
    bench.ask(2)
    assert bench.asked == []
    bench.do(Connected(), AgentAttached(5))
    assert bench.asked == [1, 2]


def test_requests_that_no_agent_took_are_missed_at_their_deadline() -> None:
    bench = Bench(incarnation=None)
    bench.ask(1)
    bench.until(D)
    assert bench.outcome() == Missed("agent", "no agent was attached", D)


def test_open_requests_are_asked_of_a_new_incarnation_once_and_never_again_of_the_same() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(AgentLost(), Connected(), AgentAttached(2), AgentAttached(2))
    assert bench.asked == [1, 1]
    bench.do(Resolve("c", 1, answer()), Resolve("c", 1, answer()))
    assert len(bench.outcomes[1]) == 1


def test_finished_requests_are_not_asked_of_a_new_incarnation() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Resolve("c", 1, answer()), AgentLost(), Connected(), AgentAttached(2))
    assert bench.asked == [1]


def test_the_agent_is_greeted_until_it_answers() -> None:
    bench = Bench(incarnation=None)
    bench.do(Connected())
    bench.until(3 * GREET_NS)
    assert bench.greeted == 4
    bench.do(AgentAttached(1))
    bench.until(9 * GREET_NS)
    assert bench.greeted == 4


def test_what_the_transport_had_no_room_for_is_tried_again_a_few_at_a_time() -> None:
    bench = Bench(max_open=64)
    for sequence in range(40):
        bench.ask(sequence, deadline_ns=100 * MS)
    bench.do(*(Unsent(sequence) for sequence in range(40)))
    bench.asked.clear()
    bench.until(RETRY_NS)
    assert bench.asked == list(range(RETRY_BATCH))
    bench.until(3 * RETRY_NS)
    assert bench.asked == list(range(40))


def test_new_requests_do_not_overtake_those_that_wait_for_room() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Unsent(1))
    bench.ask(2)
    bench.until(RETRY_NS)
    assert bench.asked == [1, 1, 2]


def test_a_withdrawn_request_has_no_outcome_and_the_agent_is_told() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Withdrawn("c", 1), Withdrawn("c", 1))
    bench.do(Resolve("c", 1, answer()))
    bench.until(2 * D)
    assert bench.dropped == [1]
    assert bench.outcomes == {}
    assert bench.machine.counts.withdrawn == 1


def test_a_withdrawn_request_that_was_never_sent_is_not_told_to_anyone() -> None:
    bench = Bench(incarnation=None)
    bench.ask(1)
    bench.do(Withdrawn("c", 1), Connected(), AgentAttached(1))
    assert bench.dropped == []
    assert bench.asked == []


def test_closing_ends_what_is_open_and_refuses_what_comes() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Closed())
    bench.ask(2)
    assert [type(bench.outcome(s)) for s in (1, 2)] == [Rejected, Rejected]


def test_a_suspended_host_ends_what_was_open() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(ClockJumped(5_000 * MS))
    outcome = bench.outcome()
    assert isinstance(outcome, Missed)
    assert outcome.stage == "client"


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 6)),
        st.tuples(st.just("hold"), st.integers(1, 6)),
        st.tuples(st.just("final"), st.integers(1, 6)),
        st.tuples(st.just("held"), st.integers(1, 6)),
        st.tuples(st.just("superseded"), st.integers(1, 6)),
        st.tuples(st.just("withdraw"), st.integers(1, 6)),
        st.tuples(st.just("unsent"), st.integers(1, 6)),
        st.tuples(st.just("attach"), st.integers(1, 3)),
        st.tuples(st.just("lost"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 12)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_every_request_ends_exactly_once_by_its_deadline_whatever_happens(script: list[tuple[str, int]]) -> None:
    bench = Bench(max_open=4, incarnation=None)
    due: dict[int, int] = {}
    gone: set[int] = set()
    fresh = iter(range(100, 10_000))
    alias: dict[int, int] = {}
    for what, number in script:
        sequence = alias.get(number, number)
        match what:
            case "ask":
                alias[number] = sequence = next(fresh)
                due[sequence] = bench.now + D
                bench.ask(sequence, deadline_ns=bench.now + D, scheduled_ns=bench.now)
            case "hold":
                bench.do(Hold("c", sequence, answer(number / 10)))
            case "final":
                bench.do(Resolve("c", sequence, answer()))
            case "held":
                bench.do(Resolve("c", sequence, Missed("agent"), held=True))
            case "superseded":
                bench.do(Resolve("c", sequence, Superseded()))
            case "withdraw":
                if sequence in due and sequence not in bench.outcomes:
                    gone.add(sequence)
                bench.do(Withdrawn("c", sequence))
            case "unsent":
                bench.do(Unsent(sequence))
            case "attach":
                bench.do(Connected(), AgentAttached(number))
            case "lost":
                bench.do(AgentLost())
            case _:
                bench.until(bench.now + number * MS)
        for asked, deadline_ns in due.items():
            if deadline_ns <= bench.now - 1 and asked not in gone:
                assert len(bench.outcomes[asked]) == 1
    bench.until(bench.now + 2 * D)
    for sequence in due:
        assert len(bench.outcomes.get(sequence, [])) == (0 if sequence in gone else 1)
    for outcomes in bench.outcomes.values():
        for outcome in outcomes:
            if isinstance(outcome, Answer):
                assert sum(outcome.stages.values()) == outcome.elapsed_ns
    counts = bench.machine.counts
    ended = counts.on_time + counts.late + counts.missed + counts.rejected + counts.superseded
    assert counts.asked == len(due) == ended + counts.withdrawn
    assert counts.open == 0


def test_a_frame_asked_ahead_of_its_time_is_accounted_from_the_asking() -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=30 * MS, scheduled_ns=20 * MS)
    bench.now = 5 * MS
    bench.do(Resolve("c", 1, answer(rung=4 * MS)))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert (outcome.elapsed_ns, outcome.stages) == (5 * MS, {"rung": 4 * MS, "client": 1 * MS})
    assert bench.machine.counts.misaccounted == 0


def test_a_pushed_answer_to_a_frame_asked_ahead_of_its_time_is_held_until_its_deadline_and_accounted() -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=30 * MS, scheduled_ns=20 * MS)
    bench.now = 5 * MS
    bench.do(Hold("c", 1, answer(0.9, rung=4 * MS)))
    bench.until(30 * MS)
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.elapsed_ns == 30 * MS - SETTLE_NS == sum(outcome.stages.values())
    assert outcome.stages["rung"] == 4 * MS
    assert outcome.on_time


@pytest.mark.parametrize("last", [Missed("tail"), Rejected("overload"), Superseded()])
def test_other_outcomes_of_a_frame_asked_ahead_of_its_time_say_how_long_it_took(last: Outcome) -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=30 * MS, scheduled_ns=20 * MS)
    bench.now = 5 * MS
    bench.do(Resolve("c", 1, last))
    assert bench.outcome().elapsed_ns == 5 * MS


def test_a_frame_asked_after_its_time_is_accounted_from_when_it_was_due() -> None:
    bench = Bench()
    bench.now = 3 * MS
    bench.ask(1, scheduled_ns=1 * MS)
    bench.now = 5 * MS
    bench.do(Resolve("c", 1, answer(rung=1 * MS)))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert (outcome.elapsed_ns, outcome.stages) == (4 * MS, {"rung": 1 * MS, "client": 3 * MS})
