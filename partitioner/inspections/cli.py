"""`headtail inspect`: print what `partitioner.inspections.inspection` finds, as tables or as JSON, and draw it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from partitioner.graph.recipe import Recipe
from partitioner.inspections.inspection import CutRow, Inspection, Value, look_at
from partitioner.inspections.page import render_page, render_svg
from partitioner.inspections.view import bytes_in_words as size
from partitioner.inspections.view import percent, view_of
from partitioner.profiles.file import load_profile
from partitioner.terminal import PlainConsole
from shared.errors import ModelError, UserError

WIDE = 110
"""Columns of a terminal that shows all columns of the table of cuts."""


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
    svg: Annotated[Path | None, typer.Option(help="Draw the graph with its cuts to this SVG file.")] = None,
    html: Annotated[Path | None, typer.Option(help="The same as a page, with the cuts and facts.")] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Colour the drawing by the times in this profile, X.profile.")
    ] = None,
) -> None:
    """Show a model's inputs, outputs, candidate cuts with their bytes and shares of compute, and warnings; draw it."""
    if profile is not None and svg is None and html is None:
        raise UserError("--profile colours a drawing: say where to draw it, with --svg FILE or --html FILE")
    times = load_profile(profile) if profile is not None else None
    for path in (svg, html):
        _check_place(path)
    look = look_at(Recipe(model, tuple(shape or ()), preprocess, postprocess))
    found = look.found
    if not found.problem and (svg is not None or html is not None):
        try:
            view = view_of(look, times)
        except UserError as error:
            raise UserError(f"{profile}: {error}") from None
        for path, render in ((svg, render_svg), (html, render_page)):
            if path is not None:
                _write(path, render(view))
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        show(found, PlainConsole(highlight=True))
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
    for trait in _traits(found):
        console.print(trait, highlight=False, markup=False)
    console.print(_values(found))
    if found.cuts:
        console.print(_cuts(found.cuts, wide=console.width >= WIDE))
        console.print("batches: " + ("yes, proven with two rows" if found.batchable else "no"), highlight=False)
    for warning in found.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False)


def _check_place(path: Path | None) -> None:
    """Refuse what cannot be written to before a model is loaded."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise UserError(f"{path}: cannot be written: expected a file in a folder that is there")


def _write(path: Path, words: str) -> None:
    """Write a file, which appears under its name when it is whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_text(words, encoding="utf-8")
        draft.replace(path)
    except OSError as reason:
        draft.unlink(missing_ok=True)
        raise UserError(f"{path}: cannot be written: {reason.strerror}") from None


def _traits(found: Inspection) -> list[str]:
    """What decides where a model can run, in sentences; nothing where there is nothing to say."""
    told: list[str] = []
    if found.unsupported:
        told.append(f"no installed provider has: {', '.join(found.unsupported)}")
    if found.control_flow:
        told.append("control flow: " + ", ".join(f"{count} {name}" for name, count in found.control_flow.items()))
    quantised = found.quantisation
    if quantised.any:
        integer = ", ".join(f"{count} {name}" for name, count in quantised.integer.items())
        told.append(
            f"quantised: {quantised.quantise} QuantizeLinear, {quantised.dequantise} DequantizeLinear"
            + (f", {integer}" if integer else "")
            + ("; ranges are found anew for each run" if quantised.dynamic else "")
        )
    if len(found.weights_by_type) > 1 or quantised.any:
        told.append("weights: " + ", ".join(f"{size(n)} {name}" for name, n in found.weights_by_type.items()))
    if found.sized_by_data:
        told.append(f"sizes that depend on the data: {found.sized_by_data} values, at which no cut may fall")
    return told


def _values(found: Inspection) -> Table:
    table = Table(title="Inputs and outputs, as the file gives them", title_justify="left")
    for column in ("", "name", "type", "shape"):
        table.add_column(column, overflow="fold")
    rows: list[tuple[str, Value]] = [("in", value) for value in found.inputs] + [
        ("out", value) for value in found.outputs
    ]
    for direction, value in rows:
        table.add_row(direction, value.name, value.dtype, value.shape)
    return table


def _cuts(cuts: tuple[CutRow, ...], *, wide: bool) -> Table:
    """The cuts; on a narrow terminal without what is least asked for, so that no number is cut off."""
    table = Table(title="Candidate cuts: what would cross, for one row", title_justify="left")
    if not wide:
        table.caption = f"what makes them, types and int8: with {WIDE} columns, or --json"
    columns: list[tuple[str, bool, Callable[[CutRow], str]]] = [
        ("cut", True, lambda cut: cut.name),
        ("made by", wide, lambda cut: cut.producer),
        ("type", wide, lambda cut: " ".join(dict.fromkeys(spec.dtype for spec in cut.tensors))),
        ("shape", True, lambda cut: " ".join("x".join(map(str, spec.shape)) or "scalar" for spec in cut.tensors)),
    ]
    numbers: list[tuple[str, bool, Callable[[CutRow], str]]] = [
        ("raw", True, lambda cut: f"{size(cut.raw_bytes)}{' (own 8 bits)' if cut.quantised else ''}"),
        ("int8", wide, lambda cut: size(cut.int8_bytes)),
        ("cheapest", True, lambda cut: f"{size(cut.cheapest_bytes)} {cut.cheapest}"),
        ("compute before" if wide else "before", True, lambda cut: percent(cut.share_before)),
    ]
    for name, shown, _ in columns:
        if shown:
            table.add_column(name, overflow="fold")
    for name, shown, _ in numbers:
        if shown:
            table.add_column(name, justify="right", no_wrap=True)
    for cut in cuts:
        table.add_row(*(words(cut) for _, shown, words in (*columns, *numbers) if shown))
    return table
