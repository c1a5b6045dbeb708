"""`headtail hil fit`, `generate` and `compare`: link models from measurements, traces from models, and how alike two are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer

from hil.links.checked_fit import check
from hil.links.echoes import HELD_MS, UNSEEN_MS
from hil.links.files import read_link, read_text
from hil.links.fit import fit as fitted
from hil.links.generator import generate as generated
from hil.links.model import check_model
from hil.links.model_file import read_model, write_model
from hil.links.states import DEFAULT, Thresholds
from hil.links.summary import distances, summarise
from hil.links.trace_csv import write_trace
from hil.links.words import compared, distances_told, states_told
from hil.written import write_text
from shared.errors import UserError

StepMs = Annotated[
    float | None, typer.Option("--step-ms", help="Steps of a log of echoes; its usual interval if left out.")
]
HeldMs = Annotated[
    float, typer.Option("--held-ms", min=1.0, help="An echo this much over the median waited for the link to go on.")
]
UnseenMs = Annotated[
    float, typer.Option("--unseen-ms", min=1.0, help="A longer pause between echoes was not watched; it is closed up.")
]


def fit(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE.csv", help="A link trace, or a log of echoes (t_ms, rtt_ms).")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="SET.toml", help="The parameter set to write.")],
    name: Annotated[str, typer.Option(help="The set's name; the file's if left out.")] = "",
    held_back_s: Annotated[
        float, typer.Option("--held-back-s", min=0.0, help="Blocks held back in turn to check the fit; 0: no check.")
    ] = 10.0,
    congested: Annotated[
        float, typer.Option(min=1.0, help="From this many times the usual least round trip on it is congested.")
    ] = DEFAULT.congested_factor,
    edge: Annotated[float, typer.Option(min=1.0, help="From this many times on it is the cell's edge.")] = (
        DEFAULT.edge_factor
    ),
    hand_over_ms: Annotated[
        float, typer.Option("--hand-over-ms", min=0.0, help="Up to this long a gap is a hand-over, not an outage.")
    ] = DEFAULT.hand_over_ms,
    step_ms: StepMs = None,
    held_ms: HeldMs = HELD_MS,
    unseen_ms: UnseenMs = UNSEEN_MS,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic traces that check the fit.")] = 1,
) -> None:
    """Fit a link's parameter set to a measured trace, and say how well it does on parts that it was not fitted on."""
    measured = read_link(trace, step_ms, held_ms, unseen_ms)
    thresholds = Thresholds(congested_factor=congested, edge_factor=edge, hand_over_ms=hand_over_ms)
    for option, value in (("--held-back-s", held_back_s), ("--edge", edge), ("--hand-over-ms", hand_over_ms)):
        if not math.isfinite(value):
            raise UserError(f"{option} is {value}; expected a finite number")
    if not edge >= congested:
        raise UserError(f"--edge {edge:g} is below --congested {congested:g}; expected at least that")
    about = f"Fitted to {trace.name}: {measured.duration_us / 1e6:g} s in steps of {measured.step_us / 1000:g} ms."
    model = fitted(measured, name or output.stem, thresholds, about)
    halves = check(measured, thresholds, held_back_s * 1000, seed) if held_back_s > 0 else ()
    write_text(output, write_model(model))
    typer.echo(states_told(model))
    if not any(rate > 0 for state in model.states for rate in state.rate_mbit):
        typer.echo(
            "The file holds no rates, so the set's are unlimited (rate_mbit); set them by hand where you know them."
        )
    for half, told in zip(halves, ("every other block", "the other blocks"), strict=False):
        pairs = (("synthetic, part fitted on", half.fitted), ("synthetic, part held back", half.held_back))
        typer.echo(f"\nfitted on {told}\n{distances_told((*pairs, ('the two parts', half.halves)))}")
    typer.echo(f"\nwrote {output}, fitted on all of {trace.name}")


def generate(
    model: Annotated[Path, typer.Argument(metavar="SET.toml", help="A parameter set, as in configs/links.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="TRACE.csv", help="The trace to write.")],
    seconds: Annotated[float, typer.Option(min=0.001, max=1e6, help="Length of the trace.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="Same set, length and seed: same trace.")] = 1,
    step_ms: Annotated[float | None, typer.Option("--step-ms", help="Steps; the set's own if left out.")] = None,
) -> None:
    """Make a synthetic trace of a link."""
    chosen = read_model(read_text(model), str(model))
    if step_ms is not None:
        chosen = msgspec.structs.replace(chosen, step_ms=step_ms)
        check_model(chosen, f"{model} with --step-ms")
    made = generated(chosen, seconds * 1000, np.random.default_rng(seed)).trace
    write_text(output, write_trace(made))
    typer.echo(f"wrote {output}: {made.steps} steps of {made.step_us / 1000:g} ms of {chosen.name}")


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.csv", help="A link trace, or a log of echoes (t_ms, rtt_ms).")],
    second: Annotated[Path, typer.Argument(metavar="B.csv", help="Another.")],
    step_ms: StepMs = None,
    held_ms: HeldMs = HELD_MS,
    unseen_ms: UnseenMs = UNSEEN_MS,
) -> None:
    """Show two traces' quantiles, outages and correlations side by side, and how far apart they are."""
    a, b = (read_link(path, step_ms, held_ms, unseen_ms) for path in (first, second))
    names = (first.name, second.name)
    typer.echo(compared(names, (summarise(a), summarise(b))))
    typer.echo("")
    typer.echo(distances_told(((" and ".join(names), distances(a, b)),)))
