"""`headtail replay FILE`: runs a journal through its machine again, and shows what happened to each request.

    headtail replay FILE                      what it holds, and whether the machine does the same again
    headtail replay FILE --list [--missed]    its requests and how each ended
    headtail replay FILE --request ID         the life of one of them, moment by moment, and its stages
    headtail replay FILE --rerun              as a test: whether the machine of today keeps its promise with these events

Exit status 0 where every action was the same, 1 at the first difference (what is shown ends there), 2 where the file is no
journal that can be replayed here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cloud.session import Session
from edge.broker import Broker
from hil.journals import load, named
from hil.replay_edge import EdgeLives
from hil.replay_lives import Life, Lives
from hil.replay_node import NodeLives
from hil.replay_show import Summary, show_life, show_list, show_rerun, show_summary
from hil.rerun import rerun
from shared.errors import InputError, InvariantBroken
from shared.journal.file import Journal
from shared.journal.keeper import code_digest
from shared.journal.replay import Replay


def run_again(journal: Journal) -> tuple[Summary, list[Life]]:
    """Replay a journal: what came of it, and the lives of its requests."""
    replay = Replay(journal)
    lives = _lives_of(replay.machine)
    events: Counter[str] = Counter()
    replayed = 0
    began_ns = ended_ns = None
    raised = ""
    for step in replay.steps():
        lives.see(step)
        events[type(step.event).__name__] += 1
        replayed += 1
        began_ns = step.now_ns if began_ns is None else began_ns
        ended_ns = step.now_ns
        raised = step.raised
    head = journal.head
    summary = Summary(
        kind=head.kind,
        name=head.name,
        incarnation=head.incarnation,
        headtail=head.headtail,
        same_code=head.code in ("", code_digest(journal.kind)),
        saved=head.saved,
        reason=head.reason,
        stopped=head.stopped,
        first=journal.first,
        steps=sum(len(segment.records) for segment in journal.segments),
        replayed=replayed,
        span_ns=0 if began_ns is None or ended_ns is None else ended_ns - began_ns,
        events=dict(events.most_common()),
        ends=dict(Counter(life.end for life in lives.all).most_common()),
        on_time=sum(life.on_time is True for life in lives.all),
        raised=raised,
        difference=replay.difference,
    )
    return summary, lives.all


def find(lives: Sequence[Life], wanted: str) -> Life:
    """The life of this name or number, the last where a client used a sequence twice. Raises `InputError` where there is
    none."""
    for life in reversed(lives):
        if life.id == wanted or (life.number and str(life.number) == wanted):
            return life
    example = f", as {lives[-1].id}" if lives else ""
    raise InputError(
        f"--request: {wanted!r:.80} is none of the {len(lives)} in this journal{example}; --list names them"
    )


def _lives_of(machine: object) -> Lives:
    if isinstance(machine, Broker):
        return EdgeLives(machine)
    if isinstance(machine, Session):
        return NodeLives(machine)
    raise InvariantBroken(f"nobody reads the requests of a {type(machine).__name__}")


def main(
    file: Annotated[Path, typer.Argument(help="A journal, as agent and node save it.")],
    request: Annotated[
        str,
        typer.Option(
            help="Show the life of this request: CLIENT:SEQUENCE or its number; of an attempt, as --list says."
        ),
    ] = "",
    listed: Annotated[bool, typer.Option("--list", help="List the requests and how each ended.")] = False,
    missed: Annotated[
        bool, typer.Option("--missed", help="List only those not answered on time, by its process's clock.")
    ] = False,
    last: Annotated[int, typer.Option(min=1, help="List so many, the last.")] = 100,
    again: Annotated[
        bool, typer.Option("--rerun", help="Go on after a difference: does today's machine do right?")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a journal through its machine again: is everything the same, and what happened to each request? Exit status 1 at
    the first difference."""
    if again:
        _rerun(file, json=json)
        return
    journal = load(file)
    with named(file):
        summary, lives = run_again(journal)
    if request:
        life = find(lives, request)
        _print(life) if json else show_life(life)
    elif listed or missed:
        chosen = [life for life in lives if not missed or life.on_time is False][-last:]
        _print(chosen) if json else show_list(chosen, summary.kind)
    else:
        _print(summary) if json else show_summary(summary)
    if summary.difference is not None:
        if not json and (request or listed or missed):
            sys.stderr.write(f"headtail: the replay ended early: {summary.difference}\n")
        raise typer.Exit(1)


def _rerun(file: Path, *, json: bool) -> None:
    journal = load(file)
    with named(file):
        found = rerun(journal)
    _print(found) if json else show_rerun(found)
    if found.faults:
        raise typer.Exit(1)


def _print(found: object) -> None:
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
