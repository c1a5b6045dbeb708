"""The table of all ways to answer, as far as they are known: timed and judged where looked at, else estimated.

Times come from one collection of runs, so that every new look makes all of them firmer; the candidates are made anew from
it each time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from partitioner.calibrating.calibration import synthetic_row
from partitioner.choose import RATE_FACTORS, WHOLE
from partitioner.costs.cost import HEADER_BYTES, NOTHING, Candidate, Spread
from partitioner.costs.estimate import operator_times, remainder, spread_heads, warm_heads
from partitioner.costs.sides import CodecKey, Direction, Here, Side
from partitioner.costs.timing import Job, Samples, sample_at, time_warm
from partitioner.demands.constraints import Figures, broken
from partitioner.demands.device_memory import Weights, model_bytes
from partitioner.graph.cuts import CandidateCut
from partitioner.ladder import LowerRung
from partitioner.places import Places, Speed, find_places, problem_of
from partitioner.profiles.codings import coding_jobs
from partitioner.running import decode_all, encode_all
from partitioner.search.answers import Impossible, find_plan
from partitioner.search.conditions import Conditions, Limits
from partitioner.search.network import Network
from partitioner.search.problem import Choice, Problem
from partitioner.study import INPUT, Study
from partitioner.ways import (
    LoadedCut,
    TimeKey,
    border_us,
    charged,
    cut_jobs,
    load_cut,
    measured_candidates,
    over,
    reply_bytes,
    takes_int8,
)
from shared.plan import RAW, Coding, CodingKind
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
PROFILED = "as profiled"
"""In a key of times: the tensors that profiles are measured with."""
PROFILE_ROWS = 8


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
    of several tensors that the search has found. `before` are microseconds of what lies before a cut, by side and cut;
    `insured` is the rung that answers on the device whatever else does, `memory` the bytes of weights that
    lie there with a cut's head, by cut. `references` are the codings that were timed as profiles time them, by name, and the
    raw bytes that each was timed on."""

    study: Study
    lower: tuple[LowerRung, ...]
    warm: Warm
    samples: Samples[TimeKey] = field(default_factory=Samples[TimeKey])
    loaded: dict[str, LoadedCut] = field(default_factory=dict[str, LoadedCut])
    several: tuple[CandidateCut, ...] = ()
    before: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    insured: str = WHOLE
    memory: dict[str, int] = field(default_factory=dict[str, int])
    references: dict[CodecKey, tuple[str, int]] = field(default_factory=dict[CodecKey, tuple[str, int]])

    @property
    def weights(self) -> Weights:
        """The weights of the model and who uses them."""
        return self.study.weights

    @property
    def inner(self) -> tuple[CandidateCut, ...]:
        """All cuts between the input and the outputs that are weighed."""
        return (*self.study.inner, *self.several)

    def start(self) -> None:
        """Time the rungs, and look at the input."""
        rows = self.study.data.held_out
        jobs: list[dict[TimeKey, Job]] = [{(rung.name, RUN, ""): over(rung.part, rows)} for rung in self.lower]
        if self.study.sides.profiled:
            jobs.append(self._reference_jobs())
        self._look(self.study.cuts[0], jobs)

    def _reference_jobs(self) -> dict[TimeKey, Job]:
        """The codings on the tensors with which a profile times them, so that both speeds can be compared."""
        inputs = self.study.model.inputs
        jobs: dict[TimeKey, Job] = {}
        for coded in coding_jobs(self.study.groups, [synthetic_row(inputs, seed) for seed in range(PROFILE_ROWS)]):
            name, kind = coded.coding.name, coded.coding.kind
            jobs[PROFILED, "encode", name], jobs[PROFILED, "decode", name] = coded.encode, coded.decode
            self.references[kind, "encode"] = self.references[kind, "decode"] = (name, coded.nbytes)
        return jobs

    def here(self) -> Here:
        """What is known by now of this machine."""
        times = self.samples.spreads()
        whole = times[WHOLE, RUN, ""]
        return Here(
            whole,
            {
                (kind, direction): times[PROFILED, direction, name].p50_us / nbytes
                for (kind, direction), (name, nbytes) in self.references.items()
            },
            {name: border_us(times, name, whole) for name, loaded in self.loaded.items() if loaded.head is not None},
        )

    def look(self, cut: CandidateCut) -> None:
        """Load a cut, fit and judge its codings, and time both sides, and the whole model again beside them: what is
        compared should have been timed under the same conditions."""
        if cut.name not in self.loaded:
            self._look(cut, [])

    def candidates(self) -> list[Candidate]:
        """Every way, by what is known now."""
        times, here = self.samples.spreads(), self.here()
        ways = self.device()
        for loaded in self.loaded.values():
            ways += measured_candidates(self.study, loaded, times, here)
        cuts = {cut.name: cut for cut in (*self.inner, *(loaded.cut for loaded in self.loaded.values()))}
        return [charged(self.study, way) for way in ways + self._estimates(here) if self._allowed(way, cuts)]

    def _allowed(self, way: Candidate, cuts: Mapping[str, CandidateCut]) -> bool:
        """Whether the options allow a way. A cut that the user names may be of any share."""
        options = self.study.options
        if way.kind == "device":
            return options.device_memory is None or self.rung_bytes()[way.rung] <= options.device_memory
        forced = way.cut in {cut.name for cut in self.study.forced}
        found = broken(self.figures(way, cuts.get(way.cut)), options)
        return not any(name != "share" or not forced for name in found)

    def figures(self, way: Candidate, cut: CandidateCut | None) -> Figures:
        """What demands are held against, of a way through the cloud."""
        study = self.study
        copies = study.finder.copies
        nodes: Set[int] = frozenset() if cut is None else cut.nodes
        pinned = [[study.groups.nodes[group] for group in side] for side in (study.pins.edge, study.pins.cloud)]
        kept = all(members <= nodes for members in pinned[0]) and not any(members & nodes for members in pinned[1])
        memory = 0
        if study.options.device_memory is not None:
            memory = self._memory(way.cut, nodes)
        return Figures(
            sends_input=cut is None or any(spec.name in copies for spec in cut.tensors),
            pins_kept=kept,
            share=0.0 if cut is None else cut.share,
            bytes_up=way.bytes_up,
            memory=memory,
            agreement=way.agreement,
        )

    def _memory(self, name: str, nodes: Set[int]) -> int:
        """Bytes of weights on the device where a cut's head lies beside the insurance."""
        if name not in self.memory:
            borders = [nodes, *([frozenset(self.weights.used)] if self.insured == WHOLE else [])]
            own = 0 if self.insured == WHOLE else self.rung_bytes()[self.insured]
            self.memory[name] = own + self.weights.of_segments(borders)
        return self.memory[name]

    def rung_bytes(self) -> dict[str, int]:
        """Bytes of weights of each rung on the device, by name."""
        weights = {rung.name: model_bytes(rung.model) for rung in self.lower}
        return {WHOLE: self.weights.of_nodes(frozenset(self.weights.used)), **weights}

    def of_cut(self, name: str) -> list[Candidate]:
        """Every way by a cut that was looked at, whatever the options allow."""
        return measured_candidates(self.study, self.loaded[name], self.samples.spreads(), self.here())

    def nearest(self) -> CandidateCut | Impossible:
        """The best cut that surely obeys everything, tensors sent raw and the input as measured; or what allows none."""
        study, options = self.study, self.study.options
        us_per_byte = 8.0 / options.link.rate_mbit
        conditions = Conditions(study.sides.edge.slowdown, us_per_byte, 1.0, us_per_byte * reply_bytes(study))
        found = find_plan(Network.of(self.problem(raw=True)), conditions, study.pins, self.limits)
        return found if isinstance(found, Impossible) else study.groups.cut_of(found.plan.cut)

    def _before(self, name: str, side: Side, cut: CandidateCut) -> float:
        """Microseconds of the operators before a cut on a side, not slowed; without a profile as timed back to back."""
        if (name, cut.name) not in self.before:
            operators = side.operators(self.warm.operators)
            self.before[name, cut.name] = math.fsum(operators.get(node, 0.0) for node in cut.nodes)
        return self.before[name, cut.name]

    def device(self) -> list[Candidate]:
        """The ways on the device: the whole model and the rungs."""
        times, here = self.samples.spreads(), self.here()
        agreements = {WHOLE: 1.0, **{rung.name: rung.agreement for rung in self.lower}}
        ways = [
            Candidate(
                kind="device",
                cut="",
                coding="",
                rung=name,
                head=self.study.sides.edge.like_whole(times[name, RUN, ""], here),
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
        return [charged(self.study, way) for way in ways]

    def search(self) -> Places:
        """Look for cuts of several tensors that may win near the stated link, by the exact search; the input must have been
        looked at. They are weighed from now on."""
        study, options = self.study, self.study.options
        rates = [options.link.rate_mbit * factor for factor in RATE_FACTORS]
        places = find_places(
            study.groups,
            self.problem(),
            rates,
            options.edge_slowdown,
            self.header_bytes,
            pins=study.pins,
            limits=self.limits,
        )
        self.several = places.cuts
        return places

    def problem(self, *, raw: bool = False) -> Problem:
        """The model as the search takes it, by what is known now; the input must have been looked at. `raw`: only
        the input is ever coded."""
        study, sides = self.study, self.study.sides
        scale = self.here().whole.p50_us / self.warm.whole_us
        here_us = {index: time_us * scale for index, time_us in self.warm.operators.items()}
        return problem_of(
            study.groups,
            sides.edge.operators(here_us),
            self._inputs(),
            [] if raw else self._speeds(),
            cloud_us=sides.cloud.operators(here_us),
            weights={number: self.weights.of_nodes(nodes) for number, nodes in enumerate(study.groups.nodes)},
        )

    @property
    def header_bytes(self) -> int:
        """Bytes that any use of the cloud sends in either direction, beside what crosses the cut."""
        return HEADER_BYTES + reply_bytes(self.study)

    @property
    def limits(self) -> Limits:
        """What the options bound of a plan."""
        options = self.study.options
        most = None if options.max_bytes is None else max(0, options.max_bytes - HEADER_BYTES)
        memory = None
        if options.device_memory is not None and self.insured != WHOLE:
            memory = options.device_memory - self.rung_bytes()[self.insured]
        return Limits(options.least_share or None, memory, most)

    def cut_of(self, groups: frozenset[int]) -> CandidateCut:
        """The cut before which these groups run, the input where there are none. It is weighed from now on."""
        if not groups:
            return self.study.cuts[0]
        cut = self.study.groups.cut_of(groups)
        known = next((other for other in self.inner if other.name == cut.name), None)
        if known is None:
            self.several = (*self.several, cut)
        return known or cut

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
                    self._coded_us(times[INPUT, "encode", coded.coding.name].p50_us, coded.coding.kind, "encode"),
                    self._coded_us(times[INPUT, "decode", coded.coding.name].p50_us, coded.coding.kind, "decode"),
                )
                for coded in loaded.coded
                if coded.agreement >= self.study.options.min_agreement
            ]
        }

    def _speeds(self) -> list[Speed]:
        """What float tensors may be coded as, where there is data to fit to."""
        size = np.dtype(SAMPLE.dtype).itemsize
        return [
            Speed(
                name,
                nbytes,
                self._coded_us(size * self.warm.codings[name][0], coding.kind, "encode"),
                self._coded_us(size * self.warm.codings[name][1], coding.kind, "decode"),
            )
            for name, (coding, nbytes) in SAMPLES.items()
            if self.study.data.real
        ]

    def _coded_us(self, time_us: float, kind: CodingKind, direction: Direction) -> float:
        """Encoding on the device or decoding in the cloud that takes so long here, not slowed."""
        side = self.study.sides.edge if direction == "encode" else self.study.sides.cloud
        return replace(side, slowdown=1.0).coded(Spread(time_us, time_us), kind, direction, self.here()).p50_us

    def _look(self, cut: CandidateCut, jobs: list[dict[TimeKey, Job]]) -> None:
        study = self.study
        loaded = load_cut(study, cut)
        share = 1.0 if cut.name == INPUT else 0.5
        whole: dict[TimeKey, Job] = {(WHOLE, RUN, ""): over(study.whole, study.data.held_out)}
        sample_at(study.pace, [whole, *jobs, *cut_jobs(study, loaded)], study.effort.weigh_s * share, self.samples)
        self.loaded[cut.name] = loaded

    def _estimates(self, here: Here) -> list[Candidate]:
        """The inner cuts that were not looked at, raw and in each coding of `SAMPLES`, whose agreement is not known (NaN)."""
        study = self.study
        heads = spread_heads(study.inner, self.warm.heads, self.warm.whole_us, here.whole)
        for cut in self.several:
            share = sum(self.warm.operators[index] for index in cut.nodes) / self.warm.whole_us
            heads[cut.name] = Spread(here.whole.p50_us * share, here.whole.p99_us * share)
        codings = [(RAW, 0.0)] + ([*SAMPLES.values()] if study.data.real else [])
        found: list[Candidate] = []
        for cut in self.inner:
            if cut.name in self.loaded:
                continue
            head = self._part("edge", study.sides.edge, cut, heads[cut.name], here)
            tail = self._part("cloud", study.sides.cloud, cut, remainder(here.whole, heads[cut.name]), here)
            elements = sum(math.prod(spec.shape) for spec in cut.tensors)
            for coding, element_bytes in codings if takes_int8(cut) else codings[:1]:
                nbytes = round(element_bytes * elements) if coding.lossy else cut.raw_bytes
                found.append(self._estimate(cut, coding, nbytes, head, tail, here))
        return found

    def _part(self, name: Literal["edge", "cloud"], side: Side, cut: CandidateCut, time: Spread, here: Here) -> Spread:
        """The head, or the tail in the cloud, of a cut that was only estimated: `time` here."""
        if side.known is None:
            return time.slowed(side.slowdown)
        before_us = self._before(name, side, cut)
        middle_us = before_us if name == "edge" else max(0.0, side.known.whole_us - before_us)
        whole = side.whole(here)
        return Spread(middle_us, middle_us * whole.p99_us / whole.p50_us)

    def _estimate(
        self, cut: CandidateCut, coding: Coding, nbytes: int, head: Spread, tail: Spread, here: Here
    ) -> Candidate:
        encode_us, decode_us = (speed * cut.raw_bytes for speed in self.warm.codings[coding.name])
        return Candidate(
            kind="split",
            cut=cut.name,
            coding=coding.name,
            rung="",
            head=head,
            encode=self.study.sides.edge.coded(Spread(encode_us, encode_us), coding.kind, "encode", here),
            decode=self.study.sides.cloud.coded(Spread(decode_us, decode_us), coding.kind, "decode", here),
            tail=tail,
            bytes_up=nbytes + HEADER_BYTES,
            bytes_down=reply_bytes(self.study),
            agreement=math.nan if coding.lossy else 1.0,
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
