"""The client as the loop sees it: `Outcomes`, with the protocol of the agent around it.

Events of the loop become events of the machine, and its actions become messages. A stub talks to one agent over the link
`AGENT`. What the agent says of its models is kept, also while it is away, so that the caller's door can check requests.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.answers import from_header
from edge.door import bind, choose_model
from edge.outcomes import (
    AgentAttached,
    AgentLost,
    Ask,
    Asked,
    ClientEvent,
    Closed,
    Connected,
    Counts,
    Drop,
    Greet,
    Outcomes,
    Unsent,
)
from shared.errors import InputError, PeerError
from shared.events import (
    Action,
    Arrived,
    ClockJumped,
    Event,
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
from shared.request import Array, Buffer, Missed, Outcome, Rejected, Request, Stage, Superseded
from shared.wire.codec import tensor_of
from shared.wire.messages import (
    PROTOCOL,
    Attach,
    Attached,
    Bye,
    Final,
    Message,
    ModelInfo,
    Provisional,
    Submit,
    Withdraw,
)

AGENT = "agent"
"""Name of the one link."""

GREET_AGAIN = frozenset({"hello", "full"})
"""Farewells of an agent that stays: it does not know this client (any more), or has no room for it just now."""

Given = Mapping[str | None, Array]
"""Tensors as the caller named them, of a request that was made before any agent had attached."""

STAGES: Mapping[str, Stage] = {
    name: name
    for name in (
        "client", "agent", "edge_queue", "head", "codec", "uplink", "cloud_queue", "tail", "downlink", "rung", "hold"
    )
}  # fmt: skip


class Stub:
    """The machine of a client whose agent is another process. `handle` belongs to one loop; `models` may be read anywhere."""

    def __init__(self, client: str, incarnation: int, outcomes: Outcomes) -> None:
        self._client = client
        self._incarnation = incarnation
        self._outcomes = outcomes
        self._requests: dict[int, Request] = {}
        self._given: dict[int, tuple[str | None, Given]] = {}
        self.models: Mapping[str, ModelInfo] = {}
        self._contracts: Mapping[str, ModelInfo] = {}
        self._before: Mapping[str, ModelInfo] = {}
        self.faults: dict[str, int] = {}

    @property
    def counts(self) -> Counts:
        """What came of the requests so far."""
        return self._outcomes.counts

    @property
    def attached(self) -> bool:
        """Whether the agent is there."""
        return self._outcomes.attached

    def defer(self, sequence: int, model: str | None, given: Given) -> None:
        """Say what the caller gave for request `sequence`, before it arrives with no inputs, to be checked at the attach."""
        self._given[sequence] = (model, given)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event of the loop and say what is to be done about it."""
        match event:
            case Arrived():
                return self._arrived(event.request, now)
            case Received():
                return self._received(event.message, event.frames, now)
            case Withdrawn():
                return self._feed(event, now)
            case Tick() | ClockJumped():
                return self._feed(event, now)
            case LinkUp():
                return self._feed(Connected(), now)
            case LinkDown():
                return self._feed(AgentLost(), now)
            case SendFailed(message=Submit() as message):
                return self._feed(Unsent(message.sequence), now)
            case _:
                return []

    def close(self, now: int) -> list[Action]:
        """End every open request and take leave of the agent."""
        farewell: list[Action] = [Send(AGENT, Bye("closing"))] if self._outcomes.attached else []
        return self._feed(Closed(), now) + farewell

    def _arrived(self, request: Request, now: int) -> list[Action]:
        self._requests[request.sequence] = request
        return self._feed(Asked(request.sequence, request.scheduled_ns, request.deadline_ns), now)

    def _received(self, message: Message, frames: tuple[Buffer, ...], now: int) -> list[Action]:
        try:
            event = self._understood(message, frames)
        except PeerError as error:
            self.faults[error.reason] = self.faults.get(error.reason, 0) + 1
            return []
        return [] if event is None else self._feed(event, now)

    def _understood(self, message: Message, frames: tuple[Buffer, ...]) -> ClientEvent | None:
        match message:
            case Attached():
                if message.protocol != PROTOCOL:
                    raise PeerError("version", f"the agent speaks version {message.protocol}, expected {PROTOCOL}")
                self._before = self._contracts
                self._contracts = {info.contract: info for info in message.models}
                self.models = {info.name: info for info in message.models}
                return AgentAttached(message.incarnation)
            case Provisional():
                answer = from_header(message.answer, frames, self._names(message.answer.contract))
                return Hold(self._client, message.sequence, answer)
            case Final():
                return Resolve(
                    self._client, message.sequence, self._outcome(message, frames), message.kind == "provisional"
                )
            case Bye():
                return AgentLost(again=message.reason in GREET_AGAIN)
            case _:
                return None

    def _outcome(self, final: Final, frames: tuple[Buffer, ...]) -> Outcome:
        match final.kind:
            case "answer":
                if final.answer is None:
                    raise PeerError("header", "an answer without its answer")
                return from_header(final.answer, frames, self._names(final.answer.contract))
            case "rejected":
                return Rejected(final.reason, final.detail)
            case "superseded":
                return Superseded()
            case "missed" | "provisional":
                return Missed(STAGES.get(final.reason, "agent"), final.detail)

    def _names(self, contract: str) -> tuple[str, ...]:
        info = self._contracts.get(contract)
        if info is None:
            raise PeerError("contract", f"an answer of the unknown contract {contract[:16]!r}")
        return info.outputs

    def _feed(self, event: ClientEvent, now: int) -> list[Action]:
        actions: list[Action] = []
        for action in self._outcomes.handle(event, now):
            match action:
                case Ask():
                    actions += self._submit(action.sequence, now)
                case Resolve():
                    self._forget(action.sequence)
                    actions.append(action)
                case Drop():
                    actions.append(Send(AGENT, Withdraw(action.sequence)))
                case Greet():
                    actions.append(Send(AGENT, Attach(PROTOCOL, self._client, self._incarnation)))
                case WakeAt():
                    actions.append(action)
        if isinstance(event, Withdrawn):
            self._forget(event.sequence)
        return actions

    def _submit(self, sequence: int, now: int) -> list[Action]:
        try:
            request = self._requests[sequence] = self._bound(self._requests[sequence])
        except InputError as error:
            return self._feed(Resolve(self._client, sequence, Rejected("input", str(error))), now)
        submit = Submit(
            sequence,
            request.plan,
            request.rows,
            request.scheduled_ns,
            request.deadline_ns,
            request.priority,
            request.stream,
            request.latest_wins,
            tuple(tensor_of(array) for array in request.inputs),
        )
        return [Send(AGENT, submit, request.inputs)]

    def _bound(self, request: Request) -> Request:
        """The request for a model that the agent has now: checked only now where it was deferred, and checked again where
        the agent came back with another version of the model. Raises `InputError`."""
        if request.plan in self._contracts:
            return request
        model, given = self._given.pop(request.sequence, (None, {}))
        if request.plan:
            before = self._before.get(request.plan)
            if before is None:
                raise InputError("the model was replaced while the agent was away")
            model = before.name
            given = {spec[0]: array for spec, array in zip(before.inputs, request.inputs, strict=True)}
        info = choose_model(self.models, model)
        inputs, rows = bind(info, given, copy=False)
        return msgspec.structs.replace(request, plan=info.contract, inputs=inputs, rows=rows)

    def _forget(self, sequence: int) -> None:
        self._requests.pop(sequence, None)
        self._given.pop(sequence, None)
