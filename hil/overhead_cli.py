"""`headtail overhead`: measure what a request costs beside its work, as a file for `headtail plan --overhead`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hil.overhead import measure
from hil.weight import add_weight
from partitioner.costs.overhead_file import check_place, write_overhead
from partitioner.terminal import PlainConsole


def main(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, NAME.overhead.")],
    cadence: Annotated[float, typer.Option(min=1.0, max=1000.0, help="Requests a second while it is measured.")] = 30.0,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of 8 requests of each probe.")] = 10,
) -> None:
    """Measure what a request costs on this machine beside its runs, its codings and the link: application, agent, node and
    every copy between, by probes through real processes. Run it with as little else running as in use."""
    check_place(out)
    console = PlainConsole()
    add_weight()
    with console.status("starting") as status:
        found = measure(rounds, cadence, status.update)
    write_overhead(found, out)
    console.print(
        f"{found.requests} requests, {cadence:g} a second, on {found.processor}\n"
        f"on the device      {found.device_us / 1e3:.2f} ms\n"
        f"through the cloud  {found.cloud_us / 1e3:.2f} ms, {found.head_us / 1e3:.2f} ms more where the device works first\n"
        f"by bytes           {found.local_byte_us * 1e3:.2f} ns for each of inputs and outputs, "
        f"{found.network_byte_us * 1e3:.2f} ns for each sent or received\n"
        f"one in a hundred   {found.spread:.2f} times as long\n"
        f"written: {out}",
        soft_wrap=True,
    )
