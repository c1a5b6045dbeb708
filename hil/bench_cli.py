"""`headtail bench`: measures headtail's own parts on this machine, loads a target, compares two loads.

`headtail bench` measures the parts: what is not one of the verbs is taken for options of that. A load generator may run where
nothing else of a rig is installed, so that what the parts need is imported when they are measured.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hil.load.cli import compare, load
from shared.cli import guarded
from shared.errors import UserError

MEASURE = "measure"
REQUIRES = ("onnxruntime", "onnx", "msgpack", "PIL", "skimage", "simplejpeg", "zstandard", "qoi")


class Part(StrEnum):
    """What can be measured."""

    ROUND_TRIPS = "round-trips"
    STREAMS = "streams"
    REFUSALS = "refusals"
    JOURNAL = "journal"
    SEARCH = "search"
    PREDICTIONS = "predictions"
    SEARCH_PROOF = "search-proof"
    LEAK = "leak"
    LADDER = "ladder"
    SWITCHING = "switching"
    DUPLICATES = "duplicates"
    ADDRESS = "address"
    BACKGROUND = "background"
    OVERLOAD = "overload"
    CONNECTIONS = "connections"


class MeasureByDefault(TyperGroup):
    """Verbs, the first of which is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # typer's context is click's or a copy, by version
        """Put the default verb in front where there is none."""
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [MEASURE, *args]
        return super().parse_args(ctx, args)


def group() -> typer.Typer:
    """The verbs of `headtail bench`; `hil.commands` names this function."""
    app = typer.Typer(cls=MeasureByDefault, add_completion=False)
    for name, verb in ((MEASURE, measure), ("load", load), ("compare", compare)):
        app.command(name)(guarded(verb))
    return app


def measure(
    only: Annotated[
        list[Part] | None,
        typer.Option(help="What to measure, may be given several times. Without it: the first six."),
    ] = None,
    turns: Annotated[int, typer.Option(min=1, max=1000, help="Round trips: turns of every way.")] = 12,
    requests: Annotated[int, typer.Option(min=10, max=100_000, help="Round trips: requests in a turn.")] = 300,
    frames: Annotated[int, typer.Option(min=30, max=100_000, help="Streams: strict frames in an act.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Predictions: rounds of 8 requests of every way.")] = 14,
    seconds: Annotated[
        float,
        typer.Option(
            min=1.0,
            max=3600.0,
            help="Ladder: of timing for each model. Switching, overload, connections: of each run. Background: of each act.",
        ),
    ] = 30.0,
    copies: Annotated[int, typer.Option(min=100, max=100_000, help="Duplicates: requests of each agent.")] = 900,
    outcomes: Annotated[int, typer.Option(min=100, max=1_000_000_000, help="Leak: requests of each form.")] = 1_000_000,
    minutes: Annotated[
        float,
        typer.Option(min=0.0, max=1440.0, help="Leak: so long for each form, where not 0; memory from the first on."),
    ] = 0.0,
    report: Annotated[Path | None, typer.Option("--json", help="Write the figures here.")] = None,
) -> None:
    """Measure headtail on this machine: round trips beside an echo, two streams on one executor, how soon a request is
    refused, what recording costs, how long the exact search and a large plan take, whether predicted times are
    those that are then measured, and, asked for by name, whether the search is right on every model of the zoo, what a
    million requests leave behind, what the rungs of three models cost and keep, what changing the cut under load
    costs, whether second copies keep requests over a lossy link in time, how soon a changed address is overcome, what
    background work costs a tight class, what becomes of twice the highest rate, and for how long a node's loop stalls that
    serves 200 connections. Exit status 1 over a limit. `headtail bench` is the same."""
    if any(find_spec(module) is None for module in REQUIRES):
        raise UserError("bench measure needs the extra 'dev': pip install 'headtail[dev]'")
    from hil.bench import run_parts

    run_parts(
        only,
        turns=turns,
        requests=requests,
        frames=frames,
        rounds=rounds,
        seconds=seconds,
        copies=copies,
        outcomes=outcomes,
        minutes=minutes,
        report=report,
    )
