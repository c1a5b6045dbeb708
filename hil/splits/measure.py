"""Measures the ways of one model of the study, by the code with which `headtail plan` weighs.

A plan looks closely at the cuts that may win near one link; the study looks at those that may win under any of its
conditions, the likeliest first: while some cut that was only estimated would win somewhere if its codings agreed fully, the
one that would win most often is cut, loaded, fitted and judged. Then, with what is left of its allowance, those that would be
the best split somewhere. All that is compared is timed together at the end, in blocks that take turns, so that no way was
timed while the machine had more to do than when the others were.
"""

from __future__ import annotations

import itertools
import math
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from hil.model_zoo import zoo_model
from hil.splits.answers import LEAST_WORK, PLACES, PRIVATE, RATIOS, RULES, Rule, time_us
from hil.splits.findings import CutPlace, Doubt, Finding, Machine, Way
from hil.splits.posts import write_post
from hil.splits.subjects import Subject
from partitioner.choose import WHOLE
from partitioner.costs.cost import Candidate
from partitioner.costs.machine import device_name, library_version
from partitioner.costs.timing import Job, Samples, quantile, sample_at
from partitioner.graph.cuts import CandidateCut
from partitioner.options import LinkGuess, PlanOptions
from partitioner.study import Study, begin
from partitioner.table import RUN, Table
from partitioner.ways import TimeKey, cut_jobs, over
from partitioner.weigh import begin_weighing

Progress = Callable[[str], None]

JPEG_QUALITIES = (75, 90, 95)
CADENCE_HZ = 30.0
SEARCHED_LINK = LinkGuess(200.0, 5.0)
"""Around it cuts of several tensors are sought: at rates from a tenth of it to four times as much."""
TENTHS = 0.9
EVERYTHING, SPLITS = frozenset({"device", "input", "split"}), frozenset({"split"})
OPEN = tuple(rule for rule in RULES if not rule.private)
PREPROCESSING = "pre/"
"""How the names of values begin that `partitioner.graph.images` makes."""


def measure(
    subject: Subject, cache: Path, timing_s: float, progress: Progress, cadence_hz: float = CADENCE_HZ
) -> Finding:
    """Measure one model; `timing_s` seconds of it are for the timing at the end, at `cadence_hz` requests a second. Raises
    `ModelError` where a model or what it is shown cannot be fetched or used."""
    began = time.monotonic()
    study = _study(subject, cache, cadence_hz, progress)
    table = begin_weighing(study, progress).table
    table.several = _several(table)
    doubts = _look(table, subject.cuts, progress)
    progress(f"timing {len(table.loaded)} cuts side by side")
    table.samples = _timed(table, timing_s)
    exposing = _exposing(table)
    ways = [_timed_way(candidate, exposing) for candidate in _candidates(table) if candidate.measured]
    whole_us = next(way.head_us for way in ways if way.kind == "device")
    heads = {way.cut: way.head_us / whole_us for way in ways if way.kind == "split"}
    return Finding(
        name=subject.name,
        metric=subject.judge,
        rows_fitted=len(study.data.fit),
        rows_judged=len(study.data.held_out),
        cuts_found=len(study.inner),
        several=len(table.several),
        cuts=tuple(
            CutPlace(name, len(table.loaded[name].cut.tensors), round(min(1.0, share), 4))
            for name, share in sorted(heads.items(), key=lambda item: item[1])
        ),
        ways=tuple(ways),
        doubts=doubts,
        runs=min(len(runs) for runs in table.samples.runs.values()),
        unsteady=round(unsteadiness(table.samples.runs.values()), 4),
        disturbed=round(table.samples.disturbed_share, 4),
        machine=Machine(os.cpu_count() or 0, device_name(), platform.python_version(), library_version("onnxruntime")),
        date=date.today().isoformat(),
        seconds=round(time.monotonic() - began, 1),
    )


def unsteadiness(jobs: Iterable[Sequence[float]]) -> float:
    """By how much the middles of the first and the second half of a job's runs differ, as a share: nine jobs of ten differ by
    less. Jobs of fewer than two runs say nothing."""
    found: list[float] = []
    for runs in jobs:
        half = len(runs) // 2
        if half:
            first, second = statistics.median(runs[:half]), statistics.median(runs[half:])
            found.append(abs(first - second) / max(first, second, 1e-9))
    return quantile(found, TENTHS) if found else 0.0


def hopeful_wins(
    candidates: Sequence[Candidate],
    exposing: Mapping[str, bool],
    *,
    among: frozenset[str] = EVERYTHING,
    rules: Sequence[Rule] = RULES,
) -> Counter[str]:
    """How often a way that was only estimated would win, by its label, over all places and these rules, among the kinds of
    ways that are named: an agreement that is not known counts as full."""
    ways = [(_timed_way(candidate, exposing), candidate) for candidate in candidates if candidate.kind in among]
    counted: Counter[str] = Counter()
    for rule in rules:
        allowed = [(way, candidate) for way, candidate in ways if rule.allows(way)]
        for place in PLACES if allowed else ():
            _, best = min(allowed, key=lambda pair: (time_us(pair[0], place), not pair[1].measured, pair[1].label))
            if not best.measured:
                counted[best.label] += 1
    return counted


def _study(subject: Subject, cache: Path, cadence_hz: float, progress: Progress) -> Study:
    entry = zoo_model(subject.name)
    post = "none"
    if subject.post is not None:
        progress("fetching and normalising")
        behind = cache / "zoo" / subject.name / "behind.onnx"
        post = str(write_post(subject.post, entry.normal(cache), behind))
    options = PlanOptions(
        model=entry.path(cache),
        out=Path(f"{subject.name}.plan"),
        shapes=entry.shapes,
        preprocess=subject.preprocess,
        postprocess=post,
        calibration=Path(subject.rows),
        metric=subject.judge,
        link=SEARCHED_LINK,
        cadence_hz=cadence_hz,
        min_agreement=min(rule.floor for rule in RULES),
        lower_rungs=False,
        jpeg_qualities=JPEG_QUALITIES,
    )
    study = begin(options, progress)
    held_out = study.data.held_out[: subject.judged]
    return replace(
        study,
        effort=replace(study.effort, weigh_s=0.0),
        data=replace(study.data, held_out=held_out),
        reference=study.reference[: subject.judged],
    )


def _several(table: Table) -> tuple[CandidateCut, ...]:
    """Cuts of several tensors that the search finds for any of the study's devices, with the input free to leave and not."""
    free = table.study.options
    private = replace(free, private_input=True, least_share=LEAST_WORK)
    found: dict[str, CandidateCut] = {}
    for ratio, options in itertools.product(RATIOS, (free, private)):
        view = replace(table, study=replace(table.study, options=replace(options, edge_slowdown=ratio)))
        found.update((cut.name, cut) for cut in view.search().cuts)
    return tuple(found.values())


def _look(table: Table, most: int, progress: Progress) -> tuple[Doubt, ...]:
    """Look at the cuts that may win, in turn with the input free to leave and with a private one, which early cuts would
    crowd out; then at those that may be the best split. What would still win is told."""
    by_name = {cut.name: cut for cut in table.inner}
    while len(table.loaded) - 1 < most:
        candidates, exposing = _candidates(table), _exposing(table)
        labels = {candidate.label: candidate.cut for candidate in candidates}
        turns = (OPEN, (PRIVATE,)) if len(table.loaded) % 2 else ((PRIVATE,), OPEN)
        wins = next(
            (
                found
                for among in (EVERYTHING, SPLITS)
                for rules in turns
                if (found := hopeful_wins(candidates, exposing, among=among, rules=rules))
            ),
            Counter[str](),
        )
        if not wins:
            return ()
        by_cut: Counter[str] = Counter()
        for label, count in wins.items():
            by_cut[labels[label]] += count
        cut = by_cut.most_common(1)[0][0]
        progress(f"cut {len(table.loaded)} of at most {most}: {cut}")
        table.look(by_name[cut])
    left = {candidate.label: candidate for candidate in _candidates(table)}
    wins = hopeful_wins(list(left.values()), _exposing(table))
    return tuple(Doubt(left[label].cut, left[label].coding, count) for label, count in wins.most_common())


def _timed(table: Table, timing_s: float) -> Samples[TimeKey]:
    """All that was looked at, timed in turns."""
    study = table.study
    whole: dict[TimeKey, Job] = {(WHOLE, RUN, ""): over(study.whole, study.data.held_out)}
    groups = [whole, *(group for loaded in table.loaded.values() for group in cut_jobs(study, loaded))]
    samples: Samples[TimeKey] = Samples()
    sample_at(study.pace, groups, timing_s, samples)
    return samples


def _exposing(table: Table) -> dict[str, bool]:
    """Of each cut, whether what crosses is the input or little else: an input of the model is among it, or less than
    `LEAST_WORK` of the model's operations lie before it. Words looked up in a table are no secret."""
    inputs = {spec.name for spec in table.study.model.inputs}
    cuts = (*table.inner, *(loaded.cut for loaded in table.loaded.values()))
    return {cut.name: cut.share < LEAST_WORK or any(spec.name in inputs for spec in cut.tensors) for cut in cuts}


def _candidates(table: Table) -> list[Candidate]:
    """All ways but the cuts inside the pre-processing, which are the image in another form and travel worse."""
    return [candidate for candidate in table.candidates() if not candidate.cut.startswith(PREPROCESSING)]


def _timed_way(candidate: Candidate, exposing: Mapping[str, bool]) -> Way:
    """A candidate as the page knows it; an agreement that is not known counts as full."""
    return Way(
        kind=candidate.kind,
        cut=candidate.cut,
        coding=candidate.coding,
        head_us=round(candidate.head.p50_us, 2),
        encode_us=round(candidate.encode.p50_us, 2),
        decode_us=round(candidate.decode.p50_us, 2),
        tail_us=round(candidate.tail.p50_us, 2),
        bytes_up=candidate.bytes_up,
        bytes_down=candidate.bytes_down,
        agreement=1.0 if math.isnan(candidate.agreement) else round(candidate.agreement, 5),
        exposes=candidate.kind == "input" or exposing.get(candidate.cut, False),
    )
