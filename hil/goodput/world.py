"""Devices on virtual time under one policy: requests come, launches begin and end, and it is counted what was in time.

A policy decides (`Policy`), this world only keeps time. What is never launched, or ends late, is a miss.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from hil.goodput.arrivals import Offered
from hil.goodput.case import Case, Fault
from shared.errors import InvariantBroken

NEVER = 1 << 62


class Launch(NamedTuple):
    """A device begins these requests (their numbers), all of one model. One that is busy is stopped, and what it ran comes
    to nothing: a policy that does that offers those requests again itself. `share`: only this part of the work, after which
    the requests are done where it is the `last`."""

    device: int
    model: int
    requests: Sequence[int]
    share: float = 1.0
    last: bool = True


class Policy(Protocol):
    """A scheduler of all devices. Times are nanoseconds, a request is known by its number."""

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        """A request has come."""
        ...

    def ended(self, device: int, now: int) -> None:
        """The launch on a device has ended."""
        ...

    def decide(self, now: int) -> Sequence[Launch]:
        """What begins now. Asked after every event and at `wake_ns`."""
        ...

    @property
    def wake_ns(self) -> int:
        """When to ask at the latest although nothing happens; `NEVER` where that is not needed."""
        ...


class Class(msgspec.Struct):
    """What became of one model's requests: `offered`, in time, ended late; the rest was never launched."""

    model: str
    priority: int
    offered: int = 0
    on_time: int = 0
    late: int = 0

    @property
    def share(self) -> float:
        """Share of the offered that was in time; 1 where nothing was offered."""
        return self.on_time / self.offered if self.offered else 1.0


class Played(msgspec.Struct, frozen=True):
    """What one run came to. The first tenth is left out of `classes`. `busy`: share of the devices' time in launches.
    `worst_ns` and latencies are of requests in time, from being sent to the launch's end and the way down."""

    rate_per_s: float
    classes: tuple[Class, ...]
    launches: int
    rows: int
    busy: float

    @property
    def mean_batch(self) -> float:
        """Requests a launch."""
        return self.rows / self.launches if self.launches else 0.0

    def share(self, judged: Sequence[bool]) -> float:
        """Share in time of the requests of the judged models."""
        kept = [c for c, j in zip(self.classes, judged, strict=True) if j]
        offered = sum(c.offered for c in kept)
        return sum(c.on_time for c in kept) / offered if offered else 1.0


def play(case: Case, offered: Offered, policy: Policy, seed: int = 0, warm: float = 0.1) -> Played:
    """Run one policy over these arrivals. `warm`: the share of requests at the beginning that does not count."""
    models = case.each
    rng = random.Random(seed)
    tables = [[model.duration_ns(b) for b in range(model.max_batch + 1)] for model in models]
    came, owner, due = offered.came_ns, offered.model, offered.due_ns
    count = len(came)
    first = int(count * warm)
    on_time = [0] * len(models)
    late = [0] * len(models)
    ends: list[tuple[int, int, int]] = []
    out: list[tuple[int, Sequence[int], int, int, bool] | None] = [None] * case.devices
    version = launches = rows = busy = now = 0
    arrived, ended, decide = policy.arrived, policy.ended, policy.decide
    push, pop = heapq.heappush, heapq.heappop
    i = 0
    next_came = came[0] if count else NEVER
    next_end = NEVER
    while True:
        wake = policy.wake_ns
        if next_came == next_end == wake == NEVER:
            break
        if wake <= next_came and wake < next_end:
            now = max(now, wake)
        elif next_came <= next_end:
            now = next_came
            arrived(i, owner[i], due[i], now)
            i += 1
            next_came = came[i] if i < count else NEVER
        else:
            now, stamp, device = pop(ends)
            next_end = ends[0][0] if ends else NEVER
            run = out[device]
            if run is None or run[0] != stamp:
                continue
            out[device] = None
            busy += now - run[3]
            model = run[2]
            for request in run[1] if run[4] else ():
                if request >= first:
                    if now <= due[request]:
                        on_time[model] += 1
                    else:
                        late[model] += 1
            ended(device, now)
        for launch in decide(now):
            stopped = out[launch.device]
            if stopped is not None:
                busy += now - stopped[3]
            size = len(launch.requests)
            if not 0 < size <= models[launch.model].max_batch:
                raise InvariantBroken(f"a launch of {size} rows of model {launch.model}")
            version += 1
            launches += 1
            rows += size
            takes = tables[launch.model][size]
            if launch.share != 1.0:
                takes = round(takes * launch.share)
            if case.spread:
                takes = int(takes * math.exp(rng.gauss(0.0, case.spread)))
            end = now + takes
            for fault in case.faults:
                end = _faulty(fault, launch.device, now, end)
            out[launch.device] = (version, launch.requests, launch.model, now, launch.last)
            push(ends, (end, version, launch.device))
            next_end = ends[0][0]
    classes = [Class(m.name, m.priority) for m in models]
    for request in range(first, count):
        classes[owner[request]].offered += 1
    for model, kept in enumerate(classes):
        kept.on_time, kept.late = on_time[model], late[model]
    span = max(now, came[-1] if count else 0) - (came[0] if count else 0)
    rate = count / came[-1] * 1e9 if count and came[-1] else 0.0
    return Played(rate, tuple(classes), launches, rows, busy / max(1, span * case.devices))


def _faulty(fault: Fault, device: int, now: int, end: int) -> int:
    begins, over = int(fault.at_s * 1e9), int((fault.at_s + fault.for_s) * 1e9)
    if device != fault.device or end <= begins or now >= over:
        return end
    if fault.slowdown == 0.0:
        return over + max(0, end - max(begins, now))
    before = max(0, begins - now)
    return now + before + int((end - now - before) * fault.slowdown)
