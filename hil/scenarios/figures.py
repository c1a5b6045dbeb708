"""The figures of a run, from the ledgers' entries and what the monitor saw: what the report holds and the judge looks at."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from hil.ledger import Entry
from hil.scenarios.scenario import Noise
from hil.scenarios.timeline import Arm
from hil.stalls import Stall

MS = 1_000_000

TOLD_LATE_NS = 5 * MS
"""An answer that is called on time may be seen by the rig so much after its deadline, since the rig looks a moment later than
the client decided, and may lose the processor in between. By the client's own account it may not be late at all."""


HELD_MS = 1.0
LAST_MOMENTS_NS = 3 * MS
"""An answer that is held is let go a millisecond before the deadline: a wake-up as late as that makes it late."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One frame: when it was due (ms after the first), how long it took (None where nothing came), how it ended, which node
    answered or `edge` (empty where none did), and whether the machine stalled meanwhile."""

    due_ms: float
    latency_ms: float | None
    outcome: str
    source: str
    marked: bool


class ArmFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One arm as it went. `frames` is the sum of `on_time`, `late`, `missed`, `rejected` and `superseded` where nothing is
    `lost`. `told_late`: answers that were called on time and were late, by the client's own account, or by the rig's
    where the machine did not stall. `marked` frames are those during which the
    machine stalled; `unmarked_*` count the others. Quantiles are of answers, in ms from the frame's time."""

    frames: int
    on_time: int
    late: int
    missed: int
    rejected: int
    superseded: int
    lost: int
    duplicated: int
    wrong: int
    told_late: int
    marked: int
    unmarked_on_time: int
    unmarked_cloud_on_time: int
    by_source: dict[str, int]
    by_fidelity: dict[str, int]
    misses: dict[str, int]
    p50_ms: float
    p99_ms: float
    wrong_because: tuple[str, ...]
    timeline: tuple[Point, ...]

    @property
    def unmarked(self) -> int:
        """Frames during which the machine did not stall."""
        return self.frames - self.marked

    @property
    def share(self) -> float:
        """Of the unmarked frames, those answered on time."""
        return self.unmarked_on_time / self.unmarked if self.unmarked else 0.0

    @property
    def cloud_share(self) -> float:
        """Of the unmarked frames, those that the cloud answered on time."""
        return self.unmarked_cloud_on_time / self.unmarked if self.unmarked else 0.0

    @property
    def adds_up(self) -> bool:
        """Whether every frame has its outcome."""
        return self.frames == self.on_time + self.late + self.missed + self.rejected + self.superseded


def marks(entries: Sequence[Entry], stalls: Sequence[Stall], noise: Noise, deadline_ms: float) -> list[bool]:
    """For each entry, whether the machine stalled between its time, or `noise.after_ms` before, and its deadline; or for
    `HELD_MS` or longer in the last moments before the deadline, at which an answer that was held for a better one is let
    go."""
    long = _Spans(stalls, noise.stall_ms)
    short = _Spans(stalls, HELD_MS)
    found: list[bool] = []
    for entry in entries:
        due_ns = entry.due_ns + round(deadline_ms * MS)
        found.append(
            long.meet(entry.due_ns - round(noise.after_ms * MS), due_ns) or short.meet(due_ns - LAST_MOMENTS_NS, due_ns)
        )
    return found


class _Spans:
    """The stalls of at least a length, in order."""

    def __init__(self, stalls: Sequence[Stall], least_ms: float) -> None:
        spans = sorted(
            (stall.due_ns, stall.due_ns + stall.late_ns) for stall in stalls if stall.late_ns >= least_ms * MS
        )
        self._begins = [begin for begin, _ in spans]
        # Cores stall independently: the latest end so far is what a later beginning is held against.
        self._ends = list(accumulate((end for _, end in spans), max))

    def meet(self, first_ns: int, last_ns: int) -> bool:
        """Whether any of them meets the time from `first_ns` to `last_ns`."""
        begun = bisect_right(self._begins, last_ns)
        return begun > 0 and self._ends[begun - 1] >= first_ns


def figures(entries: Sequence[Entry], marked: Sequence[bool], deadline_ms: float, began_ns: int) -> ArmFigures:
    """The figures of one arm."""
    kinds = Counter(entry.kind for entry in entries)
    answers = [entry for entry in entries if entry.source]
    latencies = sorted(entry.latency_ns / MS for entry in answers)
    clear = [entry for entry, mark in zip(entries, marked, strict=True) if not mark]
    on_time = [entry for entry in clear if entry.kind == "on_time"]
    due_ns = round(deadline_ms * MS)
    return ArmFigures(
        frames=len(entries),
        on_time=kinds["on_time"],
        late=kinds["late"],
        missed=kinds["missed"],
        rejected=kinds["rejected"],
        superseded=kinds["superseded"],
        lost=kinds["lost"],
        duplicated=sum(entry.duplicates for entry in entries),
        wrong=sum(1 for entry in entries if entry.why_wrong),
        told_late=sum(
            entry.latency_ns > due_ns + TOLD_LATE_NS or entry.elapsed_ns > due_ns
            for entry, mark in zip(entries, marked, strict=True)
            if entry.kind == "on_time" and (not mark or entry.elapsed_ns > due_ns)
        ),
        marked=len(entries) - len(clear),
        unmarked_on_time=len(on_time),
        unmarked_cloud_on_time=sum(entry.source == "cloud" for entry in on_time),
        by_source=dict(sorted(Counter(entry.node or entry.source for entry in answers).items())),
        by_fidelity=dict(sorted(Counter(entry.fidelity for entry in answers).items())),
        misses=dict(sorted(Counter(entry.detail for entry in entries if entry.detail).items())),
        p50_ms=_quantile(latencies, 0.5),
        p99_ms=_quantile(latencies, 0.99),
        wrong_because=tuple(sorted({entry.why_wrong for entry in entries if entry.why_wrong}))[:8],
        timeline=tuple(
            Point(
                round((entry.due_ns - began_ns) / MS, 3),
                None if entry.kind == "lost" else round(entry.latency_ns / MS, 3),
                entry.kind,
                entry.node or entry.source,
                mark,
            )
            for entry, mark in zip(entries, marked, strict=True)
        ),
    )


class RunFigures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both arms, the requests whose futures never ended, the clients' own sums where they are wrong, and what an oracle that
    knows the links and the faults would have had answered by the cloud on time."""

    test: ArmFigures
    control: ArmFigures
    hung: int
    sums: tuple[str, ...]
    oracle: float

    def arm(self, arm: Arm) -> ArmFigures:
        """One of them."""
        return self.test if arm == "test" else self.control


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that `share` of the values do not exceed; 0 where there is none."""
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) if ordered else 0.0
