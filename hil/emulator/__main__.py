"""`python -m hil.emulator`: hold the emulator against what it is told, with real packets, and measure what it costs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hil.emulator import checks, cost
from hil.emulator.handle import Emulator
from shared.cli import guarded
from shared.errors import UserError

NO = 1


def run(
    self_check: Annotated[
        bool, typer.Option("--self-check", help="Send real packets and hold them against what was told.")
    ] = False,
    own_cost: Annotated[
        bool, typer.Option("--cost", help="Measure packets a second and the delay that is added.")
    ] = False,
) -> None:
    """Check or measure the packet-level link emulator on this machine, in network namespaces of its own.

    The status is 0 where everything is as told, 1 where something is not, 2 where the machine cannot do it.
    """
    if not (self_check or own_cost):
        raise UserError("nothing to do; expected --self-check, --cost or both")
    console = Console(markup=False, highlight=False)
    held = _check(console) if self_check else True
    if own_cost:
        _measure(console)
    if not held:
        raise SystemExit(NO)


def _check(console: Console) -> bool:
    table = Table("what", "told", "measured", "")
    rows: list[checks.Row] = []
    with console.status("sending packets"), Emulator((checks.LINK,)) as emulator:
        for check in checks.CHECKS:
            row = check(emulator)
            rows.append(row)
            table.add_row(row.what, row.told, row.measured, _verdict(row))
    console.print(table)
    if not all(row.timely for row in rows):
        console.print("What is late may be the machine: a timing that was told needs a machine with little else to do.")
    return all(row.right and row.timely for row in rows)


def _verdict(row: checks.Row) -> str:
    if not row.right:
        return "WRONG"
    return "as told" if row.timely else "LATE"


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


def main() -> None:
    """Entry point; ends the process with the status."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(guarded(run))
    app(prog_name="python -m hil.emulator")


if __name__ == "__main__":
    main()
