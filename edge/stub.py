"""The client as the loop sees it: `Outcomes`, with the protocol of its agents around it.

Events of the loop become events of the machine, and its actions become messages. A stub talks to its agent over the link
`AGENT`, and to a standby agent, where there is one, over the link `STANDBY_AGENT`. What the agents say of their models is
kept, also while they are away, so that the caller's door can check requests. The primary's word counts; the standby is
asked only for models whose contract is the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.agents import PRIMARY, STANDBY
from edge.announced import Announced, StreamPromise
from edge.answers import from_header
from edge.buckets import bind_to_bucket
from edge.client_events import (
    AgentAttached,
    AgentLost,
    Ask,
    Asked,
    ClientEvent,
    Closed,
    Connected,
    Declined,
    Drop,
    Greet,
    Heard,
    Unsent,
)
from edge.door import Inputs, choose_model
from edge.outcomes import Outcomes
from edge.owed import Counts
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
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.lateness import Lateness
from shared.padding import as_asked, unpad
from shared.request import Array, Buffer, Missed, Outcome, Rejected, Request, Stage, Superseded
from shared.wire.codec import tensor_of
from shared.wire.messages import (
    PROTOCOL,
    Attach,
    Attached,
    Bye,
    CloseStream,
    Final,
    Message,
    ModelInfo,
    OpenStream,
    Provisional,
    StreamState,
    Submit,
    Withdraw,
)

AGENT = "agent"
"""Name of the link to the agent."""

STANDBY_AGENT = "standby"
"""Name of the link to the standby agent."""

LINKS = (AGENT, STANDBY_AGENT)
"""Links by the number of their agent, `PRIMARY` and `STANDBY`."""

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


class _Agent:
    """What one agent has said of itself."""

    __slots__ = ("before", "contracts", "models", "said")

    def __init__(self) -> None:
        self.said: tuple[ModelInfo, ...] = ()
        self.models: Mapping[str, ModelInfo] = {}
        self.contracts: Mapping[str, ModelInfo] = {}
        self.before: Mapping[str, ModelInfo] = {}


class _NotTheSameError(Exception):
    """The standby has not the model that the primary has."""


class Stub:
    """The machine of a client whose agent is another process. `handle` belongs to one loop; `models` and `promises` may be
    read anywhere."""

    def __init__(self, client: str, incarnation: int, outcomes: Outcomes) -> None:
        self._client = client
        self._incarnation = incarnation
        self._outcomes = outcomes
        self._agents = tuple(_Agent() for _ in range(outcomes.agents))
        self._requests: dict[int, Request] = {}
        self._given: dict[int, tuple[str | None, Given]] = {}
        self._streams = Announced(outcomes.agents)
        self.models: Mapping[str, ModelInfo] = {}
        self.faults: dict[str, int] = {}

    @property
    def counts(self) -> Counts:
        """What came of the requests so far."""
        return self._outcomes.counts

    @property
    def lateness(self) -> Lateness:
        """How long after its deadline each outcome was decided."""
        return self._outcomes.lateness

    @property
    def attached(self) -> bool:
        """Whether an agent is there."""
        return self._outcomes.attached

    @property
    def asking(self) -> int | None:
        """The agent that is asked now, `PRIMARY` or `STANDBY`; None where none is there."""
        return self._outcomes.asking

    @property
    def promises(self) -> Mapping[int, StreamPromise]:
        """What the open streams are promised, by their numbers."""
        return self._streams.promises

    def defer(self, sequence: int, model: str | None, given: Given) -> None:
        """Say what the caller gave for request `sequence`, before it arrives with no inputs, to be checked at the attach."""
        self._given[sequence] = (model, given)

    def forget(self, sequence: int) -> None:
        """A request that was deferred will not arrive. From any thread."""
        self._given.pop(sequence, None)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event of the loop and say what is to be done about it."""
        actions = self._handled(event, now)
        if type(event) is SendFailed:
            return actions  # what failed is said again when something else happens: at once it would fail again
        news = self._streams.news(self._outcomes.asking)
        if not news:
            return actions
        said = [self._told(agent, word) for agent, word in news]
        return [*(send for send in said if send is not None), *actions]

    def _handled(self, event: Event, now: int) -> list[Action]:
        match event:
            case Arrived():
                return self._arrived(event.request, now)
            case Received():
                return self._received(event, now)
            case Withdrawn():
                return self._feed(event, now)
            case Tick() | ClockJumped():
                return self._feed(event, now)
            case StreamOpened():
                self._streams.open(announcement_of(event))
                return []
            case StreamClosed():
                self._streams.close(event.stream)
                return []
            case LinkUp():
                agent = self._agent_of(event.link)
                return [] if agent is None else self._feed(Connected(agent), now)
            case LinkDown():
                agent = self._agent_of(event.link)
                return [] if agent is None else self._lost(agent, False, now)
            case SendFailed():
                return self._unsent(event, now)
            case _:
                return []

    def close(self, now: int) -> list[Action]:
        """End every open request and take leave of the agents."""
        there = [link for agent, link in enumerate(self._links()) if self._outcomes.there(agent)]
        return [*self._feed(Closed(), now), *(Send(link, Bye("closing")) for link in there)]

    # --- the links ----------------------------------------------------------------------------------------------------

    def _links(self) -> tuple[str, ...]:
        return LINKS[: len(self._agents)]

    def _agent_of(self, link: str) -> int | None:
        links = self._links()
        return links.index(link) if link in links else None

    def _lost(self, agent: int, again: bool, now: int) -> list[Action]:
        self._streams.lost(agent)
        return self._feed(AgentLost(again, agent), now)

    def _unsent(self, event: SendFailed, now: int) -> list[Action]:
        agent = self._agent_of(event.link)
        if agent is None:
            return []
        match event.message:
            case Submit():
                return self._feed(Unsent(event.message.sequence, agent), now)
            case OpenStream() | CloseStream():
                self._streams.unsaid(agent, event.message.stream)
            case _:
                pass
        return []

    # --- what an agent says -------------------------------------------------------------------------------------------

    def _received(self, event: Received, now: int) -> list[Action]:
        agent = self._agent_of(event.link)
        if agent is None:
            return []
        message = event.message
        try:
            if isinstance(message, Bye):
                return self._lost(agent, message.reason in GREET_AGAIN, now)
            return self._feed(self._understood(agent, message, event.frames), now)
        except PeerError as error:
            self._fault(error.reason)
            return self._feed(Heard(agent), now)

    def _fault(self, reason: str) -> None:
        self.faults[reason] = self.faults.get(reason, 0) + 1

    def _understood(self, agent: int, message: Message, frames: tuple[Buffer, ...]) -> ClientEvent:
        match message:
            case Attached():
                self._introduced(agent, message)
                return AgentAttached(message.incarnation, agent)
            case Provisional():
                answer = from_header(message.answer, frames, self._names(agent, message.answer.contract))
                return Heard(agent, Hold(self._client, message.sequence, answer))
            case Final():
                outcome = self._outcome(agent, message, frames)
                return Heard(agent, Resolve(self._client, message.sequence, outcome, message.kind == "provisional"))
            case StreamState():
                promise = StreamPromise(message.rung or None, message.reason)
                if not self._streams.promised(agent, message.stream, promise):
                    self._outcomes.counts.ignored += 1
                return Heard(agent)
            case _:
                return Heard(agent)

    def _introduced(self, number: int, attached: Attached) -> None:
        """An agent says who it is: it may be the answer to a greeting that only asked whether it lives."""
        if attached.protocol != PROTOCOL:
            raise PeerError("version", f"the agent speaks version {attached.protocol}, expected {PROTOCOL}")
        agent = self._agents[number]
        self._streams.attached(number, attached.incarnation)
        if agent.said == attached.models:
            return
        agent.said = attached.models
        agent.before = agent.contracts
        agent.contracts = {info.contract: info for info in attached.models}
        agent.models = {info.name: info for info in attached.models}
        self.models = self._agents[PRIMARY].models or agent.models
        if len(self._agents) > 1:
            ours, theirs = self._agents[PRIMARY].models, self._agents[STANDBY].models
            for name in ours.keys() & theirs.keys():
                if ours[name].contract != theirs[name].contract:
                    self._fault("standby-contract")

    def _outcome(self, agent: int, final: Final, frames: tuple[Buffer, ...]) -> Outcome:
        match final.kind:
            case "answer":
                if final.answer is None:
                    raise PeerError("header", "an answer without its answer")
                return from_header(final.answer, frames, self._names(agent, final.answer.contract))
            case "rejected":
                return Rejected(final.reason, final.detail)
            case "superseded":
                return Superseded()
            case "missed" | "provisional":
                return Missed(STAGES.get(final.reason, "agent"), final.detail)

    def _names(self, agent: int, contract: str) -> tuple[str, ...]:
        info = self._agents[agent].contracts.get(contract)
        if info is None:
            raise PeerError("contract", f"an answer of the unknown contract {contract[:16]!r}")
        return info.outputs

    # --- what is said to an agent -------------------------------------------------------------------------------------

    def _arrived(self, request: Request, now: int) -> list[Action]:
        self._requests[request.sequence] = request
        return self._feed(Asked(request.sequence, request.scheduled_ns, request.deadline_ns), now)

    def _feed(self, event: ClientEvent, now: int) -> list[Action]:
        actions: list[Action] = []
        for action in self._outcomes.handle(event, now):
            match action:
                case Ask():
                    actions += self._submit(action.sequence, action.agent, now)
                case Resolve():
                    actions.append(self._as_asked(action))
                    self._drop(action.sequence)
                case Drop():
                    actions.append(Send(LINKS[action.agent], Withdraw(action.sequence)))
                case Greet():
                    actions.append(Send(LINKS[action.agent], Attach(PROTOCOL, self._client, self._incarnation)))
                case WakeAt():
                    actions.append(action)
        if isinstance(event, Withdrawn):
            self._drop(event.sequence)
        return actions

    def _submit(self, sequence: int, agent: int, now: int) -> list[Action]:
        try:
            request = self._requests[sequence] = self._bound(self._requests[sequence], agent)
        except InputError as error:
            refusal = Rejected("input", str(error))
            return self._feed(Heard(agent, Resolve(self._client, sequence, refusal)), now)
        except _NotTheSameError:
            return self._feed(Declined(sequence, agent), now)
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
        return [Send(LINKS[agent], submit, request.inputs)]

    def _bound(self, request: Request, agent: int) -> Request:
        """The request for a model that the agent has now: checked only now where it was deferred, and checked again where
        the agent came back with another version of the model. Raises `InputError`, and `_NotTheSameError` where it is the
        standby that has another."""
        known = self._agents[agent]
        if request.plan in known.contracts:
            return request
        model, first = self._given.pop(request.sequence, (None, {}))
        given: Inputs | Given = first
        if request.plan:
            if agent == STANDBY:
                raise _NotTheSameError
            before = self._before(request.plan)
            if before is None:
                raise InputError("the model was replaced while the agent was away")
            model = before.name
            named: dict[str, Array] = {i[0]: array for i, array in zip(before.inputs, request.inputs, strict=True)}
            if before.padding is not None:
                model = before.padding.family
                named = unpad(before.padding, named, request.length) if request.length else named
            given = named
        info, inputs, rows, length = bind_to_bucket(known.models, model, given, copy=False)
        return msgspec.structs.replace(request, plan=info.contract, inputs=inputs, rows=rows, length=length)

    def _before(self, contract: str) -> ModelInfo | None:
        """What a contract was that the primary has no more, or that only the standby has."""
        for agent in self._agents:
            info = agent.contracts.get(contract) or agent.before.get(contract)
            if info is not None:
                return info
        return None

    def _told(self, number: int, word: OpenStream | CloseStream) -> Action | None:
        """What tells an agent of a stream, or of its end; None where the agent has no such model."""
        if isinstance(word, CloseStream):
            return Send(LINKS[number], word)
        try:
            info = choose_model(self._agents[number].models, word.model or None)
        except InputError:
            self._streams.not_announced(number, word.stream, "input")
            return None
        ours = self._agents[PRIMARY].models.get(info.name)
        if ours is not None and ours.contract != info.contract:
            self._streams.not_announced(number, word.stream, "contract")
            return None
        return Send(LINKS[number], msgspec.structs.replace(word, model=info.name))

    def _as_asked(self, resolve: Resolve) -> Resolve:
        """An outcome without what belongs to the padding of its request."""
        request = self._requests.get(resolve.sequence)
        if request is None or not request.length:
            return resolve
        self.counts.padded += 1
        info = self._before(request.plan)
        outcome = as_asked(resolve.outcome, None if info is None else info.padding, request.length)
        return msgspec.structs.replace(resolve, outcome=outcome)

    def _drop(self, sequence: int) -> None:
        self._requests.pop(sequence, None)
        self._given.pop(sequence, None)


def announcement_of(event: StreamOpened) -> OpenStream:
    """What an application has said of a stream: in the client's own events `plan` is the model's name, or empty."""
    return OpenStream(
        event.stream, event.plan, event.rows, event.period_ns, event.deadline_ns, event.priority, event.latest_wins
    )
