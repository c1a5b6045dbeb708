"""`headtail sim goodput`: the highest rate that schedulers serve in time, headtail's own beside published ones."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import typer

from hil.goodput.case import Case, read_case
from hil.goodput.chart import draw
from hil.goodput.policies import POLICIES
from hil.goodput.search import Goodput, run, search
from hil.goodput.world import Played
from hil.pools import pool_of
from hil.written import require_folder, require_place, write_json, write_text
from shared.errors import UserError

ALL = "all"


class Shares(msgspec.Struct, frozen=True):
    """One run at a rate that was asked for: the share in time of the judged requests, and all else that came of it."""

    case: str
    policy: str
    seed: int
    rate_per_s: float
    share: float
    played: Played


class Result(msgspec.Struct, frozen=True):
    """What is written as JSON: what was asked, and all that was found. Exactly one of the lists is filled."""

    share: float
    requests: int
    bounds: dict[str, float | None]
    """Of each case, what devices that take turns could serve; None where it has models of several kinds."""
    searches: list[Goodput]
    runs: list[Shares]


Found = TypeVar("Found")


class Task(msgspec.Struct, frozen=True):
    """One search, or one run where a rate is given, for a process of its own."""

    case: Case
    name: str
    policy: str
    share: float
    requests: int
    seed: int
    rate_per_s: float = 0.0


def goodput(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE.toml...", help="Cases, as in configs/goodput.")],
    policy: Annotated[
        list[str], typer.Option(help=f"A policy, may be repeated: {', '.join(POLICIES)}; or '{ALL}'.")
    ] = ["headtail"],  # noqa: B006 - typer's way
    share: Annotated[float, typer.Option(min=0.5, max=1.0, help="The share that must be in time.")] = 0.99,
    requests: Annotated[int, typer.Option(min=1000, max=10_000_000, help="Requests of each run.")] = 100_000,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Draws of the arrivals.")] = 3,
    rate: Annotated[
        list[float] | None,
        typer.Option(min=0.001, max=1e9, help="Do not search: tell the share in time at this rate. May be repeated."),
    ] = None,
    background: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0,
            max=1e6,
            help="Multiply the rates that models have of their own by this; 0 leaves the others alone. May be repeated.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 is one for each core.")] = 0,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FOLDER", help="Draw share against rate, one file for each case.")
    ] = None,
) -> None:
    """Simulate schedulers on devices whose launches take what the case says, in virtual time, and find the highest rate of
    requests that each serves in time. What is dropped counts as late, the first tenth of the requests does not count."""
    read = {path.stem: read_case(path) for path in cases}
    if len(read) < len(cases):
        raise UserError("two cases of one name; rename one of the files")
    if rate and svg is not None:
        raise UserError("--svg draws what a search tried, and with --rate there is none; leave one of them out")
    if background:
        read = {
            f"{name} x{times:g}": case.with_background(times) for name, case in read.items() for times in background
        }
    names = list(POLICIES) if ALL in policy else list(dict.fromkeys(policy))
    for name in names:
        if name not in POLICIES:
            raise UserError(f"policy {name!r} is unknown; expected {', '.join(POLICIES)}, or {ALL}")
    require_place(json)
    require_folder(svg)
    bounds = {name: case.staggered_per_s() for name, case in read.items()}
    found: list[Goodput] = []
    runs: list[Shares] = []
    for name, case in read.items():
        bound = bounds[name]
        typer.echo(f"{name}: {case.about}" + (f"; staggered bound {bound:,.0f}/s" if bound is not None else ""))
        for p in names:
            if rate:
                for one in rate:
                    shares = _each(_run, [Task(case, name, p, share, requests, s + 1, one) for s in range(seeds)], jobs)
                    runs += shares
                    typer.echo(_told(p, shares))
                continue
            mine = _each(_search, [Task(case, name, p, share, requests, s + 1) for s in range(seeds)], jobs)
            found += mine
            typer.echo(_row(p, mine, bound))
        if svg is not None and not rate:
            write_text(svg / f"{name}.svg", draw(case.about, [g for g in found if g.case == name], share))
    if json is not None:
        write_json(json, Result(share, requests, bounds, found, runs))


def _each(work: Callable[[Task], Found], tasks: Sequence[Task], jobs: int) -> list[Found]:
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(tasks))
    if jobs == 1:
        return [work(task) for task in tasks]
    with pool_of(jobs) as pool:
        return list(pool.map(work, tasks))


def _search(task: Task) -> Goodput:
    return search(task.case, task.name, task.policy, task.share, task.requests, task.seed)


def _run(task: Task) -> Shares:
    played = run(task.case, task.policy, task.rate_per_s, task.requests, task.seed)
    share = played.share([m.judged for m in task.case.each])
    return Shares(task.name, task.policy, task.seed, task.rate_per_s, share, played)


def _row(policy: str, found: Sequence[Goodput], bound: float | None) -> str:
    rates = sorted(g.rate_per_s for g in found)
    runs = [g.played for g in found if g.played is not None]
    of_bound = f"  {statistics.median(rates) / bound:4.0%} of the bound" if bound else ""
    drawn = f"  drawn {statistics.median(p.rate_per_s for p in runs):,.0f}/s" if runs else ""
    told = f"{drawn}  mean batch {runs[0].mean_batch:5.2f}  busy {runs[0].busy:4.0%}" if runs else ""
    spread = f" ({rates[0]:,.0f} to {rates[-1]:,.0f})" if len(rates) > 1 else ""
    head = f"  {policy:12s} {statistics.median(rates):8,.0f}/s{spread}{of_bound}{told}"
    return "\n".join([head, *_by_class(runs)])


def _told(policy: str, found: Sequence[Shares]) -> str:
    played = found[0].played
    shares = sorted(one.share for one in found)
    spread = f" ({shares[0]:.3%} to {shares[-1]:.3%})" if len(shares) > 1 else ""
    head = f"  {policy:12s} {found[0].rate_per_s:8,.0f}/s {statistics.median(shares):8.3%} in time{spread}"
    lines = [f"{head}  mean batch {played.mean_batch:5.2f}  busy {played.busy:4.0%}"]
    return "\n".join([*lines, *_by_class([one.played for one in found])])


def _by_class(runs: Sequence[Played]) -> list[str]:
    """A line for each kind of model, over all runs, where there is more than one."""
    merged: dict[tuple[str, int], list[int]] = {}
    for one in (kept for played in runs for kept in played.classes):
        sums = merged.setdefault((one.model, one.priority), [0, 0, 0])
        for i, value in enumerate((one.offered, one.on_time, one.late)):
            sums[i] += value
    if len(merged) < 2:
        return []
    return [
        f"    {model:16s} class {priority}: {on_time / offered:8.3%} of {offered:,} in time, {late:,} ended late"
        for (model, priority), (offered, on_time, late) in merged.items()
        if offered
    ]
