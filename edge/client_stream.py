"""A periodic source: frames that are due at known times, of which often only the newest matters.

A frame's deadline and its elapsed time count from when it was *due*, not from when the sender got round to it, or a sender
that falls behind would look punctual (coordinated omission). The sender's own lateness is kept apart. Only the sender knows
when a frame was due; one that names no time is taken to be due when it comes. A grid laid from the first frame was rejected:
a camera's clock drifts against the host's by a few frames an hour, and the grid would call punctual frames late.

A stream is announced to the agent when it is made, so that the agent can promise answers to its frames before they come, and
ends there when it is closed, or when nobody holds it any more.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, cast

from edge.announced import StreamPromise
from edge.client_loop import CLOSED, ClientLoop
from edge.door import CLASSES, HIGHEST_CLASS, LATEST_NS, WHEN, Inputs, choose_model, flag, span, whole
from edge.tickets import FutureTicket, OutcomeFuture
from shared.errors import InputError, shown
from shared.events import StreamOpened

if TYPE_CHECKING:
    from edge.client import Client

LEAST_PERIOD_MS = 0.1
LONGEST_MS = 3_600_000.0
MOST_ROWS = (1 << 31) - 1

KEPT_LATENESSES = 4096


class Stream:
    """One source of `client`. Made by `Client.stream`. Safe from several threads, though frames come from one mostly.

    `lateness_ns` holds how late the sender was with each of the last frames, `frames` counts all, `late_frames` those that
    came after their own deadline and were answered `Missed("client")` at once.
    """

    def __init__(
        self,
        client: Client,
        loop: ClientLoop,
        *,
        number: int,
        period_ms: float,
        deadline_ms: float,
        latest_wins: bool,
        rows: int,
        model: str | None,
        priority: int,
    ) -> None:
        self._client = client
        self._loop = loop
        self._number = number
        self.period_ns = _span_ns("period_ms", period_ms, LEAST_PERIOD_MS)
        self.deadline_ns = _span_ns("deadline_ms", deadline_ms, 0.0)
        self._latest_wins = flag("latest_wins", latest_wins)
        self._priority = whole("priority", priority, 0, HIGHEST_CLASS, CLASSES)
        self._model = model
        rows = whole("rows", rows, 1, MOST_ROWS, "a positive number")
        models = loop.machine.models
        if models:
            most = choose_model(models, model).max_batch
            rows = whole("rows", rows, 1, most, f"1 to {most}, what the model takes,")
        elif model is not None and not isinstance(cast(object, model), str):
            raise InputError(f"model: expected a name, got {shown(model)}")
        self._closed = False
        self._counting = threading.Lock()
        self.frames = 0
        self.late_frames = 0
        self.lateness_ns: deque[int] = deque(maxlen=KEPT_LATENESSES)
        loop.open_stream(
            StreamOpened(
                client="",
                stream=number,
                plan=model or "",
                rows=rows,
                period_ns=self.period_ns,
                deadline_ns=self.deadline_ns,
                priority=self._priority,
                latest_wins=self._latest_wins,
            )
        )
        self._forgotten = weakref.finalize(self, loop.abandon_stream, number)
        self._forgotten.atexit = False

    @property
    def promise(self) -> str | None:
        """The local answer (a rung's name) that each frame of this stream can count on; None where nothing is promised, as
        `reason` says. It may change at any time: a more important stream comes, the device slows down, the agent goes."""
        return self._promise().rung

    @property
    def reason(self) -> str:
        """Why nothing is promised: `overload`, `no-route`, `input`, `full`, `agent` (none is there), `contract` (the standby
        has another version of the model), `closed`. Empty where something is, and before the agent has spoken."""
        return self._promise().reason

    def _promise(self) -> StreamPromise:
        return CLOSED if self._closed else self._loop.promise(self._number)

    def wait_promise(self, timeout_s: float = 10.0) -> bool:
        """Block until the agent has said what it promises; False where it has not after `timeout_s`, or never will. Raises as
        `Client.wait_attached`."""
        return not self._closed and self._loop.wait_promise(self._number, timeout_s)

    def submit(self, inputs: Inputs, scheduled_ns: int | None = None) -> OutcomeFuture:
        """Ask for a frame that was due at `scheduled_ns` of `time.monotonic_ns()` (now, where None): its future.

        A frame that comes after its own deadline is no error of the caller: it is `Missed("client")` at once. Raises
        `InputError` for bad inputs and for a time that has not come yet by more than a period.
        """
        self._loop.check_process()
        if self._closed:
            raise InputError("this stream is closed")
        now = time.monotonic_ns()
        due_ns = now if scheduled_ns is None else whole("scheduled_ns", scheduled_ns, 0, LATEST_NS, WHEN)
        if due_ns > now + self.period_ns:
            raise InputError(
                f"scheduled_ns: lies {(due_ns - now) / 1e6:.3f} ms ahead; a frame is asked for when it is there"
            )
        with self._counting:
            self.frames += 1
            self.late_frames += due_ns + self.deadline_ns <= now
        self.lateness_ns.append(max(0, now - due_ns))
        future = OutcomeFuture(self._loop)
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
        """When a source that paces itself should send again: a period after `previous_ns`, without those past.
        Raises `InputError`."""
        previous_ns = whole("previous_ns", previous_ns, -LATEST_NS, LATEST_NS, WHEN)
        now = time.monotonic_ns()
        missed = max(0, now - previous_ns) // self.period_ns
        return previous_ns + (missed + 1) * self.period_ns

    def close(self) -> None:
        """Take no more frames. Those that are open keep their outcomes. May be called more than once."""
        if not self._closed:
            self._closed = True
            self._forgotten.detach()
            self._loop.close_stream(self._number)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()


def _span_ns(name: str, span_ms: float, least_ms: float) -> int:
    known_ms = span(name, span_ms)
    if not least_ms <= known_ms <= LONGEST_MS:
        raise InputError(f"{name}: expected {least_ms:g} to {LONGEST_MS:.0f} milliseconds, got {shown(span_ms)}")
    return max(1, round(known_ms * 1e6))
