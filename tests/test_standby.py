"""A client with two agents: whom it asks, and that each request has one outcome whatever either of them does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_outcomes import MS, D, answer
from test_outcomes import Bench as OneAgent

from edge.agents import GREET_NS, GREET_SILENT_NS, PATIENCE_LEAST_NS, PATIENCE_MOST_NS, PRIMARY, STANDBY
from edge.client_events import AgentAttached, AgentLost, Connected, Declined, Heard, Unsent
from edge.outcomes import RESCUE_LEAST_NS, RETRY_NS
from shared.events import Hold, Resolve, Withdrawn
from shared.request import Answer, Missed, Outcome, Rejected, Superseded


class Bench(OneAgent):
    """One machine with both agents attached, where nothing else is said."""

    def __init__(self, *, primary: bool = True, standby: bool = True) -> None:
        super().__init__(max_open=64, incarnation=1 if primary else None, standby=True)
        if standby:
            self.do(Connected(STANDBY), AgentAttached(1, STANDBY))

    def says(self, agent: int, sequence: int, outcome: Outcome, *, held: bool = False) -> None:
        self.do(Heard(agent, Resolve("c", sequence, outcome, held)))


def test_while_the_primary_is_there_the_standby_is_asked_nothing() -> None:
    bench = Bench()
    for sequence in range(1, 6):
        bench.ask(sequence, deadline_ns=bench.now + D, scheduled_ns=bench.now)
        bench.until(bench.now + MS)
        bench.says(PRIMARY, sequence, answer())
    assert bench.asked_of == [(sequence, PRIMARY) for sequence in range(1, 6)]
    assert bench.greeted_at == [(0, PRIMARY), (0, STANDBY)]


def test_before_the_primary_is_there_the_standby_answers() -> None:
    bench = Bench(primary=False)
    bench.ask(1)
    bench.says(STANDBY, 1, answer(0.5))
    assert bench.asked_of == [(1, STANDBY)]
    assert bench.machine.counts.on_time == 1
    assert bench.machine.counts.standby == 1


def test_what_a_dead_primary_took_along_is_asked_of_the_standby_at_once() -> None:
    bench = Bench()
    bench.ask(1)
    bench.ask(2)
    bench.now = 2 * MS
    bench.do(AgentLost())
    assert bench.asked_of == [(1, PRIMARY), (2, PRIMARY), (1, STANDBY), (2, STANDBY)]
    bench.says(STANDBY, 1, answer(0.5))
    assert isinstance(bench.outcome(1), Answer)


def test_a_request_that_has_an_answer_is_not_asked_of_the_standby() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Heard(PRIMARY, Hold("c", 1, answer(0.9))), AgentLost())
    assert bench.asked_of == [(1, PRIMARY)]
    bench.until(D)
    assert isinstance(bench.outcome(1), Answer)


def test_a_request_that_has_no_time_left_is_not_asked_of_the_standby() -> None:
    bench = Bench()
    bench.ask(1)
    bench.now = D - RESCUE_LEAST_NS + 1
    bench.do(AgentLost())
    assert bench.asked_of == [(1, PRIMARY)]
    bench.until(D)
    assert isinstance(bench.outcome(1), Missed)


def test_a_silent_primary_is_greeted_and_found_out_in_time_for_the_standby_to_answer() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2 - 1)
    assert bench.greeted_at[2:] == [(D // 4, PRIMARY)]
    assert bench.asked_of == [(1, PRIMARY)]
    bench.until(D // 2)
    assert bench.asked_of == [(1, PRIMARY), (1, STANDBY)]
    assert bench.machine.counts.silences == 1
    bench.says(STANDBY, 1, answer(0.5))
    assert isinstance(bench.outcome(1), Answer)
    bench.ask(2, deadline_ns=bench.now + D)
    assert bench.asked_of[2:] == [(2, STANDBY)]


def test_a_busy_primary_that_answers_greetings_keeps_its_requests_to_the_end() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 4)
    bench.do(AgentAttached(1))
    bench.until(D // 2 + 2)
    bench.do(AgentAttached(1))
    bench.until(D)
    assert bench.asked_of == [(1, PRIMARY)]
    assert bench.machine.counts.silences == 0
    assert bench.machine.counts.attaches == 2
    assert isinstance(bench.outcome(1), Missed)


def test_any_word_about_any_request_shows_that_the_primary_lives() -> None:
    bench = Bench()
    for sequence in (1, 2):
        bench.ask(sequence)
    for now in range(MS, D, MS):
        bench.until(now)
        bench.do(Heard(PRIMARY))
    assert bench.asked_of == [(1, PRIMARY), (2, PRIMARY)]
    assert bench.greeted == 2


def test_a_primary_that_owes_nothing_is_neither_greeted_nor_called_silent() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Heard(PRIMARY, Hold("c", 1, answer(0.9))))
    bench.until(100 * D)
    assert bench.greeted == 2
    assert bench.machine.counts.silences == 0


@pytest.mark.parametrize(("budget_ns", "patience_ns"), [(MS, PATIENCE_LEAST_NS), (3600_000 * MS, PATIENCE_MOST_NS)])
def test_patience_is_neither_hasty_nor_endless(budget_ns: int, patience_ns: int) -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=budget_ns)
    bench.ask(2, deadline_ns=3600_000 * MS)
    bench.until(patience_ns - 1)
    assert bench.machine.counts.silences == 0
    bench.until(patience_ns)
    assert bench.machine.counts.silences == 1
    assert bench.asked_of[2:] == ([(2, STANDBY)] if budget_ns == MS else [(1, STANDBY), (2, STANDBY)])


def test_the_tightest_request_sets_the_patience() -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=1_000 * MS)
    bench.until(MS)
    bench.ask(2, deadline_ns=bench.now + 2 * D)
    bench.until(D + MS)
    assert bench.asked_of[2:] == [(1, STANDBY), (2, STANDBY)]


def test_a_client_that_slept_itself_greets_before_it_calls_anyone_silent() -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=1_000 * MS)
    bench.now = 500 * MS
    bench.until(bench.now)
    assert bench.greeted_at[2:] == [(500 * MS, PRIMARY)]
    assert bench.machine.counts.silences == 0


def test_when_the_silent_primary_speaks_requests_go_back_to_it() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.do(AgentAttached(1))
    bench.ask(2, deadline_ns=bench.now + D)
    assert bench.asked_of == [(1, PRIMARY), (1, STANDBY), (2, PRIMARY)]


def test_any_word_of_the_silent_primary_brings_it_what_the_standby_could_not_take() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.ask(2, deadline_ns=bench.now + D)
    bench.do(Declined(2, STANDBY))
    bench.do(Heard(PRIMARY))
    assert bench.asked_of == [(1, PRIMARY), (1, STANDBY), (2, STANDBY), (2, PRIMARY)]


def test_late_words_of_either_are_counted_and_ignored() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.says(STANDBY, 1, answer(0.5))
    bench.says(PRIMARY, 1, answer())
    bench.do(Heard(PRIMARY, Hold("c", 1, answer(0.9))))
    bench.says(STANDBY, 1, answer(0.5))
    assert len(bench.outcomes[1]) == 1
    assert bench.machine.counts.ignored == 3


def test_the_first_answer_ends_a_request_that_both_have_and_the_other_is_told() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.says(PRIMARY, 1, answer())
    outcome = bench.outcome(1)
    assert isinstance(outcome, Answer)
    assert outcome.agreement == 1.0
    assert bench.dropped_at == [(1, STANDBY)]


@pytest.mark.parametrize("refusal", [Rejected("overload"), Missed("rung", "too slow")])
def test_a_refusal_of_one_does_not_end_what_the_other_may_still_answer(refusal: Outcome) -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.says(STANDBY, 1, refusal)
    assert bench.outcomes == {}
    bench.says(PRIMARY, 1, answer())
    assert isinstance(bench.outcome(1), Answer)


def test_a_refusal_of_both_is_the_outcome_and_the_last_word_counts() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.says(STANDBY, 1, Rejected("overload"))
    bench.says(PRIMARY, 1, Missed("uplink"))
    outcome = bench.outcome(1)
    assert isinstance(outcome, Missed)
    assert outcome.stage == "uplink"


def test_a_refusal_of_the_standby_is_the_outcome_where_the_primary_is_dead() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(AgentLost())
    bench.says(STANDBY, 1, Rejected("overload"))
    assert isinstance(bench.outcome(1), Rejected)


def test_a_refusal_never_takes_a_pushed_answer_away() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Heard(PRIMARY, Hold("c", 1, answer(0.9))), AgentLost(), Connected(), AgentAttached(2))
    bench.says(PRIMARY, 1, Rejected("overload"))
    outcome = bench.outcome(1)
    assert isinstance(outcome, Answer)
    assert outcome.agreement == 0.9


def test_a_superseded_frame_is_over_at_both() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.says(STANDBY, 1, Superseded())
    assert isinstance(bench.outcome(1), Superseded)
    assert bench.dropped_at == [(1, PRIMARY)]


def test_a_withdrawn_request_is_dropped_at_both() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    bench.do(Withdrawn("c", 1))
    assert sorted(bench.dropped_at) == [(1, PRIMARY), (1, STANDBY)]


def test_a_new_primary_is_not_asked_what_the_standby_is_at_work_on() -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=1_000 * MS)
    bench.do(AgentLost(), Connected(), AgentAttached(2))
    assert bench.asked_of == [(1, PRIMARY), (1, STANDBY)]
    bench.do(AgentLost(agent=STANDBY))
    assert bench.asked_of[2:] == [(1, PRIMARY)]


def test_a_standby_that_has_not_the_model_leaves_the_request_for_the_primary() -> None:
    bench = Bench()
    bench.ask(1, deadline_ns=1_000 * MS)
    bench.do(AgentLost())
    bench.do(Declined(1, STANDBY))
    bench.until(10 * MS)
    assert bench.asked_of == [(1, PRIMARY), (1, STANDBY)]
    bench.do(Connected(), AgentAttached(2))
    assert bench.asked_of[2:] == [(1, PRIMARY)]
    bench.says(PRIMARY, 1, answer())
    assert isinstance(bench.outcome(1), Answer)


def test_what_found_no_room_at_the_primary_goes_to_whoever_is_asked_then() -> None:
    bench = Bench()
    bench.ask(1)
    bench.do(Unsent(1), AgentLost())
    bench.until(RETRY_NS)
    assert bench.asked_of == [(1, PRIMARY), (1, STANDBY)]


def test_without_either_requests_wait_for_the_first_that_comes() -> None:
    bench = Bench(primary=False, standby=False)
    bench.ask(1)
    bench.ask(2)
    assert bench.asked_of == []
    bench.do(Connected(STANDBY), AgentAttached(1, STANDBY))
    assert bench.asked_of == [(1, STANDBY), (2, STANDBY)]
    bench.do(Connected(), AgentAttached(1))
    assert len(bench.asked_of) == 2


def test_a_silent_primary_without_a_standby_is_asked_all_the_same() -> None:
    bench = Bench(standby=False)
    bench.ask(1)
    bench.until(D)
    bench.ask(2, deadline_ns=2 * D)
    assert bench.asked_of == [(1, PRIMARY), (2, PRIMARY)]


def test_a_silent_primary_is_greeted_seldom() -> None:
    bench = Bench()
    bench.ask(1)
    bench.until(D // 2)
    known = len(bench.greeted_at)
    bench.until(D // 2 + 3 * GREET_SILENT_NS)
    assert len(bench.greeted_at) == known + 3
    bench.do(Heard(PRIMARY))
    bench.until(bench.now + 3 * GREET_SILENT_NS)
    assert len(bench.greeted_at) == known + 3


def test_each_agent_is_greeted_until_it_answers() -> None:
    bench = Bench(primary=False, standby=False)
    bench.do(Connected(PRIMARY), Connected(STANDBY))
    bench.until(GREET_NS)
    bench.do(AgentAttached(1, STANDBY))
    bench.until(3 * GREET_NS)
    assert [agent for _, agent in bench.greeted_at] == [PRIMARY, STANDBY, PRIMARY, STANDBY, PRIMARY, PRIMARY]


def test_a_farewell_of_the_primary_that_may_help_later_sends_requests_to_the_standby_meanwhile() -> None:
    bench = Bench()
    bench.do(AgentLost(again=True))
    bench.ask(1)
    assert bench.asked_of == [(1, STANDBY)]
    bench.until(GREET_NS)
    assert bench.greeted_at[-1] == (GREET_NS, PRIMARY)


AGENT = st.sampled_from([PRIMARY, STANDBY])
NUMBER = st.integers(1, 5)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), NUMBER, AGENT),
        st.tuples(st.sampled_from(["hold", "final", "held", "refused", "superseded", "unsent", "no"]), NUMBER, AGENT),
        st.tuples(st.just("withdraw"), NUMBER, AGENT),
        st.tuples(st.just("attach"), st.integers(1, 3), AGENT),
        st.tuples(st.sampled_from(["lost", "bye", "word"]), st.just(0), AGENT),
        st.tuples(st.just("wait"), st.integers(0, 12), AGENT),
    ),
    max_size=60,
)


@given(EVENTS)
def test_every_request_ends_exactly_once_by_its_deadline_whatever_two_agents_do(
    script: list[tuple[str, int, int]],
) -> None:
    bench = Bench(primary=False, standby=False)
    due: dict[int, int] = {}
    gone: set[int] = set()
    fresh = iter(range(100, 10_000))
    alias: dict[int, int] = {}
    for what, number, agent in script:
        sequence = alias.get(number, number)
        match what:
            case "ask":
                alias[number] = sequence = next(fresh)
                due[sequence] = bench.now + D
                bench.ask(sequence, deadline_ns=bench.now + D, scheduled_ns=bench.now)
            case "hold":
                bench.do(Heard(agent, Hold("c", sequence, answer(number / 10))))
            case "final":
                bench.says(agent, sequence, answer())
            case "held":
                bench.says(agent, sequence, Missed("agent"), held=True)
            case "refused":
                bench.says(agent, sequence, Rejected("overload"))
            case "superseded":
                bench.says(agent, sequence, Superseded())
            case "unsent":
                bench.do(Unsent(sequence, agent))
            case "no":
                bench.do(Declined(sequence, agent))
            case "withdraw":
                if sequence in due and sequence not in bench.outcomes:
                    gone.add(sequence)
                bench.do(Withdrawn("c", sequence))
            case "attach":
                bench.do(Connected(agent), AgentAttached(number, agent))
            case "lost" | "bye":
                bench.do(AgentLost(what == "bye", agent))
            case "word":
                bench.do(Heard(agent))
            case _:
                bench.until(bench.now + number * MS)
        for asked, deadline_ns in due.items():
            if deadline_ns < bench.now and asked not in gone:
                assert len(bench.outcomes[asked]) == 1
    bench.until(bench.now + 2 * D)
    for sequence in due:
        assert len(bench.outcomes.get(sequence, [])) == (0 if sequence in gone else 1)
    counts = bench.machine.counts
    ended = counts.on_time + counts.late + counts.missed + counts.rejected + counts.superseded
    assert counts.asked == len(due) == ended + counts.withdrawn
    assert counts.open == len(bench.machine._open) == len(bench.machine._unsent) == 0
