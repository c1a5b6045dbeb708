"""The command `headtail hil regret`; what plays links is imported only when it is asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from edge.cloud_way import BEST
from hil.regret.words import mean_table, regret, table, verdict

SWITCH_S = 0.0005


def live(
    links: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE.csv|SET.toml ...", help="Traces, logs of round trips, parameter sets."),
    ],
    seconds: Annotated[float, typer.Option(min=2.0, max=3600.0, help="Length of each run.")] = 15.0,
    hz: Annotated[float, typer.Option(min=1.0, max=500.0, help="Frames a second.")] = 30.0,
    deadline_ms: Annotated[
        float, typer.Option("--deadline-ms", min=2.0, max=10_000.0, help="When a frame's answer is due.")
    ] = 50.0,
    seed: Annotated[int, typer.Option(min=0, help="Of generated traces and of losses.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Play links to a real agent and node under the agent's choice, every fixed route and the device alone, and hold them
    against an oracle that knows the link. Needs root and TUN, as headtail hil run does.

    The status is 0 whatever comes out: how far real processes stay below an oracle depends on the machine as well.
    """
    from hil.regret.live import ORACLE, play_link, scenario_of
    from hil.weight import add_weight

    add_weight()
    sys.setswitchinterval(SWITCH_S)
    scenarios = [scenario_of(link, seconds, deadline_ms, hz, seed) for link in links]
    console = Console(stderr=True)
    with console.status("starting") as status:
        cases = [play_link(scenario, status.update) for scenario in scenarios]
    found = regret(cases, BEST, ORACLE)
    if as_json:
        tree = {"cases": msgspec.to_builtins(cases), "regret": msgspec.to_builtins(found)}
        typer.echo(msgspec.json.format(msgspec.json.encode(tree)).decode())
        return
    parts = [table(case, ORACLE) for case in cases]
    if len(cases) > 1:
        parts.append(mean_table(cases, ORACLE))
    typer.echo("\n\n".join((*parts, verdict(found))))
