"""What the published policies have in common: a queue for each model in the order of deadlines, and tables of durations."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque

from hil.goodput.case import Case
from hil.goodput.world import NEVER


class Queues:
    """Waiting requests as (due, request) by model, earliest first, and idle devices, lowest number first.

    Requests of a model that come in the order of their deadlines, as they do without a network that overtakes, are appended;
    others are put where they belong.
    """

    def __init__(self, case: Case) -> None:
        self.models = case.each
        self.waiting: list[deque[tuple[int, int]]] = [deque() for _ in self.models]
        self.idle = list(range(case.devices))
        self.wake_ns = NEVER
        self._times = [[m.duration_ns(b) for b in range(1, m.max_batch + 1)] for m in self.models]

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        """A request has come."""
        queue = self.waiting[model]
        if queue and queue[-1][0] > due_ns:
            self.waiting[model] = deque(sorted([*queue, (due_ns, request)]))
        else:
            queue.append((due_ns, request))

    def ended(self, device: int, now: int) -> None:
        """A device is idle."""
        heapq.heappush(self.idle, device)

    def duration(self, model: int, rows: int) -> int:
        """Nanoseconds of a launch."""
        times = self._times[model]
        return times[min(rows, len(times)) - 1]

    def most(self, model: int, budget_ns: int) -> int:
        """The most rows of a launch within a budget; 0 where not one is."""
        return bisect_right(self._times[model], budget_ns)

    def take(self, model: int, rows: int) -> list[int]:
        """The first requests of a model leave its queue."""
        queue = self.waiting[model]
        return [queue.popleft()[1] for _ in range(rows)]
