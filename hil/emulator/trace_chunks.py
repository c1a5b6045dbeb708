"""A trace in pieces that each fit a pipe, so that loading a long one never keeps the emulator from its packets."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from hil.links.trace import MAX_STEPS, Direction, Floats, Trace
from shared.errors import UserError

CHUNK_STEPS = 512
"""Steps of a piece: 44 kB as a line, less than a pipe takes at once."""

_COLUMNS = 8
_NUMBER = np.dtype("<f8")


class Load(msgspec.Struct, frozen=True, tag="load", forbid_unknown_fields=True):
    """Steps of a trace that is to be played, from the step `start` on. What begins at 0 replaces what was loaded before.

    `steps`: little-endian float64 [8, steps], the rows being delay_ms, rate_mbit, loss and outage (0 or 1) up, then down.
    """

    start: int
    steps: bytes


def trace_chunks(trace: Trace) -> Iterator[Load]:
    """The pieces of a trace, in order."""
    for start in range(0, trace.steps, CHUNK_STEPS):
        piece = slice(start, start + CHUNK_STEPS)
        rows = [
            column[piece]
            for side in (trace.up, trace.down)
            for column in (side.delay_ms, side.rate_mbit, side.loss, side.outage)
        ]
        yield Load(start, np.stack(rows, dtype=_NUMBER, casting="safe").tobytes())


class Loading:
    """The pieces that have come so far."""

    def __init__(self) -> None:
        self._pieces: list[Floats] = []
        self._steps = 0

    def add(self, load: Load) -> None:
        """Take the next piece. Raises `UserError` where it is not the next, or no whole number of steps."""
        size, rest = divmod(len(load.steps), _COLUMNS * _NUMBER.itemsize)
        if rest or not size:
            raise UserError(f"a piece of a trace has {len(load.steps)} bytes; expected whole steps")
        if load.start == 0:
            self._pieces, self._steps = [], 0
        if load.start != self._steps or self._steps + size > MAX_STEPS:
            raise UserError(
                f"a piece of a trace begins at step {load.start}, and {self._steps} of {MAX_STEPS} are there"
            )
        self._pieces.append(np.frombuffer(load.steps, _NUMBER).reshape(_COLUMNS, size))
        self._steps += size

    def take(self, step_us: int) -> Trace:
        """The whole trace, which is then loaded no longer. Raises `UserError` where there is none."""
        if not self._pieces:
            raise UserError("no trace is loaded")
        rows = np.concatenate(self._pieces, axis=1, dtype=np.float64)
        self._pieces, self._steps = [], 0
        up, down = (Direction(part[0], part[1], part[2], part[3] > 0) for part in (rows[:4], rows[4:]))
        return Trace(step_us, up, down)
