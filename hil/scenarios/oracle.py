"""What one who knows the links and the faults beforehand would have the cloud answer: the most that any policy could get.

A frame counts where its request, sent at once over the best link, is back before the deadline: it waits for the end of an
outage, takes the delay and its bytes at the rate of that moment, the node's time, and the same way back. Queues are empty and
nodes are idle for an oracle. A packet that is lost is sent again after 200 ms at least, which no deadline here survives, so
that a frame counts by the probability that none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hil.emulator.shape import Shape
from hil.links.trace import Conditions, Trace
from hil.scenarios.scenario import Scenario

OVERHEAD_MS = 2.0
"""What a request costs beside its way and the node's work: application, agent and node."""

SEGMENT = 1448
MOST_WAIT_MS = 1000.0
MS = 1_000_000

Span = tuple[int, int]
"""Nanoseconds since the first frame's time, the end excluded."""


class Course(msgspec.Struct, frozen=True):
    """One link over a run: constant shapes with those that took their place for a while, or a trace that was `into_ns` old at
    the first frame's time; and when it let nothing pass."""

    up: Shape = Shape()
    down: Shape = Shape()
    others: tuple[tuple[Span, Shape, Shape], ...] = ()
    trace: Trace | None = None
    into_ns: int = 0
    shut: tuple[Span, ...] = ()

    def at(self, at_ns: int, up: bool) -> Conditions:
        """One direction at a time."""
        shut = any(begin <= at_ns < end for begin, end in self.shut)
        if self.trace is not None:
            moment = self.trace.at(max(0, at_ns + self.into_ns) // 1000)
            now = moment.up if up else moment.down
            return msgspec.structs.replace(now, outage=now.outage or shut)
        shapes = next((pair for (begin, end), *pair in self.others if begin <= at_ns < end), [self.up, self.down])
        shape = shapes[0 if up else 1]
        loss = 1 - (1 - shape.loss) * (1 - (shape.bursts.share if shape.bursts else 0.0))
        return Conditions(shape.delay_ms + shape.jitter_ms / 2, shape.rate_mbit, loss, shut)


class Request(msgspec.Struct, frozen=True):
    """What one request takes: bytes both ways, a node's time."""

    bytes_up: int
    bytes_down: int
    cloud_ms: float


def oracle_share(
    scenario: Scenario,
    courses: Mapping[str, Course],
    dead: Sequence[Span],
    request: Request,
    times_ns: Sequence[int],
) -> float:
    """The expected share of the frames at `times_ns` that the cloud could have answered on time. While a span of `dead`
    lasts no node answers."""
    budget_ns = round((scenario.stream.deadline_ms - OVERHEAD_MS) * MS)
    chances = [
        0.0
        if any(begin <= at_ns < end for begin, end in dead)
        else max(_chance(course, request, at_ns, budget_ns) for course in courses.values())
        for at_ns in times_ns
    ]
    return sum(chances) / len(chances) if chances else 0.0


def _chance(course: Course, request: Request, at_ns: int, budget_ns: int) -> float:
    there_ns, kept_up = _passed(course, at_ns, request.bytes_up, up=True)
    back_ns, kept_down = _passed(course, there_ns + round(request.cloud_ms * MS), request.bytes_down, up=False)
    return kept_up * kept_down if back_ns <= at_ns + budget_ns else 0.0


def _passed(course: Course, at_ns: int, size: int, *, up: bool) -> tuple[int, float]:
    """When so many bytes that are sent at `at_ns` are there, and the probability that none of their packets was lost."""
    now = course.at(at_ns, up)
    waited_ns = 0
    while now.outage and waited_ns < MOST_WAIT_MS * MS:
        waited_ns += MS
        now = course.at(at_ns + waited_ns, up)
    takes_ms = now.delay_ms + (size * 8 / now.rate_mbit / 1000 if now.rate_mbit else 0.0)
    kept = (1 - now.loss) ** -(-size // SEGMENT)
    return at_ns + waited_ns + round(takes_ms * MS), kept
