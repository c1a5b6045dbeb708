"""Weighing every way to answer, and looking closely only at those that may win.

All candidates get an estimate: times from a few timed heads, bytes from shapes, agreement taken as full where it is not
known. Those that would win with that benefit of the doubt are loaded, fitted, timed at the stream's pace and judged on
held-out data; what they lose by it may let others win, so this is repeated until every winner was measured or the
allowance of cuts is used up. A way that was only estimated is shown in the report and never chosen. Measuring all of
them was rejected: a model of 300 cuts would take an hour, for ways that lose even when flattered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from partitioner.calibration import is_image
from partitioner.choose import WHOLE, acceptable, choose_routes, choose_rungs, explain, rank
from partitioner.cost import HEADER_BYTES, NOTHING, Candidate, Spread
from partitioner.estimate import remainder, spread_heads, warm_heads
from partitioner.graph.cuts import CandidateCut
from partitioner.ladder import LowerRung, default_resolutions, judge, lower_rungs
from partitioner.running import decode_all, encode_all
from partitioner.study import INPUT, Progress, Study
from partitioner.timing import Job, time_at_cadence, time_warm
from partitioner.ways import LoadedCut, TimeKey, cut_jobs, load_cut, measured_candidates, over, reply_bytes, takes_int8
from shared.plan import RAW, Coding
from shared.request import TensorSpec

RUN = "run"
FEW = 50
"""Findings in the held-out data below which an agreement is called weak: one of fifty is two hundredths of F1."""
SAMPLE = TensorSpec("sample", "float32", (1, 64, 32, 32))
"""The tensor by which coding times of cuts that are not loaded are estimated."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """The outcome: all candidates, the best, the cloud's ways to keep, the rungs to keep, and the loaded cuts by name.
    `notes` are for the report."""

    candidates: tuple[Candidate, ...]
    best: Candidate | None
    routes: tuple[Candidate, ...]
    rungs: tuple[Candidate, ...]
    lower: tuple[LowerRung, ...]
    loaded: dict[str, LoadedCut]
    sentence: str
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Table:
    """What is known so far."""

    candidates: list[Candidate]
    loaded: dict[str, LoadedCut]
    whole: Spread


def weigh(study: Study, progress: Progress) -> Weighing:
    """Weigh all ways under the options' link, deadline and least agreement."""
    options = study.options
    lower, notes = _rungs(study, progress)
    progress("timing the whole model, the rungs and the input's codings at the stream's pace")
    loaded = {INPUT: load_cut(study, study.cuts[0])}
    jobs: dict[TimeKey, Job] = {(WHOLE, RUN, ""): over(study.whole, study.data.held_out)}
    jobs |= {(rung.name, RUN, ""): over(rung.part, study.data.held_out) for rung in lower}
    jobs |= cut_jobs(study, loaded[INPUT])
    times = time_at_cadence(jobs, study.cadence_hz, study.effort.weigh_s)
    whole = times[WHOLE, RUN, ""]
    device = [_device(study, WHOLE, whole, 1.0)]
    device += [_device(study, rung.name, times[rung.name, RUN, ""], rung.agreement) for rung in lower]
    progress(f"estimating {len(study.inner)} cuts")
    known = measured_candidates(study, loaded[INPUT], times, whole)
    table = _Table([*device, *known, *_estimates(study, whole)], loaded, whole)
    for cut in study.forced:
        if cut.name not in loaded:
            _look_closely(study, cut, table, progress)
    if not study.forced:
        _look_at_winners(study, table, progress)
    best, routes = _choose(study, table.candidates)
    sentence = explain(best, [c for c in table.candidates if c.measured], options.link, options.deadline_ns)
    if study.forced:
        sentence += f"; the routes are forced to {', '.join(dict.fromkeys(cut.name for cut in study.forced))}"
    rungs = choose_rungs(device, options.min_agreement)
    dropped = [c.rung for c in device if c not in rungs]
    if study.data.real and study.found < FEW:
        notes.append(f"agreement rests on {study.found} findings in the held-out data: give more for a firmer figure")
    notes += [f"rung {name} is left out: not faster than a better one, or of too little agreement" for name in dropped]
    return Weighing(
        candidates=tuple(table.candidates),
        best=best,
        routes=tuple(routes),
        rungs=tuple(rungs),
        lower=tuple(rung for rung in lower if rung.name not in dropped),
        loaded=loaded,
        sentence=sentence,
        notes=tuple(notes),
    )


def _rungs(study: Study, progress: Progress) -> tuple[list[LowerRung], list[str]]:
    options = study.options
    wanted = options.rung_resolutions
    if not options.lower_rungs:
        return [], []
    if not study.data.real or not is_image(study.model.inputs):
        if wanted:
            return [], ["no lower resolutions: they need --preprocess image and --calibration to be judged"]
        return [], []
    progress("making and judging the lower resolutions")
    image = study.model.inputs[0]
    made, notes = lower_rungs(
        study.recipe, image, wanted or default_resolutions(image.shape[1]), must=bool(wanted), threads=options.threads
    )
    return [judge(rung, study.metric, study.reference, study.data.held_out) for rung in made], notes


def _device(study: Study, name: str, time: Spread, agreement: float) -> Candidate:
    return Candidate(
        kind="device",
        cut="",
        coding="",
        rung=name,
        head=time.slowed(study.options.edge_slowdown),
        encode=NOTHING,
        decode=NOTHING,
        tail=NOTHING,
        bytes_up=0,
        bytes_down=0,
        agreement=agreement,
        measured=True,
    )


def _estimates(study: Study, whole: Spread) -> list[Candidate]:
    """All inner cuts, raw and int8, by estimate. The agreement of int8 is not known (NaN)."""
    if not study.inner:
        return []
    row = study.data.held_out[0]
    warm, whole_warm_us = warm_heads(study.model, study.inner, row, study.options.threads, study.effort.anchors)
    heads = spread_heads(study.inner, warm, whole_warm_us, whole)
    int8 = Coding("int8", "int8", scales=((1.0,) * SAMPLE.shape[1],))
    speeds = {coding.name: _speed(coding) for coding in (RAW, int8)}
    found: list[Candidate] = []
    for cut in study.inner:
        for coding in (RAW, int8) if takes_int8(cut) and study.data.real else (RAW,):
            encode_us, decode_us = (speed * cut.raw_bytes for speed in speeds[coding.name])
            found.append(
                Candidate(
                    kind="split",
                    cut=cut.name,
                    coding=coding.name,
                    rung="",
                    head=heads[cut.name].slowed(study.options.edge_slowdown),
                    encode=Spread(encode_us, encode_us).slowed(study.options.edge_slowdown),
                    decode=Spread(decode_us, decode_us),
                    tail=remainder(whole, heads[cut.name]),
                    bytes_up=(cut.int8_bytes if coding.lossy else cut.raw_bytes) + HEADER_BYTES,
                    bytes_down=reply_bytes(study),
                    agreement=math.nan if coding.lossy else 1.0,
                    measured=False,
                )
            )
    return found


def _speed(coding: Coding) -> tuple[float, float]:
    """Microseconds to encode and to decode a raw byte, warm."""
    tensors = (np.random.default_rng(0).standard_normal(SAMPLE.shape).astype(np.float32),)
    frames = encode_all(tensors, coding)
    encode_us = time_warm(lambda: encode_all(tensors, coding), 5)
    decode_us = time_warm(lambda: decode_all(frames, coding, [SAMPLE]), 5)
    return encode_us / SAMPLE.nbytes(), decode_us / SAMPLE.nbytes()


def _look_at_winners(study: Study, table: _Table, progress: Progress) -> None:
    """Measure those that would win with the benefit of the doubt, and the best split in any case, for the report."""
    options = study.options
    by_name = {cut.name: cut for cut in study.inner}
    while len(table.loaded) - 1 < study.effort.finalists:
        hopeful = [
            replace(c, agreement=1.0 if math.isnan(c.agreement) else c.agreement, measured=True)
            for c in table.candidates
        ]
        splits = [c for c in hopeful if c.kind == "split"]
        names = [c.cut for c in choose_routes(hopeful, options.link, options.deadline_ns, options.min_agreement)]
        names += [c.cut for c in rank(splits, options.link, options.deadline_ns, options.min_agreement)[:1]]
        names = [name for name in names if name not in table.loaded]
        if not names:
            return
        _look_closely(study, by_name[names[0]], table, progress)


def _look_closely(study: Study, cut: CandidateCut, table: _Table, progress: Progress) -> None:
    """Load, fit, judge and time a cut, and put the measured candidates in the place of the estimated."""
    progress(f"cutting and timing at {cut.name}")
    loaded = load_cut(study, cut)
    table.loaded[cut.name] = loaded
    times = time_at_cadence(cut_jobs(study, loaded), study.cadence_hz, study.effort.weigh_s / 2)
    measured = measured_candidates(study, loaded, times, table.whole)
    table.candidates = [c for c in table.candidates if c.cut != cut.name] + measured


def _choose(study: Study, candidates: Sequence[Candidate]) -> tuple[Candidate | None, list[Candidate]]:
    """The best way and the routes to keep; where cuts are forced, those and nothing else."""
    options = study.options
    usable = [c for c in candidates if c.measured and acceptable(c, options.min_agreement)]
    if study.forced:
        names = {cut.name for cut in study.forced}
        routes = rank([c for c in usable if c.cut in names], options.link, options.deadline_ns, options.min_agreement)
        ways = [*routes, *(c for c in usable if c.kind == "device")]
        return next(iter(rank(ways, options.link, options.deadline_ns, options.min_agreement)), None), routes
    best = next(iter(rank(usable, options.link, options.deadline_ns, options.min_agreement)), None)
    return best, choose_routes(usable, options.link, options.deadline_ns, options.min_agreement)
