"""The client and its agent's broker in one loop, joined directly: the machine of the embedded form.

It is the same `Outcomes` and the same broker as of two processes; what would be a message is a call. Neither is told apart
from the other by a flag: what the broker resolves is an event of the client's machine, which has the last word and its own
timer here as well, so that a fault in the broker cannot hang a caller.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.agents import PRIMARY
from edge.announced import MAX_STREAMS, NOTHING_YET, StreamPromise, check_announcement
from edge.client_events import AgentAttached, Ask, Asked, ClientEvent, Closed, Connected, Drop
from edge.door import choose_model
from edge.outcomes import Counts, Outcomes
from edge.stub import Given, announcement_of
from shared.errors import InputError, InvariantBroken
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    ClockJumped,
    Event,
    Finished,
    Granted,
    Hold,
    Received,
    Resolve,
    StreamClosed,
    StreamOpened,
    Tick,
    WakeAt,
    Withdrawn,
)
from shared.lateness import Lateness
from shared.padding import as_asked
from shared.ports import Machine
from shared.request import Rejected, Request
from shared.wire.messages import ModelInfo


class Direct:
    """The machine of an application that carries its agent. `client` is its name to the broker, `levels` how many
    priorities there are, `max_streams` how many streams may be open."""

    def __init__(
        self,
        client: str,
        outcomes: Outcomes,
        broker: Machine,
        models: Mapping[str, ModelInfo],
        levels: int,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._client = client
        self._outcomes = outcomes
        self._broker = broker
        self._levels = levels
        self._max_streams = max_streams
        self.models = models
        self.promises: Mapping[int, StreamPromise] = {}
        self._announced: set[int] = set()
        self.faults: dict[str, int] = {}
        self._requests: dict[int, Request] = {}
        self._client_wake_ns: int | None = None
        self._broker_wake_ns: int | None = None
        self._wake_ns: int | None = None
        self._outcomes.handle(Connected(), 0)
        self._outcomes.handle(AgentAttached(1), 0)

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
        """Always: the agent is part of this process."""
        return True

    @property
    def asking(self) -> int:
        """Always the one agent that there is."""
        return PRIMARY

    def defer(self, sequence: int, model: str | None, given: Given) -> None:
        """Never called: the models are known from the start. Raises `InvariantBroken`."""
        raise InvariantBroken(
            f"request {sequence} (model {model}, {len(given)} tensors) was deferred by an embedded agent"
        )

    def forget(self, sequence: int) -> None:
        """Nothing was deferred."""

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event of the loop and say what is to be done about it."""
        actions: list[Action] = []
        match event:
            case Received() | Finished():
                self._tell(event, now, actions)
            case Arrived():
                request = event.request
                self._requests[request.sequence] = request
                self._feed(Asked(request.sequence, request.scheduled_ns, request.deadline_ns), now, actions)
            case Withdrawn():
                self._requests.pop(event.sequence, None)
                self._feed(event, now, actions)
            case StreamOpened():
                self._open(event, now, actions)
            case StreamClosed():
                self._shut(event.stream, now, actions)
            case Tick():
                self._wake_ns = None
                self._tick(event, now, actions)
            case ClockJumped():
                self._feed(event, now, actions)
                self._tell(event, now, actions)
            case _:
                self._tell(event, now, actions)
        self._wake(actions)
        return actions

    def close(self, now: int) -> list[Action]:
        """End every open request."""
        actions: list[Action] = []
        self._feed(Closed(), now, actions)
        self._tell(ClientGone(self._client), now, actions)
        return actions

    def _open(self, event: StreamOpened, now: int, actions: list[Action]) -> None:
        if len(self.promises) >= MAX_STREAMS:
            return
        if len(self._announced) >= self._max_streams:
            self._promise(event.stream, StreamPromise(None, "full"))
            return
        try:
            info = choose_model(self.models, event.plan or None)
            check_announcement(announcement_of(event), self._levels, info.max_batch)
        except InputError:
            self._promise(event.stream, StreamPromise(None, "input"))
            return
        self._promise(event.stream, NOTHING_YET)
        self._announced.add(event.stream)
        self._tell(msgspec.structs.replace(event, client=self._client, plan=info.contract), now, actions)

    def _shut(self, stream: int, now: int, actions: list[Action]) -> None:
        self.promises = {known: promise for known, promise in self.promises.items() if known != stream}
        if stream in self._announced:
            self._announced.discard(stream)
            self._tell(StreamClosed(self._client, stream), now, actions)

    def _promise(self, stream: int, promise: StreamPromise) -> None:
        """`promises` is replaced, never changed, so that any thread may read it."""
        self.promises = {**self.promises, stream: promise}

    def _granted(self, granted: Granted) -> None:
        if granted.stream in self.promises:
            self._promise(granted.stream, StreamPromise(granted.rung or None, granted.reason))
        else:
            self.counts.ignored += 1

    def _tick(self, event: Tick, now: int, actions: list[Action]) -> None:
        if self._broker_wake_ns is not None and self._broker_wake_ns <= now:
            self._broker_wake_ns = None
            self._tell(event, now, actions)
        if self._client_wake_ns is not None and self._client_wake_ns <= now:
            self._client_wake_ns = None
            self._feed(event, now, actions)

    def _feed(self, event: ClientEvent, now: int, actions: list[Action]) -> None:
        for action in self._outcomes.handle(event, now):
            match action:
                case Resolve():
                    actions.append(self._as_asked(action, self._requests.pop(action.sequence, None)))
                case WakeAt():
                    self._client_wake_ns = action.at_ns
                case Ask():
                    self._ask(self._requests[action.sequence], now, actions)
                case Drop():
                    self._tell(Withdrawn(self._client, action.sequence), now, actions)
                case _:
                    pass

    def _as_asked(self, resolve: Resolve, request: Request | None) -> Resolve:
        """An outcome without what belongs to the padding of its request."""
        if request is None or not request.length:
            return resolve
        self.counts.padded += 1
        padding = next((info.padding for info in self.models.values() if info.contract == request.plan), None)
        return msgspec.structs.replace(resolve, outcome=as_asked(resolve.outcome, padding, request.length))

    def _ask(self, request: Request, now: int, actions: list[Action]) -> None:
        if request.priority < self._levels:
            self._tell(Arrived(request), now, actions)
            return
        refusal = Rejected("input", f"priority: expected 0 to {self._levels - 1}, got {request.priority}")
        self._feed(Resolve(self._client, request.sequence, refusal), now, actions)

    def _tell(self, event: Event, now: int, actions: list[Action]) -> None:
        for action in self._broker.handle(event, now):
            match action:
                case WakeAt():
                    self._broker_wake_ns = action.at_ns
                case Resolve() | Hold():
                    self._feed(action, now, actions)
                case Granted():
                    self._granted(action)
                case _:
                    actions.append(action)

    def _wake(self, actions: list[Action]) -> None:
        wake, other = self._client_wake_ns, self._broker_wake_ns
        if wake is None or (other is not None and other < wake):
            wake = other
        if wake is not None and wake != self._wake_ns:
            self._wake_ns = wake
            actions.append(WakeAt(wake))
