"""The client and its agent's broker in one loop, joined directly: the machine of the embedded form.

The same broker as of two processes; what would be a message is a call. There is one agent, which is there as long as the
client is, so that of a client whose agents may die (`edge.outcomes`) only what is owed to the callers is left (`edge.owed`).

The broker owns each request's timer: it gives one outcome a guard before the deadline, and wakes the loop for it. The books
here have the last word all the same, with a timer at the deadline itself. It costs a place in a heap, and is enough: a
broker that breaks ends the loop, and with it every ticket; one that forgets a request, or never answers it, hangs no caller;
and what it says of a request that is over is not heard. An answer that it holds is kept here as well, and given where it
fails to give it itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from edge.agents import PRIMARY
from edge.announced import MAX_STREAMS, NOTHING_YET, StreamPromise, check_announcement
from edge.door import choose_model
from edge.due import NEVER_NS
from edge.owed import Counts, Entry, Owed
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
    """The machine of an application that carries its agent. `client` is its name to the broker, `max_open` bounds its open
    requests, `levels` is how many priorities there are, `max_streams` how many streams may be open."""

    def __init__(
        self,
        client: str,
        max_open: int,
        broker: Machine,
        models: Mapping[str, ModelInfo],
        levels: int,
        max_streams: int = MAX_STREAMS,
    ) -> None:
        self._client = client
        self.owed: Owed[Entry] = Owed(client, max_open)
        self._broker = broker
        self._levels = levels
        self._max_streams = max_streams
        self.models = models
        self.promises: Mapping[int, StreamPromise] = {}
        self._announced: set[int] = set()
        self.faults: dict[str, int] = {}
        self._padded: dict[int, Request] = {}
        """Open requests whose outcomes are cut to what was asked."""
        self._broker_wake_ns = NEVER_NS
        self._wake_ns: int | None = None
        self.counts: Counts = self.owed.counts
        self.lateness: Lateness = self.owed.lateness
        self.counts.attaches = 1

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
                self._arrived(event, now, actions)
            case Withdrawn():
                if self.owed.withdraw(event.sequence) is not None:
                    self._padded.pop(event.sequence, None)
                    self._tell(Withdrawn(self._client, event.sequence), now, actions)
            case StreamOpened():
                self._open(event, now, actions)
            case StreamClosed():
                self._shut(event.stream, now, actions)
            case Tick():
                self._wake_ns = None
                self._tick(event, now, actions)
            case ClockJumped():
                self._end(self.owed.jumped(event.jump_ns, now), actions)
                self._tell(event, now, actions)
            case _:
                self._tell(event, now, actions)
        self._wake(actions)
        return actions

    def close(self, now: int) -> list[Action]:
        """End every open request."""
        actions: list[Action] = []
        self._end(self.owed.close(now), actions)
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
        if self._broker_wake_ns <= now:
            self._broker_wake_ns = NEVER_NS
            self._tell(event, now, actions)
        if self.owed.due.soonest() <= now:
            self.owed.margin.woke(event.late_ns)
            self._end(self.owed.overdue(now, "the agent did not answer"), actions)

    def _arrived(self, event: Arrived, now: int, actions: list[Action]) -> None:
        request = event.request
        sequence, scheduled = request.sequence, request.scheduled_ns
        entry = Entry(scheduled if scheduled < now else now, request.deadline_ns)
        if request.length:
            self._padded[sequence] = request
        refusal = self.owed.take(sequence, scheduled, entry, now)
        if refusal is not None:
            self._end((refusal,), actions)
            return
        if request.priority < self._levels:
            self._tell(event, now, actions)
            return
        why = f"priority: expected 0 to {self._levels - 1}, got {request.priority}"
        self._end((self.owed.settle(Resolve(self._client, sequence, Rejected("input", why)), entry, now),), actions)

    def _tell(self, event: Event, now: int, actions: list[Action]) -> None:
        for action in self._broker.handle(event, now):
            match action:
                case Resolve():
                    entry = self.owed.open.get(action.sequence)
                    if entry is None:
                        self.counts.ignored += 1
                    else:
                        self._end((self.owed.settle(action, entry, now),), actions)
                case WakeAt():
                    self._broker_wake_ns = action.at_ns
                case Hold():
                    self.owed.keep(action, now)
                case Granted():
                    self._granted(action)
                case _:
                    actions.append(action)

    def _end(self, ended: Iterable[Resolve], actions: list[Action]) -> None:
        """Requests are over: their outcomes, without what belongs to their padding."""
        actions += map(self._as_asked, ended) if self._padded else ended

    def _as_asked(self, resolve: Resolve) -> Resolve:
        request = self._padded.pop(resolve.sequence, None)
        if request is None:
            return resolve
        self.counts.padded += 1
        padding = next((info.padding for info in self.models.values() if info.contract == request.plan), None)
        return msgspec.structs.replace(resolve, outcome=as_asked(resolve.outcome, padding, request.length))

    def _wake(self, actions: list[Action]) -> None:
        wake = min(self.owed.due.soonest(), self._broker_wake_ns)
        if wake < NEVER_NS and wake != self._wake_ns:
            self._wake_ns = wake
            actions.append(WakeAt(wake))
