"""How long groups of operators would take on hardware that one does not have, by the roofline model.

    time = max(operations / flops, bytes / bytes_per_s) / efficiency

A machine computes no faster than its peak, and no faster than its memory delivers what is computed with: Williams, Waterman
and Patterson, *Roofline: An Insightful Visual Performance Model for Multicore Architectures* (Communications of the ACM
52(4), 2009, doi 10.1145/1498765.1498785). `efficiency` is the part of that ceiling which real kernels reach; it stands for
all that the model does not know, and is the caller's to give. Operations are counted as in `partitioner.graph.compute`: two
for each multiply-add. Bytes are the group's weights once, whatever the batch, and for each row what it reads from other
groups and what others read from it: values inside a group are taken to stay in the caches. Nothing is counted for launching
a kernel, so that a network of many small ones is estimated too fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.profiles.record import BatchTimes, GroupTime, OperatorKind, Quantiles
from shared.errors import UserError


@dataclass(frozen=True, slots=True)
class Work:
    """What one group is: its name, the kind of its operators, operations and bytes moved for one row, and its weights."""

    name: str
    kind: OperatorKind
    operations: float
    activation_bytes: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Roof:
    """A machine: its peak in operations a second, its memory in bytes a second, and the part of the lower of both that it
    reaches (above 0, at most 1). Raises `UserError` where they make no sense."""

    flops: float
    bytes_per_s: float
    efficiency: float

    def __post_init__(self) -> None:
        for name, value in (("flops", self.flops), ("bytes per second", self.bytes_per_s)):
            if not 0.0 < value < math.inf:
                raise UserError(f"{name} {value:g}: expected a number above 0, such as 2e12")
        if not 0.0 < self.efficiency <= 1.0:
            raise UserError(f"efficiency {self.efficiency:g}: expected more than 0 and at most 1")

    def time_us(self, work: Work, batch: int = 1) -> float:
        """Microseconds of a group at `batch` rows."""
        computing_s = work.operations * batch / self.flops
        moving_s = (work.weight_bytes + work.activation_bytes * batch) / self.bytes_per_s
        return max(computing_s, moving_s) / self.efficiency * 1e6

    def __str__(self) -> str:
        return f"{self.flops:.3g} operations/s, {self.bytes_per_s:.3g} bytes/s, efficiency {self.efficiency:g}"


def estimate(groups: Sequence[Work], roof: Roof, batch: int) -> BatchTimes:
    """The times of all groups at `batch` rows, without a spread; the whole takes as long as all of them."""
    times = [roof.time_us(work, batch) for work in groups]
    return BatchTimes(
        batch=batch,
        whole=_exactly(sum(times)),
        groups=tuple(GroupTime(w.name, w.kind, _exactly(us)) for w, us in zip(groups, times, strict=True)),
        runs=0,
        stable=True,
        guessed_share=0.0,
        kernels_share=0.0,
    )


def _exactly(time_us: float) -> Quantiles:
    return Quantiles(time_us, time_us, time_us)
