from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.agents import PRIMARY, STANDBY
from edge.announced import LEAST_PERIOD_NS, MAX_STREAMS, NOTHING_YET, Announced, StreamPromise, check_announcement
from edge.door import MAX_DEADLINE_NS
from shared.errors import InputError
from shared.wire.messages import CloseStream, OpenStream

MS = 1_000_000


def opened(stream: int = 1, **changes: int) -> OpenStream:
    fields: dict[str, int] = {"rows": 1, "period_ns": 33 * MS, "deadline_ns": 10 * MS, "priority": 0, **changes}
    return OpenStream(stream, "double", latest_wins=True, **fields)  # type: ignore[arg-type]


def test_a_stream_is_told_once_to_the_agent_that_is_asked() -> None:
    streams = Announced()
    streams.attached(PRIMARY, 1)
    streams.open(opened())
    assert streams.news(PRIMARY) == [(PRIMARY, opened())]
    assert streams.news(PRIMARY) == []


def test_streams_opened_before_any_agent_is_there_are_told_at_the_attach() -> None:
    streams = Announced()
    streams.open(opened())
    assert streams.news(None) == []
    streams.attached(PRIMARY, 1)
    assert streams.news(PRIMARY) == [(PRIMARY, opened())]


@pytest.mark.parametrize("incarnation", [1, 2])
def test_open_streams_are_told_again_when_an_agent_comes_back_whether_or_not_it_remembers(incarnation: int) -> None:
    streams = Announced()
    streams.attached(PRIMARY, 1)
    streams.open(opened())
    streams.news(PRIMARY)
    streams.lost(PRIMARY)
    streams.attached(PRIMARY, incarnation)
    assert streams.news(PRIMARY) == [(PRIMARY, opened())]


@pytest.mark.parametrize(("incarnation", "told"), [(1, [(PRIMARY, CloseStream(1))]), (2, [])])
def test_a_stream_closed_while_the_agent_was_away_is_closed_there_only_if_it_may_remember(
    incarnation: int, told: list[tuple[int, CloseStream]]
) -> None:
    streams = Announced()
    streams.attached(PRIMARY, 1)
    streams.open(opened())
    streams.news(PRIMARY)
    streams.lost(PRIMARY)
    streams.close(1)
    streams.attached(PRIMARY, incarnation)
    assert streams.news(PRIMARY) == told


def test_the_answer_to_a_greeting_that_only_asked_for_life_leads_to_nothing() -> None:
    streams = Announced()
    streams.attached(PRIMARY, 1)
    streams.open(opened())
    streams.news(PRIMARY)
    streams.attached(PRIMARY, 1)
    assert streams.news(PRIMARY) == []


def test_what_found_no_room_is_said_again_opened_or_closed() -> None:
    streams = Announced()
    streams.attached(PRIMARY, 1)
    streams.open(opened())
    streams.news(PRIMARY)
    streams.unsaid(PRIMARY, 1)
    assert streams.news(PRIMARY) == [(PRIMARY, opened())]
    streams.close(1)
    streams.news(PRIMARY)
    streams.unsaid(PRIMARY, 1)
    assert streams.news(PRIMARY) == [(PRIMARY, CloseStream(1))]
    assert streams.news(PRIMARY) == []


def test_streams_follow_the_requests_to_the_standby_and_back() -> None:
    streams = Announced(2)
    streams.attached(PRIMARY, 1)
    streams.attached(STANDBY, 1)
    streams.open(opened())
    assert streams.news(PRIMARY) == [(PRIMARY, opened())]
    assert streams.news(STANDBY) == [(PRIMARY, CloseStream(1)), (STANDBY, opened())]
    streams.lost(PRIMARY)
    streams.attached(PRIMARY, 2)
    assert streams.news(PRIMARY) == [(PRIMARY, opened()), (STANDBY, CloseStream(1))]


def test_a_promise_is_that_of_the_agent_that_is_asked_and_void_when_another_is() -> None:
    streams = Announced(2)
    streams.attached(PRIMARY, 1)
    streams.attached(STANDBY, 1)
    streams.open(opened())
    assert streams.promises == {1: NOTHING_YET}
    streams.news(PRIMARY)
    assert streams.promised(PRIMARY, 1, StreamPromise("whole"))
    assert not streams.promised(STANDBY, 1, StreamPromise("small"))
    assert streams.promises == {1: StreamPromise("whole")}
    streams.news(STANDBY)
    assert streams.promises == {1: NOTHING_YET}
    streams.news(None)
    assert streams.promises == {1: StreamPromise(None, "agent")}


def test_a_promise_for_a_stream_that_nobody_opened_is_refused() -> None:
    streams = Announced()
    streams.attached(PRIMARY, 1)
    streams.news(PRIMARY)
    assert not streams.promised(PRIMARY, 7, StreamPromise("whole"))
    assert streams.promises == {}


def test_no_more_streams_than_the_limit_are_kept() -> None:
    streams = Announced()
    assert all(streams.open(opened(number)) for number in range(1, MAX_STREAMS + 1))
    assert not streams.open(opened(MAX_STREAMS + 1))
    assert len(streams) == len(streams.promises) == MAX_STREAMS


def test_nothing_is_kept_of_streams_that_come_and_go_while_the_agents_are_away() -> None:
    streams = Announced(2)
    streams.attached(PRIMARY, 1)
    streams.lost(PRIMARY)
    for number in range(1, 100):
        streams.open(opened(number))
        streams.close(number)
        assert streams.news(None) == []
    assert [len(agent.open) + len(agent.due) for agent in streams._agents] == [0, 0]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (opened(0), "stream: expected a number from 1, got 0"),
        (opened(rows=0), "rows: expected 1 to 4, got 0"),
        (opened(rows=5), "rows: expected 1 to 4, got 5"),
        (opened(period_ns=LEAST_PERIOD_NS - 1), "period"),
        (opened(period_ns=MAX_DEADLINE_NS + 1), "period"),
        (opened(deadline_ns=0), "deadline"),
        (opened(deadline_ns=MAX_DEADLINE_NS + 1), "deadline"),
        (opened(priority=3), "priority: expected 0 to 2, got 3"),
    ],
)
def test_what_no_stream_may_be_is_refused_in_words(bad: OpenStream, words: str) -> None:
    check_announcement(opened(), 3, 4)
    with pytest.raises(InputError, match=words):
        check_announcement(bad, 3, 4)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["open", "close"]), st.integers(1, 4)),
        st.tuples(st.sampled_from(["lost", "back", "anew", "fails"]), st.integers(0, 1)),
        st.tuples(st.just("ask"), st.sampled_from([None, PRIMARY, STANDBY])),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_the_asked_agent_has_what_is_open_and_the_other_nothing(
    steps: list[tuple[str, int | None]],
) -> None:
    """Two agents that are told everything but what fails, and forget everything when they start anew."""
    streams = Announced(2)
    there = [False, False]
    incarnations = [1, 1]
    known: list[set[int]] = [set(), set()]
    wanted: set[int] = set()
    asking: int | None = None
    failing: set[int] = set()
    for step, which in [*steps, ("back", 0), ("back", 1), ("ask", PRIMARY), ("hear", None)]:
        match step, which:
            case "open", int(stream):
                wanted.add(stream)
                streams.open(opened(stream))
            case "close", int(stream):
                wanted.discard(stream)
                streams.close(stream)
            case "lost", int(agent):
                there[agent] = False
                streams.lost(agent)
            case "anew", int(agent):
                incarnations[agent] += 1
                known[agent].clear()
                there[agent] = True
                streams.lost(agent)
                streams.attached(agent, incarnations[agent])
            case "back", int(agent):
                there[agent] = True
                streams.attached(agent, incarnations[agent])
            case "fails", int(agent):
                failing.add(agent)
            case "ask", _:
                asking = which if which is None or there[which] else None
            case _:
                failing.clear()
        if asking is not None and not there[asking]:
            asking = None
        for agent, word in streams.news(asking):
            assert there[agent]
            if agent in failing:
                failing.discard(agent)
                streams.unsaid(agent, word.stream)
            elif isinstance(word, OpenStream):
                known[agent].add(word.stream)
            else:
                known[agent].discard(word.stream)
    assert known == [wanted, set()]
    assert set(streams.promises) == wanted
