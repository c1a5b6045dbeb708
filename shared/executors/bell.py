"""A thread's one place to wait: for work, for an abort, or for a moment, whichever comes first.

An eventfd and a timerfd under one `poll`. Measured here against the alternatives, error of a 3 ms wait at p50: timerfd
46 µs, `threading.Event.wait` 94 µs, `time.sleep` 96 µs; and from ringing to running: 14 µs, `queue.SimpleQueue` 15 µs,
`threading.Condition` 19 µs with a p99 of 1 ms. Spinning would be exact and would take the core from the others.
"""

from __future__ import annotations

import os
import select
import time

from shared.timer import make_timer


class Bell:
    """Rung by any thread, waited on by one."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._timer = make_timer()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._poll.register(self._timer.fileno(), select.POLLIN)

    def ring(self) -> None:
        """Wake the waiter, or let its next wait return at once."""
        os.eventfd_write(self._fd, 1)

    def wait(self, until_ns: int | None = None) -> None:
        """Block until the bell is rung or CLOCK_MONOTONIC reaches `until_ns` (never, where None)."""
        if until_ns is not None:
            if time.monotonic_ns() >= until_ns:
                return
            self._timer.set(until_ns)
        self._poll.poll()
        if until_ns is not None:
            self._timer.set(None)  # clears an expiry as well
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Release the descriptors. Nobody may ring or wait any more."""
        self._timer.close()
        os.close(self._fd)
