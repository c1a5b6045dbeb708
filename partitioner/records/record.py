"""What a plan was chosen from, as data: `weighing.json` in the bundle, from which a plan explains itself.

It holds every way to answer with its parts, the conditions that were asked for, the data, the proofs, the notes and the
machine. Neither a model nor a runtime is needed to read it, and it changes no answer: it is listed in the bundle's manifest
and is no part of the contract.

The device's own times are those of the machine that measured, or of that of the device's profile where one was given
(slowdown 1), beside the factor that was asked for, so that the same record answers for another device. Storing the slowed
times alone was rejected: what is noise and what is work could not be told apart any more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import msgspec

from partitioner.costs.conditions import Conditions
from partitioner.costs.cost import NOTHING, Candidate, Kind, Spread
from partitioner.demands.objective import LATENCY, Objective
from partitioner.grids.regret import Regret
from partitioner.inversions.inversion import Inversion
from shared.bundle import UNREADABLE
from shared.errors import BundleError

RECORD_FORMAT = 1
RECORD_FILE = "weighing.json"

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate of the weighing. `head` and `encode` are this machine's own, without the edge's slowdown. `agreement` is
    None where it was not measured. The other fields are those of `partitioner.costs.cost.Candidate`.

    `head` and `tail` are those of the written bundle, where it can take this way; `weighed_head` and `weighed_tail` are then
    what they were weighed by before (`partitioner.costs.settle`), else None."""

    kind: Kind
    cut: str
    coding: str
    rung: str
    head: Spread
    encode: Spread
    decode: Spread
    tail: Spread
    bytes_up: Count
    bytes_down: Count
    agreement: Share | None
    measured: bool
    overhead: Spread = NOTHING
    weighed_head: Spread | None = None
    weighed_tail: Spread | None = None

    @classmethod
    def of(cls, candidate: Candidate, slowdown: float, weighed: Candidate | None = None) -> Way:
        """A candidate that was made for a device `slowdown` times slower. `weighed` is the same way as it was weighed, where
        the bundle takes other times."""
        return cls(
            kind=candidate.kind,
            cut=candidate.cut,
            coding=candidate.coding,
            rung=candidate.rung,
            head=candidate.head.unslowed(slowdown),
            encode=candidate.encode.unslowed(slowdown),
            decode=candidate.decode,
            tail=candidate.tail,
            bytes_up=candidate.bytes_up,
            bytes_down=candidate.bytes_down,
            agreement=None if math.isnan(candidate.agreement) else candidate.agreement,
            measured=candidate.measured,
            overhead=candidate.overhead,
            weighed_head=None if weighed is None else weighed.head.unslowed(slowdown),
            weighed_tail=None if weighed is None else weighed.tail,
        )

    def weighed_on(self, slowdown: float) -> Candidate:
        """As `on`, with the times by which it was weighed before the bundle was written."""
        way = self.on(slowdown)
        head, tail = self.weighed_head, self.weighed_tail
        return way if head is None or tail is None else replace(way, head=head.slowed(slowdown), tail=tail)

    def on(self, slowdown: float) -> Candidate:
        """The candidate on a device `slowdown` times slower than the machine that measured."""
        return Candidate(
            kind=self.kind,
            cut=self.cut,
            coding=self.coding,
            rung=self.rung,
            head=self.head.slowed(slowdown),
            encode=self.encode.slowed(slowdown),
            decode=self.decode,
            tail=self.tail,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            agreement=math.nan if self.agreement is None else self.agreement,
            measured=self.measured,
            overhead=self.overhead,
        )


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data that codings were fitted to and answers judged by. `findings`: how much the judged rows let the metric
    judge, detections for `detection`, else rows. `real` is False for seeded synthetic rows."""

    label: str
    real: bool
    rows_fitted: Count
    rows_judged: Count
    findings: Count


class Proven(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was proven of the written files: the largest relative difference where `exact`, else the agreement."""

    what: str
    coding: str
    rows: Count
    exact: bool
    value: Annotated[float, msgspec.Meta(ge=0.0)]


SourceKind = Literal["here", "measured", "scaled", "estimated"]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a side's times come from: `here` from the machine that made the plan, else from a profile that was measured,
    scaled from a measured one, or estimated. `file`, `device` and `how` are the profile's, empty without one."""

    kind: SourceKind
    file: str = ""
    device: str = ""
    how: str = ""


HERE = Source("here")


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured on. `packages` are versions by name."""

    processor: str
    system: str
    python: str
    packages: dict[str, str]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `weighing.json`. `best`, `routes` and `rungs` are places in `ways`; `best` is None where no way was of enough
    agreement. `forced` are the cuts that were to be the only routes, whatever the weighing says. `metric_means` says in a
    sentence what the agreement counts. `threads` is what a session was given, `quick` whether less time was spent. `edge` and
    `cloud` say where the times of either side come from; with a profile, times of the device are those of its machine.
    `insured_only`: something is pinned to the cloud, so that ways on the device insure requests and do not win.
    `objective` is what the best way is best in.
    `regret` is what the routes lose over a grid of conditions, where they were kept for one. `inversions` say how well the
    input was rebuilt from what routes send, where that was checked."""

    format: int
    name: str
    asked: Conditions
    cadence_hz: Positive
    forced: tuple[str, ...]
    metric: str
    metric_means: str
    data: Data
    ways: tuple[Way, ...]
    best: Count | None
    routes: tuple[Count, ...]
    rungs: tuple[Count, ...]
    notes: tuple[str, ...]
    proofs: tuple[Proven, ...]
    machine: Machine
    threads: int
    seed: int
    quick: bool
    seconds: Annotated[float, msgspec.Meta(ge=0.0)]
    edge: Source = HERE
    cloud: Source = HERE
    insured_only: bool = False
    objective: Objective = LATENCY
    regret: Regret | None = None
    inversions: tuple[Inversion, ...] = ()

    def candidates(self, slowdown: float) -> list[Candidate]:
        """Every way on a device so many times slower than the machine that measured."""
        return [way.on(slowdown) for way in self.ways]


class _FormatOnly(msgspec.Struct, frozen=True):
    format: int


def encode_record(record: Record) -> bytes:
    """The bytes of `weighing.json`."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def decode_record(text: bytes, where: str) -> Record:
    """The record of these bytes. Raises `BundleError` that begins with `where` for one of another format or a broken one."""
    try:
        stated = msgspec.json.decode(text, type=_FormatOnly).format
        if stated != RECORD_FORMAT:
            raise BundleError(
                f"{where}: {RECORD_FILE} has format {stated}, this version reads format {RECORD_FORMAT}: make the plan again"
            )
        record = msgspec.json.decode(text, type=Record)
    except UNREADABLE as reason:
        raise BundleError(f"{where}: {RECORD_FILE}: {reason}") from None
    for fault in _faults(record):
        raise BundleError(f"{where}: {RECORD_FILE}: {fault}")
    return record


def _faults(record: Record) -> list[str]:
    """What the types do not say."""
    faults: list[str] = []
    places = (*record.routes, *record.rungs, *(() if record.best is None else (record.best,)))
    faults += [f"there is no way {place}" for place in places if place >= len(record.ways)]
    labels = [way.on(1.0).label for way in record.ways]
    measured = [label for way, label in zip(record.ways, labels, strict=True) if way.measured]
    faults += [
        f"two measured ways are called {label!r}" for label in dict.fromkeys(measured) if measured.count(label) > 1
    ]
    link = record.asked.link
    if not (0.0 < link.rate_mbit < math.inf and 0.0 <= link.rtt_ms < math.inf):
        faults.append(f"the link is {link}")
    for way, label in zip(record.ways, labels, strict=True):
        parts = (way.head, way.encode, way.decode, way.tail, way.overhead)
        if any(not 0.0 <= part.p50_us < math.inf or not math.isfinite(part.p99_us) for part in parts):
            faults.append(f"a time of {label!r} is negative")
    return faults
