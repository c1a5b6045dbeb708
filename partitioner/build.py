"""From options to a bundle on disk: study, weigh, cut, write, prove, profile, publish.

The bundle is made in a folder of its own beside its place and moved there only when it is complete and proven, so that a
plan that exists is a plan that works. Segments are made only at cuts that a route uses.

Several plans of one model that differ only in their places and forced cuts share one study: the model is read, run on the
data, timed and judged once, and only what each bundle is made of is written and proven for each. One that came out of the
same files as one before it takes over that one's profile, too: two timings of one file would differ by noise alone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from partitioner.bundle_profile import LoadedBundle, Ranges, known_profiles, load_segments, profile_bundle
from partitioner.choose import WHOLE
from partitioner.costs.cost import Candidate
from partitioner.costs.sides import Sides
from partitioner.graph.split import Chain, split
from partitioner.graph.weights import write_programs
from partitioner.inversions.inversion import LEAST_ROWS, Inversion
from partitioner.inversions.inverting import JUDGED_ROWS, invert_routes
from partitioner.ladder import plan_rungs
from partitioner.options import PlanOptions, check_options
from partitioner.own_codings import check_codecs
from partitioner.padding_proof import ProvenPadding, with_padding
from partitioner.records.record import RECORD_FILE, Record, encode_record
from partitioner.records.recording import record_of
from partitioner.reports.page import render
from partitioner.running import Tensors
from partitioner.study import Progress, Study, begin
from partitioner.verify_local import verify_local
from partitioner.weigh import Weighing, begin_weighing, settle, weigh
from shared.bundle import check_place, digests, finish_bundle, write_manifest
from shared.errors import ModelError, UserError
from shared.plan import (
    GOLDEN_FILE,
    PLAN_FILE,
    PLAN_FORMAT,
    RAW,
    REPORT_FILE,
    WEIGHTS_FILE,
    Coding,
    Cut,
    Plan,
    Program,
    Route,
    Rung,
)
from shared.plan_rules import plan_faults
from shared.request import Array

MAX_BATCH = 8
"""Most rows of one launch, where rows may be joined: on a CPU a larger batch gains nothing and takes deadlines with it."""
GOLDEN_ROWS = 4


@dataclass(frozen=True, slots=True)
class Made:
    """A plan that was made: where it lies, what it says, its record, what was weighed, whose times were taken, and how
    long it took."""

    path: Path
    plan: Plan
    record: Record
    weighing: Weighing
    sides: Sides
    seconds: float


def make_plan(options: PlanOptions, progress: Progress = lambda _: None) -> Path:
    """Make the bundle `options.out` and return its path. Raises `UserError` and its kinds; then nothing was published."""
    return make(options, progress).path


def make(options: PlanOptions, progress: Progress = lambda _: None) -> Made:
    """As `make_plan`, with all that was found on the way."""
    return make_all((options,), progress)[0]


def make_all(wanted: Sequence[PlanOptions], progress: Progress = lambda _: None) -> tuple[Made, ...]:
    """Bundles that differ only in `out` and `force_cuts`, made from one study, in the order wanted; the first one's time
    has the study's in it. Each is published as soon as it is proven.

    Raises `UserError` and its kinds, and `ValueError` where they differ in anything else.
    """
    began = time.monotonic()
    first = wanted[0]
    if any(replace(options, out=first.out, force_cuts=first.force_cuts) != first for options in wanted):
        raise ValueError("plans of one study may differ in nothing but their places and forced cuts")
    for options in wanted:
        check_options(options)
        plan_rungs(options.rungs)
        check_codecs(options.codecs)
        check_place(options.out)
    with _workshop(first.out) as folder:
        if first.bucket is not None:
            progress(f"proving that padding {first.bucket[0]} to {first.bucket[1]} changes nothing")
        first, padded = with_padding(first)
        study = begin(first, progress)
        others = [study.under(options) for options in wanted[1:]]
        begun = begin_weighing(study, progress)
        made = [_make(study, weigh(study, begun, progress), folder, began, progress, (), padded)]
    for other in others:
        began = time.monotonic()
        out = other.options.out
        with _workshop(out) as folder:
            told = partial(_tell, progress, out.stem)
            made.append(_make(other, weigh(other, begun, told), folder, began, told, [one.plan for one in made]))
    return tuple(made)


def _tell(progress: Progress, name: str, words: str) -> None:
    progress(f"{name}: {words}")


def _make(
    study: Study,
    weighing: Weighing,
    folder: Path,
    began: float,
    progress: Progress,
    before: Sequence[Plan],
    padded: ProvenPadding | None = None,
) -> Made:
    """Write, prove, profile and publish one bundle. `before` are plans of the same study that have been made."""
    options = study.options
    progress("writing the segments")
    chains = _chains(study, weighing)
    programs = write_programs(chains, folder)
    plan = _plan(study, weighing, chains, programs, folder)
    if padded is not None:
        plan = msgspec.structs.replace(plan, padding=padded.padding)
        weighing = replace(weighing, notes=(*weighing.notes, padded.note))
    for fault in plan_faults(plan):
        raise ModelError(f"{options.model}: the plan does not hold together: {fault}")
    bundle = load_segments(folder, plan, options.threads)
    progress("proving that head and tail equal the whole")
    checks = verify_local(study, bundle)
    profiles = next((known for one in before if (known := known_profiles(plan, one))), ())
    if not profiles:
        progress("timing the segments at the stream's pace")
        profiles = profile_bundle(
            bundle,
            study.data.held_out,
            study.pace,
            study.effort.profile_s,
            Ranges(plan, tuple(cut.nodes for cut in chains[WHOLE].cuts), weighing.here, study.sides),
            options.threads,
        )
    weighing = settle(study, weighing, msgspec.structs.replace(plan, profiles=profiles))
    order = [cut.name for cut in plan.cuts]
    routes = tuple(_route(way, order.index(way.cut)) for way in weighing.routes)
    plan = msgspec.structs.replace(plan, profiles=profiles, routes=routes, chosen=weighing.sentence)
    progress("writing the report")
    _write_golden(study, folder)
    (folder / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    inversions = _inversions(study, bundle, plan, progress)
    record = record_of(study, weighing, plan, checks, inversions, time.monotonic() - began)
    (folder / RECORD_FILE).write_bytes(encode_record(record))
    (folder / REPORT_FILE).write_text(render(record, plan), encoding="utf-8")
    write_manifest(folder)
    finish_bundle(folder, options.out)
    return Made(options.out, plan, record, weighing, study.sides, time.monotonic() - began)


def _inversions(study: Study, bundle: LoadedBundle, plan: Plan, progress: Progress) -> tuple[Inversion, ...]:
    """How well a decoder rebuilds a private input, where there are rows enough to fit one to."""
    data = study.data
    if not (study.options.private_input and data.real and len(data.fit) >= LEAST_ROWS):
        return ()
    progress("rebuilding the input from what crosses")
    return invert_routes(bundle, plan.routes, data.fit, data.held_out[:JUDGED_ROWS])


@contextmanager
def _workshop(out: Path) -> Generator[Path]:
    """A fresh folder beside `out`, gone again unless it was moved away."""
    folder = out.with_name(f".{out.name}.{os.getpid()}.new")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except OSError as error:
        raise UserError(f"output {out}: cannot be written ({error.strerror})") from None
    try:
        yield folder
    except PermissionError:
        raise  # of something that was to be read: it names itself
    except OSError as error:
        raise UserError(f"output {out}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _chains(study: Study, weighing: Weighing) -> dict[str, Chain]:
    """The whole model, cut where a route needs it, and each rung of the ladder."""
    names = {route.cut for route in weighing.routes}
    cuts = [loaded.cut for loaded in weighing.loaded.values() if loaded.head is not None and loaded.cut.name in names]
    chains = {WHOLE: split(study.model, cuts)}
    chains |= {rung.name: split(rung.model, []) for rung in weighing.lower}
    return chains


def _plan(
    study: Study, weighing: Weighing, chains: Mapping[str, Chain], programs: tuple[Program, ...], folder: Path
) -> Plan:
    order = [cut.name for cut in chains[WHOLE].cuts]
    cuts = tuple(Cut(cut.name, cut.tensors, _codings(weighing, cut.name)) for cut in chains[WHOLE].cuts)
    numbers = {name: number for number, name in enumerate(chains)}
    return Plan(
        format=PLAN_FORMAT,
        name=study.options.out.stem,
        model=study.model.digest,
        opset=study.model.opset,
        ir_version=study.model.ir_version,
        batchable=study.model.batchable,
        max_batch=MAX_BATCH if study.model.batchable else 1,
        cuts=cuts,
        programs=programs,
        ladder=tuple(Rung(c.rung, numbers[c.rung], round(c.agreement, 4)) for c in weighing.rungs),
        routes=tuple(_route(c, order.index(c.cut)) for c in weighing.routes),
        metric=study.metric,
        chosen=weighing.sentence,
        digests=_digests(programs, folder),
    )


def _codings(weighing: Weighing, cut: str) -> tuple[Coding, ...]:
    """raw, and the codings in which a route sends the cut."""
    loaded = weighing.loaded.get(cut)
    if loaded is None:
        return (RAW,)
    used = {route.coding for route in weighing.routes if route.cut == cut}
    return tuple(coded.coding for coded in loaded.coded if coded.coding.name in used or not coded.coding.coded)


def _route(candidate: Candidate, cut: int) -> Route:
    return Route(cut, candidate.coding, round(candidate.agreement, 4), candidate.bytes_up, candidate.bytes_down)


def _digests(programs: tuple[Program, ...], folder: Path) -> dict[str, str]:
    names = sorted({segment.file for program in programs for segment in program.segments})
    if (folder / WEIGHTS_FILE).exists():
        names.append(WEIGHTS_FILE)
    return digests(folder, names)


def _write_golden(study: Study, folder: Path) -> None:
    """A few held-out rows and the whole model's answers to them: evenly spread over those in which it finds something, as
    far as there are any, since an answer of zeros equals that of many a wrong model."""
    rows = study.data.held_out
    order = sorted(range(len(rows)), key=lambda index: study.found_in(index) == 0.0)
    telling = sum(study.found_in(index) > 0.0 for index in order)
    among = order[: max(telling, min(GOLDEN_ROWS, len(order)))]
    chosen = among[:: max(1, len(among) // GOLDEN_ROWS)][:GOLDEN_ROWS]
    arrays: dict[str, Array] = {}

    def put(side: str, number: int, specs: tuple[str, ...], tensors: Tensors) -> None:
        arrays.update({f"{side}/{number}/{name}": array for name, array in zip(specs, tensors, strict=True)})

    for number, index in enumerate(chosen):
        put("in", number, tuple(spec.name for spec in study.model.inputs), rows[index])
        put("out", number, tuple(spec.name for spec in study.model.outputs), study.reference[index])
    with (folder / GOLDEN_FILE).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
