"""What a request costs beside its work and the link, as measured on a host: client, agent, node, and every copy between.

A prediction that adds up runs, codings and the time on the link leaves out a millisecond and more: two processes wake up on
the device and one in the cloud, each looks at the request, hands the work to an executor and is woken by it, and whatever
crosses is copied at every border. It is not a part of any single run, so it is measured as what is left of real answers
when the time of their runs and codings is taken away, with probes of known sizes over the bare loopback
(`headtail overhead`), one request at a time and at a stream's pace, since a process that has slept finds its caches cold.

The left-over is fitted as

    device               device_us + local_byte_us * (bytes of inputs and outputs)
    through the cloud    cloud_us  + local_byte_us * (the same) + network_byte_us * (bytes up and down)
                         + head_us, where the device works before it sends

None of it can be negative, so the fit is one of non-negative least squares (Lawson and Hanson, 1974; scipy's `nnls`) of the
medians, each residual as a share of its median. A probe
of its own for each size and way was rejected: a plan would have to be measured before it exists.
"""

# scipy has no type information
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from partitioner.costs.cost import Kind, Spread
from shared.errors import UserError

OVERHEAD_FORMAT = 1
LEAST_US = 1.0
"""Nothing that crosses two processes takes less: what is below counts as this much when shares are taken."""

Cost = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]


@dataclass(frozen=True, slots=True)
class Crossing:
    """What a request moves. `kind` as in `partitioner.costs.cost.Candidate`. `local_bytes` cross between the
    application and the agent (all inputs and outputs as they are), `network_bytes` between agent and node, both
    directions together. `worked` is whether the device runs or encodes something before it sends."""

    kind: Kind
    local_bytes: int
    network_bytes: int
    worked: bool


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Microseconds, by the formula above. `spread` is how many times as long one in a hundred takes. `cadence_hz` and
    `processor` say how and where it was measured, `requests` how many there were."""

    format: int
    device_us: Cost
    cloud_us: Cost
    head_us: Cost
    local_byte_us: Cost
    network_byte_us: Cost
    spread: Annotated[float, msgspec.Meta(ge=1.0, le=1e6)]
    cadence_hz: Positive
    processor: str
    requests: Annotated[int, msgspec.Meta(ge=0)]

    def of(self, crossing: Crossing) -> Spread:
        """What a request that moves so much costs."""
        costs = (self.device_us, self.cloud_us, self.head_us, self.local_byte_us, self.network_byte_us)
        middle_us = math.fsum(cost * count for cost, count in zip(costs, _counts(crossing), strict=True))
        return Spread(middle_us, middle_us * self.spread)


def fit_overhead(samples: Mapping[Crossing, Sequence[float]], cadence_hz: float, processor: str) -> Overhead:
    """The overhead from microseconds that were left of requests, by what they moved.

    Raises `UserError` where these do not tell the five costs apart.
    """
    crossings = list(samples)
    middles = np.array([statistics.median(samples[crossing]) for crossing in crossings])
    counts = np.array([_counts(crossing) for crossing in crossings], float)
    scales = counts.max(axis=0, initial=0.0)
    if not (scales > 0.0).all() or np.linalg.matrix_rank(counts / scales) < len(scales):
        raise UserError("the probes do not tell fixed costs, bytes and the device's work before sending apart")
    weights = 1.0 / np.maximum(middles, LEAST_US)
    solved: tuple[npt.NDArray[np.float64], float] = nnls(counts / scales * weights[:, None], middles * weights)
    device_us, cloud_us, head_us, local_byte_us, network_byte_us = (solved[0] / scales).tolist()
    ratios = [
        time_us / max(middle, LEAST_US)
        for crossing, middle in zip(crossings, middles.tolist(), strict=True)
        for time_us in samples[crossing]
    ]
    return Overhead(
        format=OVERHEAD_FORMAT,
        device_us=round(device_us, 1),
        cloud_us=round(cloud_us, 1),
        head_us=round(head_us, 1),
        local_byte_us=round(local_byte_us, 7),
        network_byte_us=round(network_byte_us, 7),
        spread=round(max(1.0, float(np.quantile(ratios, 0.99))), 3),
        cadence_hz=cadence_hz,
        processor=processor,
        requests=sum(len(times) for times in samples.values()),
    )


def _counts(crossing: Crossing) -> tuple[float, ...]:
    """How often each cost occurs in a request."""
    if crossing.kind == "device":
        return 1.0, 0.0, 0.0, crossing.local_bytes, 0.0
    return 0.0, 1.0, float(crossing.worked), crossing.local_bytes, crossing.network_bytes
