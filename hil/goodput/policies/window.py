"""One central queue with the early drop of Nexus (Shen and others, SOSP 2019): a window as long as the batch that is aimed at
slides over the queue, and those requests at its head go whose deadline does not leave time for it.

The batch aimed at is the largest whose launch takes half of the deadline, as Nexus chooses it for a model that has devices to
itself.
"""

from __future__ import annotations

from hil.goodput.case import Case
from hil.goodput.policies.clockwork import Clockwork


class Window(Clockwork):
    """Clockwork's order with that drop."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._aim = [max(1, self.most(i, int(m.deadline_ms * 1e6 / 2))) for i, m in enumerate(self.models)]

    def _drop(self, model: int, now: int) -> None:
        queue = self.waiting[model]
        while queue and queue[0][0] < now + self.duration(model, min(self._aim[model], len(queue))):
            queue.popleft()
