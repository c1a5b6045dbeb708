"""After Nexus (Shen and others, SOSP 2019): each device has queues of its own, models are given devices, requests go round.

With at least as many models as devices each model has one device, which serves its models in turn; else a model has
several, and its requests go to them in turn. The batch that is aimed at is such that a request that just missed the launch
before is in time: so many launches fit into a deadline as models share the device, and one more. (The paper's squishy bin
packing sizes devices by rates; with equal models it comes to this.)"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hil.goodput.case import Case
from hil.goodput.policies.queues import Queues
from hil.goodput.world import NEVER, Launch


class Nexus:
    """See the module."""

    def __init__(self, case: Case) -> None:
        self._book = Queues(case)
        models, devices = len(case.each), case.devices
        self.wake_ns = NEVER
        self._places = [
            [m % devices] if models >= devices else [d for d in range(devices) if d % models == m]
            for m in range(models)
        ]
        self._of = [[m for m in range(models) if d in self._places[m]] for d in range(devices)]
        self._queues: list[dict[int, deque[tuple[int, int]]]] = [{m: deque() for m in own} for own in self._of]
        together = max(len(own) for own in self._of)
        self._aim = [
            max(1, self._book.most(i, int(m.deadline_ms * 1e6 / (1 + together)))) for i, m in enumerate(case.each)
        ]
        self._turn = [0] * models
        self._next = [0] * devices
        self._idle = set(range(devices))

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        """A request has come: it goes to the next of its model's devices."""
        places = self._places[model]
        self._queues[places[self._turn[model] % len(places)]][model].append((due_ns, request))
        self._turn[model] += 1

    def ended(self, device: int, now: int) -> None:
        """A device is idle."""
        self._idle.add(device)

    def decide(self, now: int) -> Sequence[Launch]:
        """Each idle device takes the next of its models that has requests."""
        launches = [launch for d in sorted(self._idle) if (launch := self._of_device(d, now)) is not None]
        self._idle -= {launch.device for launch in launches}
        return launches

    def _of_device(self, device: int, now: int) -> Launch | None:
        own = self._of[device]
        for step in range(len(own)):
            at = (self._next[device] + step) % len(own)
            model = own[at]
            queue, aim = self._queues[device][model], self._aim[model]
            while queue and queue[0][0] < now + self._book.duration(model, min(aim, len(queue))):
                queue.popleft()
            if queue:
                self._next[device] = at + 1
                return Launch(device, model, [queue.popleft()[1] for _ in range(min(len(queue), aim))])
        return None
