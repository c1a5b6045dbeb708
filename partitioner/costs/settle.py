"""A way's times as the written bundle runs it, in place of those of the parts that it was weighed by.

Ways are weighed before there is a bundle: the whole model was timed in one piece, and a cut as a head and a tail of its own.
A bundle is one chain of segments, cut wherever any of its routes needs it, and what runs from end to end runs all of them:
operators that the runtime would have joined lie in different sessions, layouts are changed at the border and back, and each
segment is launched by itself. A whole that is cut once was seen to take up to a sixth longer than in one piece. So what the
bundle's own profile says takes the place of what was weighed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from partitioner.costs.cost import Candidate, Spread
from shared.plan import Plan, RangeTime

SideName = Literal["edge", "cloud"]


def settled(way: Candidate, plan: Plan, sides: Collection[SideName] = ("edge", "cloud")) -> Candidate:
    """The way with the times of the plan's profiles, as far as the bundle can run it; else as it is. The edge's profile and
    the way are of the same slowdown. `sides` are those whose times were measured here: what the profile file of another
    device says of a part is not made better by a run of this machine."""
    if not way.measured:
        return way
    last = len(plan.cuts) - 1
    if way.kind == "device":
        program = next((number for number, one in enumerate(plan.programs) if one.name == way.rung), None)
        if program is None:
            return way
        head = _time(plan, "edge", program, 0, len(plan.programs[program].segments))
        return way if head is None or "edge" not in sides else replace(way, head=head)
    if way.kind == "input":
        tail = _time(plan, "cloud", 0, 0, last)
        return way if tail is None or "cloud" not in sides else replace(way, tail=tail)
    cut = next((number for number, one in enumerate(plan.cuts) if one.name == way.cut), None)
    if cut is None:
        return way
    head, tail = _time(plan, "edge", 0, 0, cut), _time(plan, "cloud", 0, cut, last)
    if head is None or tail is None:
        return way
    return replace(way, head=head if "edge" in sides else way.head, tail=tail if "cloud" in sides else way.tail)


def _time(plan: Plan, side: SideName, program: int, first: int, last: int) -> Spread | None:
    """One row through segments of a program, in microseconds."""
    profile = plan.profile(side)
    time: RangeTime | None = None if profile is None else profile.time(program, first, last)
    return None if time is None else Spread(time.p50_us, time.p99_us)
