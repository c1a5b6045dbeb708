"""`headtail chaos`: kills and stops the agent and the nodes at random moments while a client goes on asking.

Whatever happens to them, each request must end in one outcome, none twice, no answer may be wrong, and the client, which
is never restarted, must find its way back. How many requests were on time is told, and judged by nobody.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hil.chaos_rig import ChaosRig, Report
from hil.weight import add_weight
from hil.written import require_place, write_json
from partitioner.terminal import PlainConsole
from shared.errors import HeadtailError


def play(seed: int, cycles: int, rate_hz: float, console: Console, *, told: bool) -> Report:
    """One run in a house of its own. Raises `HeadtailError` where something does not come back."""
    with tempfile.TemporaryDirectory(prefix="headtail-chaos-") as folder, ChaosRig(Path(folder), seed, rate_hz) as rig:
        return rig.run(cycles, console.print if told else lambda _: None)


def show(report: Report, console: Console) -> None:
    """Tell the sums, and where they are broken the story."""
    tally = report.tally
    strikes = ", ".join(f"{count} {kind}" for kind, count in report.strikes.items())
    outcomes = ", ".join(f"{count} {kind}" for kind, count in tally.outcomes.items())
    console.print(
        f"seed {report.seed}: {tally.requests} requests in {report.seconds:.0f} s, {report.cycles} cycles ({strikes}): "
        f"{outcomes}; {tally.lost} lost, {tally.duplicated} doubled, {tally.wrong} wrong"
    )
    answers = ", ".join(f"{count} {kind}" for kind, count in tally.answers.items())
    details = ", ".join(f"{count} {detail}" for detail, count in tally.details.items())
    console.print(f"  answers: {answers}; not answered: {details or 'none'}")
    if report.back_s:
        longest = max(report.back_s)
        console.print(
            f"  one client attached {report.attaches} times, and had an answer again after at most {longest:.2f} s"
        )
    for words in report.tally.broken:
        console.print(f"  BROKEN: {words}", style="bold red")
    if not report.holds:
        for words in report.story:
            console.print(f"  {words}")


def main(
    cycles: Annotated[int, typer.Option(min=1, max=100_000, help="Cycles of one or two strikes.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Draws the strikes and the requests; 0 takes the time.")] = 0,
    rate: Annotated[float, typer.Option(min=1.0, max=2000.0, help="Requests a second.")] = 100.0,
    endless: Annotated[bool, typer.Option("--endless", help="Go on with the next seed until interrupted.")] = False,
    report: Annotated[Path | None, typer.Option("--json", help="Write the (last) run's report here.")] = None,
) -> None:
    """Kill and stop agent and nodes under load. Exit status 1 where an outcome is lost, doubled or wrong."""
    require_place(report)
    console = PlainConsole(highlight=True)
    add_weight()
    seed = seed or int(time.time())
    failed: list[int] = []
    runs = 0
    try:
        while True:
            runs += 1
            holds = _run(seed, cycles, rate, console, report, told=not endless)
            if not holds:
                failed.append(seed)
            seed += 1
            if not endless:
                break
    except KeyboardInterrupt:
        console.print(f"{runs - 1} runs, {len(failed)} of them failed{': seeds ' if failed else ''}{failed or ''}")
    if failed:
        raise typer.Exit(1)


def _run(seed: int, cycles: int, rate: float, console: Console, path: Path | None, *, told: bool) -> bool:
    try:
        report = play(seed, cycles, rate, console, told=told)
    except HeadtailError as error:
        console.print(f"seed {seed}: {error}", style="bold red")
        return False
    show(report, console)
    if path is not None:
        write_json(path, report)
    return report.holds
