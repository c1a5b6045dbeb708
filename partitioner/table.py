"""The table of all ways to answer, as far as they are known: timed and judged where looked at, else estimated.

Times come from one collection of runs, so that every new look makes all of them firmer; the candidates are made anew from
it each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from partitioner.choose import RATE_FACTORS, WHOLE
from partitioner.cost import HEADER_BYTES, NOTHING, Candidate, Spread
from partitioner.estimate import operator_times, remainder, spread_heads, warm_heads
from partitioner.graph.cuts import CandidateCut
from partitioner.graph.groups import find_groups
from partitioner.ladder import LowerRung
from partitioner.places import Places, Speed, find_places, problem_of
from partitioner.running import decode_all, encode_all
from partitioner.search.conditions import Limits
from partitioner.search.problem import Choice
from partitioner.study import INPUT, Study
from partitioner.timing import Job, Samples, sample_at, time_warm
from partitioner.ways import LoadedCut, TimeKey, cut_jobs, load_cut, measured_candidates, over, reply_bytes, takes_int8
from shared.plan import RAW, Coding
from shared.request import TensorSpec

RUN = "run"
SAMPLE = TensorSpec("sample", "float32", (1, 64, 32, 32))
"""The tensor by which coding times of cuts that are not loaded are estimated."""
_ONES = ((1.0,) * SAMPLE.shape[1],)
SAMPLES: Mapping[str, tuple[Coding, float]] = {
    "int8": (Coding("int8", "int8", scales=_ONES), 1.0),
    "int4": (Coding("int4", "intn", bits=4, scales=_ONES), 0.35),
}
"""Codings that are estimated for float tensors beside raw, and the bytes an element that they are expected to take: what 4
bits come to on dense activations (`shared.codecs.intn`)."""


@dataclass(frozen=True, slots=True)
class Warm:
    """What estimates rest on: warm head times by cut, the whole's, and the warm time a raw byte takes in each coding
    (encoding, decoding), and of each operator by its index. All in microseconds."""

    heads: dict[str, float]
    whole_us: float
    codings: dict[str, tuple[float, float]]
    operators: dict[int, float]


@dataclass(slots=True)
class Table:
    """All ways of a study. `loaded` are the cuts that were looked at, by name; the input is the first. `several` are the cuts
    of several tensors that the search has found."""

    study: Study
    lower: tuple[LowerRung, ...]
    warm: Warm
    samples: Samples[TimeKey] = field(default_factory=Samples[TimeKey])
    loaded: dict[str, LoadedCut] = field(default_factory=dict[str, LoadedCut])
    several: tuple[CandidateCut, ...] = ()

    @property
    def inner(self) -> tuple[CandidateCut, ...]:
        """All cuts between the input and the outputs that are weighed."""
        return (*self.study.inner, *self.several)

    def start(self) -> None:
        """Time the rungs, and look at the input."""
        rows = self.study.data.held_out
        self._look(self.study.cuts[0], [{(rung.name, RUN, ""): over(rung.part, rows)} for rung in self.lower])

    def look(self, cut: CandidateCut) -> None:
        """Load a cut, fit and judge its codings, and time both sides, and the whole model again beside them: what is
        compared should have been timed under the same conditions."""
        if cut.name not in self.loaded:
            self._look(cut, [])

    def candidates(self) -> list[Candidate]:
        """Every way, by what is known now."""
        times = self.samples.spreads()
        whole = times[WHOLE, RUN, ""]
        ways = self.device()
        for loaded in self.loaded.values():
            ways += measured_candidates(self.study, loaded, times, whole)
        cuts = {cut.name: cut for cut in (*self.inner, *(loaded.cut for loaded in self.loaded.values()))}
        return [way for way in ways + self._estimates(whole) if self._allowed(way, cuts)]

    def _allowed(self, way: Candidate, cuts: Mapping[str, CandidateCut]) -> bool:
        """Whether the options allow a way: what leaves the device, how far it is computed before, and how many bytes it is.
        A cut that the user names may be of any share."""
        options = self.study.options
        if way.kind == "device":
            return True
        if options.max_bytes is not None and way.bytes_up > options.max_bytes:
            return False
        if way.kind == "input":
            return not options.private_input and options.least_share == 0.0
        cut = cuts[way.cut]
        inputs = {spec.name for spec in self.study.model.inputs}
        if options.private_input and any(spec.name in inputs for spec in cut.tensors):
            return False
        return cut.share >= options.least_share or cut in self.study.forced

    def device(self) -> list[Candidate]:
        """The ways on the device: the whole model and the rungs."""
        times = self.samples.spreads()
        agreements = {WHOLE: 1.0, **{rung.name: rung.agreement for rung in self.lower}}
        return [
            Candidate(
                kind="device",
                cut="",
                coding="",
                rung=name,
                head=times[name, RUN, ""].slowed(self.study.options.edge_slowdown),
                encode=NOTHING,
                decode=NOTHING,
                tail=NOTHING,
                bytes_up=0,
                bytes_down=0,
                agreement=agreement,
                measured=True,
            )
            for name, agreement in agreements.items()
        ]

    def search(self) -> Places:
        """Look for cuts of several tensors that may win near the stated link, by the exact search; the input must have been
        looked at. They are weighed from now on."""
        study, options = self.study, self.study.options
        groups = find_groups(study.finder)
        scale = self.samples.spreads()[WHOLE, RUN, ""].p50_us / self.warm.whole_us
        times_us = {index: time_us * scale for index, time_us in self.warm.operators.items()}
        problem = problem_of(groups, times_us, self._inputs(), self._speeds())
        rates = [options.link.rate_mbit * factor for factor in RATE_FACTORS]
        header_bytes = HEADER_BYTES + reply_bytes(study)
        most = None if options.max_bytes is None else max(0, options.max_bytes - HEADER_BYTES)
        limits = Limits(options.least_share or None, None, most)
        places = find_places(
            groups,
            problem,
            rates,
            options.edge_slowdown,
            header_bytes,
            private_input=options.private_input,
            limits=limits,
        )
        self.several = places.cuts
        return places

    def _inputs(self) -> dict[str, list[Choice]]:
        """The measured codings of a single input, those that agree enough."""
        times, loaded = self.samples.spreads(), self.loaded[INPUT]
        names = [spec.name for spec in self.study.model.inputs]
        if len(names) > 1:
            return {}
        return {
            names[0]: [
                Choice(
                    coded.coding.name,
                    coded.bytes_up - HEADER_BYTES,
                    times[INPUT, "encode", coded.coding.name].p50_us,
                    times[INPUT, "decode", coded.coding.name].p50_us,
                )
                for coded in loaded.coded
                if coded.agreement >= self.study.options.min_agreement
            ]
        }

    def _speeds(self) -> list[Speed]:
        """What float tensors may be coded as, where there is data to fit to."""
        size = np.dtype(SAMPLE.dtype).itemsize
        return [
            Speed(name, nbytes, *(size * time_us for time_us in self.warm.codings[name]))
            for name, (_, nbytes) in SAMPLES.items()
            if self.study.data.real
        ]

    def _look(self, cut: CandidateCut, jobs: list[dict[TimeKey, Job]]) -> None:
        study = self.study
        loaded = load_cut(study, cut)
        share = 1.0 if cut.name == INPUT else 0.5
        whole: dict[TimeKey, Job] = {(WHOLE, RUN, ""): over(study.whole, study.data.held_out)}
        sample_at(study.pace, [whole, *jobs, *cut_jobs(study, loaded)], study.effort.weigh_s * share, self.samples)
        self.loaded[cut.name] = loaded

    def _estimates(self, whole: Spread) -> list[Candidate]:
        """The inner cuts that were not looked at, raw and in each coding of `SAMPLES`, whose agreement is not known (NaN)."""
        study = self.study
        heads = spread_heads(study.inner, self.warm.heads, self.warm.whole_us, whole)
        for cut in self.several:
            share = sum(self.warm.operators[index] for index in cut.nodes) / self.warm.whole_us
            heads[cut.name] = Spread(whole.p50_us * share, whole.p99_us * share)
        found: list[Candidate] = []
        for cut in self.inner:
            if cut.name not in self.loaded:
                found.append(self._estimate(cut, RAW.name, cut.raw_bytes, 1.0, heads[cut.name], whole))
                if takes_int8(cut) and study.data.real:
                    elements = sum(math.prod(spec.shape) for spec in cut.tensors)
                    for name, (_, nbytes) in SAMPLES.items():
                        size = round(nbytes * elements)
                        found.append(self._estimate(cut, name, size, math.nan, heads[cut.name], whole))
        return found

    def _estimate(
        self, cut: CandidateCut, coding: str, nbytes: int, agreement: float, head: Spread, whole: Spread
    ) -> Candidate:
        slowdown = self.study.options.edge_slowdown
        encode_us, decode_us = (speed * cut.raw_bytes for speed in self.warm.codings[coding])
        return Candidate(
            kind="split",
            cut=cut.name,
            coding=coding,
            rung="",
            head=head.slowed(slowdown),
            encode=Spread(encode_us, encode_us).slowed(slowdown),
            decode=Spread(decode_us, decode_us),
            tail=remainder(whole, head),
            bytes_up=nbytes + HEADER_BYTES,
            bytes_down=reply_bytes(self.study),
            agreement=agreement,
            measured=False,
        )


def warm_up(study: Study) -> Warm:
    """Time some heads and the codings, back to back."""
    codings = {coding.name: _speed(coding) for coding in (RAW, *(coding for coding, _ in SAMPLES.values()))}
    heads, whole_us = warm_heads(
        study.model, study.inner, study.data.held_out[0], study.options.threads, study.effort.anchors
    )
    return Warm(heads, whole_us, codings, operator_times(study.finder, heads, whole_us))


def _speed(coding: Coding) -> tuple[float, float]:
    tensors = (np.random.default_rng(0).standard_normal(SAMPLE.shape).astype(np.float32),)
    frames = encode_all(tensors, coding)
    encode_us = time_warm(lambda: encode_all(tensors, coding), 5)
    decode_us = time_warm(lambda: decode_all(frames, coding, [SAMPLE]), 5)
    return encode_us / SAMPLE.nbytes(), decode_us / SAMPLE.nbytes()
