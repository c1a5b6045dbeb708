"""Where shapes come from: a constant, a schedule. A trace is another: `hil.emulator.trace_source`."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import msgspec

from hil.emulator.shape import Shape
from shared.errors import UserError


class Constant:
    """One shape at all times."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def at(self, elapsed_ns: int) -> Shape:
        """The shape."""
        del elapsed_ns
        return self._shape

    def next_ns(self, elapsed_ns: int) -> int | None:
        """None: it never changes."""
        del elapsed_ns
        return None


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From `at_ms` after the beginning on, this shape holds."""

    at_ms: float
    shape: Shape


class Schedule:
    """Shapes one after the other; the last one stays, or with `repeat_ms` all begin again after so long.

    Raises `UserError` where the first step is not at 0, steps are not in order, or the last begins after the repeat.
    """

    def __init__(self, steps: tuple[Step, ...], repeat_ms: float = 0.0) -> None:
        if not steps or steps[0].at_ms != 0:
            raise UserError("a schedule's first step has to be at 0 ms")
        times_ns = [round(step.at_ms * 1e6) for step in steps]
        for number, (before, after) in enumerate(pairwise(times_ns), start=2):
            if after <= before:
                raise UserError(f"step {number} of a schedule is at {after / 1e6:g} ms, not after the one before it")
        if repeat_ms and round(repeat_ms * 1e6) <= times_ns[-1]:
            raise UserError(
                f"a schedule repeats after {repeat_ms:g} ms, but its last step begins at {steps[-1].at_ms:g} ms"
            )
        self._shapes = [step.shape for step in steps]
        self._times_ns = times_ns
        self._repeat_ns = round(repeat_ms * 1e6)

    def at(self, elapsed_ns: int) -> Shape:
        """The shape that holds at this time."""
        within = elapsed_ns % self._repeat_ns if self._repeat_ns else elapsed_ns
        return self._shapes[bisect_right(self._times_ns, within) - 1]

    def next_ns(self, elapsed_ns: int) -> int | None:
        """When the next step begins."""
        rounds = elapsed_ns // self._repeat_ns if self._repeat_ns else 0
        began = rounds * self._repeat_ns
        following = bisect_right(self._times_ns, elapsed_ns - began)
        if following < len(self._times_ns):
            return began + self._times_ns[following]
        return began + self._repeat_ns if self._repeat_ns else None
