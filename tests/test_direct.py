from __future__ import annotations

import numpy as np
import pytest

from edge.announced import MAX_STREAMS, NOTHING_YET, StreamPromise
from edge.direct import Direct
from edge.owed import SETTLE_NS
from shared.errors import InvariantBroken
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    ClockJumped,
    Event,
    Finished,
    Granted,
    Hold,
    LinkUp,
    Resolve,
    Send,
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.fakes import FakeMachine
from shared.request import Answer, Fidelity, Missed, Outcome, Rejected, Request
from shared.wire.messages import Bye, ModelInfo

MS = 1_000_000
D = 10 * MS


def answer(agreement: float = 0.9) -> Answer:
    fidelity = Fidelity("rung", "small", agreement)
    return Answer({"y": np.zeros(1)}, "edge", None, "small", None, fidelity, "c1")


class Bench:
    """The joined machine with a scripted broker, on virtual time."""

    def __init__(self) -> None:
        self.now = 0
        self.reply: list[Action] = []
        self.broker = FakeMachine(self._script)
        models = {"double": ModelInfo("double", "c1", (("x", "float32", (1, 3)),), ("y",), True, 4)}
        self.machine = Direct("app", 8, self.broker, models, 3, max_streams=2)
        self.wake_ns: int | None = None
        self.outcomes: dict[int, list[Outcome]] = {}
        self.sent: list[Action] = []

    def _script(self, event: Event, now: int) -> list[Action]:
        reply, self.reply = self.reply, []
        return reply

    def do(self, event: Event, *reply: Action) -> None:
        self.reply = list(reply)
        self.note(self.machine.handle(event, self.now))

    def note(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case WakeAt():
                    self.wake_ns = action.at_ns
                case Resolve():
                    self.outcomes.setdefault(action.sequence, []).append(action.outcome)
                case _:
                    self.sent.append(action)

    def until(self, now: int) -> None:
        while self.wake_ns is not None and self.wake_ns <= now:
            self.now, self.wake_ns = max(self.now, self.wake_ns), None
            self.do(Tick())
        self.now = now

    def ask(self, *reply: Action) -> None:
        self.do(Arrived(Request("app", 1, "c1", (), 1, 0, D)), *reply)

    def outcome(self) -> Outcome:
        (outcome,) = self.outcomes[1]
        return outcome


def test_a_request_goes_straight_to_the_broker_and_its_outcome_straight_back() -> None:
    bench = Bench()
    bench.ask()
    assert isinstance(bench.broker.events[0], Arrived)
    bench.now = 3 * MS
    bench.do(Finished(1, (), 0, 0), Resolve("app", 1, answer()))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.elapsed_ns == 3 * MS


def test_a_refusal_in_the_same_breath_is_an_outcome() -> None:
    bench = Bench()
    bench.ask(Resolve("app", 1, Rejected("overload")))
    assert isinstance(bench.outcome(), Rejected)


def test_a_broker_that_falls_silent_hangs_nobody() -> None:
    bench = Bench()
    bench.ask()
    bench.until(D)
    assert bench.outcome() == Missed("agent", "the agent did not answer", D)


def test_an_answer_held_in_the_same_breath_is_delivered_on_time() -> None:
    bench = Bench()
    bench.ask(Hold("app", 1, answer()))
    assert bench.wake_ns == D - SETTLE_NS
    bench.until(D)
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.on_time


def test_the_broker_is_woken_when_it_asked_to_be_and_the_client_when_it_did() -> None:
    bench = Bench()
    bench.ask(WakeAt(2 * MS))
    assert bench.wake_ns == 2 * MS
    bench.until(5 * MS)
    assert [type(e) for e in bench.broker.events] == [Arrived, Tick]
    assert bench.outcomes == {}
    assert bench.wake_ns == D


def test_a_withdrawn_request_is_withdrawn_from_the_broker() -> None:
    bench = Bench()
    bench.ask()
    bench.do(Withdrawn("app", 1))
    assert bench.broker.events[1:] == [Withdrawn("app", 1)]
    bench.until(2 * D)
    assert bench.outcomes == {}


def test_what_concerns_nodes_and_work_passes_through() -> None:
    bench = Bench()
    bench.do(LinkUp("n1/data"), Send("n1/data", Bye("closing")))
    assert bench.broker.events == [LinkUp("n1/data")]
    assert bench.sent == [Send("n1/data", Bye("closing"))]


def test_a_suspended_host_concerns_both() -> None:
    bench = Bench()
    bench.ask()
    bench.do(ClockJumped(10**9))
    assert isinstance(bench.outcome(), Missed)
    assert bench.broker.events[1:] == [ClockJumped(10**9)]


def test_closing_ends_what_is_open_on_both_sides() -> None:
    bench = Bench()
    bench.ask()
    bench.note(bench.machine.close(bench.now))
    assert isinstance(bench.outcome(), Rejected)
    assert bench.broker.events[1:] == [ClientGone("app")]


def test_nothing_is_ever_deferred() -> None:
    with pytest.raises(InvariantBroken):
        Bench().machine.defer(1, None, {})


def test_a_priority_that_the_settings_do_not_know_is_refused_before_the_broker() -> None:
    bench = Bench()
    bench.do(Arrived(Request("app", 1, "c1", (), 1, 0, D, priority=3)))
    assert bench.outcomes[1] == [Rejected("input", "priority: expected 0 to 2, got 3")]
    assert not bench.broker.events


def opened(stream: int = 1, **changes: object) -> StreamOpened:
    fields = {"plan": "", "rows": 1, "period_ns": 33 * MS, "deadline_ns": D, "priority": 0, "latest_wins": True}
    return StreamOpened("", stream, **{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["", "double"])
def test_a_stream_is_announced_to_the_broker_and_its_promise_kept_up_to_date(model: str) -> None:
    bench = Bench()
    bench.do(opened(plan=model), Granted("app", 1, "whole"))
    assert bench.broker.events == [StreamOpened("app", 1, "c1", 1, 33 * MS, D, 0, True)]
    assert bench.machine.promises == {1: StreamPromise("whole")}
    bench.do(LinkUp("n1/data"), Granted("app", 1, "", "overload"))
    assert bench.machine.promises == {1: StreamPromise(None, "overload")}


def test_a_closed_stream_is_closed_at_the_broker_once() -> None:
    bench = Bench()
    bench.do(opened())
    assert bench.machine.promises == {1: NOTHING_YET}
    bench.do(StreamClosed("app", 1))
    bench.do(StreamClosed("app", 1))
    assert bench.broker.events[1:] == [StreamClosed("app", 1)]
    assert bench.machine.promises == {}
    bench.do(LinkUp("n1/data"), Granted("app", 1, "whole"))
    assert bench.machine.promises == {}
    assert bench.machine.counts.ignored == 1


@pytest.mark.parametrize(
    "bad", [opened(plan="other"), opened(rows=5), opened(priority=3), opened(period_ns=1), opened(deadline_ns=0)]
)
def test_what_no_stream_may_be_is_promised_nothing(bad: StreamOpened) -> None:
    bench = Bench()
    bench.do(bad)
    assert bench.machine.promises == {1: StreamPromise(None, "input")}
    assert bench.broker.events == []
    bench.do(StreamClosed("app", 1))
    assert bench.machine.promises == {}
    assert bench.broker.events == []


def test_one_stream_too_many_is_promised_nothing_until_another_ends() -> None:
    bench = Bench()
    for stream in (1, 2, 3):
        bench.do(opened(stream))
    assert bench.machine.promises[3] == StreamPromise(None, "full")
    bench.do(StreamClosed("app", 1))
    bench.do(opened(4))
    assert bench.machine.promises[4] == NOTHING_YET
    for stream in range(5, 2 * MAX_STREAMS):
        bench.do(opened(stream))
    assert len(bench.machine.promises) == MAX_STREAMS


def test_what_was_held_is_given_where_the_broker_then_has_none() -> None:
    bench = Bench()
    bench.ask(Hold("app", 1, answer()))
    bench.now = 2 * MS
    bench.do(Finished(1, (), 0, 0), Resolve("app", 1, Missed("uplink")))
    outcome = bench.outcome()
    assert isinstance(outcome, Answer)
    assert outcome.stages == {"hold": 2 * MS, "client": 0}


def test_what_a_broker_says_twice_is_heard_once() -> None:
    bench = Bench()
    bench.ask(Resolve("app", 1, answer()), Resolve("app", 1, answer()))
    assert len(bench.outcomes[1]) == 1
    assert bench.machine.counts.ignored == 1
    assert bench.machine.counts.on_time == 1


def test_one_request_too_many_is_refused_before_the_broker() -> None:
    bench = Bench()
    for sequence in range(9):
        bench.do(Arrived(Request("app", sequence, "c1", (), 1, 0, D)))
    assert bench.outcomes == {8: [Rejected("too-many-open", "8 requests are open already", 0)]}
    assert len(bench.broker.events) == 8


def test_a_request_in_another_length_gets_its_outcome_in_its_own_and_is_counted() -> None:
    bench = Bench()
    bench.do(Arrived(Request("app", 1, "c1", (), 1, 0, D, length=2)), Resolve("app", 1, answer()))
    assert isinstance(bench.outcome(), Answer)
    assert bench.machine.counts.padded == 1
