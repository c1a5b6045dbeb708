"""The table of all ways to answer, as far as they are known: timed and judged where looked at, else estimated.

Times come from one collection of runs, so that every new look makes all of them firmer; the candidates are made anew from
it each time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from partitioner.choose import WHOLE
from partitioner.cost import HEADER_BYTES, NOTHING, Candidate, Spread
from partitioner.estimate import remainder, spread_heads, warm_heads
from partitioner.graph.cuts import CandidateCut
from partitioner.ladder import LowerRung
from partitioner.running import decode_all, encode_all
from partitioner.study import INPUT, Study
from partitioner.timing import Job, Samples, sample_at, time_warm
from partitioner.ways import LoadedCut, TimeKey, cut_jobs, load_cut, measured_candidates, over, reply_bytes, takes_int8
from shared.plan import RAW, Coding
from shared.request import TensorSpec

RUN = "run"
SAMPLE = TensorSpec("sample", "float32", (1, 64, 32, 32))
"""The tensor by which coding times of cuts that are not loaded are estimated."""
SAMPLE_INT8 = Coding("int8", "int8", scales=((1.0,) * SAMPLE.shape[1],))


@dataclass(frozen=True, slots=True)
class Warm:
    """What estimates rest on: warm head times by cut, the whole's, and the warm time a raw byte takes in each coding
    (encoding, decoding). All in microseconds."""

    heads: dict[str, float]
    whole_us: float
    codings: dict[str, tuple[float, float]]


@dataclass(slots=True)
class Table:
    """All ways of a study. `loaded` are the cuts that were looked at, by name; the input is the first."""

    study: Study
    lower: tuple[LowerRung, ...]
    warm: Warm
    samples: Samples[TimeKey] = field(default_factory=Samples[TimeKey])
    loaded: dict[str, LoadedCut] = field(default_factory=dict[str, LoadedCut])

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
        return ways + self._estimates(whole)

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

    def _look(self, cut: CandidateCut, jobs: list[dict[TimeKey, Job]]) -> None:
        study = self.study
        loaded = load_cut(study, cut)
        share = 1.0 if cut.name == INPUT else 0.5
        whole: dict[TimeKey, Job] = {(WHOLE, RUN, ""): over(study.whole, study.data.held_out)}
        sample_at(study.pace, [whole, *jobs, *cut_jobs(study, loaded)], study.effort.weigh_s * share, self.samples)
        self.loaded[cut.name] = loaded

    def _estimates(self, whole: Spread) -> list[Candidate]:
        """The inner cuts that were not looked at, raw and int8. The agreement of int8 is not known (NaN)."""
        study = self.study
        heads = spread_heads(study.inner, self.warm.heads, self.warm.whole_us, whole)
        slowdown = study.options.edge_slowdown
        found: list[Candidate] = []
        for cut in study.inner:
            if cut.name in self.loaded:
                continue
            for coding in (RAW, SAMPLE_INT8) if takes_int8(cut) and study.data.real else (RAW,):
                encode_us, decode_us = (speed * cut.raw_bytes for speed in self.warm.codings[coding.name])
                found.append(
                    Candidate(
                        kind="split",
                        cut=cut.name,
                        coding=coding.name,
                        rung="",
                        head=heads[cut.name].slowed(slowdown),
                        encode=Spread(encode_us, encode_us).slowed(slowdown),
                        decode=Spread(decode_us, decode_us),
                        tail=remainder(whole, heads[cut.name]),
                        bytes_up=(cut.int8_bytes if coding.lossy else cut.raw_bytes) + HEADER_BYTES,
                        bytes_down=reply_bytes(study),
                        agreement=math.nan if coding.lossy else 1.0,
                        measured=False,
                    )
                )
        return found


def warm_up(study: Study) -> Warm:
    """Time some heads and the codings, back to back."""
    codings = {coding.name: _speed(coding) for coding in (RAW, SAMPLE_INT8)}
    if not study.inner:
        return Warm({}, 1.0, codings)
    heads, whole_us = warm_heads(
        study.model, study.inner, study.data.held_out[0], study.options.threads, study.effort.anchors
    )
    return Warm(heads, whole_us, codings)


def _speed(coding: Coding) -> tuple[float, float]:
    tensors = (np.random.default_rng(0).standard_normal(SAMPLE.shape).astype(np.float32),)
    frames = encode_all(tensors, coding)
    encode_us = time_warm(lambda: encode_all(tensors, coding), 5)
    decode_us = time_warm(lambda: decode_all(frames, coding, [SAMPLE]), 5)
    return encode_us / SAMPLE.nbytes(), decode_us / SAMPLE.nbytes()
