"""Which callers lead a client's loop: none that would keep the interpreter from other callers.

Who leads and is answered at once, by this host's device, never sleeps. One that asks again and again then has the
interpreter all the time: Python takes it from a thread only after 5 ms (`sys.setswitchinterval`), half of a deadline.
A future of another thread took 1.8 ms where its thread asked beside such a loop, 6 in one case of a hundred, and 0.35 where
the other handed its requests over and slept meanwhile.
"""

from __future__ import annotations

AT_ONCE_NS = 1_000_000
"""Who asks so soon after an outcome does little else."""

SHARED_NS = 100_000_000
"""For so long after another thread asked a client is one that threads share."""


class Leading:
    """What one client knows of its callers. Times in nanoseconds of CLOCK_MONOTONIC; called by any thread."""

    __slots__ = ("_asker", "_other_ns", "_outcome_ns")

    def __init__(self) -> None:
        self._asker = 0
        self._other_ns = -SHARED_NS
        self._outcome_ns = -AT_ONCE_NS

    def asked(self, thread: int, now: int) -> None:
        """A thread hands a request over."""
        if thread != self._asker:
            self._asker = thread
            self._other_ns = now

    def had(self, now: int) -> None:
        """A caller who waited has its outcome."""
        self._outcome_ns = now

    def may(self, now: int) -> bool:
        """Whether a caller who is to wait may lead."""
        return now - self._outcome_ns >= AT_ONCE_NS or now - self._other_ns >= SHARED_NS
