"""A node's own count of what it has executed, kept beside its session and not by it.

The count is the proof that the tail of a plan ran here and not on the device (`headtail verify` reads it), so that it comes
from the executors' events and knows nothing of requests.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec

from shared.events import Event, Failed, Finished, Run

ROWS = attrgetter("rows")


class LaunchCount(msgspec.Struct, frozen=True):
    """How often segments `first` to `last` (exclusive) of `program` ran to their end with `rows` rows in one launch."""

    contract: str
    program: int
    first: int
    last: int
    rows: int
    count: int


class Launches:
    """Counts finished launches by (contract, range, rows)."""

    def __init__(self) -> None:
        self._out: dict[int, tuple[str, int, int, int, int]] = {}
        self._counts: dict[tuple[str, int, int, int, int], int] = {}

    def started(self, run: Run) -> None:
        """A run was handed to an executor."""
        span = run.range
        self._out[run.run] = (run.contract, span.program, span.first, span.last, sum(map(ROWS, run.rows)))

    def ended(self, event: Event) -> None:
        """Look at an event: a `Finished` of a known run is counted, a `Failed` forgotten, others are none of this."""
        if isinstance(event, Finished):
            key = self._out.pop(event.run, None)
            if key is not None:
                self._counts[key] = self._counts.get(key, 0) + 1
        elif isinstance(event, Failed):
            self._out.pop(event.run, None)

    def counts(self) -> tuple[LaunchCount, ...]:
        """All counts so far, in order."""
        return tuple(LaunchCount(*key, count) for key, count in sorted(self._counts.items()))
