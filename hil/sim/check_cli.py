"""`headtail sim`: the verbs of the simulator. `headtail sim check` runs seeds with all checks on; `headtail sim goodput` is
in `hil.goodput`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Annotated

import msgspec
import typer

from hil.crowd.cli import main as let_play
from hil.goodput.cli import goodput
from hil.pressed.cli import main as press
from hil.regret.cli import main as replay_links
from hil.sim.checks_many import Breach, Task, Verdict, judge_all
from hil.sim.scenario import SCENARIOS
from shared.cli import guarded
from shared.errors import UserError

ALL = "all"
REPEAT_EVERY = 16
"""Each so-manieth seed is run twice, to see that it gives the same trace."""

NO, INTERRUPTED = 1, 130
PROGRESS_S = 0.5


class Failure(msgspec.Struct, frozen=True):
    """A seed that broke a rule, and the command that runs it again."""

    scenario: str
    seed: int
    check: int
    story: str
    told: str
    command: str


class Sum(msgspec.Struct):
    """What all seeds came to so far."""

    scenario: str
    first: int
    jobs: int
    seeds: int = 0
    requests: int = 0
    virtual_s: float = 0.0
    wall_s: float = 0.0
    requests_per_s: float = 0.0
    repeated: int = 0
    interrupted: bool = False
    broken: list[Failure] = []


def group() -> typer.Typer:
    """The group of verbs; `hil.commands` names this function."""
    app = typer.Typer(
        help="Run what would take devices and hours on one virtual clock.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command("check")(guarded(check))
    app.command("regret")(guarded(replay_links))
    app.command("crowd")(guarded(let_play))
    app.command("pressure")(guarded(press))
    app.command("goodput")(guarded(goodput))
    return app


def check(
    seeds: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many seeds to run.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    scenario: Annotated[str, typer.Option(help="What kind of runs, or 'all' in turn.")] = "mixed",
    requests: Annotated[int, typer.Option(min=1, max=1_000_000, help="Requests of each run.")] = 1000,
    jobs: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 is one for each core.")] = 0,
    replay: Annotated[int | None, typer.Option(min=0, help="Run this one seed.")] = None,
    endless: Annotated[
        bool, typer.Option("--endless", help="Go on until interrupted; from the time, not --first.")
    ] = False,
    shrink_s: Annotated[
        float, typer.Option("--shrink", min=0.0, max=3600.0, help="Seconds spent to make a failing run small.")
    ] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run seeds of a scenario and hold every step against the rules of docs/testing.md. Exit status 1 where one is broken."""
    if scenario != ALL and scenario not in SCENARIOS:
        raise UserError(f"scenario {scenario!r} is unknown; expected one of {', '.join(SCENARIOS)}, or {ALL}")
    start = replay if replay is not None else int(time.time()) if endless else first
    many = 1 if replay is not None else None if endless else seeds
    jobs = 1 if many == 1 else jobs or len(os.sched_getaffinity(0))
    total = Sum(scenario, start, jobs)
    _run(total, _tasks(scenario, start, many, requests, shrink_s), many, told=not as_json)
    typer.echo(msgspec.json.format(msgspec.json.encode(total)).decode() if as_json else summary(total))
    if total.broken:
        raise typer.Exit(NO)
    if total.interrupted and not endless:
        raise typer.Exit(INTERRUPTED)


def _tasks(scenario: str, first: int, many: int | None, requests: int, shrink_s: float) -> Iterator[Task]:
    names = list(SCENARIOS) if scenario == ALL else [scenario]
    numbers = count(first) if many is None else range(first, first + many)
    for index, seed in enumerate(numbers):
        task = Task(seed, names[index % len(names)], requests, shrink_s)
        yield task
        if many != 1 and index % REPEAT_EVERY == 0:
            yield task


def _run(total: Sum, tasks: Iterator[Task], many: int | None, *, told: bool) -> None:
    progress = Progress(many)
    began = time.monotonic()
    digests: dict[int, str] = {}
    try:
        for verdict in judge_all(tasks, total.jobs):
            failure = _add(total, digests, verdict)
            total.wall_s = time.monotonic() - began
            total.requests_per_s = total.requests / total.wall_s
            progress.show(total)
            if failure is not None and told:
                progress.clear()
                typer.echo(f"{failure.told}\nagain: {failure.command}\n")
    except KeyboardInterrupt:
        total.interrupted = True
    total.wall_s = time.monotonic() - began
    progress.clear()


def _add(total: Sum, digests: dict[int, str], verdict: Verdict) -> Failure | None:
    """Take a verdict into the sum; the failure that it is, if it is one and not known."""
    task = verdict.task
    breach = verdict.breach
    before = digests.get(task.seed)
    total.requests += verdict.requests
    total.virtual_s += verdict.virtual_s
    if before is None:
        total.seeds += 1
        digests[task.seed] = verdict.digest
        if len(digests) > 2 * REPEAT_EVERY * total.jobs:
            del digests[next(iter(digests))]
    else:
        total.repeated += 1
        if before == verdict.digest:
            return None
        breach = Breach(
            18, f"the trace was {before}, and is {verdict.digest}", _another_trace(task, before, verdict.digest)
        )
    if breach is None:
        return None
    failure = Failure(task.scenario, task.seed, breach.check, breach.story, breach.told, command(task))
    total.broken.append(failure)
    return failure


def _another_trace(task: Task, before: str, digest: str) -> str:
    return f"seed {task.seed} of {task.scenario} broken: check 18: the same seed gave the traces {before} and {digest}"


def command(task: Task) -> str:
    """What runs just this seed."""
    return f"headtail sim check --scenario {task.scenario} --requests {task.requests} --replay {task.seed}"


def summary(total: Sum) -> str:
    """The result in words."""
    hours, seconds = divmod(total.virtual_s, 3600)
    minutes, seconds = divmod(seconds, 60)
    lines = [
        f"{total.seeds} seeds of {total.scenario} from {total.first}: {total.requests:,} requests in {total.wall_s:.1f} s "
        f"({total.requests_per_s:,.0f} a second on {total.jobs} {'process' if total.jobs == 1 else 'processes'}), "
        f"{hours:.0f} h {minutes:02.0f} min {seconds:02.0f} s of virtual time, {total.repeated} run twice"
        f"{', interrupted' if total.interrupted else ''}; {len(total.broken) or 'none'} broken"
    ]
    lines += [f"  seed {f.seed}: check {f.check}: {f.story}\n    {f.command}" for f in total.broken]
    return "\n".join(lines)


class Progress:
    """One line on a terminal that says how far it is; nothing elsewhere."""

    def __init__(self, many: int | None) -> None:
        self._of = "" if many is None else f" of {many}"
        self._shown_at = 0.0
        self._on = sys.stderr.isatty()

    def show(self, total: Sum) -> None:
        """Say it, not too often."""
        now = time.monotonic()
        if self._on and now >= self._shown_at + PROGRESS_S:
            self._shown_at = now
            line = f"{total.seeds}{self._of} seeds, {total.requests:,} requests, {total.requests_per_s:,.0f} a second, "
            typer.echo(f"\r\x1b[K{line}{len(total.broken)} broken", nl=False, err=True)

    def clear(self) -> None:
        """Make room for other lines."""
        if self._on:
            typer.echo("\r\x1b[K", nl=False, err=True)
