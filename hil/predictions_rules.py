"""Predicted against measured times: the error of each way, what is made of them, and whether that is good enough."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
import numpy as np

from shared.request import Stage, Stages

MEDIAN_LIMIT, P95_LIMIT = 0.05, 0.15
"""The largest error at the median way, and at the 95th percentile of the ways."""

LEAST_ROUTES, LEAST_MODELS = 8, 5
"""Fewer would not show that predictions hold in general."""


class Parts(msgspec.Struct, frozen=True):
    """Milliseconds that a prediction is made of: work of the device, the link up and down, work of the cloud, and what the
    request costs beside these. They add up to the whole."""

    device: float
    up: float
    cloud: float
    down: float
    overhead: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.device + self.up + self.cloud + self.down + self.overhead


class Compared(msgspec.Struct, frozen=True):
    """One way to answer: what was predicted and what `requests` requests took at their median, in milliseconds. `planned_ms`
    is what the plan predicts; `predicted` the same with work as it was timed in turns with the requests. `stages` are the
    medians of the answers' own account, `rounds_ms` the medians of each round."""

    model: str
    way: str
    routed: bool
    planned_ms: float
    predicted: Parts
    measured_ms: float
    requests: int
    stages: dict[str, float]
    rounds_ms: tuple[float, ...]

    @property
    def error(self) -> float:
        """The difference as a share of what was measured; positive where the prediction was too long."""
        return (self.predicted.total - self.measured_ms) / self.measured_ms

    @property
    def planned_error(self) -> float:
        """The same of what the plan predicts."""
        return (self.planned_ms - self.measured_ms) / self.measured_ms

    @property
    def drift(self) -> float:
        """How far the rounds were apart: half of what lies between their quartiles, as a share of the median. A prediction
        cannot be closer than the machine is to itself."""
        low, high = np.quantile(self.rounds_ms, (0.25, 0.75))
        return float(high - low) / 2.0 / self.measured_ms


class Verdict(msgspec.Struct, frozen=True):
    """The errors of all ways, as shares: their median and 95th percentile, and the median of the plans' own, which the
    machine's drift since is part of; and of how many routes through the cloud and of how many models they are."""

    median: float
    p95: float
    planned_median: float
    routes: int
    models: int

    @property
    def ample(self) -> bool:
        """Whether enough was compared."""
        return self.routes >= LEAST_ROUTES and self.models >= LEAST_MODELS

    @property
    def within(self) -> bool:
        """Whether enough was compared and both limits are kept."""
        return self.ample and self.median <= MEDIAN_LIMIT and self.p95 <= P95_LIMIT


def judge(compared: Sequence[Compared]) -> Verdict:
    """What the comparisons say together; at least one."""
    errors = [abs(one.error) for one in compared]
    return Verdict(
        median=statistics.median(errors),
        p95=float(np.quantile(errors, 0.95)),
        planned_median=statistics.median(abs(one.planned_error) for one in compared),
        routes=sum(one.routed for one in compared),
        models=len({one.model for one in compared}),
    )


def middle_stages(stages: Sequence[Stages]) -> dict[str, float]:
    """The median of each stage over answers that took the same way, in milliseconds."""
    names: list[Stage] = sorted({name for one in stages for name in one})
    return {name: statistics.median(one.get(name, 0) for one in stages) / 1e6 for name in names}
