"""Asks agents and nodes for their dead letters, reads them off journals, and asks what they held once more."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from cloud.letters import NodeLetters
from cloud.session import Session
from edge.broker import Broker
from edge.client import Client
from edge.letters import EdgeLetters
from hil.journals import load, named
from shared.endpoints import check_endpoint
from shared.errors import HeadtailError, InputError, UserError
from shared.events import Event, LinkUp, Received, Send
from shared.journal.file import Journal
from shared.journal.keeper import SUFFIX
from shared.journal.replay import Replay
from shared.letters import Letter, LetterList, Letters
from shared.ports import Transport
from shared.request import Answer, Buffer, Missed, Outcome, Rejected
from shared.wire.codec import array_of
from shared.wire.messages import PROTOCOL, AskLetters, Bye, Hello, Infer, Message, Refusal, Reply, ToldLetters, Welcome

LINK = "letters"
REACH_S = 10.0
"""How long a process may take to be reached, and to answer."""

TURN_MS = 100
MOST_ATTEMPTS = 10
PAUSE_S = 0.2
GRACE_S = 1.0
"""How long after its deadline the outcome of a request that is asked again is waited for."""

MOST = 10_000
"""Letters that are read off a journal, the last."""

T = TypeVar("T")


class Told(msgspec.Struct, frozen=True):
    """What came of a letter that was asked again: `answer`, or what it ended as; `took_ms` from asking to that."""

    number: int
    outcome: str
    detail: str
    took_ms: float


def letters_of(where: str) -> LetterList:
    """The dead letters of the process at an endpoint (`ipc://`, `tcp://`), of a journal, or of a folder's newest journal.

    Raises `UserError` for a refusal and for what is no such thing, `JournalError`, and `HeadtailError` where nobody answers.
    """
    if "://" in where:
        return ask(where)[0]
    path = Path(where)
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"), key=lambda p: p.stat().st_mtime_ns)
        if not found:
            raise InputError(f"{path}: holds no journal (*{SUFFIX})")
        path = found[-1]
    journal = load(path)
    with named(path):
        return of_journal(journal)


def of_journal(journal: Journal) -> LetterList:
    """The requests of a journal that came to nothing, as it is replayed; what they held is in none."""
    replay = Replay(journal, states=False)
    letters = Letters(MOST, 1 << 62)
    machine, plans = replay.machine, journal.setup.plans
    looking: EdgeLetters | NodeLetters
    if isinstance(machine, Broker):
        looking = EdgeLetters(machine, plans, letters)
    elif isinstance(machine, Session):
        looking = NodeLetters(machine, machine, plans, letters)
    else:
        raise InputError(f"nobody reads the requests of a {type(machine).__name__}")
    now = 0
    for step in replay.steps():
        now = step.now_ns
        looking.see(step.event, step.actions, now)
    head = journal.head
    kind: Literal["agent", "node"] = "node" if isinstance(machine, Session) else "agent"
    return LetterList(head.name, kind, head.incarnation, now, letters.forgotten, letters.all())


def ask(endpoint: str, letter: int = 0) -> tuple[LetterList, tuple[Buffer, ...]]:
    """The letters of the process at `endpoint`, or the one of this number with the frames of its inputs."""
    check_endpoint(endpoint, binds=False)

    def hear(event: Event) -> tuple[LetterList, tuple[Buffer, ...]] | None:
        if not isinstance(event, Received) or not isinstance(event.message, ToldLetters) or event.message.number != 1:
            return None
        if event.message.detail:
            raise UserError(f"{endpoint}: {event.message.detail}")
        try:
            return msgspec.json.decode(bytes(event.frames[0]), type=LetterList), event.frames[1:]
        except (IndexError, msgspec.DecodeError) as error:
            raise UserError(f"{endpoint}: its letters cannot be read: {error}; is it of another version?") from None

    with_link = _open(endpoint, f"asks-{time.monotonic_ns()}")
    try:
        return _converse(with_link, endpoint, lambda: AskLetters(PROTOCOL, 1, letter), hear, REACH_S)
    finally:
        with_link.close()


def again(endpoint: str, told: LetterList, letters: Sequence[Letter], deadline_ms: float = 0.0) -> list[Told]:
    """Ask those of these letters whose inputs were kept once more, one after the other, with the time that they had then or
    `deadline_ms`: what comes of each now."""
    found: list[Told] = []
    client: Client | None = None
    try:
        for letter in letters:
            if not letter.tensors:
                continue
            one, frames = ask(endpoint, letter.number)
            budget_ms = deadline_ms or (letter.due_ns - letter.came_ns) / 1e6
            if told.kind == "node":
                found.append(_ask_node(endpoint, one.letters[0], frames, budget_ms))
                continue
            if client is None:
                client = Client(endpoint, name="deadletters")
                if not client.wait_attached(REACH_S):
                    raise HeadtailError(f"{endpoint}: the agent does not greet")
            found.append(_ask_agent(client, one.letters[0], frames, budget_ms))
    finally:
        if client is not None:
            client.close()
    return found


def _ask_agent(client: Client, letter: Letter, frames: Sequence[Buffer], budget_ms: float) -> Told:
    info = client.models().get(letter.model)
    if info is None:
        return Told(letter.number, "not asked", f"the agent has no model {letter.model!r}", 0.0)
    arrays = [array_of(tensor, frame) for tensor, frame in zip(letter.tensors, frames, strict=True)]
    names = [name for name, _, _ in info.inputs]
    began = time.monotonic()
    try:
        outcome = client.infer(
            dict(zip(names, arrays, strict=True)), budget_ms, model=letter.model, priority=letter.priority
        )
    except ValueError as error:
        return Told(letter.number, "not asked", str(error), 0.0)
    took_ms = (time.monotonic() - began) * 1e3
    return Told(letter.number, *_outcome(outcome), took_ms)


def _outcome(outcome: Outcome) -> tuple[str, str]:
    match outcome:
        case Answer():
            who = outcome.node or "the device"
            return ("answer" if outcome.on_time else "late"), f"{outcome.fidelity} by {who}"
        case Missed():
            return "missed", f"{outcome.stage}: {outcome.detail}".rstrip(": ")
        case Rejected():
            return outcome.reason, outcome.detail
        case _:
            return "superseded", ""


def _ask_node(endpoint: str, letter: Letter, frames: tuple[Buffer, ...], budget_ms: float) -> Told:
    incarnation = time.time_ns()
    peer = f"deadletters-{incarnation}"
    with_link = _open(endpoint, peer, incarnation)
    budget_ns = int(budget_ms * 1e6)
    attempt = 1

    def hear_welcome(event: Event) -> Welcome | None:
        return event.message if isinstance(event, Received) and isinstance(event.message, Welcome) else None

    def hear(event: Event) -> Told | None:
        if not isinstance(event, Received) or not isinstance(event.message, Reply | Refusal):
            return None
        took_ms = (time.monotonic() - began) * 1e3
        if isinstance(event.message, Refusal):
            return Told(letter.number, event.message.reason, event.message.detail, took_ms)
        return Told(letter.number, "answer" if took_ms <= budget_ms else "late", "", took_ms)

    def infer() -> Infer:
        return Infer(
            incarnation=incarnation,
            sequence=letter.number,
            attempt=attempt,
            contract=letter.contract,
            cut=letter.cut,
            coding=letter.coding,
            rows=letter.rows,
            priority=letter.priority,
            budget_ns=budget_ns,
            sent_ns=time.monotonic_ns(),
            tensors=letter.tensors,
        )

    try:
        hello = Hello(PROTOCOL, peer, incarnation, "data", (letter.contract,))
        welcome = _converse(with_link, endpoint, lambda: hello, hear_welcome, REACH_S)
        if letter.contract not in welcome.contracts:
            return Told(letter.number, "not asked", f"the node does not serve contract {letter.contract[:12]}", 0.0)
        patience_s = budget_ms / 1e3 + GRACE_S
        while True:
            began = time.monotonic()
            try:
                found = _converse(with_link, endpoint, infer, hear, patience_s, frames, up=True)
            except HeadtailError:
                return Told(letter.number, "no answer", f"none within {patience_s:.1f} s", patience_s * 1e3)
            if found.outcome != "credit" or attempt == MOST_ATTEMPTS:
                return found
            # All credits are lent: others give some back when they next hear from the node.
            attempt += 1
            time.sleep(PAUSE_S)
    finally:
        with_link.send(Send(LINK, Bye("closing")))
        with_link.close()


def _converse(
    link: Transport,
    endpoint: str,
    say: Callable[[], Message],
    hear: Callable[[Event], T | None],
    patience_s: float,
    frames: tuple[Buffer, ...] = (),
    *,
    up: bool = False,
) -> T:
    """Say something once the link is `up`, and wait for what `hear` makes of an answer. Raises `HeadtailError` where there is
    none."""
    until = time.monotonic() + patience_s
    said = False
    poller = select.poll()
    poller.register(link.fileno(), select.POLLIN)
    while time.monotonic() < until:
        if up and not said:
            said = link.send(Send(LINK, say(), frames))
        for event in link.drain():
            if isinstance(event, LinkUp):
                up, said = True, False
            found = hear(event)
            if found is not None:
                return found
            if isinstance(event, Received) and isinstance(event.message, Bye):
                raise HeadtailError(f"{endpoint}: it refuses to talk: {event.message.reason}")
        if not link.pending():
            poller.poll(TURN_MS if said or not up else 1)
    words = "does not answer: is it an agent or a node of this version?" if up else "cannot be reached"
    raise HeadtailError(f"{endpoint}: {words}")


def _open(endpoint: str, peer: str, incarnation: int = 1) -> Transport:
    try:
        from shared.transport import Dealers
        from shared.wire.codec import decode_node
    except ImportError:
        raise UserError("dead letters of a running process need the package pyzmq (extra edge or cloud)") from None
    dealers = Dealers(peer, incarnation, decode_node)
    dealers.connect(LINK, endpoint)
    return dealers
