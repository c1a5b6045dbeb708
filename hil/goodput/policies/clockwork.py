"""After Clockwork (Gujarati and others, OSDI 2020): one central queue, predictable launches, the latest start decides.

Requests that cannot end in time even alone are dropped; each model offers the largest batch that ends by its first
deadline; the model that must start soonest goes first. (The paper's controller also moves models between memories; here all
are loaded.)"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hil.goodput.policies.queues import Queues
from hil.goodput.world import Launch


class Clockwork(Queues):
    """See the module."""

    def decide(self, now: int) -> Sequence[Launch]:
        """Launch while there are idle devices and requests."""
        launches: list[Launch] = []
        while self.idle:
            best: tuple[int, int, int] | None = None
            for model, queue in enumerate(self.waiting):
                self._drop(model, now)
                if queue:
                    rows = max(1, min(len(queue), self.most(model, queue[0][0] - now)))
                    candidate = (queue[0][0] - self.duration(model, rows), model, rows)
                    best = candidate if best is None else min(best, candidate)
            if best is None:
                break
            launches.append(Launch(heapq.heappop(self.idle), best[1], self.take(best[1], best[2])))
        return launches

    def _drop(self, model: int, now: int) -> None:
        queue = self.waiting[model]
        alone = now + self.duration(model, 1)
        while queue and queue[0][0] < alone:
            queue.popleft()
