"""By how much a deployed pair is not what its plan was weighed for: the stages of real answers beside those predicted.

Pure. Each answer names its way and where its time went. The middle of each stage over a way's answers is held against
the plan's record under the conditions that it was made for. What differs beyond a bound has drifted, and its ratio says by
how much: of the device's runs, of the cloud's, of the codings, of what a request costs beside its work. The link's two
figures are fitted where ways of different bytes were seen, by least squares; with one way alone both take its ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from partitioner.costs.conditions import Conditions
from partitioner.costs.cost import Candidate
from partitioner.explanations.explanation import Stages, stages_of
from partitioner.options import LinkGuess
from partitioner.records.record import Record
from shared.plan import Plan
from shared.request import Answer

Part = Literal["device", "codec", "link", "cloud", "overhead"]
PARTS: tuple[Part, ...] = ("device", "codec", "link", "cloud", "overhead")

LEAST_ANSWERS = 8
"""With fewer answers by a way, its middle says too little."""
SHORTEST_US = 50.0
"""What was predicted to take less is not compared: the clock and the wake-ups weigh more than the work."""
LEAST_RATE_MBIT = 0.01

_OF: Mapping[Part, tuple[str, ...]] = {
    "device": ("head", "rung"),
    "codec": ("codec",),
    "link": ("uplink", "downlink"),
    "cloud": ("tail",),
    "overhead": ("client", "agent", "edge_queue", "cloud_queue"),
}
"""The stages of an answer that each part is made of. `hold` is a choice, not a cost."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Answers by one way: its label, how many, and the middle of each part in microseconds."""

    label: str
    answers: int
    parts_us: Mapping[Part, float]


@dataclass(frozen=True, slots=True)
class Drift:
    """One part over all ways that were seen: what was predicted and what was measured (microseconds, summed over the ways),
    and whether that is beyond the bound."""

    part: Part
    predicted_us: float
    measured_us: float
    drifted: bool

    @property
    def ratio(self) -> float:
        """How many times as long it takes as was predicted."""
        return self.measured_us / self.predicted_us


def seen_in(answers: Sequence[Answer], plan: Plan) -> tuple[Seen, ...]:
    """What a sequence of answers shows, by way; ways with fewer than `LEAST_ANSWERS` are left out."""
    by_way: dict[str, list[Answer]] = {}
    for answer in answers:
        by_way.setdefault(label_of(answer, plan), []).append(answer)
    return tuple(
        Seen(label, len(group), {part: _middle_us(group, _OF[part]) for part in PARTS})
        for label, group in sorted(by_way.items())
        if len(group) >= LEAST_ANSWERS
    )


def label_of(answer: Answer, plan: Plan) -> str:
    """The label, as in the record, of the way by which an answer was made. An exact answer of the cloud does not name its
    coding: it is taken for the first exact route at its cut."""
    if answer.cut is None:
        return f"device: {answer.rung}"
    cut = plan.cuts[answer.cut]
    if answer.fidelity.kind == "lossy":
        return f"{cut.name} as {answer.fidelity.name}"
    exact = (r.coding for r in plan.routes if r.cut == answer.cut and not _lossy(plan, r.cut, r.coding))
    return f"{cut.name} as {next(exact, 'raw')}"


def drift_of(record: Record, seen: Sequence[Seen], bound: float) -> tuple[Drift, ...]:
    """Each part that was seen and predicted, held against the record. `bound` is the least share by which a part must be
    longer or shorter to have drifted (0.25: a quarter)."""
    known = _candidates(record)
    found: list[Drift] = []
    for part in PARTS:
        predicted = measured = 0.0
        for way in seen:
            candidate = known.get(way.label)
            if candidate is not None and (wanted := _PREDICTED[part](stages_of(candidate, record.asked))) > SHORTEST_US:
                predicted += wanted
                measured += way.parts_us[part]
        if predicted > 0.0:
            ratio = measured / predicted
            found.append(Drift(part, predicted, measured, not 1.0 / (1.0 + bound) <= ratio <= 1.0 + bound))
    return tuple(found)


def link_of(record: Record, seen: Sequence[Seen], drift: Sequence[Drift]) -> LinkGuess:
    """The link as it was seen: the record's where it has not drifted."""
    asked = record.asked.link
    ratio = next((d.ratio for d in drift if d.part == "link" and d.drifted), None)
    if ratio is None:
        return asked
    known = _candidates(record)
    fitted = _line(_points(known, seen))
    if fitted is not None:
        us_per_byte, base_us = fitted
        return LinkGuess(max(LEAST_RATE_MBIT, 8.0 / us_per_byte), base_us / 1000.0)
    ratio = max(ratio, 1e-6)
    return LinkGuess(max(LEAST_RATE_MBIT, asked.rate_mbit / ratio), asked.rtt_ms * ratio)


def told_apart(record: Record, seen: Sequence[Seen]) -> bool:
    """Whether the link's rate and its round trip are known each by itself."""
    return _line(_points(_candidates(record), seen)) is not None


def conditions_seen(record: Record, link: LinkGuess) -> Conditions:
    """What the plan was asked for, over the link that was seen."""
    return record.asked.at("link.rate", link.rate_mbit).at("link.rtt", link.rtt_ms)


def _candidates(record: Record) -> dict[str, Candidate]:
    return {c.label: c for c in record.candidates(record.asked.edge_slowdown) if c.measured}


def _points(known: Mapping[str, Candidate], seen: Sequence[Seen]) -> list[tuple[float, float]]:
    """Bytes and microseconds on the link of each way through the cloud."""
    return [
        (float(known[way.label].bytes_up + known[way.label].bytes_down), way.parts_us["link"])
        for way in seen
        if way.label in known and known[way.label].kind != "device"
    ]


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Slope and offset of the line of least squares; None where the points are of one size, or either is not positive."""
    if len({nbytes for nbytes, _ in points}) < 2:
        return None
    slope, base = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return (slope, base) if slope > 0.0 and base >= 0.0 else None


def _middle_us(answers: Sequence[Answer], stages: Sequence[str]) -> float:
    sums = [sum(ns for stage, ns in answer.stages.items() if stage in stages) for answer in answers]
    return statistics.median(sums) / 1000.0


def _lossy(plan: Plan, cut: int, name: str) -> bool:
    coding = plan.cuts[cut].coding(name)
    return coding is not None and coding.lossy


_PREDICTED: Mapping[Part, Callable[[Stages], float]] = {
    "device": lambda stages: stages.head_us,
    "codec": lambda stages: stages.encode_us + stages.decode_us,
    "link": lambda stages: stages.uplink_us + stages.downlink_us,
    "cloud": lambda stages: stages.tail_us,
    "overhead": lambda stages: stages.overhead_us,
}
