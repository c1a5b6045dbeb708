"""A stub between two agents, through the codec, on virtual time: links, contracts and streams."""

from __future__ import annotations

from test_front import MS, NOW, SETTINGS, Bench, X, answer, plan

from edge.agents import PRIMARY, STANDBY
from edge.front import Front
from edge.outcomes import Outcomes
from edge.stub import AGENT, LINKS, STANDBY_AGENT, Stub
from shared.events import (
    Action,
    Arrived,
    Event,
    Granted,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Send,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.plan import Plan
from shared.request import Answer, Missed, Outcome, Rejected, Request
from shared.wire.codec import decode_agent, decode_client, encode
from shared.wire.messages import Bye, StreamState

D = 20 * MS


class Two:
    """A stub and two fronts with scripted brokers. A `stopped` agent takes messages and handles them when it goes on."""

    def __init__(self, standby_plans: dict[str, Plan] | None = None) -> None:
        self.now = NOW
        self.stub = Stub("app", 1, Outcomes("app", 8, standby=True))
        self.agents = [Bench({"c1": plan()}), Bench(standby_plans or {"c1": plan()})]
        self.up = [False, False]
        self.full = False
        self.stopped: list[list[Event] | None] = [None, None]
        self.outcomes: dict[int, Outcome] = {}
        self.wake_ns: int | None = None

    def connect(self, agent: int) -> None:
        self.up[agent] = True
        self._client(LinkUp(LINKS[agent]))

    def disconnect(self, agent: int) -> None:
        self.up[agent] = False
        self._client(LinkDown(LINKS[agent]))

    def restart(self, agent: int, plans: dict[str, Plan] | None = None) -> None:
        bench = Bench(plans)
        bench.front = Front(SETTINGS, plans or {"c1": plan()}, 8, bench.broker)
        self.agents[agent] = bench
        self.connect(agent)

    def stop(self, agent: int) -> None:
        self.stopped[agent] = []

    def go_on(self, agent: int) -> None:
        waiting = self.stopped[agent] or []
        for event in waiting:  # what the client says to its answers comes behind
            self._handle(agent, event)
        self.stopped[agent] = None

    def _client(self, event: Event) -> None:
        for action in self.stub.handle(event, self.now):
            match action:
                case Send():
                    agent = LINKS.index(action.link)
                    if self.full or not self.up[agent]:
                        self._client(SendFailed(action.link, action.message))
                        continue
                    message, frames = decode_client(encode(action.message, action.frames))
                    self._agent(agent, Received("a", message, frames))
                case Resolve():
                    assert action.sequence not in self.outcomes
                    self.outcomes[action.sequence] = action.outcome
                case WakeAt():
                    self.wake_ns = action.at_ns
                case _:
                    raise AssertionError(action)

    def _agent(self, agent: int, event: Event) -> None:
        waiting = self.stopped[agent]
        if waiting is not None:
            waiting.append(event)
        else:
            self._handle(agent, event)

    def _handle(self, agent: int, event: Event) -> None:
        for action in self.agents[agent].front.handle(event, self.now):
            if isinstance(action, Send):
                message, frames = decode_agent(encode(action.message, action.frames))
                self._client(Received(LINKS[agent], message, frames))

    def says(self, agent: int, *actions: Action) -> None:
        self.agents[agent].reply = list(actions)
        self._agent(agent, Tick())

    def ask(self, sequence: int = 1, contract: str = "c1") -> None:
        self._client(Arrived(Request("app", sequence, contract, (X,), 1, self.now, self.now + D)))

    def tell(self, event: Event) -> None:
        self._client(event)

    def until(self, now: int) -> None:
        while self.wake_ns is not None and self.wake_ns <= now:
            self.now, self.wake_ns = max(self.now, self.wake_ns), None
            self._client(Tick())
        self.now = now

    def asked(self, agent: int) -> list[int]:
        return [e.request.sequence for e in self.agents[agent].broker.events if isinstance(e, Arrived)]

    def streams(self, agent: int) -> list[Event]:
        return [e for e in self.agents[agent].broker.events if isinstance(e, StreamOpened | StreamClosed)]


def both(standby_plans: dict[str, Plan] | None = None) -> Two:
    two = Two(standby_plans)
    two.connect(PRIMARY)
    two.connect(STANDBY)
    return two


def test_a_stopped_primary_is_found_out_and_its_requests_are_answered_by_the_standby() -> None:
    two = both()
    two.stop(PRIMARY)
    two.ask()
    two.until(two.now + D // 2)
    assert two.asked(STANDBY) == [1]
    two.says(STANDBY, Resolve("a", 1, answer(0.5)))
    outcome = two.outcomes[1]
    assert isinstance(outcome, Answer)
    assert outcome.agreement == 0.5
    assert two.stub.asking == STANDBY


def test_a_primary_that_goes_on_answers_the_greeting_that_waited_and_is_asked_again() -> None:
    two = both()
    two.stop(PRIMARY)
    two.ask()
    two.until(two.now + D // 2)
    two.says(STANDBY, Resolve("a", 1, answer(0.5)))
    two.go_on(PRIMARY)
    assert two.stub.asking == PRIMARY
    assert [type(e) for e in two.agents[PRIMARY].broker.events] == [Arrived, Withdrawn]
    two.ask(2)
    assert two.asked(PRIMARY) == [1, 2]
    assert two.asked(STANDBY) == [1]


def test_both_are_taken_leave_of() -> None:
    two = both()
    actions = two.stub.close(two.now)
    assert [a for a in actions if isinstance(a, Send)] == [
        Send(AGENT, Bye("closing")),
        Send(STANDBY_AGENT, Bye("closing")),
    ]


def test_a_standby_with_another_version_of_the_model_is_counted_and_not_asked() -> None:
    two = both({"c2": plan()})
    assert two.stub.faults == {"standby-contract": 1}
    assert two.stub.models["double"].contract == "c1"
    two.disconnect(PRIMARY)
    two.ask()
    assert two.asked(STANDBY) == []
    two.until(two.now + D)
    assert isinstance(two.outcomes[1], Missed)


def test_the_order_in_which_the_two_attach_does_not_matter_for_what_is_counted() -> None:
    two = Two({"c2": plan()})
    two.connect(STANDBY)
    assert two.stub.faults == {}
    assert set(two.stub.models) == {"double"}
    two.connect(PRIMARY)
    assert two.stub.faults == {"standby-contract": 1}
    assert two.stub.models["double"].contract == "c1"


def test_a_standby_with_fewer_models_is_asked_for_those_that_it_has() -> None:
    two = both({"c9": plan("other")})
    assert two.stub.faults == {}
    two.disconnect(PRIMARY)
    two.ask()
    assert two.asked(STANDBY) == []
    two.restart(PRIMARY)
    assert two.asked(PRIMARY) == [1]


def test_a_request_made_before_either_came_is_for_the_one_that_comes() -> None:
    two = Two()
    two.stub.defer(1, None, {None: X})
    two.ask(contract="")
    two.connect(STANDBY)
    assert two.asked(STANDBY) == [1]
    two.says(STANDBY, Resolve("a", 1, answer(0.5)))
    assert isinstance(two.outcomes[1], Answer)


def test_a_request_for_the_standbys_version_is_checked_against_the_primarys_when_it_goes_there() -> None:
    two = Two({"c2": plan()})
    two.connect(STANDBY)
    two.ask(contract="c2")
    assert two.asked(STANDBY) == [1]
    two.disconnect(STANDBY)
    two.connect(PRIMARY)
    (event,) = two.agents[PRIMARY].broker.events
    assert isinstance(event, Arrived)
    assert event.request.plan == "c1"


def test_a_model_that_is_unknown_to_all_is_rejected_in_words() -> None:
    two = both()
    two.ask(contract="c7")
    outcome = two.outcomes[1]
    assert isinstance(outcome, Rejected)
    assert outcome.detail == "the model was replaced while the agent was away"


def stream(number: int = 1, model: str = "double") -> StreamOpened:
    return StreamOpened("", number, model, 1, 33 * MS, D, 0, True)


OPENED = StreamOpened("a", 1, "c1", 1, 33 * MS, D, 0, True)
CLOSED = StreamClosed("a", 1)


def test_streams_move_with_the_requests_and_so_do_their_promises() -> None:
    two = both()
    two.agents[PRIMARY].reply = [Granted("a", 1, "whole")]
    two.tell(stream())
    assert two.stub.promises[1].rung == "whole"
    assert (two.streams(PRIMARY), two.streams(STANDBY)) == ([OPENED], [])
    two.agents[STANDBY].reply = [Granted("a", 1, "small")]
    two.disconnect(PRIMARY)
    assert two.stub.promises[1].rung == "small"
    two.restart(PRIMARY)
    assert (two.streams(PRIMARY), two.streams(STANDBY)) == ([OPENED], [OPENED, CLOSED])
    assert two.stub.promises[1].rung is None
    two.says(STANDBY, Granted("a", 1, "small"))
    assert two.stub.promises[1].rung is None


def test_streams_are_announced_before_their_frames() -> None:
    two = Two()
    two.tell(stream())
    two.ask()
    two.connect(PRIMARY)
    assert [type(event) for event in two.agents[PRIMARY].broker.events] == [StreamOpened, Arrived]


def test_an_agent_whose_connection_was_lost_is_told_of_its_streams_again() -> None:
    two = both()
    two.agents[PRIMARY].reply = [Granted("a", 1, "whole")]
    two.tell(stream())
    two.disconnect(STANDBY)
    two.disconnect(PRIMARY)
    assert (two.stub.promises[1].rung, two.stub.promises[1].reason) == (None, "agent")
    two.connect(PRIMARY)
    assert two.streams(PRIMARY) == [OPENED, OPENED]


def test_what_found_no_room_is_announced_when_something_else_happens_and_not_at_once() -> None:
    two = both()
    two.full = True
    two.tell(stream())
    assert two.streams(PRIMARY) == []
    two.full = False
    two.tell(Tick())
    assert two.streams(PRIMARY) == [OPENED]
    two.full = True
    two.tell(StreamClosed("", 1))
    two.full = False
    two.tell(Tick())
    assert two.streams(PRIMARY) == [OPENED, CLOSED]


def test_a_stopped_primary_learns_that_its_streams_have_left_and_come_back() -> None:
    two = both()
    two.tell(stream())
    two.stop(PRIMARY)
    two.ask()
    two.until(two.now + D // 2)
    assert two.streams(STANDBY) == [OPENED]
    two.go_on(PRIMARY)
    assert two.streams(PRIMARY) == [OPENED, CLOSED, OPENED]
    assert two.streams(STANDBY) == [OPENED, CLOSED]


def test_a_stream_is_not_announced_to_a_standby_with_another_version() -> None:
    two = both({"c2": plan()})
    two.tell(stream())
    two.disconnect(PRIMARY)
    assert two.streams(STANDBY) == []
    assert (two.stub.promises[1].rung, two.stub.promises[1].reason) == (None, "contract")


def test_what_a_stranger_says_is_nobodys_word() -> None:
    two = both()
    two.tell(stream())
    for event in (LinkUp("x"), LinkDown("x"), Received("x", StreamState(1, "whole")), SendFailed("x", Bye("closing"))):
        two.tell(event)
    assert two.stub.promises[1].rung is None
    assert two.stub.asking == PRIMARY
