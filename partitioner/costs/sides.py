"""How long work takes on each side of a plan: as measured here, or as the profile of another machine has it.

Without a profile a side is this machine, the device a stated factor slower. With one, a side's times follow from what the
profile holds and what was measured here:

* the whole model takes what the profile says;
* a head or a tail takes the sum of its groups there, and half of what the cut costs: the runtime's own profiling leaves out
  what a border takes (a launch more, copies of what crosses, operators that are no longer joined). Head and tail as they
  were cut and timed here take longer than the whole by that; it is divided evenly and scaled by the ratio of the wholes,
  there to here. Where a cut was only estimated its border counts nothing, as estimates get the benefit of the doubt;
* a coding takes what it takes here, scaled by the ratio of its speed there to its speed here on the same tensors, since a
  device whose network runs on a graphics unit still codes on its processor. Where the profile has no such coding, the ratio
  of the wholes is taken;
* a rung takes what it takes here, scaled by the ratio of the wholes: profiles are of the whole model;
* p99 lies as far above the middle as the whole's does in the profile; where that was estimated, as here.

Rejected: the head measured here times the ratio of the wholes. Convolutions and products of matrices differ by other
factors from one machine to the next, and that is what a profile by groups is made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from partitioner.costs.cost import Spread
from partitioner.graph.groups import Groups
from partitioner.profiles.lookup import check_same_model, times_for
from partitioner.profiles.record import CodecSpeed, DeviceProfile
from partitioner.records.record import HERE, Source
from shared.plan import CodingKind

Direction = Literal["encode", "decode"]
CodecKey = tuple[CodingKind, Direction]


@dataclass(frozen=True, slots=True)
class Here:
    """What was measured on this machine: the whole model, the microseconds a raw byte takes by kind of coding and direction,
    on the tensors that profiles are measured with, and the microseconds that each cut's border costs, by the cut's name."""

    whole: Spread
    codecs: Mapping[CodecKey, float] = field(default_factory=dict[CodecKey, float])
    borders_us: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Known:
    """What a profile says of one model, in microseconds: the whole at one row, each operator (a group's time is divided
    evenly among its operators), the raw byte of each coding, and the whole by batch size. `excess` is p99 over the middle of
    the whole, None where it was not measured."""

    whole_us: float
    operators_us: Mapping[int, float]
    codecs: Mapping[CodecKey, float]
    batches_us: Mapping[int, float]
    excess: float | None
    threads: int
    provider: str
    cadence_hz: float
    watts: float | None

    @classmethod
    def of(cls, profile: DeviceProfile, groups: Groups) -> Known:
        """What it says of the model with these groups. Raises `UserError` where it is of another model, of other shapes, has
        no times at one row, or divides the model otherwise."""
        of_groups = times_for(profile, groups)
        bucket = check_same_model(profile, groups.finder.model.digest)
        one = next(times for times in bucket.batches if times.batch == 1)
        operators = {
            node: time_us / len(groups.nodes[group])
            for group, time_us in of_groups.items()
            for node in groups.nodes[group]
        }
        return cls(
            whole_us=one.whole.p50_us,
            operators_us=operators,
            codecs=by_kind(profile.codecs),
            batches_us={times.batch: times.whole.p50_us for times in bucket.batches},
            excess=one.whole.p99_us / one.whole.p50_us if one.runs and one.whole.p50_us > 0.0 else None,
            threads=profile.machine.threads,
            provider=profile.machine.provider,
            cadence_hz=profile.machine.cadence_hz,
            watts=max((power.watts for power in profile.machine.power), default=None),
        )


def by_kind(codecs: Iterable[CodecSpeed]) -> dict[CodecKey, float]:
    """The speeds of codings in microseconds a raw byte, by kind and direction; of two of a kind the first."""
    found: dict[CodecKey, float] = {}
    for codec in codecs:
        found.setdefault((codec.kind, "encode"), codec.encode_us_per_byte)
        found.setdefault((codec.kind, "decode"), codec.decode_us_per_byte)
    return found


@dataclass(frozen=True, slots=True)
class Side:
    """The times of one side. `slowdown` is the stated factor by which a machine without a profile is slower than this one;
    it is 1 where `known`, what the profile says, is given."""

    source: Source = HERE
    slowdown: float = 1.0
    known: Known | None = None

    def whole(self, here: Here) -> Spread:
        """The whole model."""
        return self.like_whole(here.whole, here)

    def like_whole(self, time: Spread, here: Here) -> Spread:
        """What takes `time` here and is nowhere in the profile by itself: in proportion to the whole."""
        if self.known is None:
            return time.slowed(self.slowdown)
        return self._spread(time.p50_us * self._ratio(here), time)

    def part(self, nodes: Iterable[int], time: Spread, here: Here, border_us: float) -> Spread:
        """A head or tail of these operators that takes `time` here, with `border_us` of its borders' costs in it."""
        if self.known is None:
            return time.slowed(self.slowdown)
        middle_us = math.fsum(self.known.operators_us.get(node, 0.0) for node in nodes)
        return self._spread(middle_us + border_us * self._ratio(here), time)

    def coded(self, time: Spread, kind: CodingKind, direction: Direction, here: Here) -> Spread:
        """Encoding or decoding that takes `time` here."""
        if self.known is None:
            return time.slowed(self.slowdown)
        there, here_us = self.known.codecs.get((kind, direction)), here.codecs.get((kind, direction))
        ratio = self._ratio(here) if there is None or not here_us else there / here_us
        return Spread(time.p50_us * ratio, time.p99_us * ratio)

    def batch_ratio(self, batch: int, ratio: float) -> float:
        """How many times as long `batch` rows take as one, where it is `ratio` here."""
        if self.known is None or batch not in self.known.batches_us or self.known.whole_us <= 0.0:
            return ratio
        return max(1.0, self.known.batches_us[batch] / self.known.whole_us)

    def operators(self, here_us: Mapping[int, float]) -> Mapping[int, float]:
        """The time of each operator in microseconds, by its index, where it takes `here_us` here; not slowed."""
        return here_us if self.known is None else self.known.operators_us

    def _ratio(self, here: Here) -> float:
        known_us = 0.0 if self.known is None else self.known.whole_us
        return known_us / max(here.whole.p50_us, 1e-3)

    def _spread(self, middle_us: float, time: Spread) -> Spread:
        excess = None if self.known is None else self.known.excess
        if excess is None:
            excess = time.p99_us / time.p50_us if time.p50_us > 0.0 else 1.0
        return Spread(middle_us, middle_us * max(1.0, excess))


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a plan."""

    edge: Side = Side()
    cloud: Side = Side()

    @property
    def profiled(self) -> bool:
        """Whether either has a profile."""
        return self.edge.known is not None or self.cloud.known is not None
