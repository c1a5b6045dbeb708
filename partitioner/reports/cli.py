"""`headtail report`: the report of a bundle, written again from its record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from partitioner import api


def main(
    plan: Annotated[Path, typer.Argument(help="The bundle, NAME.plan.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write; the bundle's own report where not given.")
    ] = None,
) -> None:
    """Write the report of a plan again, as one HTML page that needs nothing else.

    Nothing is measured again, and no model is loaded.
    """
    typer.echo(f"{api.report(plan, out=out).path}")
