"""A trace of a link as a source of shapes for one direction of an emulated link."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hil.emulator.shape import MAX_DELAY_MS, MAX_RATE_MBIT, Passing, Shape
from hil.links.trace import Direction, Trace
from shared.errors import UserError

LEAST_STEP_US = 1000
"""Shortest step of a trace that is played. Each change costs the emulator some microseconds, for which packets wait."""


class TraceSource:
    """A `ShapeSource` that plays one direction of a trace, and begins again at its end.

    An outage is a stall: what is sent into it waits, and what was under way comes after it. Delay, rate (0: unlimited) and
    loss are the trace's; the queue holds `queue_bytes`. The next change is exact: steps that repeat the one before are none.
    Raises `UserError` that names `side` and the step where no link of the emulator's can be so.
    """

    def __init__(self, side: str, step_us: int, direction: Direction, queue_bytes: int) -> None:
        for name, values, most in (
            ("delay_ms", direction.delay_ms, MAX_DELAY_MS),
            ("rate_mbit", direction.rate_mbit, MAX_RATE_MBIT),
        ):
            step = int(values.argmax())
            if values[step] > most:
                raise UserError(
                    f"{side}_{name} of a trace is {values[step]:g} in step {step}; the emulator takes up to {most:g}"
                )
        self._direction = direction
        self._step_ns = step_us * 1000
        self._steps = direction.delay_ms.size
        self._queue_bytes = queue_bytes
        self._changes = _changes(direction)
        self._shape(0)

    def at(self, elapsed_ns: int) -> Shape:
        """The shape that holds at this time."""
        return self._shape(elapsed_ns // self._step_ns % self._steps)

    def next_ns(self, elapsed_ns: int) -> int | None:
        """When the next step begins that differs from the one before it; None where all are the same."""
        if not self._changes.size:
            return None
        rounds, step = divmod(elapsed_ns // self._step_ns, self._steps)
        following = int(np.searchsorted(self._changes, step, side="right"))
        if following == self._changes.size:
            rounds, following = rounds + 1, 0
        return (rounds * self._steps + self._changes.item(following)) * self._step_ns

    def _shape(self, step: int) -> Shape:
        now = self._direction.at(step)
        return Shape(
            delay_ms=now.delay_ms,
            rate_mbit=now.rate_mbit,
            loss=now.loss,
            queue_bytes=self._queue_bytes,
            passing=Passing.STALLED if now.outage else Passing.OPEN,
        )


def trace_sources(trace: Trace, queue_bytes: int) -> tuple[TraceSource, TraceSource]:
    """What plays a trace up and down. Raises `UserError` where the emulator cannot play it."""
    if trace.step_us < LEAST_STEP_US:
        raise UserError(
            f"a trace in steps of {trace.step_us / 1000:g} ms cannot be played; expected {LEAST_STEP_US / 1000:g} ms or more "
            "(`Trace.resampled` makes them longer)"
        )
    up, down = (
        TraceSource(side, trace.step_us, direction, queue_bytes)
        for side, direction in (("up", trace.up), ("down", trace.down))
    )
    return up, down


def _changes(direction: Direction) -> NDArray[np.intp]:
    """The steps that differ from the one before, where the last is before the first."""
    columns = (direction.delay_ms, direction.rate_mbit, direction.loss, direction.outage)
    differs = np.zeros(direction.delay_ms.size, np.bool_)
    for values in columns:
        differs |= values != np.roll(values, 1)
    return np.flatnonzero(differs)
