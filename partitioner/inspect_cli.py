"""`headtail inspect`: print what `partitioner.inspect` finds, as tables or as JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from partitioner.graph.recipe import Recipe
from partitioner.inspection import CutRow, Inspection, Value, inspect_model
from shared.errors import ModelError


def main(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(help="1,3,192,192, or NAME=1,3,192,192 for each input; the first axis is the batch."),
    ] = None,
    preprocess: Annotated[str, typer.Option(help="none, or image[:mean=M,std=S,bgr].")] = "none",
    postprocess: Annotated[
        str, typer.Option(help="none, peaks[:k=32,min_score=0.2], topk[:k=5,softmax], or an ONNX file.")
    ] = "none",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show a model's inputs, outputs, candidate cuts with their bytes and shares of compute, and warnings."""
    found = inspect_model(Recipe(model, tuple(shape or ()), preprocess, postprocess))
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        show(found, Console())
    if found.problem:
        raise ModelError(found.problem)


def show(found: Inspection, console: Console) -> None:
    """Print an inspection as tables."""
    operators = ", ".join(f"{count} {name}" for name, count in list(found.operators.items())[:8])
    more = f", {len(found.operators) - 8} more kinds" if len(found.operators) > 8 else ""
    console.print(found.file, style="bold", highlight=False, markup=False)
    console.print(
        f"{size(found.size_bytes)}, opset {found.opset}, file format {found.ir_version}, {found.parameters:,} parameters "
        f"({size(found.weight_bytes)})",
        highlight=False,
    )
    console.print(f"{sum(found.operators.values())} operators: {operators}{more}", highlight=False, markup=False)
    console.print(_values(found))
    if found.cuts:
        console.print(_cuts(found.cuts))
        console.print("batches: " + ("yes, proven with two rows" if found.batchable else "no"), highlight=False)
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False)


def _values(found: Inspection) -> Table:
    table = Table(title="Inputs and outputs, as the file gives them", title_justify="left")
    for column in ("", "name", "type", "shape"):
        table.add_column(column)
    rows: list[tuple[str, Value]] = [("in", value) for value in found.inputs] + [
        ("out", value) for value in found.outputs
    ]
    for direction, value in rows:
        table.add_row(direction, _plain(value.name), value.dtype, _plain(value.shape))
    return table


def _cuts(cuts: tuple[CutRow, ...]) -> Table:
    table = Table(title="Candidate cuts: what would cross, for one row", title_justify="left")
    table.add_column("cut", overflow="fold")
    table.add_column("made by")
    table.add_column("type")
    table.add_column("shape", overflow="fold")
    for column in ("raw", "int8", "compute before"):
        table.add_column(column, justify="right")
    for cut in cuts:
        types = " ".join(dict.fromkeys(spec.dtype for spec in cut.tensors))
        shapes = " ".join("x".join(map(str, spec.shape)) or "scalar" for spec in cut.tensors)
        table.add_row(
            _plain(cut.name),
            cut.producer,
            types,
            shapes,
            size(cut.raw_bytes),
            size(cut.int8_bytes),
            f"{cut.share_before:.1%}",
        )
    return table


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def size(count: int) -> str:
    """Bytes for a person: `589.8 KB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} KB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"
