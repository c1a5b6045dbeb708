"""A link over time: delay, rate, loss and outage of each direction, at even steps.

A trace is what an emulator plays and what a model makes. Between two steps nothing changes, so that "the shape at time t"
is one division and a look into four arrays; whoever plays a trace asks again at `next_change_us`. Rejected: interpolation
(a radio link changes by scheduling grants, not by ramps) and a list of changes (a binary search for each packet).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.errors import UserError

MAX_STEPS = 10_000_000
"""Most steps of a trace: 28 hours of 10 ms."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Conditions(msgspec.Struct, frozen=True):
    """One direction at one time.

    `delay_ms`: one way, without queueing at the rate. `rate_mbit`: 10^6 bits a second; 0 is unlimited. `loss`: probability
    that a packet is lost, 0 to 1. `outage`: nothing passes, whatever the other values; what is sent meanwhile waits or is
    lost as the emulator's queue has it.
    """

    delay_ms: float
    rate_mbit: float
    loss: float
    outage: bool


class Moment(msgspec.Struct, frozen=True):
    """Both directions of a link at one time; up is from the device to the cloud."""

    up: Conditions
    down: Conditions


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """One direction over time: arrays [steps] of float64 (`outage` of bool), with the meanings of `Conditions`."""

    delay_ms: Floats
    rate_mbit: Floats
    loss: Floats
    outage: Bools

    def at(self, index: int) -> Conditions:
        """The conditions of one step."""
        return Conditions(
            self.delay_ms.item(index), self.rate_mbit.item(index), self.loss.item(index), self.outage.item(index)
        )

    def taken(self, indices: NDArray[np.intp]) -> Direction:
        """The steps `indices`, in their order."""
        return Direction(self.delay_ms[indices], self.rate_mbit[indices], self.loss[indices], self.outage[indices])


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A link over time, in steps of `step_us` microseconds, the first at time 0.

    `halved` says that only round trips were known and each direction was given half of one.

    Raises `UserError` where the arrays differ in length, a value is outside its range, there is no step at all, or halves
    differ.
    """

    step_us: int
    up: Direction
    down: Direction
    halved: bool = False

    def __post_init__(self) -> None:
        if self.step_us < 1:
            raise UserError(f"a trace's step is {self.step_us} microseconds; expected at least 1")
        if not 1 <= self.steps <= MAX_STEPS:
            raise UserError(f"a trace has {self.steps} steps; expected 1 to {MAX_STEPS}")
        for side, direction in (("up", self.up), ("down", self.down)):
            _check(side, direction, self.steps)
        if self.halved and not np.array_equal(self.up.delay_ms, self.down.delay_ms):
            raise UserError("a trace of halved round trips has different delays up and down; expected the same")

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return self.up.delay_ms.size

    @property
    def duration_us(self) -> int:
        """Microseconds from the start of the first step to the end of the last."""
        return self.steps * self.step_us

    @property
    def round_trip_ms(self) -> Floats:
        """The two delays of each step together, [steps], without any wait for the end of an outage."""
        return self.up.delay_ms + self.down.delay_ms

    @property
    def outage(self) -> Bools:
        """Steps in which a direction is out, [steps]."""
        return self.up.outage | self.down.outage

    def at(self, time_us: int) -> Moment:
        """The link at `time_us`, which must not be negative. After its end a trace begins again."""
        index = time_us // self.step_us % self.steps
        return Moment(self.up.at(index), self.down.at(index))

    def next_change_us(self, time_us: int) -> int:
        """The first time after `time_us` at which `at` may answer differently."""
        return (time_us // self.step_us + 1) * self.step_us

    def taken(self, indices: NDArray[np.intp]) -> Trace:
        """A trace of the steps `indices`, in their order, with time closed up."""
        return Trace(self.step_us, self.up.taken(indices), self.down.taken(indices), self.halved)

    def resampled(self, step_us: int) -> Trace:
        """The same link in other steps.

        A finer step repeats values. A coarser one takes the mean of delay, loss and rate (0, unlimited, where most of the
        time has no limit) and is an outage where at least half of it was one. A last step that would be filled in part
        is filled from what there is.

        Raises `UserError` where neither step is a whole multiple of the other, or there would be too many.
        """
        if step_us < 1 or (step_us % self.step_us and self.step_us % step_us):
            raise UserError(
                f"a trace of steps of {self.step_us} us cannot be resampled to {step_us} us; expected a multiple or a part"
            )
        if self.duration_us // step_us > MAX_STEPS:
            raise UserError(f"a trace in steps of {step_us} us would have more than {MAX_STEPS}")
        if step_us <= self.step_us:
            return Trace(
                step_us, *self.taken(np.repeat(np.arange(self.steps), self.step_us // step_us))._sides(), self.halved
            )
        many = step_us // self.step_us
        return Trace(step_us, _coarser(self.up, many), _coarser(self.down, many), self.halved)

    def _sides(self) -> tuple[Direction, Direction]:
        return self.up, self.down


def runs(flags: Bools) -> list[tuple[int, int]]:
    """Start and end (exclusive) of each run of true values in `flags` [steps]."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _check(side: str, direction: Direction, steps: int) -> None:
    for name, values, most in (
        ("delay_ms", direction.delay_ms, np.inf),
        ("rate_mbit", direction.rate_mbit, np.inf),
        ("loss", direction.loss, 1.0),
        ("outage", direction.outage, 1.0),
    ):
        if values.shape != (steps,):
            raise UserError(f"{side}_{name} has the shape {values.shape}; expected ({steps},) as the other arrays")
        wrong = np.flatnonzero(~np.isfinite(values) | (values < 0) | (values > most))
        if wrong.size:
            first = int(wrong[0])
            bound = "of 0 or more" if most == np.inf else "from 0 to 1"
            raise UserError(f"{side}_{name} is {values.item(first)} in step {first}; expected a number {bound}")


def _coarser(direction: Direction, many: int) -> Direction:
    starts = np.arange(0, direction.delay_ms.size, many)
    counts = np.diff(np.append(starts, direction.delay_ms.size))

    def mean(values: Floats) -> Floats:
        return np.add.reduceat(values, starts) / counts

    limited = direction.rate_mbit > 0
    shares = mean(limited.astype(np.float64))
    rates = np.where(shares > 0.5, mean(direction.rate_mbit) / np.where(shares > 0, shares, 1.0), 0.0)
    loss = np.minimum(mean(direction.loss), 1.0)
    return Direction(mean(direction.delay_ms), rates, loss, mean(direction.outage.astype(np.float64)) >= 0.5)
