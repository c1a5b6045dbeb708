"""`headtail deadletters WHERE`: the requests of an agent or a node that came to nothing, and why.

    headtail deadletters ipc:///tmp/headtail-edge          of a running agent
    headtail deadletters tcp://192.0.2.10:7711             of a running node that shows them (node.show_dead_letters)
    headtail deadletters edge.journal                      of a journal, or of the newest in a folder
    headtail deadletters WHERE --reason expired --last 20  those of one reason, the last
    headtail deadletters ENDPOINT --replay                 asks those whose inputs were kept once more

Exit status 0; with `--replay` 1 where one that was asked again has no answer in time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from hil.letters_ask import Told, again, letters_of
from partitioner.terminal import PlainConsole
from shared.errors import InputError
from shared.letters import Letter, LetterList

WIDTH = 160
"""Columns where the output is no terminal."""


class Shown(msgspec.Struct, frozen=True):
    """What is printed as JSON: the letters of a process that were asked for, and what came of those that were asked again."""

    name: str
    kind: str
    incarnation: int
    now_ns: int
    forgotten: int
    letters: tuple[Letter, ...]
    again: tuple[Told, ...]


def main(
    where: Annotated[
        str, typer.Argument(help="ipc://PATH of an agent, tcp://HOST:PORT of a node, a journal, a folder.")
    ],
    reason: Annotated[
        list[str] | None,
        typer.Option(help="Only those with this reason (missed, late, expired, ...); may be repeated."),
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="So many, the last.")] = 100,
    replay: Annotated[bool, typer.Option("--replay", help="Ask those whose inputs were kept once more.")] = False,
    deadline_ms: Annotated[
        float, typer.Option(min=0.0, max=60_000.0, help="With --replay: within this time, instead of that of then.")
    ] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the requests of an agent or a node that ended without an answer in time, with the reason, and ask them again."""
    if replay and "://" not in where:
        raise InputError("--replay: a journal holds no inputs; give the endpoint of the agent or node")
    if deadline_ms and not replay:
        raise InputError("--deadline-ms: nothing is asked again without --replay")
    told = letters_of(where)
    chosen = tuple(letter for letter in told.letters if not reason or letter.reason in reason)[-last:]
    results = tuple(again(where, told, chosen, deadline_ms)) if replay else ()
    if json:
        found = Shown(told.name, told.kind, told.incarnation, told.now_ns, told.forgotten, chosen, results)
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        _show(told, chosen)
        for missing in sorted({*(reason or ())} - {letter.reason for letter in told.letters}):
            _console().print(f"no letter has the reason {missing!r}; there are: {_reasons(told.letters) or 'none'}")
        if replay:
            _show_again(chosen, results)
    if any(one.outcome != "answer" for one in results):
        raise typer.Exit(1)


def _show(told: LetterList, letters: Sequence[Letter]) -> None:
    console = _console()
    table = Table(
        "letter", "ago s", "who asked", "request", "model", "class", "budget ms", "took ms", "reason", "detail"
    )
    table.columns[2].overflow = table.columns[9].overflow = "fold"
    for column in (0, 1, 5, 6, 7):
        table.columns[column].justify = "right"
    for letter in letters:
        attempt = f"/{letter.attempt}" if letter.attempt else ""
        table.add_row(
            f"{letter.number}{'*' * bool(letter.tensors)}",
            f"{(told.now_ns - letter.ended_ns) / 1e9:.1f}",
            letter.who,
            f"{letter.sequence}{attempt}",
            letter.model or letter.contract[:12],
            str(letter.priority),
            f"{(letter.due_ns - letter.came_ns) / 1e6:.1f}",
            f"{(letter.ended_ns - letter.came_ns) / 1e6:.1f}",
            letter.reason,
            letter.detail or _most(letter),
        )
    console.print(table)
    kept = sum(bool(letter.tensors) for letter in letters)
    console.print(
        f"{told.kind} {told.name}: {len(letters)} letters ({_reasons(letters) or 'none'}); inputs kept of {kept} (*)"
    )
    if told.forgotten:
        console.print(f"{told.forgotten} older ones had to make room")


def _reasons(letters: Sequence[Letter]) -> str:
    return ", ".join(f"{name} {count}" for name, count in Counter(x.reason for x in letters).most_common())


def _show_again(letters: Sequence[Letter], results: Sequence[Told]) -> None:
    console = _console()
    if not results:
        console.print("None was asked again: the inputs of none were kept (dead_letters.inputs).")
        return
    then = {letter.number: letter.reason for letter in letters}
    table = Table("letter", "then", "now", "took ms", "detail")
    for one in results:
        table.add_row(str(one.number), then[one.number], one.outcome, f"{one.took_ms:.1f}", one.detail)
    console.print(table)


def _most(letter: Letter) -> str:
    """Where most of its time went."""
    if not letter.stages:
        return ""
    stage = max(letter.stages, key=lambda s: letter.stages.get(s, 0))
    return f"{stage} {letter.stages[stage] / 1e6:.1f} ms"


def _console() -> PlainConsole:
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=WIDTH)
