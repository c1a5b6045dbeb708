"""The partitioner as functions: what its verbs on the command line do, with the same options as keyword arguments.

Options have the forms that they have on the command line (`deadline="20ms"`, `link="200mbit,2ms"`), since a number
without a unit would be guessed at; an option that may be repeated takes one text or several. What is returned is frozen.
Errors are those of `shared.errors`, and name what is at fault. `docs/python.md` has examples.

Each function imports what it needs when it is called: reading a plan loads neither a model nor a runtime.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from partitioner.planned import Given, Planned, Report, as_planned, read_plan
from partitioner.reports.gallery import Drawing
from shared.errors import UserError

if TYPE_CHECKING:
    from partitioner.explanations.explanation import Explanation
    from partitioner.golden_proof import Verification
    from partitioner.inspections.inspection import Inspection
    from partitioner.profiles.record import DeviceProfile, Side

__all__ = [
    "Drawing",
    "Given",
    "Place",
    "Planned",
    "Report",
    "bundles",
    "draw",
    "explain",
    "inspect",
    "plan",
    "profile",
    "read_plan",
    "report",
    "verify",
]

Place = str | os.PathLike[str]
"""The path of a file or folder."""
Texts = str | Sequence[str]
"""One text, or several."""


def inspect(model: Place, *, shape: Texts = (), preprocess: str = "none", postprocess: str = "none") -> Inspection:
    """What an ONNX model takes and gives, and where it may be cut: `headtail inspect`.

    `shape` is the input at one row, `1,3,192,192`, or `NAME=...` for each of several. Sizes in the result are bytes of
    one row, shares of compute 0 to 1. A model that can be read but not run has a `problem` and no cuts.

    Raises `UserError` where a processing is misspelt, `ModelError` where the file is no readable model.
    """
    from partitioner.graph.recipe import Recipe
    from partitioner.inspections.inspection import inspect_model

    return inspect_model(Recipe(Path(model), _texts(shape), preprocess, postprocess))


def draw(
    model: Place,
    *,
    shape: Texts = (),
    preprocess: str = "none",
    postprocess: str = "none",
    profile: Place | None = None,
) -> Drawing:
    """Draw a model's groups of operators with the places to cut: `headtail inspect --svg` and `--html`. They are coloured by
    their estimated compute, or by the times in a `profile`.

    Raises as `inspect`, `ModelError` for a model that cannot be run, and `UserError` for a profile of another model.
    """
    from partitioner.graph.recipe import Recipe
    from partitioner.inspections.inspection import look_at
    from partitioner.inspections.page import render_page, render_svg
    from partitioner.inspections.view import view_of
    from partitioner.profiles.file import load_profile

    times = None if profile is None else load_profile(Path(profile))
    view = view_of(look_at(Recipe(Path(model), _texts(shape), preprocess, postprocess)), times)
    return Drawing(render_svg(view), render_page(view))


def profile(
    model: Place,
    out: Place | None = None,
    *,
    side: Side = "edge",
    shape: Texts = (),
    preprocess: str = "none",
    postprocess: str = "none",
    batch: Sequence[int] | None = None,
    provider: str = "cpu",
    threads: int = 1,
    cadence: float = 30.0,
    seconds: float = 20.0,
    host: str | None = None,
    headtail_there: str = "headtail",
    through: str | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> DeviceProfile:
    """Measure what a model costs on this machine, on `host` by ssh, or `through` the agent or node that serves it, on its
    own device: `headtail profile`. Written to `out` where that is given.

    `side` is what the machine is in a plan. `batch` are rows of one launch; by default 1, 2 and 4 where rows can be
    joined. Another shape for the same input begins another set of shapes. Times in the result are microseconds, at
    `cadence` requests a second, measured for at most `seconds`. `progress` is told what is being done, and how much of it
    is (0 to 1).

    Raises `UserError` for what cannot be asked, is refused, or a machine that cannot be reached, `HeadtailError` for an agent
    or node that does not answer, `ModelError` for a model that cannot be used.
    """
    from partitioner.profiles.elsewhere import measure_on
    from partitioner.profiles.file import check_out, save_profile
    from partitioner.profiles.measure import Asked, buckets_of, check_asked, measure, provider_named
    from partitioner.profiles.remote import Host
    from partitioner.profiles.through import measure_through

    if through is not None and host is not None:
        raise UserError("--through and --host: give one of them")
    if through is not None and (provider, threads) != ("cpu", 1):
        raise UserError("--through: provider and threads are those with which the process serves: leave them out")
    if out is not None:
        check_out(Path(out))
    asked = Asked(
        model=Path(model),
        side=side,
        shapes=buckets_of(_texts(shape)),
        preprocess=preprocess,
        postprocess=postprocess,
        batches=None if batch is None else tuple(batch),
        provider=provider_named(provider) if host is None and through is None else provider,
        threads=threads,
        cadence_hz=cadence,
        seconds=seconds,
    )
    check_asked(asked)

    def told(what: str, done: float) -> None:
        if progress is not None:
            progress(what, done)

    if through is not None:
        found = measure_through(through, asked, told)
    elif host is not None:
        found = measure_on(Host(host, headtail_there), asked, told)
    else:
        found = measure(asked, told)
    if out is not None:
        save_profile(found, Path(out))
    return found


def plan(
    model: Place,
    out: Place,
    *,
    shape: Texts = (),
    preprocess: str = "none",
    postprocess: str = "none",
    calibration: Place | None = None,
    deadline: str = "10ms",
    link: str = "200mbit,2ms",
    edge_slowdown: float = 1.0,
    edge: Place | None = None,
    cloud: Place | None = None,
    cadence: float = 30.0,
    metric: str | None = None,
    min_agreement: float = 0.5,
    rung_resolution: Sequence[int] = (),
    rung: Texts = (),
    labels: Place | None = None,
    rungs: bool = True,
    force_cut: Texts = (),
    jpeg_quality: Sequence[int] = (),
    codec: Texts = (),
    private_input: bool = False,
    least_share: float = 0.0,
    max_bytes_per_second: int | None = None,
    overhead: Place | None = None,
    conditions: Place | None = None,
    max_regret: float = 0.02,
    pin: Texts = (),
    device_memory: str | None = None,
    objective: str = "latency",
    compute_watts: float | None = None,
    radio_watts: float | None = None,
    cloud_price: float = 0.05,
    traffic_price: float = 0.1,
    threads: int = 1,
    seed: int = 0,
    quick: bool = False,
    buckets: str | None = None,
    pad: Texts = (),
    progress: Callable[[str], None] | None = None,
) -> Planned:
    """Decide where a model should run, cut it there, prove it, and write the bundle `out`, NAME.plan: `headtail plan`, whose
    help says what each option means.

    `deadline` has a unit (`20ms`), `link` is rate and round trip (`200mbit,2ms`), `device_memory` a size (`64MiB`), `cadence`
    requests a second, agreements and shares 0 to 1. `calibration` is a folder of images, an .npz with rows of each input, or
    `module:function`; without it nothing lossy is offered. `buckets` is an open axis with one length, `seq=64`, to which
    shorter requests are padded, with 0 or what `pad` says of an input (`ids=1`). `progress` is told what is being done
    whenever that changes.

    Raises `UserError` for what cannot be asked, `ModelError` for a model that cannot be used, `BundleError` where
    something else lies at `out`, and `Unsatisfiable` where nothing satisfies all that was demanded. Then nothing was
    written.
    """
    from partitioner.build import make
    from partitioner.grids.file import read_grid
    from partitioner.options import PlanOptions, parse_bytes, parse_duration, parse_link
    from partitioner.padding_proof import parse_buckets, parse_pads

    sizes = None if buckets is None else parse_buckets(buckets)
    if sizes is not None and len(sizes[1]) != 1:
        raise UserError(f"buckets {buckets!r}: expected one length; `bundles` names a bundle for each")
    made = make(
        PlanOptions(
            model=Path(model),
            out=Path(out),
            shapes=_texts(shape),
            preprocess=preprocess,
            postprocess=postprocess,
            calibration=_path(calibration),
            deadline_ns=parse_duration(deadline),
            link=parse_link(link),
            edge_slowdown=edge_slowdown,
            edge=_path(edge),
            cloud=_path(cloud),
            cadence_hz=cadence,
            metric=metric,
            min_agreement=min_agreement,
            rung_resolutions=tuple(rung_resolution),
            rungs=_texts(rung),
            labels=_path(labels),
            lower_rungs=rungs,
            force_cuts=_texts(force_cut),
            seed=seed,
            quick=quick,
            threads=threads,
            jpeg_qualities=tuple(jpeg_quality) or (90,),
            private_input=private_input,
            least_share=least_share,
            max_bytes_per_second=max_bytes_per_second,
            pins=_texts(pin),
            device_memory=None if device_memory is None else parse_bytes(device_memory),
            objective=objective,
            compute_watts=compute_watts,
            radio_watts=radio_watts,
            cloud_price=cloud_price,
            traffic_price=traffic_price,
            grid=() if conditions is None else read_grid(Path(conditions)),
            max_regret=max_regret,
            overhead=_path(overhead),
            codecs=_texts(codec),
            bucket=None if sizes is None else (sizes[0], sizes[1][0]),
            pads=parse_pads(_texts(pad)),
        ),
        progress or (lambda _: None),
    )
    return Planned(made.path, made.plan, made.record)


def bundles(out: Place, buckets: str) -> list[tuple[Path, str]]:
    """The bundle and the `buckets` of each length of `seq=64,128,256`, for as many calls of `plan`: `NAME-64.plan` and so on
    beside `out`, NAME.plan. Raises `UserError`."""
    from partitioner.padding_proof import parse_buckets

    path = Path(out)
    dimension, sizes = parse_buckets(buckets)
    return [(path.with_name(f"{path.stem}-{size}{path.suffix}"), f"{dimension}={size}") for size in sizes]


def explain(
    plan: Given,
    *,
    link: str | None = None,
    edge_slowdown: float | None = None,
    deadline: str | None = None,
    min_agreement: float | None = None,
    what_if: Texts = (),
) -> Explanation:
    """Say which way of a plan wins under these conditions, why, and what would have to change for another to win:
    `headtail explain`.

    What is not given is as the plan was asked for. `what_if` are ranges of one condition, such as
    `link.rate=10..1000mbit`. Times in the result are microseconds, rates Mbit/s, round trips and deadlines of ranges ms.
    Nothing is measured again.

    Raises `UserError` for conditions that are none, `BundleError` for a damaged bundle or one without a record.
    """
    from partitioner.costs.conditions import Conditions, check_conditions, parse_span
    from partitioner.explanations.explanation import explain as explained
    from partitioner.options import parse_duration, parse_link

    spans = [parse_span(text) for text in _texts(what_if)]
    given_link = None if link is None else parse_link(link)
    given_ns = None if deadline is None else parse_duration(deadline)
    record = as_planned(plan).record
    asked = record.asked
    conditions = Conditions(
        link=asked.link if given_link is None else given_link,
        edge_slowdown=asked.edge_slowdown if edge_slowdown is None else edge_slowdown,
        deadline_ns=asked.deadline_ns if given_ns is None else given_ns,
        min_agreement=asked.min_agreement if min_agreement is None else min_agreement,
    )
    return explained(record, check_conditions(conditions), spans)


def report(plan: Given, *, out: Place | None = None) -> Report:
    """Write the report of a plan again, as one HTML page that needs nothing else: `headtail report`. It becomes the
    bundle's own where `out` is not given. The result draws its charts one by one.

    Raises `BundleError` for a damaged bundle or one without a record, `UserError` where the page cannot be written.
    """
    from partitioner.reports.file import write_report

    planned = as_planned(plan)
    return Report(write_report(planned, _path(out)), planned.record)


def verify(plan: Given, *, progress: Callable[[str], None] | None = None) -> Verification:
    """Run every cut in every coding, and every rung, of a bundle's own files on its golden inputs, in this process, and hold
    the exact ones against the whole model's answers. `headtail verify` does so with the tails in a node of their own.

    Raises `BundleError` for a damaged bundle, `ModelError` where a segment cannot be loaded or run. A way whose answers
    differ raises nothing: the result's `holds` is False.
    """
    from partitioner.golden_proof import prove

    path = plan.path if isinstance(plan, Planned) else Path(plan)
    return prove(path, progress or (lambda _: None))


def _texts(given: Texts) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _path(given: Place | None) -> Path | None:
    return None if given is None else Path(given)
