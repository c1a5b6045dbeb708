"""`headtail report`: the report of a bundle, written again from its record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from partitioner.record_file import read_record
from partitioner.report_page import render
from shared.bundle import write_manifest
from shared.errors import UserError
from shared.plan import REPORT_FILE


def main(
    plan: Annotated[Path, typer.Argument(help="The bundle, NAME.plan.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write; the bundle's own report where not given.")
    ] = None,
) -> None:
    """Write the report of a plan again, as one HTML page that needs nothing else.

    Nothing is measured again, and no model is loaded.
    """
    bundle, record = read_record(plan)
    page = render(record, bundle.plan)
    target = out or plan / REPORT_FILE
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(target)
    except OSError as reason:
        unfinished.unlink(missing_ok=True)
        raise UserError(f"{target}: cannot be written ({reason.strerror})") from None
    if out is None:
        write_manifest(plan)
    typer.echo(f"{target}")
