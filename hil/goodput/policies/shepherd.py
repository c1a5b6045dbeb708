"""After Shepherd's online scheduler Flex (Zhang and others, NSDI 2023): the largest batch in time wins, and may stop another.

When a device is free it takes the largest batch of any model that ends by its first deadline. When requests come, a running
batch is stopped for one that is `PREEMPT` times as large, and what it ran goes back to its queue, which costs all the work
that was done.
"""

from __future__ import annotations

from collections.abc import Sequence

from hil.goodput.case import Case
from hil.goodput.policies.queues import Queues
from hil.goodput.world import Launch

PREEMPT = 3.03
"""The factor for which the paper proves its bound."""

Batch = tuple[int, list[tuple[int, int]]]


class Shepherd(Queues):
    """See the module."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._out: list[Batch | None] = [None] * case.devices
        self._news: list[int] = []

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        """A request has come, and may be worth stopping another batch for."""
        super().arrived(request, model, due_ns, now)
        self._news.append(model)

    def ended(self, device: int, now: int) -> None:
        """A device is idle."""
        self._out[device] = None

    def decide(self, now: int) -> Sequence[Launch]:
        """Idle devices first, then busy ones of the same model or where it pays to stop."""
        launches: dict[int, Launch] = {}
        for device, running in enumerate(self._out):
            if running is None:
                self._begin(device, self._largest(range(len(self.models)), now, None), launches)
        for model in self._news:
            for device, running in enumerate(self._out):
                if running is None or not self.waiting[model]:
                    continue
                models = {model, running[0]} if running[0] != model else {model}
                best = self._largest(models, now, running)
                if best is not None and best[1] >= PREEMPT * len(running[1]):
                    self._stop(running)
                    self._begin(device, best, launches)
        self._news.clear()
        return list(launches.values())

    def _largest(
        self, models: Sequence[int] | range | set[int], now: int, running: Batch | None
    ) -> tuple[int, int] | None:
        """Model and rows of the largest batch in time; what runs counts as waiting again."""
        best: tuple[int, int] | None = None
        for model in models:
            queue = self.waiting[model]
            while queue and queue[0][0] < now + self.duration(model, 1):
                queue.popleft()
            back = running[1] if running is not None and running[0] == model else []
            if not queue and not back:
                continue
            due = back[0][0] if back else queue[0][0]
            rows = min(len(queue) + len(back), self.most(model, due - now))
            if rows > (best[1] if best else 0):
                best = (model, rows)
        return best

    def _stop(self, running: Batch) -> None:
        model, batch = running
        self.waiting[model].extendleft(reversed(batch))
        queue = sorted(self.waiting[model])
        self.waiting[model].clear()
        self.waiting[model].extend(queue)

    def _begin(self, device: int, best: tuple[int, int] | None, launches: dict[int, Launch]) -> None:
        if best is None:
            self._out[device] = None
            return
        model, rows = best
        batch = [self.waiting[model].popleft() for _ in range(rows)]
        self._out[device] = (model, batch)
        launches[device] = Launch(device, model, [request for _, request in batch])
