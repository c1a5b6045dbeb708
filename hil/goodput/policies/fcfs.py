"""First come, first served, as a server with a dynamic batcher and no deadlines does: Triton without a queue delay."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hil.goodput.policies.queues import Queues
from hil.goodput.world import Launch


class FirstCome(Queues):
    """The model whose first request has waited longest gets all of its queue, up to the largest batch. Nothing is dropped."""

    def decide(self, now: int) -> Sequence[Launch]:
        """Launch while there are idle devices and requests."""
        launches: list[Launch] = []
        while self.idle:
            oldest = min((q[0][1], m) for m, q in enumerate(self.waiting) if q) if any(self.waiting) else None
            if oldest is None:
                break
            model = oldest[1]
            rows = min(len(self.waiting[model]), self.models[model].max_batch)
            launches.append(Launch(heapq.heappop(self.idle), model, self.take(model, rows)))
        return launches
