"""`headtail sim goodput`: the highest rate that schedulers serve in time, headtail's own beside published ones."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hil.goodput.case import Case, read_case
from hil.goodput.chart import draw
from hil.goodput.policies import POLICIES
from hil.goodput.search import Goodput, run, search
from hil.goodput.world import Played
from shared.errors import UserError

ALL = "all"


class Result(msgspec.Struct, frozen=True):
    """What is written as JSON: what was asked, and all that was found. Exactly one of the lists is filled."""

    share: float
    requests: int
    bounds: dict[str, float | None]
    """Of each case, what devices that take turns could serve; None where it has models of several kinds."""
    searches: list[Goodput]
    runs: dict[str, Played]


class Task(msgspec.Struct, frozen=True):
    """One search, for a process of its own."""

    case: Case
    name: str
    policy: str
    share: float
    requests: int
    seed: int


def goodput(
    cases: Annotated[list[Path], typer.Argument(metavar="CASE.toml...", help="Cases, as in configs/goodput.")],
    policy: Annotated[
        list[str], typer.Option(help=f"A policy, may be repeated: {', '.join(POLICIES)}; or '{ALL}'.")
    ] = ["headtail"],  # noqa: B006 - typer's way
    share: Annotated[float, typer.Option(min=0.5, max=1.0, help="The share that must be in time.")] = 0.99,
    requests: Annotated[int, typer.Option(min=1000, max=10_000_000, help="Requests of each run.")] = 100_000,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Draws of the arrivals.")] = 3,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Do not search: one run at this rate, by class.")
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
    names = list(POLICIES) if ALL in policy else list(dict.fromkeys(policy))
    for name in names:
        if name not in POLICIES:
            raise UserError(f"policy {name!r} is unknown; expected {', '.join(POLICIES)}, or {ALL}")
    bounds = {name: case.staggered_per_s() for name, case in read.items()}
    if rate is not None:
        runs = {f"{n} {p}": run(case, p, rate, requests, 1) for n, case in read.items() for p in names}
        for title, played in runs.items():
            typer.echo(_told(title, played))
        _write(json, Result(share, requests, bounds, [], runs))
        return
    tasks = [
        Task(case, name, p, share, requests, seed)
        for name, case in read.items()
        for p in names
        for seed in range(1, seeds + 1)
    ]
    found: list[Goodput] = []
    for name, case in read.items():
        bound = bounds[name]
        typer.echo(f"{name}: {case.about}" + (f"; staggered bound {bound:,.0f}/s" if bound is not None else ""))
        for p in names:
            mine = list(_searched([t for t in tasks if t.name == name and t.policy == p], jobs))
            found += mine
            typer.echo(_row(p, mine, bound))
        if svg is not None:
            svg.mkdir(parents=True, exist_ok=True)
            (svg / f"{name}.svg").write_text(draw(case.about, [g for g in found if g.case == name], share))
    _write(json, Result(share, requests, bounds, found, {}))


def _searched(tasks: Sequence[Task], jobs: int) -> Iterator[Goodput]:
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(tasks))
    if jobs == 1:
        yield from map(_search, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(_search, tasks)


def _search(task: Task) -> Goodput:
    return search(task.case, task.name, task.policy, task.share, task.requests, task.seed)


def _row(policy: str, found: Sequence[Goodput], bound: float | None) -> str:
    rates = sorted(g.rate_per_s for g in found)
    played = next((g.played for g in found if g.played is not None), None)
    of_bound = f"  {statistics.median(rates) / bound:4.0%} of the bound" if bound else ""
    told = f"  mean batch {played.mean_batch:5.2f}  busy {played.busy:4.0%}" if played is not None else ""
    spread = f" ({rates[0]:,.0f} to {rates[-1]:,.0f})" if len(rates) > 1 else ""
    return f"  {policy:12s} {statistics.median(rates):8,.0f}/s{spread}{of_bound}{told}"


def _told(title: str, played: Played) -> str:
    lines = [f"{title}: {played.rate_per_s:,.0f}/s, mean batch {played.mean_batch:.2f}, busy {played.busy:.0%}"]
    merged: dict[tuple[str, int], list[int]] = {}
    for one in played.classes:
        sums = merged.setdefault((one.model, one.priority), [0, 0, 0])
        for i, value in enumerate((one.offered, one.on_time, one.late)):
            sums[i] += value
    for (model, priority), (offered, on_time, late) in merged.items():
        share = on_time / offered if offered else 1.0
        lines.append(f"  {model:16s} class {priority}: {share:8.3%} of {offered:,} in time, {late:,} ended late")
    return "\n".join(lines)


def _write(path: Path | None, result: Result) -> None:
    if path is None:
        return
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
