"""After Symphony (Chen and others, 2023): deferred batches. A batch begins as late as one more request could still join it.

For each model the candidate is the longest end of the queue whose first request allows its batch (requests before it are
dropped only once they cannot be served), at most the batch that sustains the model's rate. It begins between the time after
which one more request would make it late, and its own latest start. `early` begins it so many launches sooner: with many
models on few devices pure deferral collides. The paper knows each model's rate; here it is measured over the last second.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hil.goodput.case import Case
from hil.goodput.policies.queues import Queues
from hil.goodput.world import NEVER, Launch

MEMORY_NS = 1e9
AIM_EVERY_NS = 50_000_000


class Symphony(Queues):
    """See the module."""

    def __init__(self, case: Case, early: float = 0.0) -> None:
        super().__init__(case)
        self._early = early
        count = len(self.models)
        self._seen = [0.0] * count
        self._seen_ns = [0] * count
        self._aim = [1] * count
        self._aim_ns = [-AIM_EVERY_NS] * count
        self._window: list[tuple[int, int, int] | None] = [None] * count
        self._touched: set[int] = set()

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        """A request has come: its model's candidate is another."""
        super().arrived(request, model, due_ns, now)
        self._seen[model] = self._seen[model] * 2.0 ** (-(now - self._seen_ns[model]) / MEMORY_NS) + 1.0
        self._seen_ns[model] = now
        self._touched.add(model)

    def decide(self, now: int) -> Sequence[Launch]:
        """Candidates whose time has come, the one that must start soonest first."""
        for model in self._touched:
            self._update(model, now)
        self._touched.clear()
        launches: list[Launch] = []
        while self.idle:
            ready = [(w[2], m) for m, w in enumerate(self._window) if w is not None and w[1] <= now]
            if not ready:
                break
            _, model = min(ready)
            self._update(model, now)
            window = self._window[model]
            if window is None or window[1] > now:
                continue
            launches.append(Launch(heapq.heappop(self.idle), model, self.take(model, window[0])))
            self._update(model, now)
        # With no idle device a candidate is looked at again when it can no longer begin, so that its queue moves on.
        soon = [(w[1] if self.idle else max(w[1], w[2] + 1)) for w in self._window if w is not None]
        self.wake_ns = min(soon, default=NEVER)
        if self.wake_ns <= now:
            for model, w in enumerate(self._window):
                if w is not None and w[2] < now:
                    self._update(model, now)
            soon = [(w[1] if self.idle else max(w[1], w[2] + 1)) for w in self._window if w is not None]
            self.wake_ns = max(min(soon, default=NEVER), now + 1)
        return launches

    def _update(self, model: int, now: int) -> None:
        """The candidate of a model: rows, when it may begin, when it must."""
        queue = self.waiting[model]
        count = len(queue)
        skip = 0
        while skip < count and queue[skip][0] < now + self.duration(model, count - skip):
            skip += 1
        rows = min(self._aimed(model, now), count - skip)
        if rows == 0:
            while queue and queue[0][0] < now + self.duration(model, 1):
                queue.popleft()
            rows = 1
        while queue and queue[0][0] < now + self.duration(model, rows):
            queue.popleft()
        if not queue:
            self._window[model] = None
            return
        due = queue[0][0]
        rows = max(min(rows, len(queue)), min(len(queue), self.most(model, due - now), self.models[model].max_batch))
        must = due - self.duration(model, rows)
        more = due - self.duration(model, rows + 1) - int(self._early * self.duration(model, rows))
        self._window[model] = (rows, max(now, min(more, must)), must)

    def _aimed(self, model: int, now: int) -> int:
        """The batch that sustains the model's rate on the devices that it needs."""
        if now - self._aim_ns[model] < AIM_EVERY_NS:
            return self._aim[model]
        self._aim_ns[model] = now
        memory = MEMORY_NS / 0.6931471805599453 * (1.0 - 2.0 ** (-max(now, 1) / MEMORY_NS))
        rate = self._seen[model] / memory
        deadline = self.models[model].deadline_ms * 1e6
        most = self.models[model].max_batch
        rows = 1
        while rows < most:
            takes = self.duration(model, rows + 1)
            if takes * (1.0 + 1.0 / max(1.0, rate * takes / (rows + 1))) > deadline:
                break
            rows += 1
        if rate * self.duration(model, rows) / rows <= 1.0:
            rows = 1
            while rows < most and self.duration(model, rows + 1) + (rows + 1) / rate <= deadline:
                rows += 1
        self._aim[model] = rows
        return rows
