"""`headtail bench --only ladder`: what rungs of three trained models cost and keep, on the machine at hand.

A detector, a classifier and a reader, each with what a rung can be made of: a lower resolution, static 8 bits, a function of
one's own. All of one model is timed side by side at the stream's pace, in blocks that take turns; agreement is with the whole
model, on rows to which nothing was fitted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from hil.fetch import cache_folder
from hil.model_zoo import zoo_model
from hil.splits.posts import Post, letters, write_post
from partitioner.choose import WHOLE, choose_rungs
from partitioner.costs.cost import NOTHING, Candidate, Spread
from partitioner.costs.timing import Job, Samples, sample_at
from partitioner.ladder import judge, lower_rungs, other_rungs, plan_rungs
from partitioner.options import PlanOptions
from partitioner.running import Part
from partitioner.study import Study, begin
from partitioner.ways import over

Progress = Callable[[str], None]

OWN = "hil.ladder_rows"
CADENCE_HZ = 30.0


class Case(msgspec.Struct, frozen=True):
    """A model of the zoo and its rungs. `rows` yields its data, `metric` counts agreement; both as `headtail plan` takes
    them. `rungs` are asked for by name, `resolutions` by height."""

    what: str
    name: str
    rows: str
    metric: str
    preprocess: str
    postprocess: str = "none"
    post: Post | None = None
    rungs: tuple[str, ...] = ("int8",)
    resolutions: tuple[int, ...] = ()


CASES = (
    Case(
        "detector",
        "centerface",
        f"{OWN}:faces",
        "detection",
        "image",
        postprocess="peaks",
        resolutions=(256, 224, 192, 160),
    ),
    Case(
        "classifier",
        "orientation",
        f"{OWN}:labels_of_text",
        "top1",
        "image:mean=127.5,std=127.5,bgr",
        rungs=("int8", f"{OWN}:three_quarters", f"{OWN}:half"),
        resolutions=(32,),
    ),
    Case(
        "reader",
        "text-reader",
        "hil.splits.rows:lines",
        "hil.splits.judges:letters",
        "image:mean=127.5,std=127.5,bgr",
        post=letters,
        rungs=("int8", f"{OWN}:three_quarters", f"{OWN}:half"),
    ),
)


class RungFigures(msgspec.Struct, frozen=True):
    """One rung: its times in milliseconds, its agreement with the whole model, and whether a ladder without a least agreement
    would keep it, being faster than each that agrees more."""

    name: str
    p50_ms: float
    p99_ms: float
    agreement: float
    kept: bool


class Ladder(msgspec.Struct, frozen=True):
    """The rungs of one model, best first. `rows` are those judged by, `notes` say what could not be made, `disturbed` is the
    share of timed runs that the machine disturbed."""

    what: str
    name: str
    metric: str
    rows: int
    runs: int
    disturbed: float
    rungs: tuple[RungFigures, ...]
    notes: tuple[str, ...]


def measure(seconds: float, progress: Progress, cases: Sequence[Case] = CASES) -> list[Ladder]:
    """Make, judge and time the rungs of every case, for so many seconds each. Raises `ModelError` where a model cannot be
    had."""
    with tempfile.TemporaryDirectory(prefix="headtail-ladder-") as folder:
        return [_measure(case, Path(folder), seconds, progress) for case in cases]


def _measure(case: Case, folder: Path, seconds: float, progress: Progress) -> Ladder:
    progress(f"{case.what}: reading {case.name}")
    study = begin(_options(case, folder), lambda words: progress(f"{case.what}: {words}"))
    data, model = study.data, study.model
    progress(f"{case.what}: making and judging the rungs")
    wanted = plan_rungs(case.rungs)
    made, notes = other_rungs(wanted, study.recipe, model, data.fit, must=False, threads=study.options.threads)
    lower, more = (
        ([], [])
        if not case.resolutions
        else lower_rungs(study.recipe, model.inputs[0], case.resolutions, must=False, threads=study.options.threads)
    )
    judged = [judge(rung, study.judge, study.reference, data.held_out, data.labels) for rung in (*made, *lower)]
    progress(f"{case.what}: timing {len(judged) + 1} rungs side by side")
    samples = _timed(study, {WHOLE: study.whole, **{rung.name: rung.part for rung in judged}}, seconds)
    times = samples.spreads()
    ways = [_way(WHOLE, times[WHOLE], 1.0), *(_way(rung.name, times[rung.name], rung.agreement) for rung in judged)]
    kept = {way.rung for way in choose_rungs(ways, 0.0)}
    ways.sort(key=lambda way: (-way.agreement, way.head.p50_us))
    return Ladder(
        what=case.what,
        name=case.name,
        metric=case.metric,
        rows=len(data.held_out),
        runs=min(len(runs) for runs in samples.runs.values()),
        disturbed=samples.disturbed_share,
        rungs=tuple(
            RungFigures(way.rung, way.head.p50_us / 1e3, way.head.p99_us / 1e3, way.agreement, way.rung in kept)
            for way in ways
        ),
        notes=(*notes, *more),
    )


def _options(case: Case, folder: Path) -> PlanOptions:
    zoo, cache = zoo_model(case.name), cache_folder()
    post = case.postprocess
    if case.post is not None:
        post = str(write_post(case.post, zoo.normal(cache), folder / f"{case.name}-behind.onnx"))
    return PlanOptions(
        model=zoo.path(cache),
        out=folder / f"{case.name}.plan",
        shapes=zoo.shapes,
        preprocess=case.preprocess,
        postprocess=post,
        calibration=Path(case.rows),
        metric=case.metric,
        cadence_hz=CADENCE_HZ,
    )


def _timed(study: Study, parts: dict[str, Part], seconds: float) -> Samples[str]:
    """All parts, timed in turns."""
    jobs: list[dict[str, Job]] = [{name: over(part, study.data.held_out)} for name, part in parts.items()]
    samples: Samples[str] = Samples()
    sample_at(study.pace, jobs, seconds, samples)
    return samples


def _way(rung: str, time: Spread, agreement: float) -> Candidate:
    return Candidate(
        kind="device",
        cut="",
        coding="",
        rung=rung,
        head=time,
        encode=NOTHING,
        decode=NOTHING,
        tail=NOTHING,
        bytes_up=0,
        bytes_down=0,
        agreement=agreement,
        measured=True,
    )


def show(ladders: Sequence[Ladder], console: Console) -> bool:
    """Show every ladder. There is no limit to keep."""
    table = Table(title="Rungs of three trained models, one thread")
    for column in ("model", "rung", "p50 ms", "p99 ms", "of the whole", "agreement", "earns its memory"):
        table.add_column(column, justify="left" if column in ("model", "rung", "earns its memory") else "right")
    for ladder in ladders:
        whole = next(rung for rung in ladder.rungs if rung.name == WHOLE)
        for number, rung in enumerate(ladder.rungs):
            table.add_row(
                f"{ladder.what}: {ladder.name}" if number == 0 else "",
                rung.name,
                f"{rung.p50_ms:.2f}",
                f"{rung.p99_ms:.2f}",
                f"{rung.p50_ms / whole.p50_ms:.2f}",
                f"{rung.agreement:.3f}",
                "yes" if rung.kept else "no",
            )
    console.print(table)
    for ladder in ladders:
        told = f"{ladder.runs} runs of each, {ladder.disturbed:.0%} of them disturbed"
        console.print(f"{ladder.name}: {ladder.rows} rows judged by {ladder.metric}; {told}.")
        for note in ladder.notes:
            console.print(f"  {note}")
    return True
