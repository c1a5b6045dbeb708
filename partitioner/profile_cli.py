"""`headtail profile`: measure a profile, scale or estimate one, and tell what differs between two.

`headtail profile MODEL ...` measures: what is not one of the verbs is taken for the model.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from typer.core import TyperGroup

from partitioner import api
from partitioner.graph.recipe import Recipe
from partitioner.profiles.diff import compare
from partitioner.profiles.estimate import estimate_profile
from partitioner.profiles.file import check_out, load_profile, save_profile
from partitioner.profiles.measure import buckets_of
from partitioner.profiles.record import OperatorKind
from partitioner.profiles.roofline import Roof
from partitioner.profiles.scaling import scaled
from partitioner.profiles.show import origin_line, show_difference, show_profile
from partitioner.terminal import PlainConsole
from shared.cli import guarded
from shared.errors import UserError
from shared.printable import printable

MEASURE = "measure"


class SideName(StrEnum):
    """What the machine is in a plan."""

    edge = "edge"
    cloud = "cloud"


ModelFile = Annotated[Path, typer.Argument(help="The ONNX file.")]
AsSide = Annotated[SideName, typer.Option("--as", help="What the machine is in a plan.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The profile to write, NAME.profile.")]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        help="1,3,192,192, or NAME=1,3,192,192 for each input; another one for the same input begins another set of shapes."
    ),
]
Preprocess = Annotated[str, typer.Option(help="none, or image[:mean=M,std=S,bgr], as the plan will have it.")]
Postprocess = Annotated[
    str, typer.Option(help="none, peaks[:...], topk[:...], or an ONNX file, as the plan will have it.")
]
Batch = Annotated[
    str | None, typer.Option(help="Batch sizes, such as 1,2,4; by default these where the rows can be joined.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ProfileFile = Annotated[Path, typer.Argument(help="A profile.")]


class MeasureByDefault(TyperGroup):
    """Verbs, the first of which is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # typer's context is click's or a copy, by version
        """Put the default verb in front where there is none."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [MEASURE, *args]
        return super().parse_args(ctx, args)


def main() -> typer.Typer:
    """The verbs of `headtail profile`."""
    app = typer.Typer(cls=MeasureByDefault, no_args_is_help=True, add_completion=False)
    verbs = ((MEASURE, measure_here), ("diff", diff), ("scale", scale), ("estimate", estimate), ("show", show))
    for name, function in verbs:
        app.command(name)(guarded(function))
    return app


def measure_here(
    model: ModelFile,
    side: AsSide,
    out: Out,
    shape: Shape = None,
    preprocess: Preprocess = "none",
    postprocess: Postprocess = "none",
    batch: Batch = None,
    provider: Annotated[str, typer.Option(help="Where it runs: cpu, cuda, ... as onnxruntime calls it.")] = "cpu",
    threads: Annotated[int, typer.Option(help="Threads of a session.")] = 1,
    cadence: Annotated[float, typer.Option(help="Requests a second while it is measured.")] = 30.0,
    seconds: Annotated[float, typer.Option(help="Time for timing; it ends sooner where the times are steady.")] = 20.0,
    host: Annotated[str | None, typer.Option(help="Measure on another machine, user@machine, by ssh.")] = None,
    headtail_there: Annotated[str, typer.Option(help="How headtail is called on that machine.")] = "headtail",
    through: Annotated[
        str | None,
        typer.Option(
            help="Have the agent (ipc://PATH) or node (tcp://HOST:PORT) that serves this model measure it on its own device, "
            "while that is idle, with the provider and threads that it has there."
        ),
    ] = None,
) -> None:
    """Measure how long a model, its groups of operators and codings take on this machine, and write it as a file.

    Run it on the machine that is to be described, with as little else running as in use; or have another machine measure,
    by --host or --through. `headtail profile MODEL` is the same.
    """
    console = PlainConsole()
    with _Shown(console) as shown:
        profile = api.profile(
            model,
            out,
            side=side.value,
            shape=shape or (),
            preprocess=preprocess,
            postprocess=postprocess,
            batch=batches_of(batch),
            provider=provider,
            threads=threads,
            cadence=cadence,
            seconds=seconds,
            host=host,
            headtail_there=headtail_there,
            through=through,
            progress=shown.tell,
        )
    show_profile(profile, console)
    console.print(f"written: {out}")


def diff(
    a: Annotated[Path, typer.Argument(help="A profile.")],
    b: Annotated[Path, typer.Argument(help="Another profile of the same model.")],
    as_json: AsJson = False,
) -> None:
    """Say what differs between two profiles of a model: conditions first, then times, those that matter most first."""
    mine, theirs = load_profile(a), load_profile(b)
    difference = compare(mine, theirs)
    if as_json:
        told = {"a": origin_line(mine), "b": origin_line(theirs), **msgspec.to_builtins(difference)}
        typer.echo(msgspec.json.format(msgspec.json.encode(told), indent=1).decode())
    else:
        show_difference(difference, mine, theirs, PlainConsole())


def scale(
    profile: ProfileFile,
    out: Out,
    by: Annotated[float, typer.Option(help="How many times as long everything takes.")] = 1.0,
    conv: Annotated[float | None, typer.Option(help="The same for groups that mostly convolve.")] = None,
    matmul: Annotated[float | None, typer.Option(help="The same for groups that mostly multiply matrices.")] = None,
) -> None:
    """Make the profile of a slower or faster machine out of one that was measured. It is marked as scaled."""
    check_out(out)
    given: dict[OperatorKind, float | None] = {"conv": conv, "matmul": matmul}
    of_kind: dict[OperatorKind, float] = {kind: factor for kind, factor in given.items() if factor is not None}
    if by == 1.0 and not of_kind:
        raise UserError("nothing to scale by: give --by, --conv or --matmul")
    made = scaled(load_profile(profile), profile.name, by, of_kind)
    save_profile(made, out)
    show_profile(made, PlainConsole())


def estimate(
    model: ModelFile,
    out: Out,
    flops: Annotated[float, typer.Option(help="Peak operations a second, such as 2e12; a multiply-add counts two.")],
    bytes_per_s: Annotated[float, typer.Option(help="Memory bandwidth in bytes a second, such as 50e9.")],
    efficiency: Annotated[float, typer.Option(help="The part of either that real kernels reach.")] = 0.3,
    side: AsSide = SideName.edge,
    shape: Shape = None,
    preprocess: Preprocess = "none",
    postprocess: Postprocess = "none",
    batch: Batch = None,
    device: Annotated[str, typer.Option(help="What the hardware is called.")] = "hardware that was not measured",
) -> None:
    """Estimate the profile of hardware that one does not have, by the roofline model. It is marked as estimated."""
    check_out(out)
    roof = Roof(flops, bytes_per_s, efficiency)
    recipes = [Recipe(model, shapes, preprocess, postprocess) for shapes in buckets_of(shape or ())]
    made = estimate_profile(model, side.value, recipes, roof, device, batches_of(batch))
    save_profile(made, out)
    show_profile(made, PlainConsole())


def show(profile: ProfileFile) -> None:
    """Show what a profile holds."""
    show_profile(load_profile(profile), PlainConsole())


def batches_of(text: str | None) -> tuple[int, ...] | None:
    """Batch sizes such as `1,2,4`. Raises `UserError` where they are not numbers."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise UserError(f"batch {text!r}: expected numbers joined by commas, such as 1,2,4")
    return tuple(map(int, parts))


class _Shown:
    """What is being done, as a bar on a terminal and as lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        self._task = self._bar.add_task("starting", total=1.0)
        self._last = ""

    def __enter__(self) -> _Shown:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def tell(self, what: str, done: float) -> None:
        """Show it. Nothing is drawn in between, so that nothing runs beside what is timed."""
        if self._console.is_terminal:
            self._bar.update(self._task, description=printable(what), completed=done)
            self._bar.refresh()
        elif what != self._last:
            self._console.print(what)
        self._last = what
