"""Models of the simulator: plans of a few bytes and a few milliseconds, drawn from a seeded generator.

A model has several versions: the same name, inputs and outputs, other weights, and so another contract digest. Cuts,
codings, ladder, routes and batching differ from model to model; every plan keeps the rules of `shared.plan_rules`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from shared.plan import (
    PLAN_FORMAT,
    RAW,
    CodecTime,
    Coding,
    Cut,
    Plan,
    Profile,
    Program,
    RangeTime,
    Route,
    Rung,
    Segment,
    contract_digest,
)
from shared.request import TensorSpec

BATCHES = (1, 2, 4, 8)
HEADER_BYTES = 220
"""What a message's header takes, roughly: part of a route's bytes."""

SPREAD = 1.15
"""p99 over p50 in every profile."""


class Model(msgspec.Struct, frozen=True):
    """A model: its plans by contract digest, one for each version, the oldest first."""

    name: str
    contracts: tuple[str, ...]
    plans: tuple[Plan, ...]

    def version(self, number: int) -> tuple[str, Plan]:
        """Contract digest and plan of a version; numbers beyond the last name the last."""
        index = min(number, len(self.plans) - 1)
        return self.contracts[index], self.plans[index]


def make_model(rng: random.Random, name: str, versions: int) -> Model:
    """A model with that many versions."""
    plan = _plan(rng, name)
    files = [segment.file for program in plan.programs for segment in program.segments]
    plans = tuple(msgspec.structs.replace(plan, digests=dict.fromkeys(files, f"{v:064d}")) for v in range(versions))
    return Model(name, tuple(contract_digest(p) for p in plans), plans)


def _plan(rng: random.Random, name: str) -> Plan:
    segments = rng.choice((1, 2, 2, 3))
    batchable = rng.random() < 0.7
    inputs = tuple(_tensor(rng, f"x{i}", ("uint8", "float32", "int32")) for i in range(rng.choice((1, 1, 1, 2))))
    middle = tuple((_tensor(rng, f"mid{i}", ("float32",)),) for i in range(1, segments))
    outputs = tuple(_tensor(rng, f"y{i}", ("float32", "int64", "uint8")) for i in range(rng.choice((1, 1, 2))))
    borders = (inputs, *middle, outputs)
    cuts = tuple(_cut(rng, i, len(borders) - 1, tensors) for i, tensors in enumerate(borders))
    whole = Program("whole", tuple(_segment(f"s{i}", borders[i], borders[i + 1]) for i in range(segments)))
    cheaper = rng.choice((0, 1, 1, 2))
    programs = (whole, *(Program(f"small{i}", (_segment(f"r{i}", inputs, outputs),)) for i in range(cheaper)))
    agreements = (0.95, 0.8)[-cheaper:] if cheaper else ()
    rungs = tuple(Rung(f"small{i}", i + 1, agreements[i]) for i in range(cheaper))
    ladder = (*((Rung("whole", 0, 1.0),) if rng.random() < 0.6 else ()), *rungs)
    edge_us = rng.choice((400.0, 1500.0, 3000.0, 6000.0))
    cloud_us = edge_us * rng.choice((0.15, 0.3, 0.6))
    slope = rng.choice((0.1, 0.3, 0.8))
    return Plan(
        format=PLAN_FORMAT,
        name=name,
        model="0" * 64,
        opset=17,
        ir_version=8,
        batchable=batchable,
        max_batch=rng.choice((2, 4, 8)) if batchable else 1,
        cuts=cuts,
        programs=programs,
        ladder=ladder,
        routes=_routes(rng, cuts, needed=not ladder),
        metric="relative",
        chosen="",
        digests={},
        profiles=(
            _profile("edge", programs, cuts, edge_us, slope, batchable),
            _profile("cloud", programs, cuts, cloud_us, slope, batchable),
        ),
    )


def _tensor(rng: random.Random, name: str, dtypes: Sequence[str]) -> TensorSpec:
    return TensorSpec(name, rng.choice(dtypes), (1, rng.choice((8, 12, 16))))


def _segment(name: str, entry: Sequence[TensorSpec], leaving: Sequence[TensorSpec]) -> Segment:
    return Segment(name, f"{name}.onnx", tuple(t.name for t in entry), tuple(t.name for t in leaving))


def _cut(rng: random.Random, index: int, last: int, tensors: tuple[TensorSpec, ...]) -> Cut:
    name = ("input", "output")[index == last] if index in {0, last} else f"cut{index}"
    lossy = index != last and all(t.dtype == "float32" for t in tensors) and rng.random() < 0.7
    if not lossy:
        return Cut(name, tensors)
    scales = tuple(tuple(rng.choice((0.7, 1.1, 1.9)) for _ in range(t.shape[1])) for t in tensors)
    return Cut(name, tensors, (RAW, Coding("int8", "int8", scales=scales)))


def _routes(rng: random.Random, cuts: Sequence[Cut], *, needed: bool) -> tuple[Route, ...]:
    ways = [(i, cut, coding) for i, cut in enumerate(cuts[:-1]) for coding in cut.codings]
    picked = [way for way in ways if rng.random() < 0.7]
    if not picked and (needed or rng.random() < 0.7):
        picked = [rng.choice(ways)]
    down = HEADER_BYTES + sum(t.nbytes() for t in cuts[-1].tensors)
    return tuple(
        Route(i, coding.name, 0.97 if coding.lossy else 1.0, HEADER_BYTES + _nbytes(cut, coding), down)
        for i, cut, coding in picked
    )


def _nbytes(cut: Cut, coding: Coding) -> int:
    return sum(t.nbytes() if coding.kind == "raw" else t.shape[1] for t in cut.tensors)


def _profile(
    side: str, programs: Sequence[Program], cuts: Sequence[Cut], whole_us: float, slope: float, batchable: bool
) -> Profile:
    ranges: list[RangeTime] = []
    for batch in BATCHES if batchable else BATCHES[:1]:
        factor = 1 + slope * (batch - 1)
        segments = len(programs[0].segments)
        for first in range(segments):
            for last in range(first + 1, segments + 1):
                us = whole_us * (last - first) / segments * factor
                ranges.append(RangeTime(0, first, last, batch, us, us * SPREAD))
        for number in range(1, len(programs)):
            us = whole_us * 0.5**number * factor
            ranges.append(RangeTime(number, 0, 1, batch, us, us * SPREAD))
    codecs = tuple(CodecTime(i, c.name, 40.0, 30.0) for i, cut in enumerate(cuts) for c in cut.codings if c.lossy)
    return Profile("edge" if side == "edge" else "cloud", "virtual", "virtual", 1, 1.0, 30.0, tuple(ranges), codecs)
