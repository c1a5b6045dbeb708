"""`headtail invert`: how well a small decoder rebuilds the inputs of a plan from what its routes send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partitioner.inversions.inversion import words
from partitioner.inversions.inverting import invert_plan
from partitioner.planned import read_plan
from shared.printable import printable


def main(
    plan: Annotated[Path, typer.Argument(help="The bundle, NAME.plan.")],
    calibration: Annotated[Path, typer.Option(help="Images, an .npz of rows, or module:function, as for plan.")],
    seed: Annotated[int, typer.Option(min=0, help="Where images are cropped.")] = 0,
) -> None:
    """Say how well a small decoder rebuilds the input from what each route sends, and show it in the plan's report.

    A high figure proves that the input can be rebuilt. A low one proves nothing: an attacker with more data does better.
    """
    for found in invert_plan(read_plan(plan), calibration, seed).record.inversions:
        typer.echo(printable(words(found)))
