"""The figures of a run, from its rows. Pure."""

from __future__ import annotations

import msgspec
import numpy as np

from hil.load.histogram import QUANTILES, Histogram, histogram
from hil.load.rows import KINDS, LATE, ON_TIME, Rows

EPSILON_NS = 1_000_000
"""How long after its deadline an outcome may be noted without counting as overdue: the clock of who notes it is read after
its thread was woken."""


class Quantile(msgspec.Struct, frozen=True, array_like=True):
    """Milliseconds that a share of the values do not exceed; None where there were too few to tell."""

    share: float
    ms: float | None


class Figures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of the requests of one source within `seconds`.

    `requests` is the sum of the six kinds of `hil.load.rows.KINDS`. `late_by` counts late answers by the stage that took
    longest (`sending`: the load generator's own), `missed_by` and `rejected_by` requests without an answer by stage and
    reason. `overdue`: requests of which word came more than `EPSILON_NS` after the deadline, or never. `doubled`: ends of
    requests that had ended. `offered_per_s` and `on_time_per_s` are of the seconds. `latency` is of all answers, late ones
    included, from the scheduled time."""

    requests: int
    seconds: float
    kinds: dict[str, int]
    late_by: dict[str, int]
    missed_by: dict[str, int]
    rejected_by: dict[str, int]
    overdue: int
    doubled: int
    offered_per_s: float
    on_time_per_s: float
    quantiles: tuple[Quantile, ...]
    most_ms: float
    latency: Histogram

    def __post_init__(self) -> None:
        """Raises `ValueError` for kinds that are not those of so many requests: a report may have been edited."""
        if self.kinds.keys() != set(KINDS) or sum(self.kinds.values()) != self.requests:
            raise ValueError(f"kinds: expected how many of the {self.requests} requests are {', '.join(KINDS)}")

    @property
    def on_time(self) -> int:
        """Requests answered by their deadline."""
        return self.kinds["on_time"]

    @property
    def on_time_share(self) -> float:
        """The same, of all; 0 of none."""
        return self.on_time / self.requests if self.requests else 0.0


def figures_of(rows: Rows, seconds: float) -> Figures:
    """Figures of these rows, which were scheduled within so many seconds."""
    counts = np.bincount(rows.kind, minlength=len(KINDS))
    kinds = {name: int(counts[place]) for place, name in enumerate(KINDS)}
    answered = (rows.kind == ON_TIME) | (rows.kind == LATE)
    latency = histogram((rows.ended_ns - rows.scheduled_ns)[answered])
    overdue = (rows.ended_ns == 0) | (rows.ended_ns > rows.due_ns + EPSILON_NS)
    by = {name: _words(rows, place) for place, name in enumerate(KINDS)}
    return Figures(
        requests=len(rows),
        seconds=seconds,
        kinds=kinds,
        late_by=by["late"],
        missed_by=by["missed"],
        rejected_by=by["rejected"],
        overdue=int(np.count_nonzero(overdue)),
        doubled=rows.doubled,
        offered_per_s=len(rows) / seconds,
        on_time_per_s=kinds["on_time"] / seconds,
        quantiles=tuple(Quantile(share, latency.quantile_ms(share)) for share in QUANTILES),
        most_ms=latency.most_ns / 1e6,
        latency=latency,
    )


def _words(rows: Rows, kind: int) -> dict[str, int]:
    counts = np.bincount(rows.word[rows.kind == kind], minlength=len(rows.words))
    named = {word: int(count) for word, count in zip(rows.words, counts, strict=True) if word and count}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))
