"""A cut with both its sides loaded, and what each of its codings does to bytes and to answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from partitioner.calibrating.calibration import is_image
from partitioner.costs.cost import HEADER_BYTES, NOTHING, Candidate, Kind, Spread
from partitioner.costs.overhead import Crossing
from partitioner.costs.sides import Here
from partitioner.costs.timing import Job
from partitioner.graph.cuts import CandidateCut
from partitioner.graph.split import split
from partitioner.own_codings import check_lossless, offered_codings
from partitioner.running import Part, Tensors, decode_all, encode_all, frames_nbytes, load_part
from partitioner.study import INPUT, Study
from shared.codecs import calibrate_int8, calibrate_intn, dtype_of
from shared.plan import RAW, Coding
from shared.request import TensorSpec

Item = TypeVar("Item")
STEP_BITS = (6, 4)
"""Widths of the compressed steps in which cuts of floats are offered, beside the 8 bits of int8. Each takes one more run of
the tail for every held-out row. 6 bits lose little and are half as large as int8 on most activations, 4 bits a quarter to a
third; what lies between is seldom worth a judgement of its own."""

HALF_BYTES = 2

TimeKey = tuple[str, str, str]
"""(cut or rung, `head`, `tail`, `encode`, `decode` or `run`, coding or empty)."""


@dataclass(frozen=True, slots=True)
class CodedCut:
    """One coding of a loaded cut: bytes of a row on the wire, and agreement on held-out data (1 where lossless)."""

    coding: Coding
    bytes_up: int
    agreement: float


@dataclass(frozen=True, slots=True)
class LoadedCut:
    """A cut whose head and tail are loaded. Cut 0 has no head."""

    cut: CandidateCut
    head: Part | None
    tail: Part
    coded: tuple[CodedCut, ...]


def load_cut(study: Study, cut: CandidateCut) -> LoadedCut:
    """Load both sides of a cut, fit its codings and measure what they do. Without data of the user's there is raw alone: no
    lossy coding can be judged then, and what a compressed one weighs depends on what is in it."""
    threads = study.options.threads
    if cut.name == INPUT:
        head, tail = None, study.whole
    else:
        parts = split(study.model, [cut]).parts
        head, tail = load_part(parts[0], threads), load_part(parts[1], threads)
    crossing = [head(row) if head else row for row in study.data.held_out]
    coded = tuple(_coded(study, cut, coding, tail, crossing) for coding in _codings(study, cut, head))
    return LoadedCut(cut, head, tail, coded)


def takes_int8(cut: CandidateCut) -> bool:
    """Whether every tensor that crosses is of a floating type."""
    return all(dtype_of(spec.dtype).kind == "f" for spec in cut.tensors)


def reply_bytes(study: Study) -> int:
    """Bytes of an answer of one row on the wire."""
    return sum(spec.nbytes() for spec in study.model.outputs) + HEADER_BYTES


def charged(study: Study, way: Candidate) -> Candidate:
    """The candidate with what its request costs beside its work and the link, where that was measured."""
    if study.overhead is None:
        return way
    specs = (*study.model.inputs, *study.model.outputs)
    worked = way.kind == "split" or (way.kind == "input" and way.encode != NOTHING)
    crossing = Crossing(way.kind, sum(spec.nbytes() for spec in specs), way.bytes_up + way.bytes_down, worked)
    return replace(way, overhead=study.overhead.of(crossing))


def cut_jobs(study: Study, loaded: LoadedCut) -> list[dict[TimeKey, Job]]:
    """What is to be timed of a loaded cut, in groups: its head, its tail, and the codings' encoding and decoding. The tail
    of cut 0 is the whole model, which is timed as such."""
    name = loaded.cut.name
    rows = study.data.held_out[:16]
    crossing = [loaded.head(row) if loaded.head else row for row in rows]
    groups: list[dict[TimeKey, Job]] = []
    if loaded.head is not None:
        groups = [{(name, "head", ""): over(loaded.head, rows)}, {(name, "tail", ""): over(loaded.tail, crossing)}]
    codecs: dict[TimeKey, Job] = {}
    for coded in loaded.coded:
        encode_one, decode_one = codec_jobs(coded.coding, loaded.cut.tensors, crossing)
        codecs[name, "encode", coded.coding.name] = encode_one
        codecs[name, "decode", coded.coding.name] = decode_one
    return [*groups, codecs]


def codec_jobs(coding: Coding, specs: Sequence[TensorSpec], crossing: Sequence[Tensors]) -> tuple[Job, Job]:
    """Encoding and decoding of a cut's tensors, as jobs."""
    frames = [encode_all(tensors, coding) for tensors in crossing]
    return (
        over(lambda tensors: encode_all(tensors, coding), crossing),
        over(lambda coded: decode_all(coded, coding, specs), frames),
    )


def over(work: Callable[[Item], object], items: Sequence[Item]) -> Job:
    """A job that does some work for one item after another, round and round."""
    ring = itertools.cycle(items)
    return lambda: work(next(ring))


def border_us(times: Mapping[TimeKey, Spread], name: str, whole: Spread) -> float:
    """What cutting here costs beside the work: by how much head and tail together take longer than the whole."""
    return max(0.0, times[name, "head", ""].p50_us + times[name, "tail", ""].p50_us - whole.p50_us)


def measured_candidates(
    study: Study, loaded: LoadedCut, times: Mapping[TimeKey, Spread], here: Here
) -> list[Candidate]:
    """The candidates of a loaded cut, by measured times, as they are on either side. `here` has the cut's border. An input
    that is sent raw goes as it came, and nothing encodes it."""
    name = loaded.cut.name
    edge, cloud = study.sides.edge, study.sides.cloud
    kind: Kind = "input" if loaded.head is None else "split"
    head, tail = NOTHING, cloud.whole(here)
    if loaded.head is not None:
        half_us = here.borders_us[name] / 2
        head = edge.part(loaded.cut.nodes, times[name, "head", ""], here, half_us)
        behind = (node for node in study.finder.order if node not in loaded.cut.nodes)
        tail = cloud.part(behind, times[name, "tail", ""], here, half_us)
    return [
        Candidate(
            kind=kind,
            cut=name,
            coding=coded.coding.name,
            rung="",
            head=head,
            encode=edge.coded(times[name, "encode", coded.coding.name], coded.coding.kind, "encode", here)
            if loaded.head is not None or coded.coding.coded
            else NOTHING,
            decode=cloud.coded(times[name, "decode", coded.coding.name], coded.coding.kind, "decode", here),
            tail=tail,
            bytes_up=coded.bytes_up,
            bytes_down=reply_bytes(study),
            agreement=coded.agreement,
            measured=True,
        )
        for coded in loaded.coded
    ]


def _codings(study: Study, cut: CandidateCut, head: Part | None) -> list[Coding]:
    codings = [RAW]
    if not study.data.real:
        return codings
    if head is None and is_image(cut.tensors):
        codings.append(Coding("qoi", "qoi"))
        for quality in study.options.jpeg_qualities:
            codings.append(Coding(f"jpeg{quality}", "jpeg", quality=quality))
            codings.append(Coding(f"jpeg{quality}-444", "jpeg", quality=quality, subsampling="444"))
    if not takes_int8(cut) and not study.options.codecs:
        return codings
    rows = [head(row) if head else row for row in study.data.fit]
    samples = [[row[i] for row in rows] for i in range(len(cut.tensors))]
    if takes_int8(cut):
        if any(dtype_of(spec.dtype).itemsize > HALF_BYTES for spec in cut.tensors):
            codings.append(Coding("fp16", "fp16"))
        codings.append(Coding("int8", "int8", scales=tuple(calibrate_int8(tensor) for tensor in samples)))
        for bits in STEP_BITS:
            scales = tuple(calibrate_intn(tensor, bits) for tensor in samples)
            codings.append(Coding(f"int{bits}", "intn", bits=bits, scales=scales))
    return codings + offered_codings(study.options.codecs, cut.tensors, samples, codings)


def _coded(study: Study, cut: CandidateCut, coding: Coding, tail: Part, crossing: list[Tensors]) -> CodedCut:
    frames = [encode_all(tensors, coding) for tensors in crossing]
    nbytes = math.ceil(sum(frames_nbytes(f) for f in frames) / len(frames)) + HEADER_BYTES
    if coding.lossless:
        check_lossless(coding, cut.tensors, crossing, frames)
    if not coding.lossy:
        return CodedCut(coding, nbytes, 1.0)
    answers = [tail(decode_all(coded, coding, cut.tensors)) for coded in frames]
    return CodedCut(coding, nbytes, study.agreement_of(answers))
