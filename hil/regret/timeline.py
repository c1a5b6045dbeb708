"""One direction of a link trace as arithmetic: when bytes have left, and when they arrive.

It is what `hil.emulator` does to packets (a rate, then a delay; an outage stops the link's own clock, so that what is
queued or under way goes on after it), for a link whose future is known, so that a packet's arrival is worked out as it is
sent. After its end a trace begins again.
"""

from __future__ import annotations

import math

from hil.links.trace import Direction

NEVER_NS = 1 << 62
"""When something arrives that a link without an open step never lets through."""


class Timeline:
    """Times are nanoseconds since the trace began, sizes bytes with all headers. It keeps no state of packets."""

    def __init__(self, direction: Direction, step_us: int) -> None:
        self.step_ns = step_us * 1000
        self.steps = int(direction.delay_ms.size)
        self._delay: list[int] = [round(ms * 1e6) for ms in direction.delay_ms.tolist()]
        self._per_byte: list[float] = [8_000.0 / mbit if mbit else 0.0 for mbit in direction.rate_mbit.tolist()]
        self._loss: list[float] = direction.loss.tolist()
        self._out: list[bool] = direction.outage.tolist()
        self._never = all(self._out)

    def loss(self, at: int) -> float:
        """Probability that a packet that leaves at `at` is lost."""
        return self._loss[at // self.step_ns % self.steps]

    def leave(self, at: int, nbytes: float) -> int:
        """When the last of `nbytes` has left that the link begins to send at `at`."""
        if self._never:
            return NEVER_NS
        step, steps = self.step_ns, self.steps
        number = at // step
        while True:
            index = number % steps
            if not self._out[index]:
                per_byte = self._per_byte[index]
                need = nbytes * per_byte
                end = (number + 1) * step
                if at + need <= end:
                    return at + math.ceil(need)
                nbytes -= (end - at) / per_byte
            number += 1
            at = number * step

    def travel(self, left: int) -> int:
        """When a packet arrives that left at `left`, where none before it holds it up."""
        if self._never or left >= NEVER_NS:
            return NEVER_NS
        step, steps = self.step_ns, self.steps
        number = left // step
        wait, at = self._delay[number % steps], left
        while True:
            if not self._out[number % steps]:
                end = (number + 1) * step
                if at + wait <= end:
                    return at + wait
                wait -= end - at
            number += 1
            at = number * step

    def earliest(self, left: int) -> int:
        """The earliest arrival of anything that leaves at `left` or later: a link whose delay falls may bring what leaves
        later sooner, and no packet that leaves later arrives before."""
        best = self.travel(left)
        if best >= NEVER_NS:
            return best
        number = left // self.step_ns + 1
        while number * self.step_ns < best:
            if not self._out[number % self.steps]:
                best = min(best, self.travel(number * self.step_ns))
            number += 1
        return best
