"""`headtail bench load` and `headtail bench compare`: load a target, and compare two reports of that."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hil.load.compare import compare as compare_reports
from hil.load.environment import environment
from hil.load.opening import Asked, Opened
from hil.load.report import LoadReport, read_report
from hil.load.runs import Way, search, sweep
from hil.load.sender import allowed_share
from hil.load.show import show_comparison, show_report
from hil.load.source import Source, parse_arrivals
from hil.weight import add_weight
from hil.written import require_place, write_json
from partitioner.options import parse_duration
from partitioner.terminal import PlainConsole
from shared.errors import UserError

FIRST_RATE = 10.0
NO = 1
MOST_RUNS = 200
_SWEEP = re.compile(r"(?P<first>[0-9.]+)\.\.(?P<last>[0-9.]+):(?P<step>[0-9.]+)")


def load(
    target: Annotated[
        str,
        typer.Argument(
            help="An agent (ipc://PATH), a node (tcp://HOST:PORT), or a bundle (NAME.plan), "
            "for which a node is started."
        ),
    ],
    rate: Annotated[
        str,
        typer.Option(
            help="Open loop: requests a second, 100,200,400 or 100..1000:100. With --search the first that is tried."
        ),
    ] = "",
    in_flight: Annotated[str, typer.Option(help="Closed loop: so many requests open at a time, such as 1,2,4.")] = "",
    find: Annotated[bool, typer.Option("--search", help="Find the highest rate with --share on time.")] = False,
    arrivals: Annotated[str, typer.Option(help="Open loop: periodic, poisson, or gamma:CV.")] = "poisson",
    deadline: Annotated[str, typer.Option(help="Of each request, from its scheduled time.")] = "10ms",
    share: Annotated[float, typer.Option(min=0.01, max=0.9999, help="The share that must be on time.")] = 0.99,
    precision: Annotated[float, typer.Option(min=0.005, max=1.0, help="Search: how closely the rate is found.")] = 0.05,
    seconds: Annotated[float, typer.Option(min=0.2, max=3600.0, help="Of each run.")] = 10.0,
    warm_up: Annotated[
        float, typer.Option(min=0.0, max=600.0, help="Seconds before each run that do not count.")
    ] = 1.0,
    priority: Annotated[int, typer.Option(min=0, max=15, help="Class of the requests; 0 is the most important.")] = 1,
    plan: Annotated[Path | None, typer.Option(help="The bundle whose inputs are sent; a node needs it.")] = None,
    model: Annotated[str | None, typer.Option(help="Which of an agent's models; needed where it has several.")] = None,
    coding: Annotated[str | None, typer.Option(help="Node: how the input is written; its best route's.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Of the node that is started for a bundle; 1 where not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of the arrivals.")] = 1,
    late_share: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="The share of requests that the load generator itself may send late (by a twentieth of the deadline, 0.2 ms "
            "at least) in a run that is judged. Without it 0.01, or what --share leaves where that is less.",
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything here.")] = None,
) -> None:
    """Send requests to an agent or a node and say what came of them: on time or not, how late, and where the time went.

    Latency counts from when a request was due, by this side's clock. A run in which the load generator was itself too slow is
    marked as not judged. Exit status 1 where no run can be judged, or no rate held.
    """
    process, cv = parse_arrivals(arrivals)
    source = Source(deadline_ms=parse_duration(deadline) / 1e6, priority=priority, process=process, cv=cv)
    sources = _sources(source, rate, in_flight, find)
    way = Way(seconds, warm_up, seed, allowed_share(share, late_share))
    require_place(report)
    console = PlainConsole(highlight=True)
    add_weight()
    before = environment()
    found = None
    with ExitStack() as stack, console.status("opening") as status:
        opened = Opened(Asked(target, plan, model, coding, threads, seed), stack)
        if find:
            found, runs = search(opened, sources[0], share, precision, way, status.update)
        else:
            runs = sweep(opened, sources, way, status.update)
    told = LoadReport(
        environment=before,
        target=opened.label,
        model=opened.model,
        contract=opened.contract,
        coding=opened.coding,
        seed=seed,
        warm_up_s=warm_up,
        runs=tuple(runs),
        found=found,
    )
    show_report(told, console)
    if report is not None:
        write_json(report, told)
    if not any(run.judged for run in runs) or (found is not None and found.rate_per_s == 0.0):
        raise typer.Exit(NO)


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="A report of `headtail bench load --json`.")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Another one, which is held against it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare two load reports: what was measured under other conditions, then the second's figures over the first's."""
    found = compare_reports(read_report(first), read_report(second))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    else:
        show_comparison(found, PlainConsole())


def _sources(source: Source, rate: str, in_flight: str, find: bool) -> list[Source]:
    if in_flight and (rate or find):
        raise UserError("--in-flight is a closed loop, --rate and --search an open one; expected one or the other")
    if find:
        rates = parse_rates(rate) if rate else [FIRST_RATE]
        if len(rates) != 1:
            raise UserError(f"--rate {rate!r}: with --search expected the one rate to begin with")
        return [msgspec.structs.replace(source, rate_per_s=rates[0])]
    if rate:
        return [msgspec.structs.replace(source, rate_per_s=each) for each in parse_rates(rate)]
    if in_flight:
        return [msgspec.structs.replace(source, in_flight=each) for each in parse_in_flight(in_flight)]
    raise UserError("nothing to send: expected --rate, --in-flight or --search")


def parse_rates(text: str) -> list[float]:
    """Rates a second: `100`, `100,200,400`, or `100..1000:100` for from, to and step. Raises `UserError`."""
    wrong = UserError(
        f"--rate {text!r}: expected requests a second of 0.1 to 1000000, such as 100,200,400 or 100..1000:100"
    )
    match = _SWEEP.fullmatch(text)
    try:
        if match is None:
            rates = [float(part) for part in text.split(",")]
        else:
            first, last, step = (float(match[name]) for name in ("first", "last", "step"))
            if step <= 0.0 or last < first or (last - first) / step >= MOST_RUNS:
                raise wrong
            rates = [first + step * place for place in range(int((last - first) / step + 1e-9) + 1)]
    except ValueError:
        raise wrong from None
    if len(rates) > MOST_RUNS or not all(0.1 <= each <= 1e6 for each in rates):
        raise wrong
    return rates


def parse_in_flight(text: str) -> list[int]:
    """Numbers of requests: `4`, or `1,2,4`. Raises `UserError`."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MOST_RUNS or not all(p.isascii() and p.isdecimal() and 1 <= int(p[:9]) <= 10_000 for p in parts):
        raise UserError(f"--in-flight {text!r}: expected numbers from 1 to 10000 joined by commas, such as 1,2,4")
    return [int(part) for part in parts]
