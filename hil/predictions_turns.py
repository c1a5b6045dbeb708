"""How long a bundle's work takes between the requests that it is held against.

A machine whose clock drifts makes any time that was measured a minute ago wrong, and a prediction from it with it. So ranges
of the bundle are timed in turns with the requests, one block after each block of them, by the plan's own way to time them,
and the way's prediction is made anew from that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from partitioner.bundle_profile import RangeKey, load_segments, range_jobs
from partitioner.costs.cost import Candidate, Spread
from partitioner.costs.settle import settled
from partitioner.costs.timing import Pace, Samples, sample_at
from shared.bundle import Bundle
from shared.errors import HeadtailError
from shared.plan import Plan, RangeTime
from shared.request import Array

THREADS = 1
"""As `partitioner.options.PlanOptions` has it, and processes of the rig."""


class Turns:
    """The ranges that some ways of a bundle consist of, timed block by block. `rows` are inputs, tensors by name. Both sides
    must have been this machine, at its own speed, when the plan was made.

    Raises `HeadtailError` where one was not, `ModelError` where a segment cannot be loaded."""

    def __init__(
        self, bundle: Bundle, rows: Sequence[Mapping[str, Array]], cadence_hz: float, ways: Sequence[Candidate]
    ) -> None:
        self._plan = bundle.plan
        if any(profile.slowdown != 1.0 for profile in self._plan.profiles):
            raise HeadtailError(f"the plan {self._plan.name!r} is for a slower machine than this one")
        entries = [tuple(row[spec.name] for spec in self._plan.cuts[0].tensors) for row in rows]
        jobs = range_jobs(load_segments(bundle.path, self._plan, THREADS), entries)
        wanted = {key for way in ways for key in ranges_of(self._plan, way)}
        self._pace = Pace.of(cadence_hz, THREADS)
        self._groups = itertools.cycle([{key: job} for key, job in jobs.items() if key in wanted])
        self._samples: Samples[RangeKey] = Samples()

    def step(self) -> None:
        """Time one block of the next range."""
        sample_at(self._pace, [next(self._groups)], 0.0, self._samples)

    def settled(self, way: Candidate) -> Candidate:
        """The way with the times that were found."""
        return settled(way, with_times(self._plan, self._samples.spreads()))


def ranges_of(plan: Plan, way: Candidate) -> tuple[RangeKey, ...]:
    """The ranges that a request runs by this way: of the device's rung, of the tail, or of head and tail."""
    last = len(plan.cuts) - 1
    if way.kind == "device":
        program = next(number for number, one in enumerate(plan.programs) if one.name == way.rung)
        return ((program, 0, len(plan.programs[program].segments), 1),)
    if way.kind == "input":
        return ((0, 0, last, 1),)
    cut = next(number for number, one in enumerate(plan.cuts) if one.name == way.cut)
    return ((0, 0, cut, 1), (0, cut, last, 1))


def with_times(plan: Plan, times: Mapping[RangeKey, Spread]) -> Plan:
    """The plan with profiles of these ranges and no others, alike on both sides."""
    ranges = tuple(RangeTime(*key, time.p50_us, time.p99_us) for key, time in times.items())
    profiles = tuple(msgspec.structs.replace(profile, ranges=ranges) for profile in plan.profiles)
    return msgspec.structs.replace(plan, profiles=profiles)
