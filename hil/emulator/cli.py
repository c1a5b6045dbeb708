"""`headtail hil check`: hold the link emulator against what it is told, with real packets, and measure what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hil.emulator import checks, cost
from hil.emulator.handle import Emulator
from hil.emulator.namespaces import check_able
from hil.emulator.row import Row
from hil.emulator.trace_check import check_trace
from hil.links.files import read_link
from partitioner.terminal import PlainConsole
from shared.errors import UserError

NO = 1


def check(
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play this link trace (or log of t_ms, rtt_ms) and send probes into it."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="For so long; a shorter trace repeats.")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Which packets of a trace are lost.")] = 1,
    own_cost: Annotated[
        bool, typer.Option("--cost", help="Instead, measure packets a second and the delay that is added.")
    ] = False,
) -> None:
    """Hold the packet-level link emulator against what it is told, between network namespaces of its own.

    Without options each thing that a link can do. The status is 0 where everything is as told, 1 where something is not,
    2 where the machine cannot do it.
    """
    if own_cost and trace is not None:
        raise UserError("--cost measures without a trace; expected it or --trace alone")
    link = None if trace is None else read_link(trace)
    check_able()
    console = PlainConsole()
    if own_cost:
        _measure(console)
        return
    with console.status("sending packets"):
        rows = _all_rows() if link is None else check_trace(link, seconds, seed)
    console.print(_table(rows))
    if not all(row.timely for row in rows):
        console.print("What is late may be the machine: a timing that was told needs a machine with little else to do.")
    if not all(row.right and row.timely for row in rows):
        raise SystemExit(NO)


def _all_rows() -> list[Row]:
    with Emulator((checks.LINK,)) as emulator:
        return [one(emulator) for one in checks.CHECKS]


def _table(rows: Iterable[Row]) -> Table:
    table = Table("what", "told", "measured", "")
    for row in rows:
        table.add_row(row.what, row.told, row.measured, row.verdict)
    return table


def _measure(console: Console) -> None:
    with console.status("measuring"):
        found = cost.measure()
    console.print(
        f"packets of {cost.SIZE} bytes a second, one direction: {found.plain_pps:,.0f} through an open link, "
        f"{found.full_pps:,.0f} with rate, loss, delay and jitter\n"
        f"added to a delay of 0 ms: {found.plain_p50_ms:.3f} ms (p50), {found.plain_p99_ms:.3f} ms (p99)\n"
        f"added to a delay of {cost.TOLD_MS:g} ms: {found.delayed_p50_ms:.3f} ms (p50), {found.delayed_p99_ms:.3f} ms (p99)",
        soft_wrap=True,
    )
