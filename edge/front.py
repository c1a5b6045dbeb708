"""The agent as the loop sees it: its clients in front of its broker.

What a client sends is checked again here, whatever its own stub has checked: a client may be written in any language. A bad
request gets its one outcome, `Rejected("input")` with the reason in words; a bad greeting gets a `Bye`; neither touches
what others have asked. A client is known by its connection, so that none can speak in another's name.

A client that vanishes without a word is noticed when something is sent to it. At the limit of clients every known one is
sent its greeting again, and every second those that have streams and have been quiet are told again what these are
promised: harmless to the living, and it finds the dead, whose streams would keep promises from others. That is seen to
with whatever else happens: while nothing happens nobody is kept from anything, so that no timer is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.announced import check_announcement
from edge.answers import to_header
from edge.door import MAX_DEADLINE_NS
from edge.paths import of_node
from shared.errors import InputError, SettingsError
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    Event,
    Granted,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Send,
    SendFailed,
    StreamClosed,
    StreamOpened,
    Withdrawn,
)
from shared.message_sizes import rows_in_a_message
from shared.plan import Plan
from shared.ports import Machine
from shared.request import Answer, Buffer, Missed, Rejected, Request, Superseded
from shared.settings import EdgeSettings
from shared.slots import rows_bound
from shared.wire.codec import array_of
from shared.wire.families import family_faults
from shared.wire.messages import (
    MAX_HEADER,
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

QUIET_NS = 1_000_000_000
"""A client with streams that has said nothing for so long is told again what they are promised, to see whether it lives."""


class _Session:
    """One attached client: its open requests, its streams with what they were last said to be promised, its last word."""

    __slots__ = ("heard_ns", "requests", "streams")

    def __init__(self) -> None:
        self.requests: set[int] = set()
        self.streams: dict[int, StreamState] = {}
        self.heard_ns = 0


def most_rows(plan: Plan, settings: EdgeSettings) -> int:
    """The most rows that one request may have: what a launch takes, and what every message holds that it may lead to.

    Raises `SettingsError` where not even one row fits into a message, by a route whose coding is at its worst, for instance.
    Without nodes no route is taken.
    """
    most = rows_bound(plan, settings.batching.max_batch_size)
    asked = plan if settings.nodes else msgspec.structs.replace(plan, routes=())
    return rows_in_a_message(asked, most, settings.limits.max_message_mb)


def model_info(plan: Plan, contract: str, settings: EdgeSettings) -> ModelInfo:
    """What a client is told of a plan. Raises `SettingsError` as `most_rows`."""
    return ModelInfo(
        name=plan.name,
        contract=contract,
        inputs=tuple((spec.name, spec.dtype, spec.shape) for spec in plan.inputs),
        outputs=tuple(spec.name for spec in plan.outputs),
        batchable=plan.batchable,
        max_batch=most_rows(plan, settings),
        padding=plan.padding,
    )


def model_infos(plans: Mapping[str, Plan], settings: EdgeSettings) -> dict[str, ModelInfo]:
    """What clients are told of these plans (by contract digest), by name. Raises `SettingsError` as `most_rows`, and for
    models that could not be told apart by what a client asks for."""
    infos = [model_info(plan, contract, settings) for contract, plan in plans.items()]
    found = {info.name: info for info in infos}
    if len(found) < len(infos):
        raise SettingsError(f"agent.models: two bundles are called the same: {', '.join(i.name for i in infos)}")
    for fault in family_faults(infos):
        raise SettingsError(f"agent.models: {fault}")
    return found


class Front:
    """The agent's machine: clients and their requests around `broker`, which sees only what has been checked.

    `plans` by contract digest. Raises `SettingsError` as `model_infos`, and where so many are served that the greeting would
    not fit into a header.
    """

    def __init__(self, settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int, broker: Machine) -> None:
        self._broker = broker
        self._plans = plans
        self._levels = settings.scheduling.priority_levels
        self._max_clients = settings.limits.max_clients
        self._max_streams = settings.limits.max_streams
        self._sessions: dict[str, _Session] = {}
        self._streams = 0
        self._look_ns = 0
        models = tuple(model_infos(plans, settings).values())
        self._most_rows = {info.contract: info.max_batch for info in models}
        self._by_name = {info.name: info.contract for info in models}
        self._greeting = Attached(PROTOCOL, settings.agent.name, incarnation, models)
        if len(msgspec.msgpack.encode(self._greeting)) > MAX_HEADER:
            raise SettingsError(f"agent.models: {len(models)} models do not fit into one greeting; serve fewer of them")
        self.refused: dict[str, int] = {}

    @property
    def clients(self) -> int:
        """How many clients are attached."""
        return len(self._sessions)

    @property
    def streams(self) -> int:
        """How many streams they have announced."""
        return self._streams

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event of the loop and say what is to be done about it."""
        actions = self._handled(event, now)
        if self._streams and now >= self._look_ns:
            actions += self._look(now)
        return actions

    def _handled(self, event: Event, now: int) -> list[Action]:
        match event:
            case Received() if not of_node(event.link):
                return self._from_client(event.link, event.message, event.frames, now)
            case SendFailed() if not of_node(event.link):
                return self._gone(event.link, now)
            case LinkDown() if not of_node(event.link):
                return self._gone(event.link, now)
            case LinkUp() if not of_node(event.link):
                return []
            case _:
                return self._tell(event, now)

    def _from_client(self, link: str, message: Message, frames: tuple[Buffer, ...], now: int) -> list[Action]:
        session = self._sessions.get(link)
        if session is not None:
            session.heard_ns = now
        if isinstance(message, Attach):
            return self._attach(link, message, now)
        if isinstance(message, Bye):
            return self._gone(link, now)
        if session is None:
            return self._refuse(link, "hello")
        match message:
            case Submit():
                return self._submit(link, session, message, frames, now)
            case Withdraw():
                session.requests.discard(message.sequence)
                return self._tell(Withdrawn(link, message.sequence), now)
            case OpenStream():
                return self._open(link, session, message, now)
            case CloseStream():
                return self._close(link, session, message.stream, now)
            case _:
                return []

    def _attach(self, link: str, attach: Attach, now: int) -> list[Action]:
        if attach.protocol != PROTOCOL:
            return self._refuse(link, "version")
        if link not in self._sessions:
            if len(self._sessions) >= self._max_clients:
                return [*self._refuse(link, "full"), *(Send(other, self._greeting) for other in self._sessions)]
            session = self._sessions[link] = _Session()
            session.heard_ns = now
        return [Send(link, self._greeting)]

    def _refuse(self, link: str, reason: str) -> list[Action]:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        return [Send(link, Bye(reason))]

    def _gone(self, link: str, now: int) -> list[Action]:
        session = self._sessions.pop(link, None)
        if session is None:
            return []
        self._streams -= len(session.streams)
        return self._tell(ClientGone(link), now)

    def _look(self, now: int) -> list[Action]:
        """Say something to those who have streams and have been quiet."""
        self._look_ns = now + QUIET_NS
        return [
            Send(link, next(iter(session.streams.values())))
            for link, session in self._sessions.items()
            if session.streams and now - session.heard_ns >= QUIET_NS
        ]

    # --- streams ------------------------------------------------------------------------------------------------------

    def _open(self, link: str, session: _Session, message: OpenStream, now: int) -> list[Action]:
        """What was said of the stream before is void, also where the new word is refused."""
        reason = "input"
        contract = self._contract_of(message.model)
        try:
            if contract is None:
                raise InputError(f"model {message.model!r} is unknown")
            check_announcement(message, self._levels, self._most_rows[contract])
            reason = "full"
            if message.stream not in session.streams and self._streams >= self._max_streams:
                raise InputError(f"{self._max_streams} streams are open already")
        except InputError:
            self.refused[reason] = self.refused.get(reason, 0) + 1
            closed = self._close(link, session, message.stream, now)
            return [*closed, Send(link, StreamState(message.stream, "", reason))]
        if message.stream not in session.streams:
            self._streams += 1
            session.streams[message.stream] = StreamState(message.stream, "")
        opened = StreamOpened(
            client=link,
            stream=message.stream,
            plan=contract,
            rows=message.rows,
            period_ns=message.period_ns,
            deadline_ns=message.deadline_ns,
            priority=message.priority,
            latest_wins=message.latest_wins,
        )
        return self._tell(opened, now)

    def _close(self, link: str, session: _Session, stream: int, now: int) -> list[Action]:
        if session.streams.pop(stream, None) is None:
            return []
        self._streams -= 1
        return self._tell(StreamClosed(link, stream), now)

    def _grant(self, granted: Granted) -> list[Action]:
        session = self._sessions.get(granted.client)
        if session is None or granted.stream not in session.streams:
            return []
        state = session.streams[granted.stream] = StreamState(granted.stream, granted.rung, granted.reason)
        return [Send(granted.client, state)]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _contract_of(self, model: str) -> str | None:
        """The contract of a model that is named by that or by its name."""
        return model if model in self._plans else self._by_name.get(model)

    def _submit(
        self, link: str, session: _Session, submit: Submit, frames: tuple[Buffer, ...], now: int
    ) -> list[Action]:
        try:
            request = self._checked(link, session, submit, frames, now)
        except InputError as error:
            self.refused["input"] = self.refused.get("input", 0) + 1
            return [Send(link, Final(submit.sequence, "rejected", reason="input", detail=str(error)))]
        session.requests.add(submit.sequence)
        return self._tell(Arrived(request), now)

    def _checked(self, link: str, session: _Session, submit: Submit, frames: tuple[Buffer, ...], now: int) -> Request:
        contract = self._contract_of(submit.model)
        if contract is None:
            known = ", ".join(sorted(self._by_name))
            raise InputError(f"model {submit.model!r} is unknown; the agent has: {known}")
        if submit.sequence in session.requests:
            raise InputError(f"sequence {submit.sequence} is open already")
        if submit.priority >= self._levels:
            raise InputError(f"priority: expected 0 to {self._levels - 1}, got {submit.priority}")
        if not now - MAX_DEADLINE_NS <= submit.scheduled_ns <= submit.deadline_ns <= now + MAX_DEADLINE_NS:
            raise InputError("deadline: expected scheduled time <= deadline, both within an hour of now")
        plan = self._plans[contract]
        _check_tensors(plan, submit, self._most_rows[contract])
        return Request(
            client=link,
            sequence=submit.sequence,
            plan=contract,
            inputs=tuple(array_of(tensor, frame) for tensor, frame in zip(submit.tensors, frames, strict=True)),
            rows=submit.rows,
            scheduled_ns=submit.scheduled_ns,
            deadline_ns=submit.deadline_ns,
            priority=submit.priority,
            stream=submit.stream,
            latest_wins=submit.latest_wins,
        )

    def _tell(self, event: Event, now: int) -> list[Action]:
        actions: list[Action] = []
        for action in self._broker.handle(event, now):
            match action:
                case Hold():
                    header, arrays = to_header(action.answer)
                    actions.append(Send(action.client, Provisional(action.sequence, header), arrays))
                case Resolve():
                    actions += self._resolve(action)
                case Granted():
                    actions += self._grant(action)
                case _:
                    actions.append(action)
        return actions

    def _resolve(self, resolve: Resolve) -> list[Action]:
        client, sequence, outcome = resolve.client, resolve.sequence, resolve.outcome
        session = self._sessions.get(client)
        if session is None:
            return []
        session.requests.discard(sequence)
        if resolve.held:
            return [Send(client, Final(sequence, "provisional"))]
        match outcome:
            case Answer():
                header, arrays = to_header(outcome)
                return [Send(client, Final(sequence, "answer", header), arrays)]
            case Missed():
                return [Send(client, Final(sequence, "missed", reason=outcome.stage, detail=outcome.detail))]
            case Rejected():
                return [Send(client, Final(sequence, "rejected", reason=outcome.reason, detail=outcome.detail))]
            case Superseded():
                return [Send(client, Final(sequence, "superseded"))]


def _check_tensors(plan: Plan, submit: Submit, most: int) -> None:
    if submit.rows > most:
        raise InputError(f"rows: {submit.rows} are too many; model {plan.name!r} takes at most {most}")
    if len(submit.tensors) != len(plan.inputs):
        names = ", ".join(spec.name for spec in plan.inputs)
        raise InputError(f"inputs: {len(submit.tensors)} tensors, expected {len(plan.inputs)} ({names})")
    for spec, tensor in zip(plan.inputs, submit.tensors, strict=True):
        if tensor.dtype != spec.dtype:
            raise InputError(f"input {spec.name!r}: expected dtype {spec.dtype}, got {tensor.dtype}")
        if tensor.shape != spec.at(submit.rows):
            raise InputError(
                f"input {spec.name!r}: expected shape {list(spec.at(submit.rows))}, got {list(tensor.shape)}"
            )
