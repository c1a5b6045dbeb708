"""What `headtail replay` prints for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec
from rich.console import Console
from rich.table import Table

from hil.replay_lives import Life, ms
from hil.rerun import Rerun
from partitioner.terminal import PlainConsole
from shared.journal.replay import Difference
from shared.request import Stage

WIDTH = 160
"""Columns where the output is no terminal."""

STAGES: tuple[Stage, ...] = get_args(Stage)


class Summary(msgspec.Struct, frozen=True):
    """What a journal holds and what its replay gave. `first` and `steps` count the machine's life from 0; `replayed` is how
    many steps were the same. `same_code` is whether the machine's modules are those that made it."""

    kind: str
    name: str
    incarnation: int
    headtail: str
    same_code: bool
    saved: str
    reason: str
    stopped: str
    first: int
    steps: int
    replayed: int
    span_ns: int
    events: dict[str, int]
    ends: dict[str, int]
    on_time: int
    raised: str
    difference: Difference | None


def show_summary(summary: Summary) -> None:
    """What the journal holds, and what the replay gave."""
    console = _console()
    last = summary.first + summary.steps - 1
    console.print(
        f"{summary.kind} {summary.name} (incarnation {summary.incarnation}), headtail {summary.headtail or '?'}"
    )
    console.print(f"saved {summary.saved} because: {summary.reason}")
    if summary.stopped:
        console.print(f"recording had stopped before that: {summary.stopped}")
    console.print(f"steps {summary.first} to {last}; those replayed span {summary.span_ns / 1e9:.3f} s")
    console.print("events: " + _counted(summary.events))
    console.print("requests: " + _counted(summary.ends) + f"; on time: {summary.on_time}")
    if summary.raised:
        console.print(f"the last step raised, as it did then: {summary.raised}")
    if summary.difference is None:
        console.print(f"same actions: {summary.replayed} steps, byte for byte")
        return
    console.print(f"NOT THE SAME: {summary.difference}")
    if not summary.same_code:
        console.print("The journal was made by other code than this; replay it with the version that made it.")


def show_rerun(found: Rerun) -> None:
    """What the machine of today did with the events of then."""
    console = _console()
    console.print(f"{found.steps} steps as then; on time: {found.on_time}")
    if found.parted is not None:
        console.print(f"then it went another way: {found.parted}")
    for fault in found.faults:
        console.print(f"FAULT: {fault}")
    if not found.faults:
        console.print("no fault: its books agree, and each request has one outcome, by its deadline")


def show_list(lives: Sequence[Life], kind: str) -> None:
    """A line for each request."""
    console = _console()
    table = Table("request", "number", "at s", "budget ms", "took ms", "end", "on time", "by, or why not")
    table.columns[0].overflow = "fold"
    for column in (1, 2, 3, 4):
        table.columns[column].justify = "right"
    start = lives[0].began_ns if lives else 0
    for life in lives:
        table.add_row(
            life.id,
            str(life.number or ""),
            f"{(life.began_ns - start) / 1e9:.3f}",
            ms(life.budget_ns),
            "" if life.took_ns is None else ms(life.took_ns),
            life.end,
            {None: "", True: "yes", False: "NO"}[life.on_time],
            life.by or life.detail.partition(":")[0],
        )
    console.print(table)
    console.print(f"{len(lives)} {'requests' if kind == 'edge' else 'attempts'}")


def show_life(life: Life) -> None:
    """Every moment of a request, and the table of its stages."""
    console = _console()
    known = f" (number {life.number})" if life.number else ""
    console.print(f"{life.id}{known}: {life.about}; {ms(life.budget_ns)} ms from its beginning to its deadline")
    moments = Table("ms", "what happened")
    moments.columns[0].justify = "right"
    for moment in life.moments:
        moments.add_row(ms(moment.at_ns), moment.what)
    console.print(moments)
    took_ns = life.took_ns
    if took_ns is None:
        console.print("It was still open when the journal was saved.")
        return
    stages = Table("stage", "ms", "of the budget")
    for column in (1, 2):
        stages.columns[column].justify = "right"
    for stage in STAGES:
        if life.stages.get(stage):
            stages.add_row(stage, ms(life.stages[stage]), _share(life.stages[stage], life.budget_ns))
    stages.add_section()
    stages.add_row("in all", ms(took_ns), _share(took_ns, life.budget_ns))
    console.print(stages)
    console.print(f"{life.end} {life.by or life.detail}".rstrip())


def _console() -> Console:
    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=WIDTH)


def _share(span_ns: int, budget_ns: int) -> str:
    return f"{span_ns / budget_ns:.0%}" if budget_ns > 0 else ""


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
