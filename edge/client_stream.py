"""A periodic source: frames that are due at known times, of which often only the newest matters.

A frame's deadline and its elapsed time count from when it was *due*, not from when the sender got round to it, or a sender
that falls behind would look punctual (coordinated omission). The sender's own lateness is kept apart. Only the sender knows
when a frame was due; one that names no time is taken to be due when it comes. A grid laid from the first frame was rejected:
a camera's clock drifts against the host's by a few frames an hour, and the grid would call punctual frames late.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from edge.door import WHEN, Inputs, span, whole
from edge.tickets import FutureTicket, OutcomeFuture
from shared.errors import InputError

if TYPE_CHECKING:
    from edge.client import Client

KEPT_LATENESSES = 4096


class Stream:
    """One source of `client`. Made by `Client.stream`. Safe from several threads, though frames come from one mostly.

    `lateness_ns` holds how late the sender was with each of the last frames, `frames` counts all, `late_frames` those that
    came after their own deadline and were answered `Missed("client")` at once.
    """

    def __init__(
        self,
        client: Client,
        *,
        number: int,
        period_ms: float,
        deadline_ms: float,
        latest_wins: bool,
        model: str | None,
        priority: int,
    ) -> None:
        self._client = client
        self._number = number
        self.period_ns = _span_ns("period_ms", period_ms)
        self.deadline_ns = _span_ns("deadline_ms", deadline_ms)
        self._latest_wins = latest_wins
        self._model = model
        self._priority = priority
        self._closed = False
        self.frames = 0
        self.late_frames = 0
        self.lateness_ns: deque[int] = deque(maxlen=KEPT_LATENESSES)

    def submit(self, inputs: Inputs, scheduled_ns: int | None = None) -> OutcomeFuture:
        """Ask for a frame that was due at `scheduled_ns` of `time.monotonic_ns()` (now, where None): its future.

        A frame that comes after its own deadline is no error of the caller: it is `Missed("client")` at once. Raises
        `InputError` for bad inputs and for a time that has not come yet by more than a period.
        """
        if self._closed:
            raise InputError("this stream is closed")
        now = time.monotonic_ns()
        due_ns = now if scheduled_ns is None else whole("scheduled_ns", scheduled_ns, 0, 1 << 62, WHEN)
        if due_ns > now + self.period_ns:
            raise InputError(
                f"scheduled_ns: lies {(due_ns - now) / 1e6:.3f} ms ahead; a frame is asked for when it is there"
            )
        self.frames += 1
        self.lateness_ns.append(max(0, now - due_ns))
        if due_ns + self.deadline_ns <= now:
            self.late_frames += 1
        future = OutcomeFuture(self._client.withdraw)
        future.sequence = self._client.start(
            FutureTicket(future),
            inputs,
            self.deadline_ns / 1e6,
            scheduled_ns=due_ns,
            model=self._model,
            priority=self._priority,
            stream=self._number,
            latest_wins=self._latest_wins,
        )
        return future

    def next_due_ns(self, previous_ns: int) -> int:
        """When a source that paces itself should send again: a period after `previous_ns`, without those past."""
        now = time.monotonic_ns()
        missed = max(0, now - previous_ns) // self.period_ns
        return previous_ns + (missed + 1) * self.period_ns

    def close(self) -> None:
        """Take no more frames. Those that are open keep their outcomes."""
        self._closed = True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()


def _span_ns(name: str, span_ms: float) -> int:
    return max(1, round(span(name, span_ms) * 1e6))
