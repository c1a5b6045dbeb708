"""The figures of a phase, from the ledger's entries: what the report holds and the verdict judges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from hil.ledger import Entry
from hil.phases import Phase
from shared.lateness import LatenessFigures

WHOLE = "whole"
"""The rung that is the whole model: that of each answer of the cloud, and the device's best."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One frame on the timeline: when it was due since the phase began, how long it took (None where nothing came), how it
    ended and where its answer came from."""

    due_ms: float
    latency_ms: float | None
    outcome: str
    source: str


class PhaseResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One phase as it went.

    `frames` is what was asked, and the sum of `on_time`, `late`, `missed`, `rejected` and `superseded` where nothing is
    lost. `by_source`, `by_rung` and `by_fidelity` count answers, late ones included; `cloud_on_time` is the share of all
    frames that the cloud answered on time, `whole_on_time` and `whole_on_time_last_half` those (of the last half's frames)
    that it or, by the whole model, the device did, and `cheaper_on_time` the share of the frames between its first and its
    last fault that a rung of `Phase.cheaper` did. `p50_ms` and `p99_ms` are of answers, from the scheduled time.
    `machine_*` is what the monitor saw meanwhile. `machine_stalled`: the machine itself stood still too often. `repeated`:
    an earlier try at this phase was set aside for that, and is `first_try`; `not_repeated_because` says why there was no
    second one where it stalled. `misses` counts misses by stage and refusals by reason.
    """

    name: str
    kind: str
    title: str
    deadline_ms: float
    frames: int
    on_time: int
    late: int
    missed: int
    rejected: int
    superseded: int
    lost: int
    duplicated: int
    wrong: int
    by_source: dict[str, int]
    by_rung: dict[str, int]
    by_fidelity: dict[str, int]
    misses: dict[str, int]
    cloud_on_time: float
    whole_on_time: float
    whole_on_time_last_half: float
    cheaper_on_time: float
    p50_ms: float
    p99_ms: float
    machine_lateness_p50_ms: float
    machine_lateness_p99_ms: float
    machine_lateness_max_ms: float
    machine_stalled: bool
    repeated: bool = False
    not_repeated_because: str = ""
    first_try: PhaseResult | None = None
    wrong_because: tuple[str, ...] = ()
    faults: tuple[tuple[float, str], ...] = ()
    timeline: tuple[Point, ...] = ()

    @property
    def on_time_share(self) -> float:
        """Frames answered on time, of all."""
        return self.on_time / self.frames if self.frames else 0.0

    @property
    def marks(self) -> str:
        """What was unusual about it, in a word or two."""
        if self.machine_stalled:
            return "stalled twice" if self.repeated else "stalled"
        return "repeated" if self.repeated else ""

    @property
    def adds_up(self) -> bool:
        """Whether every frame has its outcome."""
        return self.frames == self.on_time + self.late + self.missed + self.rejected + self.superseded


def summarise(
    phase: Phase,
    entries: Sequence[Entry],
    deadline_ms: float,
    began_ns: int,
    faults: Sequence[tuple[int, str]],
    machine: LatenessFigures,
    stalled: bool,
) -> PhaseResult:
    """The result of `phase` from its `entries`. `faults` are times and words of what was done to it."""
    kinds = Counter(entry.kind for entry in entries)
    answers = [entry for entry in entries if entry.source]
    latencies = sorted(entry.latency_ns / 1e6 for entry in answers)
    last_half = entries[len(entries) // 2 :]
    return PhaseResult(
        name=phase.name,
        kind=phase.kind,
        title=phase.title,
        deadline_ms=deadline_ms,
        frames=len(entries),
        on_time=kinds["on_time"],
        late=kinds["late"],
        missed=kinds["missed"],
        rejected=kinds["rejected"],
        superseded=kinds["superseded"],
        lost=kinds["lost"],
        duplicated=sum(entry.duplicates for entry in entries),
        wrong=sum(1 for entry in entries if entry.why_wrong),
        by_source=dict(sorted(Counter(entry.source for entry in answers).items())),
        by_rung=dict(sorted(Counter(entry.rung for entry in answers).items())),
        by_fidelity=dict(sorted(Counter(entry.fidelity for entry in answers).items())),
        misses=dict(sorted(Counter(entry.detail for entry in entries if entry.detail).items())),
        cloud_on_time=_share(entry.source == "cloud" and entry.kind == "on_time" for entry in entries),
        whole_on_time=_share(entry.rung == WHOLE and entry.kind == "on_time" for entry in entries),
        whole_on_time_last_half=_share(entry.rung == WHOLE and entry.kind == "on_time" for entry in last_half),
        cheaper_on_time=_cheaper_share(phase, entries),
        p50_ms=_quantile(latencies, 0.5),
        p99_ms=_quantile(latencies, 0.99),
        machine_lateness_p50_ms=machine.p50_ms,
        machine_lateness_p99_ms=machine.p99_ms,
        machine_lateness_max_ms=machine.max_ms,
        machine_stalled=stalled,
        wrong_because=tuple(sorted({entry.why_wrong for entry in entries if entry.why_wrong}))[:8],
        faults=tuple(((at_ns - began_ns) / 1e6, words) for at_ns, words in faults),
        timeline=tuple(_point(entry, began_ns) for entry in entries),
    )


def _point(entry: Entry, began_ns: int) -> Point:
    latency = None if entry.kind == "lost" else round(entry.latency_ns / 1e6, 3)
    return Point(round((entry.due_ns - began_ns) / 1e6, 3), latency, entry.kind, entry.source)


def _share(which: Iterable[bool]) -> float:
    found = list(which)
    return sum(found) / len(found) if found else 0.0


def _cheaper_share(phase: Phase, entries: Sequence[Entry]) -> float:
    if not phase.cheaper:
        return 0.0
    frames = [fault.frame for fault in phase.faults]
    hot = entries[min(frames) : max(frames)]
    return sum(entry.rung in phase.cheaper and entry.kind == "on_time" for entry in hot) / max(1, len(hot))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that `share` of the values do not exceed; 0 where there is none."""
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) if ordered else 0.0
