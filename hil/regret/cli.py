"""`headtail sim regret`: link traces replayed on virtual time under the policy, every fixed route, and an oracle."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer

from edge.cloud_way import BEST
from hil.links.files import read_link, read_text
from hil.links.generator import generate
from hil.links.model_file import read_model
from hil.links.trace import runs
from hil.pools import pool_of
from hil.regret.chart import Line, Panel, page, rolling
from hil.regret.play import ORACLE, Case, Played, case_of, fixed_routes, oracle, play
from hil.regret.words import CaseRows, Regret, Row, mean_table, predictions_table, regret, table, together, verdict
from hil.written import require_place, write_text
from shared.bundle import load_bundle
from shared.errors import UserError
from shared.plan import Plan
from shared.settings import EdgeSettings
from shared.settings_file import load_edge

FOLDERS = tuple(Path(__file__).resolve().parents[up] / "configs" / "links" for up in (2, 1))
"""Where the shipped parameter sets are: in a checkout, or in an installed package."""

NO = 1
SMOOTHED_S = 1.0


class Result(msgspec.Struct, frozen=True):
    """All cases, and what the policy loses in the mean."""

    cases: tuple[CaseRows, ...]
    regret: Regret
    requests_per_s: float


def main(
    links: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[TRACE.csv|SET.toml ...]",
            help="Traces, logs of echoes, parameter sets; those that are shipped, if left out.",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Length of each replay.")] = 60.0,
    hz: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Requests a second.")] = 30.0,
    deadline_ms: Annotated[
        float | None,
        typer.Option(
            "--deadline-ms", min=1.0, max=10_000.0, help="Four times the median round trip, rounded up, if left out."
        ),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="NAME.plan", help="A bundle; a plan of a detector if left out.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="EDGE.toml", help="The edge's settings; its nodes are not used.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Traces to generate from each parameter set.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    jobs: Annotated[int, typer.Option(min=0, max=256, help="Processes; 0 is one for each core.")] = 0,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the share of exact answers over time.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay links under the policy, under every fixed route, and under an oracle that knows the link's future.

    Exit status 1 where the policy's on-time share is more than 0.5 points below the oracle's in the mean, its share of exact
    answers more than 5, or where a fixed route is better.
    """
    require_place(svg)
    bundled = None if plan is None else load_bundle(plan).plan
    settings = EdgeSettings() if config is None else load_edge(config)
    cases = [
        case
        for path in links or shipped()
        for case in _cases(path, range(first, first + seeds), seconds, hz, deadline_ms, bundled, settings)
    ]
    replayed = list(_replayed(cases, jobs or len(os.sched_getaffinity(0))))
    played = [[one for one, _ in many] for many in replayed]
    used_s = sum(seconds for many in replayed for _, seconds in many[:-1])
    rows = [_rows(case, runs_) for case, runs_ in zip(cases, played, strict=True)]
    total = sum(case.requests * (len(row.rows) - 1) for case, row in zip(cases, rows, strict=True))
    result = Result(tuple(rows), regret(rows, BEST, ORACLE), total / used_s)
    if svg is not None:
        write_text(
            svg, page("Share of exact answers in time", [_panel(c, p) for c, p in zip(cases, played, strict=True)])
        )
    typer.echo(msgspec.json.format(msgspec.json.encode(result)).decode() if as_json else told(result))
    if not result.regret.within:
        raise typer.Exit(NO)


def told(result: Result) -> str:
    """The result in words."""
    parts = [table(case, ORACLE) for case in result.cases]
    if len(result.cases) > 1:
        parts.append(mean_table(result.cases, ORACLE))
    parts.append(verdict(result.regret))
    predictions = together(case.row(BEST).predictions for case in result.cases)
    if predictions:
        parts.append(f"predicted to be surely back, and when it was\n{predictions_table(predictions)}")
    parts.append(f"{result.requests_per_s:,.0f} requests a second of one core")
    return "\n\n".join(parts)


def shipped() -> list[Path]:
    """The parameter sets that are shipped. Raises `UserError` where there are none."""
    found = [path for folder in FOLDERS for path in sorted(folder.glob("*.toml"))]
    if not found:
        raise UserError("the shipped links are not there: name traces (.csv) or parameter sets (.toml) to replay")
    return found


def _cases(
    path: Path,
    seeds: Iterable[int],
    seconds: float,
    hz: float,
    deadline_ms: float | None,
    plan: Plan | None,
    settings: EdgeSettings,
) -> Iterator[Case]:
    if path.suffix == ".toml":
        model = read_model(read_text(path), str(path))
        for seed in seeds:
            trace = generate(model, seconds * 1000, np.random.default_rng(seed)).trace
            yield case_of(
                f"{model.name}, seed {seed}",
                trace,
                hz=hz,
                seconds=seconds,
                deadline_ms=deadline_ms,
                plan=plan,
                seed=seed,
                settings=settings,
            )
        return
    trace = read_link(path)
    yield case_of(path.name, trace, hz=hz, seconds=seconds, deadline_ms=deadline_ms, plan=plan, settings=settings)


def _replayed(cases: list[Case], jobs: int) -> Iterator[list[tuple[Played, float]]]:
    """Every case under every policy, the oracle last."""
    policies = [(BEST, *fixed_routes(case.plan)) for case in cases]
    tasks = [(case, policy) for case, many in zip(cases, policies, strict=True) for policy in (*many, ORACLE)]
    if jobs == 1:
        results: Iterator[tuple[Played, float]] = map(_run, tasks)
        yield from _grouped(results, policies)
        return
    with pool_of(jobs) as pool:
        yield from _grouped(pool.map(_run, tasks), policies)


def _grouped(
    results: Iterator[tuple[Played, float]], policies: list[tuple[str, ...]]
) -> Iterator[list[tuple[Played, float]]]:
    for many in policies:
        yield [next(results) for _ in range(len(many) + 1)]


def _run(task: tuple[Case, str]) -> tuple[Played, float]:
    """What came of a case under a policy, and the processor's seconds that it took."""
    case, policy = task
    began = time.process_time()
    played = oracle(case) if policy == ORACLE else play(case, policy)
    return played, time.process_time() - began


def _rows(case: Case, played: list[Played]) -> CaseRows:
    rows = tuple(
        Row(
            p.policy,
            p.on_time,
            p.exact,
            p.agreement,
            p.bytes_up,
            p.bytes_down,
            p.predictions,
            p.counters,
            dict(Counter(e.way for e in p.ended)),
        )
        for p in played
    )
    return CaseRows(case.name, case.deadline_ns / 1e6, case.requests, case.seconds, rows)


def _panel(case: Case, played: list[Played]) -> Panel:
    shown = [p for p in played if p.policy in (BEST, ORACLE)] + [p for p in played if p.policy not in (BEST, ORACLE)]
    lines = tuple(
        Line(p.policy, rolling([(e.at_ms / 1e3, float(e.on_time and e.exact)) for e in p.ended], SMOOTHED_S))
        for p in shown
    )
    step_s = case.trace.step_us / 1e6
    gaps = tuple((a * step_s, b * step_s) for a, b in runs(case.trace.outage))
    return Panel(f"{case.name}, deadline {case.deadline_ns / 1e6:g} ms", "share of exact answers", lines, gaps, top=1.0)
