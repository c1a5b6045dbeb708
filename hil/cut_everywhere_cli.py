"""`headtail cut-everywhere`: the models of the zoo, cut wherever they may be cut, with a table at the end.

It takes minutes, and most of the models are fetched first, so that it is no test; a small part of it is
(`tests/test_model_zoo.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from hil.cut_everywhere import LIMITS_ULPS, Swept, sweep
from hil.fetch import cache_folder
from hil.model_zoo import ZOO, ZooModel, zoo_model
from hil.model_zoo_inputs import make_inputs
from hil.written import require_place, write_json
from partitioner.terminal import PlainConsole
from shared.errors import ModelError

INPUTS = 2
"""Inputs that go through each cut."""

NO = 1


class Refused(msgspec.Struct, frozen=True):
    """A model that cannot be used, the one message with which it is refused, and whether it is known to be refused so."""

    model: str
    message: str
    expected: bool


Result = Swept | Refused


def main(
    model: Annotated[
        list[str] | None, typer.Option(help="A model of the zoo, may be given several times. Without it: all.")
    ] = None,
    many: Annotated[int, typer.Option(min=0, max=100_000, help="Cuts of several tensors to draw for each model.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="What they and the inputs are drawn from.")] = 0,
    report: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
    show_zoo: Annotated[bool, typer.Option("--list", help="Show the zoo, and cut nothing.")] = False,
) -> None:
    """Cut real models at every place and hold head and tail against the whole. Exit status 1 where a cut gives another answer
    without optimisation, or a model that should be taken is refused."""
    console = PlainConsole()
    wanted = [zoo_model(name) for name in dict.fromkeys(model)] if model else list(ZOO)
    if show_zoo:
        console.print(_zoo_table(wanted))
        return
    require_place(report)
    cache = cache_folder()
    results: list[Result] = []
    with console.status("starting") as status:
        for entry in wanted:
            result = run(entry, cache, many, seed, status.update)
            results.append(result)
            console.print(_line(result))
    console.print(_table([result for result in results if isinstance(result, Swept)]))
    _show_excluded(results, console)
    if report is not None:
        write_json(report, results)
    if not all(holds(result) for result in results):
        raise typer.Exit(NO)


def run(entry: ZooModel, cache: Path, many: int, seed: int, progress: Callable[[str], None]) -> Result:
    """Fetch, normalise and sweep one model. A model that cannot be used is a result, too."""
    progress(f"{entry.name}: fetching and normalising")
    try:
        normal = entry.normal(cache)
        inputs = [make_inputs(entry.feed, normal.inputs, seed + number) for number in range(INPUTS)]
        return sweep(entry.name, normal, inputs, many, seed, progress)
    except ModelError as error:
        return Refused(entry.name, str(error), bool(entry.refused) and entry.refused in str(error))


def holds(result: Result) -> bool:
    """Whether the model is as it should be: every cut the very same without optimisation, or refused as it is known to be."""
    if isinstance(result, Refused):
        return result.expected
    return result.bit_equal == result.single + result.many


def _line(result: Result) -> str:
    if isinstance(result, Refused):
        return f"{result.model}: refused{'' if result.expected else ' UNEXPECTEDLY'}: {result.message}"
    cuts = result.single + result.many
    return f"{result.model}: {result.bit_equal} of {cuts} cuts the very same, {result.seconds:.0f} s"


def _table(results: list[Swept]) -> Table:
    caption = (
        "single, many: cuts that one tensor and that several cross. same, opt.: of these gave the very same answers without "
        "and with optimisation. (int): quantised inside. ULP: the worst with it of those that stand. own: what optimising "
        "the whole itself moves. out: excluded."
    )
    table = Table(title="Head and tail against the whole", caption=caption, caption_justify="left")
    table.add_column("model", no_wrap=True)
    for column in ("nodes", "single", "many", "same", "opt.", "ULP", "own", "out", "s"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            result.model + (" (int)" if result.quantised else ""),
            str(result.nodes),
            str(result.single),
            str(result.many),
            str(result.bit_equal),
            str(result.bit_equal_optimised),
            f"{result.worst_ulps:.3g}",
            f"{result.own_ulps:.3g}",
            str(len(result.excluded)),
            f"{result.seconds:.0f}",
        )
    return table


def _show_excluded(results: list[Result], console: Console) -> None:
    for result in results:
        for cut in result.excluded if isinstance(result, Swept) else ():
            console.print(f"{result.model}: excluded: {cut.name} ({cut.tensors} tensors): {cut.reason}")
    limits = ", ".join(f"{name} {limit:g}" for name, limit in LIMITS_ULPS.items())
    console.print(f"Limits of optimised answers, in steps of the output's type: {limits}.")


def _zoo_table(models: list[ZooModel]) -> Table:
    table = Table(title="The zoo")
    for column in ("model", "what it is", "from", "licence"):
        table.add_column(column)
    for model in models:
        source = "onnx" if isinstance(model.source, str) else model.source.requirement
        table.add_row(model.name, model.about, source, model.licence)
    return table
