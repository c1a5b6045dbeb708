"""`headtail hil run` and `headtail hil scenarios`: play scenarios and judge them; list those that are shipped.

What plays them is imported only when it is asked for: traces are fitted and made where nothing of it is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from hil.scenarios.carried import cannot_carry
from hil.scenarios.find import find, load_scenario, shipped
from partitioner.terminal import PlainConsole
from shared.errors import UserError

BackendName = Literal["emulator", "proxy", "ssh"]

REQUIRES = ("zmq", "onnxruntime", "onnx", "simplejpeg")
EXTRA = "edge,cloud,plan"
NO = 1


def scenarios() -> None:
    """List the scenarios that are shipped: their names, how long they take, what happens in them."""
    known = shipped()
    if not known:
        raise UserError("no scenario is there: this installation lacks its configs/scenarios; install headtail again")
    table = Table("name", "seconds", "proxy", "what happens", box=None, pad_edge=False)
    for name, path in known.items():
        scenario = load_scenario(path)
        carried = "no" if cannot_carry(scenario) else "yes"
        table.add_row(name, f"{scenario.stream.seconds:g}", carried, scenario.about)
    PlainConsole().print(table)


def run(
    names: Annotated[
        list[str], typer.Argument(metavar="SCENARIO...", help="Files, or names of shipped scenarios (all: every one).")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the reports, logs and journals.")] = Path(
        "out/hil"
    ),
    backend: Annotated[
        BackendName,
        typer.Option(help="emulator: packets, needs root. proxy: connections only, needs nothing. ssh: real hosts."),
    ] = "emulator",
    hosts: Annotated[
        Path | None, typer.Option(metavar="HOSTS.toml", help="With --backend ssh: which hosts, and by which devices.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Play this trace (or log of t_ms, rtt_ms) on the first link.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, max=3600.0, help="So long instead of what the files say; 0 is as they say.")
    ] = 0.0,
    tries: Annotated[
        int, typer.Option(min=0, max=10, help="How often a run on a noisy machine is tried; 0 is as the files say.")
    ] = 0,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all results as JUnit XML.")] = None,
) -> None:
    """Play scenarios with real processes and hold them against their budgets.

    Each writes NAME.json and NAME.html into a folder of its name. The status is 0 where every budget holds, 1 where one is
    broken or the machine was too noisy to judge, 2 where a scenario or this machine cannot be used.
    """
    if (backend == "ssh") != (hosts is not None):
        raise UserError("--hosts names the hosts for --backend ssh; expected both or neither")
    if any(find_spec(module) is None for module in REQUIRES):
        raise UserError(f"hil run needs the extras {EXTRA!r}: pip install 'headtail[{EXTRA}]'")
    files = list(shipped().values()) if names == ["all"] and shipped() else [find(name) for name in names]
    from hil.scenarios.runs import Ways, play_all

    if not play_all(files, Ways(out, backend, hosts, trace, seconds, tries, junit)):
        raise typer.Exit(NO)
