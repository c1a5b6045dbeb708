"""What is sent, and when: sources of requests, and the schedule of a run. Pure.

An open loop sends when its schedule says so, whatever the answers do, as cameras and other people's requests come; a closed
loop sends the next request when one has ended, as callers do that wait. Latency counts from the scheduled time, so that a
target which stands still for a second is late for all that were due in it (coordinated omission).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from hil.goodput.arrivals import times
from hil.goodput.case import Arrivals, Model
from shared.errors import UserError

Whole = NDArray[np.int64]
MOST_REQUESTS = 4_000_000
"""Of one run: all of them are remembered."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of requests. `rate_per_s` above 0 is an open loop whose gaps `process` and `cv` say (as in
    `hil.goodput.case.Arrivals`); else `in_flight` requests are kept open. `priority` 0 is the most important class."""

    name: str = "load"
    deadline_ms: float = 10.0
    priority: int = 1
    rate_per_s: float = 0.0
    process: Literal["periodic", "poisson", "gamma"] = "poisson"
    cv: float = 1.0
    in_flight: int = 0

    @property
    def open_loop(self) -> bool:
        """Whether it sends at its own pace."""
        return self.rate_per_s > 0.0

    @property
    def deadline_ns(self) -> int:
        """The deadline in nanoseconds."""
        return round(self.deadline_ms * 1e6)

    def __str__(self) -> str:
        if not self.open_loop:
            return f"{self.in_flight} in flight"
        gaps = f"gamma, CV {self.cv:g}" if self.process == "gamma" else self.process
        rate = f"{self.rate_per_s:,.0f}" if self.rate_per_s >= 1000.0 else f"{self.rate_per_s:.4g}"
        return f"{rate}/s, {gaps}"


class Schedule(msgspec.Struct, frozen=True):
    """All sends of the open loops of a run, in the order of time: when, in nanoseconds since it began (rising), and for which
    source (an index)."""

    at_ns: list[int]
    source: list[int]


def schedule(sources: Sequence[Source], seconds: float, seed: int) -> Schedule:
    """The sends of `seconds`. Each source draws from a stream of its own, so that one does not depend on the others. Raises
    `UserError` for more requests than can be remembered."""
    expected = seconds * sum(source.rate_per_s for source in sources)
    if expected > MOST_REQUESTS:
        raise UserError(
            f"{expected:,.0f} requests in one run; expected at most {MOST_REQUESTS:,}: send fewer or shorter"
        )
    children = np.random.SeedSequence(seed).spawn(len(sources))
    drawn = [_times(source, seconds, child) for source, child in zip(sources, children, strict=True)]
    at = np.concatenate(drawn) if drawn else np.empty(0, np.int64)
    owner = np.repeat(np.arange(len(drawn)), [len(each) for each in drawn])
    order = np.argsort(at, kind="stable")
    return Schedule(at[order].tolist(), owner[order].tolist())


def _times(source: Source, seconds: float, seed: np.random.SeedSequence) -> Whole:
    if not source.open_loop:
        return np.empty(0, np.int64)
    arrivals = Arrivals(process=source.process, cv=source.cv)
    model = Model(name=source.name, deadline_ms=source.deadline_ms, alpha_ms=1.0, arrivals=arrivals)
    drawn = times(model, source.rate_per_s, seconds, np.random.default_rng(seed))
    return np.rint(drawn * 1e9).astype(np.int64)


def parse_arrivals(text: str) -> tuple[Literal["periodic", "poisson", "gamma"], float]:
    """The process and coefficient of variation of `periodic`, `poisson` or `gamma:CV`. Raises `UserError`."""
    match text.partition(":"):
        case ("periodic", "", ""):
            return "periodic", 0.0
        case ("poisson", "", ""):
            return "poisson", 1.0
        case ("gamma", ":", written):
            try:
                cv = float(written)
            except ValueError:
                cv = 0.0
            if 0.01 <= cv <= 100.0:
                return "gamma", cv
        case _:
            pass
    raise UserError(
        f"arrivals {text!r}: expected periodic, poisson or gamma:CV with a coefficient of variation of 0.01 to 100"
    )
