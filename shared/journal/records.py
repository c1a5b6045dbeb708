"""One step of a machine as bytes: when, which event, which actions; and the event back from its bytes.

A record is a msgpack array `[now_ns, event's name, event, actions]`, the actions each `[name, action]`, or in their place
the text of what the machine raised. What holds no tensor is encoded as it is; the few kinds that do have forms of their own
here, in which marks stand for tensors. Events are decoded with types, so that a hostile file is refused at the door. Actions
are never decoded into what they were: a replay compares bytes.

Encoding takes some microseconds, all of it in C but for the forms. Rejected: to keep the objects and encode them when the
ring is saved. They hold frames and arrays, they take three times the memory, the collector looks at them, and a save, which
comes when things go badly, would keep the loop from its work for a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast, get_args

import msgspec
import numpy as np

from shared.errors import InvariantBroken, JournalError
from shared.events import Action, Arrived, Event, Finished, Received, Resolve, RowResult, Run, Send
from shared.journal.marks import Blanks, Mark, mark
from shared.request import Array, Request
from shared.wire.messages import Message

Form = tuple[object, ...]


class Step(msgspec.Struct, frozen=True, gc=False):
    """One event that a machine took at `now_ns`. `record` is all of the step as bytes."""

    now_ns: int
    event: Event
    record: bytes


# --- what goes in ------------------------------------------------------------------------------------------------------


def _received(event: Received) -> Form:
    return (event.link, event.message, tuple(map(mark, event.frames)), event.more)


def _finished(event: Finished) -> Form:
    results = [(result.job, tuple(map(mark, result.outputs)), result.error) for result in event.results]
    return (event.run, results, event.began_ns, event.ended_ns, event.codec_ns)


def _run(run: Run) -> Form:
    rows = [
        (
            row.job,
            row.rows,
            tuple(map(mark, row.inputs)),
            row.decode.name,
            None if row.encode is None else row.encode.name,
        )
        for row in run.rows
    ]
    return (run.run, run.executor, run.contract, run.range, rows, run.slot, run.latest_ns, run.in_place, run.generation)


def _send(send: Send) -> Form:
    return (send.link, send.message, tuple(map(mark, send.frames)))


def _resolve(resolve: Resolve) -> Form:
    outcome = resolve.outcome
    return (resolve.client, resolve.sequence, type(outcome).__name__, outcome, resolve.held)


_FORMS: dict[type, Callable[..., Form]] = {
    Received: _received,
    Finished: _finished,
    Run: _run,
    Send: _send,
    Resolve: _resolve,
}
_KINDS = {kind: (kind.__name__, _FORMS.get(kind)) for kind in (*get_args(Event), *get_args(Action))}
"""By class: its name, and its form where it is not encoded as it is."""


def _array(found: object) -> object:
    if isinstance(found, np.ndarray):
        return mark(cast(Array, found))
    raise InvariantBroken(f"a journal cannot hold a {type(found).__name__}: {found!r:.80}")


_encode = msgspec.msgpack.Encoder(enc_hook=_array).encode


def encode_record(now_ns: int, event: Event, done: Sequence[Action] | str) -> bytes:
    """The record of a step: `done` is the machine's actions, or the text of what it raised.

    Raises `JournalError` where something in it cannot be written (a number beyond 64 bits, text that is no Unicode)."""
    told: list[tuple[str, object]] | str
    if isinstance(done, str):
        told = done
    else:
        told = []
        for action in done:
            name, form = _KINDS[type(action)]
            told.append((name, action if form is None else form(action)))
    name, form = _KINDS[type(event)]
    try:
        return _encode((now_ns, name, event if form is None else form(event), told))
    except (OverflowError, ValueError) as error:
        raise JournalError(f"a step cannot be written: {error}") from None


# --- what comes out ----------------------------------------------------------------------------------------------------


class RequestForm(msgspec.Struct, frozen=True):
    """A `Request` whose `inputs` are marks."""

    client: str
    sequence: int
    plan: str
    inputs: tuple[Mark, ...]
    rows: int
    scheduled_ns: int
    deadline_ns: int
    priority: int
    stream: int
    latest_wins: bool
    length: int = 0


class ArrivedForm(msgspec.Struct, frozen=True):
    """An `Arrived`."""

    request: RequestForm


class ReceivedForm(msgspec.Struct, frozen=True, array_like=True):
    """A `Received` whose `frames` are marks."""

    link: str
    message: Message
    frames: tuple[Mark, ...]
    more: bool = False


class ResultForm(msgspec.Struct, frozen=True, array_like=True):
    """A `RowResult` whose `outputs` are marks."""

    job: int
    outputs: tuple[Mark, ...]
    error: str


class FinishedForm(msgspec.Struct, frozen=True, array_like=True):
    """A `Finished`."""

    run: int
    results: tuple[ResultForm, ...]
    began_ns: int
    ended_ns: int
    codec_ns: int


class _Record(msgspec.Struct, frozen=True, array_like=True):
    now_ns: int
    name: str
    event: msgspec.Raw
    done: msgspec.Raw


class _Told(msgspec.Struct, frozen=True, array_like=True):
    now_ns: int
    name: str
    event: object
    done: list[tuple[str, object]] | str


_record = msgspec.msgpack.Decoder(_Record)
_told = msgspec.msgpack.Decoder(_Told)
_arrived_form = msgspec.msgpack.Decoder(ArrivedForm)
_received_form = msgspec.msgpack.Decoder(ReceivedForm)
_finished_form = msgspec.msgpack.Decoder(FinishedForm)
_PLAIN: dict[str, msgspec.msgpack.Decoder[Event]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind)
    for kind in get_args(Event)
    if kind not in (Arrived, Received, Finished)
}


def decode_record(record: bytes, blanks: Blanks) -> Step:
    """The step of a record, its tensors blank. Raises `JournalError` for what is no record."""
    try:
        found = _record.decode(record)
        return Step(found.now_ns, _event(found.name, found.event, blanks), record)
    except (msgspec.DecodeError, ValueError, RecursionError, MemoryError) as error:
        raise JournalError(f"a record that is none: {error}") from None


def decode_step(number: int, record: bytes, blanks: Blanks) -> Step:
    """The step of a record that has this number. Raises `JournalError` that names the step."""
    try:
        return decode_record(record, blanks)
    except JournalError as error:
        raise JournalError(f"step {number}: {error}") from None


def raised(record: bytes) -> str:
    """The text of what the machine raised at the step of a record; empty where it raised nothing. Raises `JournalError`."""
    done = told(record)
    return done if isinstance(done, str) else ""


def told(record: bytes) -> list[tuple[str, object]] | str:
    """The actions of a record, or the text of what was raised, as msgpack holds them: for a person to read. Raises
    `JournalError` for what is no record."""
    try:
        return _told.decode(record).done
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(f"a record that is none: {error}") from None


def _event(name: str, raw: msgspec.Raw, blanks: Blanks) -> Event:
    match name:
        case "Arrived":
            return Arrived(_request(_arrived_form.decode(raw).request, blanks))
        case "Received":
            received = _received_form.decode(raw)
            return Received(received.link, received.message, _frames(received.frames, blanks), received.more)
        case "Finished":
            ended = _finished_form.decode(raw)
            results = tuple([RowResult(r.job, blanks.tensors(r.outputs), r.error) for r in ended.results])
            return Finished(ended.run, results, ended.began_ns, ended.ended_ns, ended.codec_ns)
        case _:
            decoder = _PLAIN.get(name)
            if decoder is None:
                raise JournalError(
                    f"an event {name!r:.40}; expected one of {', '.join(told for told, _ in _KINDS.values())}"
                )
            return decoder.decode(raw)


def _request(form: RequestForm, blanks: Blanks) -> Request:
    return Request(
        client=form.client,
        sequence=form.sequence,
        plan=form.plan,
        inputs=tuple([blanks.array(each) for each in form.inputs]),
        rows=form.rows,
        scheduled_ns=form.scheduled_ns,
        deadline_ns=form.deadline_ns,
        priority=form.priority,
        stream=form.stream,
        latest_wins=form.latest_wins,
        length=form.length,
    )


def _frames(marked: Sequence[Mark], blanks: Blanks) -> tuple[bytes, ...]:
    frames: list[bytes] = []
    for each in marked:
        frame = blanks.tensor(each)
        if not isinstance(frame, bytes):
            raise JournalError("an array stands where a received frame is expected")
        frames.append(frame)
    return tuple(frames)
