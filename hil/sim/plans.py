"""Models of the simulator: plans of a few bytes and a few milliseconds, drawn from a seeded generator.

A model has several versions: the same name, inputs and outputs, other weights, and so another contract digest. Cuts,
codings, ladder, routes and batching differ from model to model; every plan keeps the rules of `shared.plan_rules`. Some
models are for weak devices: only a cheap rung is worth running there, a short head comes first, and the cloud is fast.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

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
    weak: bool = False

    def version(self, number: int) -> tuple[str, Plan]:
        """Contract digest and plan of a version; numbers beyond the last name the last."""
        index = min(number, len(self.plans) - 1)
        return self.contracts[index], self.plans[index]


class _Cost(msgspec.Struct, frozen=True):
    """What a model costs: the whole of it on the device and in the cloud in microseconds, the part of either that its first
    segment takes, what the next cheaper rung takes of the one before, and what a further row costs of the first."""

    edge_us: float
    cloud_us: float
    head: float
    rung: float
    slope: float


def make_model(rng: random.Random, name: str, versions: int, *, weak: bool = False) -> Model:
    """A model with that many versions, `weak` for weak devices."""
    plan = _plan(rng, name, weak)
    files = [segment.file for program in plan.programs for segment in program.segments]
    plans = tuple(msgspec.structs.replace(plan, digests=dict.fromkeys(files, f"{v:064d}")) for v in range(versions))
    return Model(name, tuple(contract_digest(p) for p in plans), plans, weak)


def _plan(rng: random.Random, name: str, weak: bool) -> Plan:
    segments = rng.choice((2, 3)) if weak else rng.choice((1, 2, 2, 3))
    batchable = rng.random() < (0.9 if weak else 0.7)
    inputs = tuple(_tensor(rng, f"x{i}", ("uint8", "float32", "int32")) for i in range(rng.choice((1, 1, 1, 2))))
    middle = tuple((_tensor(rng, f"mid{i}", ("float32",)),) for i in range(1, segments))
    outputs = tuple(_tensor(rng, f"y{i}", ("float32", "int64", "uint8")) for i in range(rng.choice((1, 1, 2))))
    borders = (inputs, *middle, outputs)
    lossy = 0.9 if weak else 0.7
    cuts = tuple(_cut(rng, i, len(borders) - 1, tensors, lossy) for i, tensors in enumerate(borders))
    whole = Program("whole", tuple(_segment(f"s{i}", borders[i], borders[i + 1]) for i in range(segments)))
    cheaper = rng.choice((0, 1, 1, 1)) if weak else rng.choice((0, 1, 1, 2))
    programs = (whole, *(Program(f"small{i}", (_segment(f"r{i}", inputs, outputs),)) for i in range(cheaper)))
    agreements = (0.95, 0.8)[-cheaper:] if cheaper else ()
    rungs = tuple(Rung(f"small{i}", i + 1, agreements[i]) for i in range(cheaper))
    ladder = (*((Rung("whole", 0, 1.0),) if not weak and rng.random() < 0.6 else ()), *rungs)
    cost = _cost(rng, segments, weak)
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
        routes=_late_routes(rng, cuts) if weak else _routes(rng, cuts, needed=not ladder),
        metric="relative",
        chosen="",
        digests={},
        profiles=(
            _profile("edge", programs, cuts, cost, batchable),
            _profile("cloud", programs, cuts, cost, batchable),
        ),
    )


def _cost(rng: random.Random, segments: int, weak: bool) -> _Cost:
    if weak:
        edge_us = rng.choice((6_000.0, 12_000.0, 20_000.0))
        return _Cost(edge_us, edge_us * rng.choice((0.08, 0.15)), rng.choice((0.03, 0.1)), 0.1, rng.choice((0.1, 0.3)))
    edge_us = rng.choice((400.0, 1_500.0, 3_000.0, 6_000.0))
    cloud_us = edge_us * rng.choice((0.15, 0.3, 0.6))
    return _Cost(edge_us, cloud_us, 1 / segments, 0.5, rng.choice((0.1, 0.3, 0.8)))


def _tensor(rng: random.Random, name: str, dtypes: Sequence[str]) -> TensorSpec:
    return TensorSpec(name, rng.choice(dtypes), (1, rng.choice((8, 12, 16))))


def _segment(name: str, entry: Sequence[TensorSpec], leaving: Sequence[TensorSpec]) -> Segment:
    return Segment(name, f"{name}.onnx", tuple(t.name for t in entry), tuple(t.name for t in leaving))


def _cut(rng: random.Random, index: int, last: int, tensors: tuple[TensorSpec, ...], chance: float) -> Cut:
    name = ("input", "output")[index == last] if index in {0, last} else f"cut{index}"
    lossy = index != last and all(t.dtype == "float32" for t in tensors) and rng.random() < chance
    if not lossy:
        return Cut(name, tensors)
    scales = tuple(tuple(rng.choice((0.7, 1.1, 1.9)) for _ in range(t.shape[1])) for t in tensors)
    return Cut(name, tensors, (RAW, Coding("int8", "int8", scales=scales)))


def _routes(rng: random.Random, cuts: Sequence[Cut], *, needed: bool) -> tuple[Route, ...]:
    ways = [(i, cut, coding) for i, cut in enumerate(cuts[:-1]) for coding in cut.codings]
    picked = [way for way in ways if rng.random() < 0.7]
    if not picked and (needed or rng.random() < 0.7):
        picked = [rng.choice(ways)]
    return tuple(_route(cuts, *way) for way in picked)


def _late_routes(rng: random.Random, cuts: Sequence[Cut]) -> tuple[Route, ...]:
    """Routes that need a head first, mostly lossy ones."""
    late = [(i, cut, coding) for i, cut in enumerate(cuts[:-1]) if i for coding in cut.codings]
    picked = [way for way in late if way[2].lossy or rng.random() < 0.4] or [rng.choice(late)]
    return tuple(_route(cuts, *way) for way in picked)


def _route(cuts: Sequence[Cut], index: int, cut: Cut, coding: Coding) -> Route:
    down = HEADER_BYTES + sum(t.nbytes() for t in cuts[-1].tensors)
    return Route(index, coding.name, 0.97 if coding.lossy else 1.0, HEADER_BYTES + _nbytes(cut, coding), down)


def _nbytes(cut: Cut, coding: Coding) -> int:
    return sum(t.nbytes() if coding.kind == "raw" else t.shape[1] for t in cut.tensors)


def _profile(
    side: Literal["edge", "cloud"], programs: Sequence[Program], cuts: Sequence[Cut], cost: _Cost, batchable: bool
) -> Profile:
    ranges: list[RangeTime] = []
    whole_us = cost.edge_us if side == "edge" else cost.cloud_us
    for batch in BATCHES if batchable else BATCHES[:1]:
        factor = 1 + cost.slope * (batch - 1)
        segments = len(programs[0].segments)
        for first in range(segments):
            for last in range(first + 1, segments + 1):
                us = whole_us * (_done(cost, last, segments) - _done(cost, first, segments)) * factor
                ranges.append(RangeTime(0, first, last, batch, us, us * SPREAD))
        for number in range(1, len(programs)):
            us = whole_us * cost.rung**number * factor
            ranges.append(RangeTime(number, 0, 1, batch, us, us * SPREAD))
    codecs = tuple(CodecTime(i, c.name, 40.0, 30.0) for i, cut in enumerate(cuts) for c in cut.codings if c.lossy)
    return Profile(side, "virtual", "virtual", 1, 1.0, 30.0, tuple(ranges), codecs)


def _done(cost: _Cost, cut: int, segments: int) -> float:
    """How much of the whole model lies before a cut."""
    if cut == 0 or segments == 1:
        return float(cut)
    return cost.head + (1 - cost.head) * (cut - 1) / (segments - 1)
