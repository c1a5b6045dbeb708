"""`headtail plan`: reads the options, shows what is being done, and ends with a table and one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from partitioner import api
from partitioner.choose import ordered
from partitioner.costs.cost import Candidate, predict
from partitioner.explanations.words import timed
from partitioner.grids.regret import words
from partitioner.planned import Planned
from partitioner.records.record import Record
from partitioner.terminal import PlainConsole
from shared.plan import REPORT_FILE
from shared.printable import printable

SHOWN = 8


def main(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The bundle to write, NAME.plan.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(help="The input at one row: 1,3,192,192, or NAME=1,3,192,192 for each of several."),
    ] = None,
    preprocess: Annotated[
        str, typer.Option(help="none, or image[:mean=M,std=S,bgr]: the input becomes a uint8 image.")
    ] = "none",
    postprocess: Annotated[
        str, typer.Option(help="none, peaks[:...], topk[:...], or the path of an ONNX file.")
    ] = "none",
    calibration: Annotated[
        Path | None,
        typer.Option(help="A folder of images, or an .npz with rows of each input; without it nothing lossy."),
    ] = None,
    deadline: Annotated[str, typer.Option(help="When an answer is due, such as 10ms.")] = "10ms",
    link: Annotated[str, typer.Option(help="Rate and round trip to the cloud, such as 200mbit,2ms.")] = "200mbit,2ms",
    edge_slowdown: Annotated[float, typer.Option(help="How many times slower than this machine the device is.")] = 1.0,
    edge: Annotated[
        Path | None, typer.Option(help="The device's profile (headtail profile), instead of --edge-slowdown.")
    ] = None,
    cloud: Annotated[Path | None, typer.Option(help="The cloud's profile, instead of this machine's times.")] = None,
    cadence: Annotated[float, typer.Option(help="Requests a second.")] = 30.0,
    metric: Annotated[
        str | None,
        typer.Option(help="How agreement is counted: detection, top1, text, relative, ... or module:function."),
    ] = None,
    min_agreement: Annotated[float, typer.Option(help="The least agreement with the whole model, 0 to 1.")] = 0.5,
    rung_resolution: Annotated[
        list[int] | None, typer.Option(help="Height of a lower resolution for the ladder; may be repeated.")
    ] = None,
    rung: Annotated[
        list[str] | None,
        typer.Option(help="One more rung: int8, model:PATH of a smaller one, or module:function; may be repeated."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="The right answers of the calibration rows, .npz; or class numbers as folders of images."),
    ] = None,
    rungs: Annotated[bool, typer.Option("--rungs/--no-rungs", help="Whether to make lower resolutions.")] = True,
    force_cut: Annotated[
        list[str] | None,
        typer.Option(help="A tensor (or `input`) to cut at, whatever the weighing says; may be repeated."),
    ] = None,
    jpeg_quality: Annotated[list[int] | None, typer.Option(help="JPEG quality of the input; may be repeated.")] = None,
    codec: Annotated[
        list[str] | None,
        typer.Option(help="pca, or a codec that another package brings, to be tried at every cut; may be repeated."),
    ] = None,
    private_input: Annotated[
        bool, typer.Option("--private-input", help="The input stays on the device, in any coding.")
    ] = False,
    least_share: Annotated[float, typer.Option(help="The least share of compute before a cut, 0 to 1.")] = 0.0,
    max_bytes_per_second: Annotated[
        int | None, typer.Option(help="The most that requests may send, at the cadence.")
    ] = None,
    overhead: Annotated[
        Path | None,
        typer.Option(help="What a request costs beside its work and the link, a file of `headtail overhead`."),
    ] = None,
    conditions: Annotated[
        Path | None,
        typer.Option(
            help="A grid of rates, round trips and device ratios, TOML: the routes are the fewest that lose little."
        ),
    ] = None,
    max_regret: Annotated[
        float, typer.Option(help="What the routes may lose under each of the conditions: 0.02 is 2 %.")
    ] = 0.02,
    pin: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=edge or NAME=cloud: where an operator runs on every way through the cloud, by its name or a tensor's; "
            "* and ? match any; may be repeated."
        ),
    ] = None,
    device_memory: Annotated[
        str | None, typer.Option(help="The most weights that the device may hold, heads and rungs, such as 64MiB.")
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="What the best way is best in, late ones last: latency (agreement, then time), on-time (margin before the "
            "deadline), energy (of the device) or cost (of the cloud)."
        ),
    ] = "latency",
    compute_watts: Annotated[
        float | None, typer.Option(help="The device's power while it computes; the --edge profile's where not given.")
    ] = None,
    radio_watts: Annotated[float | None, typer.Option(help="The device's power while bytes go either way.")] = None,
    cloud_price: Annotated[float, typer.Option(help="Money for an hour of computing in the cloud.")] = 0.05,
    traffic_price: Annotated[float, typer.Option(help="Money for a gigabyte sent either way.")] = 0.1,
    threads: Annotated[int, typer.Option(help="Threads of a session.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of crops and synthetic data.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Spend less time on timing and judging.")] = False,
    buckets: Annotated[
        str | None,
        typer.Option(
            help="An open axis, by its name in the file, and its lengths: seq=64,128,256. A bundle NAME-64.plan is made for "
            "each, and shorter requests are padded, where that is proven to change nothing."
        ),
    ] = None,
    pad: Annotated[
        list[str] | None, typer.Option(help="What an input is padded with, where not 0: NAME=VALUE; may be repeated.")
    ] = None,
) -> None:
    """Decide where a model should run under a deadline and a link, cut it there, prove it, and write the bundle."""
    console = PlainConsole(highlight=True)
    with console.status("starting") as status:

        def progress(text: str) -> None:
            if console.is_terminal:
                status.update(Text(printable(text)))
            else:
                console.print(text)

        def make(out: Path, one: str | None) -> Planned:
            return api.plan(
                model,
                out,
                shape=shape or (),
                preprocess=preprocess,
                postprocess=postprocess,
                calibration=calibration,
                deadline=deadline,
                link=link,
                edge_slowdown=edge_slowdown,
                edge=edge,
                cloud=cloud,
                cadence=cadence,
                metric=metric,
                min_agreement=min_agreement,
                rung_resolution=rung_resolution or (),
                rung=rung or (),
                labels=labels,
                rungs=rungs,
                force_cut=force_cut or (),
                jpeg_quality=jpeg_quality or (),
                codec=codec or (),
                private_input=private_input,
                least_share=least_share,
                max_bytes_per_second=max_bytes_per_second,
                overhead=overhead,
                conditions=conditions,
                max_regret=max_regret,
                pin=pin or (),
                device_memory=device_memory,
                objective=objective,
                compute_watts=compute_watts,
                radio_watts=radio_watts,
                cloud_price=cloud_price,
                traffic_price=traffic_price,
                threads=threads,
                seed=seed,
                quick=quick,
                progress=progress,
                buckets=one,
                pad=pad or (),
            )

        all_planned = [make(out, None)] if buckets is None else [make(*each) for each in api.bundles(out, buckets)]
    for planned in all_planned:
        show(console, planned)


def show(console: Console, planned: Planned) -> None:
    """Print the best ways, the ladder and the sentence."""
    record = planned.record
    table = Table(title=f"{record.name}: ways to answer", title_justify="left")
    for name in ("way", "p50 ms", "p99 ms", "up KB", "agreement", "by"):
        table.add_column(name, justify="left" if name in {"way", "by"} else "right", overflow="fold")
    candidates = record.candidates(record.asked.edge_slowdown)
    best = None if record.best is None else candidates[record.best]
    routes = [candidates[place] for place in record.routes]
    ways = ordered(candidates, record.asked.link, record.asked.deadline_ns)
    shown = [c for n, c in enumerate(ways) if n < SHOWN or c == best or c in routes or c.kind == "device"]
    for candidate in shown:
        table.add_row(*_cells(candidate, record), style="bold" if candidate == best else None)
    console.print(table)
    if len(ways) > len(shown):
        console.print(f"and {len(ways) - len(shown)} more in the report")
    ladder = ", ".join(f"{rung.name} ({rung.agreement:.3f})" for rung in planned.plan.ladder)
    told = ", ".join(route.label for route in routes)
    console.print(f"ladder: {ladder}; routes: {told or 'none, the device always wins'}")
    if record.regret is not None:
        console.print(words(record.regret.lost), highlight=False)
    for note in record.notes:
        console.print(f"note: {note}", highlight=False)
    if not record.data.real:
        console.print("note: no --calibration, so nothing lossy was considered and times are of seeded synthetic input")
    console.print(f"{planned.path}: {planned.plan.chosen}", highlight=False)
    console.print(f"made in {record.seconds:.1f} s; report in {planned.path / REPORT_FILE}", highlight=False)


def _cells(candidate: Candidate, record: Record) -> tuple[str, ...]:
    total = predict(candidate, record.asked.link).total
    agreement = "unknown" if math.isnan(candidate.agreement) else f"{candidate.agreement:.3f}"
    return (
        candidate.label,
        f"{total.p50_us / 1000:.2f}",
        f"{total.p99_us / 1000:.2f}",
        f"{candidate.bytes_up / 1000:.1f}",
        agreement,
        timed(candidate.measured, record.edge, record.cloud),
    )
