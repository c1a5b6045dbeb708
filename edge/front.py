"""The agent as the loop sees it: its clients in front of its broker.

What a client sends is checked again here, whatever its own stub has checked: a client may be written in any language. A bad
request gets its one outcome, `Rejected("input")` with the reason in words; a bad greeting gets a `Bye`; neither touches
what others have asked. A client is known by its connection, so that none can speak in another's name.

A client that vanishes without a word is noticed when something is sent to it. At the limit of clients every known one is
sent its greeting again, which is harmless to the living and finds the dead.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.answers import to_header
from edge.door import MAX_DEADLINE_NS
from shared.errors import InputError, SettingsError
from shared.events import (
    Action,
    Arrived,
    ClientGone,
    Event,
    Hold,
    LinkDown,
    LinkUp,
    Received,
    Resolve,
    Send,
    SendFailed,
    Withdrawn,
)
from shared.plan import Plan
from shared.ports import Machine
from shared.request import Answer, Buffer, Missed, Rejected, Request, Superseded
from shared.settings import EdgeSettings
from shared.slots import rows_bound
from shared.wire.codec import array_of
from shared.wire.messages import (
    MAX_HEADER,
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


def most_rows(plan: Plan, settings: EdgeSettings) -> int:
    """The most rows that one request may have: what a launch takes and what a message holds.

    Raises `SettingsError` where not even one row fits into a message.
    """
    row_bytes = sum(spec.nbytes() for spec in plan.inputs)
    room = (settings.limits.max_message_mb << 20) - MAX_HEADER
    if row_bytes > room:
        raise SettingsError(
            f"limits.max_message_mb: a request of model {plan.name!r} has {row_bytes} bytes; expected at least "
            f"{-(-(row_bytes + MAX_HEADER) // (1 << 20))}, got {settings.limits.max_message_mb}"
        )
    return min(rows_bound(plan, settings.batching.max_batch_size), room // row_bytes)


def model_info(plan: Plan, contract: str, settings: EdgeSettings) -> ModelInfo:
    """What a client is told of a plan. Raises `SettingsError` as `most_rows`."""
    return ModelInfo(
        name=plan.name,
        contract=contract,
        inputs=tuple((spec.name, spec.dtype, spec.shape) for spec in plan.inputs),
        outputs=tuple(spec.name for spec in plan.outputs),
        batchable=plan.batchable,
        max_batch=most_rows(plan, settings),
    )


class Front:
    """The agent's machine: clients and their requests around `broker`, which sees only what has been checked.

    `plans` by contract digest. Raises `SettingsError` where two models share a name, or so many are served that the greeting
    would not fit into a header, or a model's request would not fit into a message.
    """

    def __init__(self, settings: EdgeSettings, plans: Mapping[str, Plan], incarnation: int, broker: Machine) -> None:
        self._broker = broker
        self._plans = plans
        self._levels = settings.scheduling.priority_levels
        self._max_clients = settings.limits.max_clients
        self._node_links = {f"{node.name}/{kind}" for node in settings.nodes for kind in ("data", "probe")}
        self._open: dict[str, set[int]] = {}
        models = tuple(model_info(plan, contract, settings) for contract, plan in plans.items())
        self._most_rows = {info.contract: info.max_batch for info in models}
        self._by_name = {info.name: info.contract for info in models}
        self._greeting = Attached(PROTOCOL, settings.agent.name, incarnation, models)
        if len(self._by_name) < len(models):
            raise SettingsError(f"agent.models: two bundles are called the same: {', '.join(i.name for i in models)}")
        if len(msgspec.msgpack.encode(self._greeting)) > MAX_HEADER:
            raise SettingsError(f"agent.models: {len(models)} models do not fit into one greeting; serve fewer of them")
        self.refused: dict[str, int] = {}

    @property
    def clients(self) -> int:
        """How many clients are attached."""
        return len(self._open)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event of the loop and say what is to be done about it."""
        match event:
            case Received() if event.link not in self._node_links:
                return self._from_client(event.link, event.message, event.frames, now)
            case SendFailed() if event.link not in self._node_links:
                return self._gone(event.link, now)
            case LinkDown() if event.link not in self._node_links:
                return self._gone(event.link, now)
            case LinkUp() if event.link not in self._node_links:
                return []
            case _:
                return self._tell(event, now)

    def _from_client(self, link: str, message: Message, frames: tuple[Buffer, ...], now: int) -> list[Action]:
        if isinstance(message, Attach):
            return self._attach(link, message)
        if isinstance(message, Bye):
            return self._gone(link, now)
        if link not in self._open:
            return self._refuse(link, "hello")
        match message:
            case Submit():
                return self._submit(link, message, frames, now)
            case Withdraw():
                self._open[link].discard(message.sequence)
                return self._tell(Withdrawn(link, message.sequence), now)
            case _:
                return []

    def _attach(self, link: str, attach: Attach) -> list[Action]:
        if attach.protocol != PROTOCOL:
            return self._refuse(link, "version")
        if link not in self._open:
            if len(self._open) >= self._max_clients:
                return [*self._refuse(link, "full"), *(Send(other, self._greeting) for other in self._open)]
            self._open[link] = set()
        return [Send(link, self._greeting)]

    def _refuse(self, link: str, reason: str) -> list[Action]:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        return [Send(link, Bye(reason))]

    def _gone(self, link: str, now: int) -> list[Action]:
        if self._open.pop(link, None) is None:
            return []
        return self._tell(ClientGone(link), now)

    def _submit(self, link: str, submit: Submit, frames: tuple[Buffer, ...], now: int) -> list[Action]:
        try:
            request = self._checked(link, submit, frames, now)
        except InputError as error:
            self.refused["input"] = self.refused.get("input", 0) + 1
            return [Send(link, Final(submit.sequence, "rejected", reason="input", detail=str(error)))]
        self._open[link].add(submit.sequence)
        return self._tell(Arrived(request), now)

    def _checked(self, link: str, submit: Submit, frames: tuple[Buffer, ...], now: int) -> Request:
        contract = submit.model if submit.model in self._plans else self._by_name.get(submit.model)
        if contract is None:
            known = ", ".join(sorted(self._by_name))
            raise InputError(f"model {submit.model!r} is unknown; the agent has: {known}")
        if submit.sequence in self._open[link]:
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
                case _:
                    actions.append(action)
        return actions

    def _resolve(self, resolve: Resolve) -> list[Action]:
        client, sequence, outcome = resolve.client, resolve.sequence, resolve.outcome
        session = self._open.get(client)
        if session is None:
            return []
        session.discard(sequence)
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
