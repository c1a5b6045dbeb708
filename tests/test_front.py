from __future__ import annotations

import msgspec
import numpy as np
import pytest

from edge.agents import GREET_NS
from edge.front import Front, model_info, most_rows
from edge.outcomes import Outcomes
from edge.stub import AGENT, Stub
from shared.errors import SettingsError
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    Event,
    Finished,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Send,
    SendFailed,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.fakes import FakeMachine
from shared.plan import PLAN_FORMAT, Cut, Plan, Program, Rung, Segment
from shared.request import (
    EXACT,
    Answer,
    Array,
    Buffer,
    Fidelity,
    Missed,
    Outcome,
    Rejected,
    Request,
    Superseded,
    TensorSpec,
)
from shared.settings import Batching, EdgeLimits, EdgeSettings, NodeAddress
from shared.wire.codec import decode_agent, decode_client, encode, tensor_of
from shared.wire.messages import PROTOCOL, Attach, Attached, Bye, Final, Message, Probe, ProbeReply, Submit, Withdraw
from shared.wire.messages import Load as NodeLoad

MS = 1_000_000
NOW = 10**12
X = np.array([[1, 2, 3]], np.float32)


def plan(name: str = "double", *, batchable: bool = True) -> Plan:
    x, y = TensorSpec("x", "float32", (1, 3)), TensorSpec("y", "float32", (1, 3))
    return Plan(
        format=PLAN_FORMAT,
        name=name,
        model="m",
        opset=17,
        ir_version=8,
        batchable=batchable,
        max_batch=4 if batchable else 1,
        cuts=(Cut("input", (x,)), Cut("output", (y,))),
        programs=(Program("whole", (Segment("s", "s.onnx", ("x",), ("y",)),)),),
        ladder=(Rung("whole", 0, 1.0),),
        routes=(),
        metric="",
        chosen="",
        digests={},
    )


SETTINGS = EdgeSettings(nodes=(NodeAddress(name="n1", endpoint="tcp://127.0.0.1:1"),), limits=EdgeLimits(max_clients=2))


def submit(
    sequence: int = 1, model: str = "c1", array: Array = X, **changes: object
) -> tuple[Message, tuple[Buffer, ...]]:
    fields: dict[str, object] = {
        "rows": 1,
        "scheduled_ns": NOW,
        "deadline_ns": NOW + 10 * MS,
        "priority": 1,
        "stream": 0,
        "latest_wins": False,
    }
    fields.update(changes)
    return Submit(sequence, model, tensors=(tensor_of(array),), **fields), (array.tobytes(),)  # type: ignore[arg-type]


def answer(agreement: float = 1.0) -> Answer:
    fidelity = EXACT if agreement == 1.0 else Fidelity("rung", "small", agreement)
    return Answer({"y": X * 2}, "edge", None, "whole", None, fidelity, "c1")


class Bench:
    """A front whose broker is scripted: `replies` maps what a broker is told to what it wants done."""

    def __init__(self, plans: dict[str, Plan] | None = None) -> None:
        self.broker = FakeMachine(self._script)
        self.reply: list[Action] = []
        self.front = Front(SETTINGS, plans or {"c1": plan()}, 7, self.broker)

    def _script(self, event: Event, now: int) -> list[Action]:
        reply, self.reply = self.reply, []
        return reply

    def say(self, link: str, message: Message, frames: tuple[Buffer, ...] = ()) -> list[Action]:
        return self.front.handle(Received(link, message, frames), NOW)

    def attach(self, link: str = "a") -> None:
        (action,) = self.say(link, Attach(PROTOCOL, "app", 1))
        assert isinstance(action, Send)
        assert isinstance(action.message, Attached)

    def final(self, message: Message, frames: tuple[Buffer, ...], link: str = "a") -> Final:
        (action,) = self.say(link, message, frames)
        assert isinstance(action, Send)
        assert isinstance(action.message, Final)
        return action.message


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.attach()
    return bench


def test_a_greeting_is_answered_with_the_models_and_the_incarnation() -> None:
    (action,) = Bench().say("a", Attach(PROTOCOL, "app", 1))
    assert action == Send("a", Attached(PROTOCOL, "edge", 7, (model_info(plan(), "c1", SETTINGS),)))


def test_a_greeting_in_another_version_is_refused() -> None:
    assert Bench().say("a", Attach(PROTOCOL + 1, "app", 1)) == [Send("a", Bye("version"))]


def test_a_request_reaches_the_broker_as_its_connections_own(bench: Bench) -> None:
    bench.say("a", *submit())
    (event,) = bench.broker.events
    assert isinstance(event, Arrived)
    request = event.request
    assert (request.client, request.sequence, request.plan, request.rows) == ("a", 1, "c1", 1)
    np.testing.assert_array_equal(request.inputs[0], X)


def test_a_model_may_be_asked_for_by_its_name(bench: Bench) -> None:
    bench.say("a", *submit(model="double"))
    assert isinstance(bench.broker.events[0], Arrived)


def test_who_has_not_greeted_is_not_served() -> None:
    bench = Bench()
    assert bench.say("a", *submit()) == [Send("a", Bye("hello"))]
    assert bench.broker.events == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (submit(model="other"), "model 'other' is unknown; the agent has: double"),
        (submit(array=X.astype(np.float64)), "expected dtype float32, got float64"),
        (submit(array=X[:, :2]), "expected shape [1, 3], got [1, 2]"),
        (submit(array=np.zeros((0, 3), np.float32)), "expected shape [1, 3], got [0, 3]"),
        (submit(array=np.zeros((2, 3), np.float32)), "expected shape [1, 3], got [2, 3]"),
        (submit(array=np.zeros((5, 3), np.float32), rows=5), "takes at most 4"),
        (submit(priority=3), "priority: expected 0 to 2, got 3"),
        (submit(deadline_ns=NOW - MS), "deadline"),
        (submit(scheduled_ns=-(1 << 60)), "deadline"),
        (submit(deadline_ns=1 << 62), "deadline"),
    ],
)
def test_a_bad_request_has_its_one_outcome_and_the_broker_never_hears_of_it(
    bench: Bench, bad: tuple[Message, tuple[Buffer, ...]], words: str
) -> None:
    final = bench.final(*bad)
    assert (final.kind, final.reason, final.sequence) == ("rejected", "input", 1)
    assert words in final.detail
    assert bench.broker.events == []


def test_missing_tensors_are_named(bench: Bench) -> None:
    message, _ = submit()
    assert isinstance(message, Submit)
    bare = Submit(1, "c1", 1, NOW, NOW + MS, 1, 0, False, ())
    assert "0 tensors, expected 1 (x)" in bench.final(bare, ()).detail


def test_a_sequence_that_is_open_is_not_taken_twice_and_one_that_is_over_is(bench: Bench) -> None:
    bench.say("a", *submit())
    assert "open already" in bench.final(*submit()).detail
    bench.reply = [Resolve("a", 1, Superseded())]
    bench.front.handle(Tick(), NOW)
    bench.say("a", *submit())
    assert [type(e) for e in bench.broker.events] == [Arrived, Tick, Arrived]


def test_two_clients_may_use_the_same_sequence(bench: Bench) -> None:
    bench.attach("b")
    bench.say("a", *submit())
    bench.say("b", *submit())
    assert [e.request.client for e in bench.broker.events if isinstance(e, Arrived)] == ["a", "b"]


@pytest.mark.parametrize(
    ("outcome", "held", "kind", "reason"),
    [
        (answer(), False, "answer", ""),
        (answer(0.9), True, "provisional", ""),
        (Missed("uplink", "slow"), False, "missed", "uplink"),
        (Rejected("overload"), False, "rejected", "overload"),
        (Superseded(), False, "superseded", ""),
    ],
)
def test_outcomes_go_to_their_client(bench: Bench, outcome: Outcome, held: bool, kind: str, reason: str) -> None:
    bench.say("a", *submit())
    bench.reply = [Resolve("a", 1, outcome, held)]
    (action,) = bench.front.handle(Tick(), NOW)
    assert isinstance(action, Send)
    assert isinstance(action.message, Final)
    assert (action.link, action.message.kind, action.message.reason) == ("a", kind, reason)
    assert len(action.frames) == (1 if kind == "answer" else 0)


def test_withdrawals_and_farewells_reach_the_broker(bench: Bench) -> None:
    bench.say("a", Withdraw(1))
    bench.say("a", Bye("closing"))
    assert bench.broker.events == [Withdrawn("a", 1), ClientGone("a")]
    assert bench.front.clients == 0


def test_a_client_that_cannot_be_reached_is_gone(bench: Bench) -> None:
    bench.front.handle(SendFailed("a", Final(1, "superseded")), NOW)
    bench.front.handle(SendFailed("a", Final(1, "superseded")), NOW)
    assert bench.broker.events == [ClientGone("a")]


def test_one_client_too_many_is_refused_and_the_silent_ones_are_looked_for(bench: Bench) -> None:
    bench.attach("b")
    actions = bench.say("c", Attach(PROTOCOL, "app", 1))
    assert actions[0] == Send("c", Bye("full"))
    assert [a.link for a in actions[1:] if isinstance(a, Send)] == ["a", "b"]
    bench.front.handle(SendFailed("a", Final(1, "superseded")), NOW)
    bench.attach("c")


def test_what_concerns_nodes_and_work_goes_to_the_broker(bench: Bench) -> None:
    events: list[Event] = [
        LinkUp("n1/data"),
        Received("n1/probe", ProbeReply(1, 0, 0, 0, NodeLoad(0, 1))),
        SendFailed("n1/probe", Probe(1, 0, 0, 0)),
        Finished(1, (), 0, 0),
        Tick(),
    ]
    for event in events:
        bench.front.handle(event, NOW)
    assert bench.broker.events == events


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="called the same: double, double"):
        Bench({"c1": plan(), "c2": plan()})


def test_more_models_than_a_greeting_holds_are_refused() -> None:
    with pytest.raises(SettingsError, match="100 models do not fit"):
        Bench({f"c{k}": plan(f"model-number-{k}") for k in range(100)})


def test_a_request_has_no_more_rows_than_a_launch_and_a_message_hold() -> None:
    assert most_rows(plan(), EdgeSettings()) == 4
    assert most_rows(plan(batchable=False), EdgeSettings()) == 1
    assert most_rows(plan(), EdgeSettings(batching=Batching(max_batch_size=2))) == 2
    wide = msgspec.structs.replace(
        plan(), cuts=(Cut("input", (TensorSpec("x", "uint8", (1, 600_000)),)), Cut("output", plan().outputs))
    )
    assert most_rows(wide, EdgeSettings(limits=EdgeLimits(max_message_mb=1))) == 1


def test_a_model_whose_requests_fit_into_no_message_is_refused_with_the_number_that_would_do() -> None:
    wide = msgspec.structs.replace(
        plan(), cuts=(Cut("input", (TensorSpec("x", "uint8", (1, 3 << 20)),)), Cut("output", plan().outputs))
    )
    settings = EdgeSettings(limits=EdgeLimits(max_message_mb=1))
    with pytest.raises(SettingsError, match=r"max_message_mb: a request of model 'double' .* at least 4, got 1"):
        most_rows(wide, settings)


class Joined:
    """A stub and a front that talk through the codec, on virtual time. `up` is the connection."""

    def __init__(self) -> None:
        self.now = NOW
        self.stub = Stub("app", 1, Outcomes("app", 8))
        self.bench = Bench()
        self.outcomes: dict[int, Outcome] = {}
        self.wake_ns: int | None = None
        self.up = True
        self._client(LinkUp(AGENT))

    def _client(self, event: Event) -> None:
        for action in self.stub.handle(event, self.now):
            match action:
                case Send():
                    if self.up:
                        message, frames = decode_client(encode(action.message, action.frames))
                        self._agent(Received("a", message, frames))
                    else:
                        self._client(SendFailed(AGENT, action.message))
                case Resolve():
                    self.outcomes[action.sequence] = action.outcome
                case WakeAt():
                    self.wake_ns = action.at_ns
                case _:
                    raise AssertionError(action)

    def _agent(self, event: Event) -> None:
        for action in self.bench.front.handle(event, self.now):
            if isinstance(action, Send):
                message, frames = decode_agent(encode(action.message, action.frames))
                self._client(Received(AGENT, message, frames))

    def agent(self, *actions: Action) -> None:
        self.bench.reply = list(actions)
        self._agent(Tick())

    def ask(self, sequence: int = 1, deadline_ms: int = 100, priority: int = 1) -> None:
        request = Request("app", sequence, "c1", (X,), 1, self.now, self.now + deadline_ms * MS, priority)
        self._client(Arrived(request))

    def until(self, now: int) -> None:
        while self.wake_ns is not None and self.wake_ns <= now:
            self.now, self.wake_ns = max(self.now, self.wake_ns), None
            self._client(Tick())
        self.now = now


def test_an_answer_comes_through_both_machines_and_the_codec_unchanged() -> None:
    joined = Joined()
    joined.ask()
    joined.agent(Resolve("a", 1, answer()))
    outcome = joined.outcomes[1]
    assert isinstance(outcome, Answer)
    np.testing.assert_array_equal(outcome.outputs["y"], X * 2)
    assert outcome.replace(outputs={}, elapsed_ns=0, stages={}) == answer().replace(outputs={})


def test_a_held_answer_is_kept_by_the_client_and_delivered_when_told() -> None:
    joined = Joined()
    joined.ask()
    joined.agent(Hold("a", 1, answer(0.8)))
    assert joined.outcomes == {}
    joined.agent(Resolve("a", 1, answer(0.8), held=True))
    outcome = joined.outcomes[1]
    assert isinstance(outcome, Answer)
    assert outcome.agreement == 0.8


def test_a_restarted_agent_is_asked_again_for_what_is_open() -> None:
    joined = Joined()
    joined.ask()
    joined.bench = Bench()
    joined.bench.front = Front(SETTINGS, {"c1": plan()}, 8, joined.bench.broker)
    joined._client(LinkUp(AGENT))
    joined._client(Received(AGENT, Bye("hello")))
    joined.until(joined.now + GREET_NS)
    joined.agent(Resolve("a", 1, answer()))
    assert isinstance(joined.outcomes[1], Answer)


def test_a_request_for_a_model_that_was_replaced_meanwhile_is_checked_against_the_new_one() -> None:
    joined = Joined()
    joined.up = False
    joined.ask()
    joined.bench = Bench({"c9": plan()})
    joined.up = True
    joined._client(LinkDown(AGENT))
    joined._client(LinkUp(AGENT))
    (event,) = joined.bench.broker.events
    assert isinstance(event, Arrived)
    assert event.request.plan == "c9"


def test_a_request_for_a_model_that_is_gone_meanwhile_is_rejected_in_words() -> None:
    joined = Joined()
    joined.up = False
    joined.ask()
    joined.bench = Bench({"c9": plan("other")})
    joined.up = True
    joined._client(LinkDown(AGENT))
    joined._client(LinkUp(AGENT))
    outcome = joined.outcomes[1]
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.detail) == ("input", "model 'double' is unknown; the agent has: other")


def test_a_request_that_found_no_room_is_handed_over_later() -> None:
    joined = Joined()
    joined.up = False
    joined.ask()
    assert joined.bench.broker.events == []
    joined.up = True
    joined.until(joined.now + 5 * MS)
    assert [type(e) for e in joined.bench.broker.events] == [Arrived]
