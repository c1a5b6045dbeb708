"""`headtail explain --live`: which ways the last requests of a running agent considered, and why one won.

An agent keeps no books of this: its journal holds every event, and its broker is pure, so that running the journal again
makes each choice again, with everything that was weighed. So it costs a serving agent nothing per request but the journal
that it keeps anyway, and works for journals of yesterday as well. Rejected: a ring of choices in the broker (each request
would pay for it, and snapshots would hold it).
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from pathlib import Path

import msgspec

from edge.balance import Considered
from edge.broker import Broker
from hil.explain_why import ChoiceTold, told
from hil.journals import load, named
from hil.replay_edge import EdgeLives
from hil.replay_lives import Life
from shared.errors import InputError, UserError
from shared.events import Arrived
from shared.journal.file import Journal
from shared.journal.keeper import SUFFIX
from shared.journal.replay import Difference, Replay
from shared.settings_file import load_edge

PATIENCE_S = 10.0
"""How long an agent has to save its journal."""

LOOK_S = 0.02


class RequestTold(msgspec.Struct, frozen=True):
    """A request, how it ended, and its choices: the first when it came, more where an attempt came to nothing. `without`
    says why there was none to make."""

    id: str
    number: int
    about: str
    budget_ns: int
    took_ns: int | None
    end: str
    on_time: bool | None
    by: str
    choices: tuple[ChoiceTold, ...]
    without: str


class LiveTold(msgspec.Struct, frozen=True):
    """The last requests of an agent. `difference` is set where this code decides otherwise than the agent's did: what is told
    ends there."""

    agent: str
    saved: str
    requests: tuple[RequestTold, ...]
    difference: Difference | None


def journal_of(where: Path) -> Path:
    """The journal to read: `where` itself, or, where it is an agent's configuration file (`.toml`), the one that the agent
    that runs by it saves now.

    Raises `UserError` where no agent runs by that file, it keeps no journal, or none has come after ten seconds.
    """
    if where.suffix != ".toml":
        return where
    settings = load_edge(where)
    if not settings.journal.events:
        raise UserError(f"{where}: journal.events is 0: the agent keeps no journal, so that nothing can be told of it")
    pid = _pid(settings.agent.endpoint)
    folder = Path(settings.journal.folder or tempfile.gettempdir())
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", settings.agent.name)
    pattern = f"edge-{name}-*-signal{SUFFIX}"
    before = set(folder.glob(pattern))
    try:
        os.kill(pid, signal.SIGUSR1)
    except PermissionError:
        raise UserError(f"{where}: process {pid}, its agent, belongs to somebody else") from None
    except ProcessLookupError:
        raise UserError(f"{where}: no agent runs by it: process {pid} is gone") from None
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        new = sorted(set(folder.glob(pattern)) - before)
        if new:
            return new[-1]
        time.sleep(LOOK_S)
    raise UserError(
        f"{where}: process {pid} saved no journal in {folder} within {PATIENCE_S:g} s; does it run elsewhere?"
    )


def _pid(endpoint: str) -> int:
    """The process that serves at an endpoint: it is written in the lock of its path."""
    if not endpoint.startswith("ipc://"):
        raise UserError(f"agent.endpoint: is {endpoint!r}; expected ipc://PATH of an agent on this host")
    lock = Path(endpoint.removeprefix("ipc://") + ".lock")
    try:
        words = lock.read_text("ascii").split()
    except (OSError, UnicodeDecodeError):
        words = []
    if not words or not words[0].isdigit():
        raise UserError(f"no agent runs at {endpoint}: {lock} names no process")
    return int(words[0])


def explain_journal(path: Path, last: int, wanted: str = "") -> LiveTold:
    """What the last `last` requests of an agent's journal considered, or the one called `wanted`.

    Raises `JournalError` where the file is no journal that can be run again here, `InputError` where it is a node's or holds
    no request called so.
    """
    journal = load(path)
    if journal.head.kind != "edge":
        raise InputError(f"{path}: is the journal of a node; expected an agent's")
    with named(path):
        return explained(journal, last, wanted)


def explained(journal: Journal, last: int, wanted: str = "") -> LiveTold:
    """As `explain_journal`, of a journal that was read already."""
    replay = Replay(journal, states=False)
    broker = replay.machine
    if not isinstance(broker, Broker):
        raise InputError("expected the journal of an agent")
    lives = EdgeLives(broker)
    seen: list[Considered] = []
    choices: dict[str, list[ChoiceTold]] = {}
    without: dict[str, str] = {}
    names: dict[int, str] = {}
    broker.watch(seen.append)
    for step in replay.steps():
        lives.see(step)
        if isinstance(step.event, Arrived):
            life = lives.all[-1]
            names[life.number] = life.id
            if not seen:
                without[life.id] = _without(broker)
        for one in seen:
            # A request that was refused at once has a number that no step shows.
            name = names.setdefault(one.number, lives.all[-1].id)
            choices.setdefault(name, []).append(told(one))
        seen.clear()
    found = [life for life in lives.all if not wanted or wanted in (life.id, str(life.number))]
    if wanted and not found:
        raise InputError(f"--request: {wanted!r:.80} is none of the {len(lives.all)} in this journal")
    return LiveTold(
        agent=journal.head.name,
        saved=journal.head.saved,
        requests=tuple(
            _request(life, tuple(choices.get(life.id, ())), without.get(life.id, "")) for life in found[-last:]
        ),
        difference=replay.difference,
    )


def _request(life: Life, choices: tuple[ChoiceTold, ...], without: str) -> RequestTold:
    return RequestTold(
        id=life.id,
        number=life.number,
        about=life.about,
        budget_ns=life.budget_ns,
        took_ns=life.took_ns,
        end=life.end,
        on_time=life.on_time,
        by=life.by or life.detail,
        choices=choices,
        without=without,
    )


def _without(broker: Broker) -> str:
    states = ", ".join(
        f"{path.node.name if len(path.node.paths) == 1 else path.data} is {path.state.value}"
        for path in broker.nodes.paths()
    )
    return f"no node could be asked: {states}" if states else "there are no nodes"
