"""headtail's own scheduler (`shared.scheduler`), the very code that a node runs, with this world's devices as its executors.

Its model of execution times is seeded with what the case says, as a plan's profile would, and learns from what ran.
"""

from __future__ import annotations

from collections.abc import Sequence

from hil.goodput.case import MS, Case, Model
from hil.goodput.world import NEVER, Launch
from shared.events import Row, Run
from shared.latency import Latency, WorkKey
from shared.memory import Arena
from shared.plan import RAW, Profile, RangeTime, SegmentRange
from shared.queue import Job
from shared.scheduler import Scheduler
from shared.slots import SLOTS_PER_EXECUTOR, SlotClass

QUEUED = 100_000


class Headtail:
    """A node's scheduler as a policy."""

    def __init__(self, case: Case) -> None:
        names = [str(i) for i in range(len(case.each))]
        self._models = {name: i for i, name in enumerate(names)}
        self._segments = [model.segments for model in case.each]
        self._keys = [WorkKey(name, SegmentRange(0, 0, n)) for name, n in zip(names, self._segments, strict=True)]
        self._priority = [model.priority for model in case.each]
        self._scheduler = Scheduler(
            executors=case.devices,
            latency=Latency.of_profiles([(n, _profile(m)) for n, m in zip(names, case.each, strict=True)]),
            arena=Arena(
                SlotClass(name, 0, first, SLOTS_PER_EXECUTOR * case.devices, model.max_batch, 0)
                for name, model in zip(names, case.each, strict=True)
                for first in range(model.segments)
            ),
            max_rows={name: model.max_batch for name, model in zip(names, case.each, strict=True)},
            max_queued=QUEUED,
            of_many=True,
            in_pieces=True,
        )
        self._devices = case.devices
        self._out: dict[int, tuple[int, int]] = {}
        self.wake_ns = NEVER

    def arrived(self, request: int, model: int, due_ns: int, now: int) -> None:
        """A request has come."""
        key = self._keys[model]
        row = Row(request, 1, (), RAW)
        self._scheduler.submit(
            Job(request, key.contract, key.range, row, due_ns, self._priority[model], False, key), now
        )

    def ended(self, device: int, now: int) -> None:
        """The launch on a device has ended."""
        run, began = self._out.pop(device)
        launch, _ = self._scheduler.ended(run, began, now)
        if launch.partial:
            for job in launch.jobs:
                self._scheduler.go_on(job, launch, ())

    def decide(self, now: int) -> Sequence[Launch]:
        """What the scheduler launches. Where it finds something overdue it is asked again, as its owners do."""
        if len(self._out) == self._devices and now < self.wake_ns:
            # An arrival while all devices are busy: nothing can begin, but the new one may be the first to be too late.
            self.wake_ns = min(self.wake_ns, self._scheduler.expiry_ns)
            return ()
        self._scheduler.pass_time(now)
        decision = self._scheduler.schedule(now)
        while not decision.final:
            decision = self._scheduler.schedule(now)
        self.wake_ns = self._scheduler.next_wakeup(now) or NEVER
        return [self._launch(run, now) for run in decision.runs] if decision.runs else ()

    def _launch(self, run: Run, now: int) -> Launch:
        self._out[run.executor] = (run.run, now)
        model = self._models[run.contract]
        all_, part = self._segments[model], run.range
        share = (part.last - part.first) / all_
        return Launch(run.executor, model, [row.job for row in run.rows], share, part.last == all_)


def _profile(model: Model) -> Profile:
    rows = [b for b, _ in model.points] if model.points else [1, max(2, model.max_batch)]
    times = [(b, model.duration_ns(b) / MS * 1e3 / model.segments) for b in rows]
    return Profile(
        side="cloud",
        device="simulated",
        provider="simulated",
        threads=1,
        slowdown=1.0,
        cadence_hz=0.0,
        ranges=tuple(RangeTime(0, i, i + 1, b, t, t) for i in range(model.segments) for b, t in times),
    )
