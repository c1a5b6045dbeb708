"""What streams are promised: announcing, ending, and finding out anew when the device's speed has changed."""

from __future__ import annotations

from collections.abc import Mapping

from edge.insurance import rung_key
from shared.events import Action, Granted, StreamClosed, StreamOpened
from shared.latency import WorkKey
from shared.plan import Plan
from shared.scheduler import Scheduler
from shared.streams import Source, StreamId

MS = 1_000_000
LOOK_NS = 100 * MS
"""How often it is looked at whether the device's speed has changed."""

CHANGED = 0.1
"""A change of speed by this share is one."""


class Grants:
    """The streams of one edge, on top of `shared.streams`. Methods return the `Granted` that are to be told."""

    def __init__(self, scheduler: Scheduler, plans: Mapping[str, Plan], guard_ns: int) -> None:
        """`plans` by contract. A frame's work must be done `guard_ns` before its deadline."""
        self._scheduler = scheduler
        self._plans = plans
        self._guard_ns = guard_ns
        self._look_ns = 0
        self._names = {
            rung_key(contract, plan, rung): rung.name for contract, plan in plans.items() for rung in plan.ladder
        }
        self._speed: dict[WorkKey, int] = {}

    def opened(self, event: StreamOpened) -> list[Action]:
        """A stream is announced, or announced anew."""
        stream = (event.client, event.stream)
        plan = self._plans.get(event.plan)
        if plan is None:
            return [Granted(*stream, "", "no-route")]
        ways = tuple(rung_key(event.plan, plan, rung) for rung in plan.ladder)
        due = max(1, event.deadline_ns - self._guard_ns)
        if not self._scheduler.streams.open(Source(stream, event.rows, event.period_ns, due, event.priority, ways)):
            return [Granted(*stream, "", "full")]
        told = self._grant()
        if not any(isinstance(g, Granted) and (g.client, g.stream) == stream for g in told):
            told.append(self._granted(stream, self._scheduler.streams.granted(stream)))
        return told

    def closed(self, event: StreamClosed) -> list[Action]:
        """A stream has ended."""
        return self._grant() if self._scheduler.streams.close((event.client, event.stream)) else []

    def client_gone(self, client: str) -> list[Action]:
        """A client is gone, and its streams with it."""
        streams = self._scheduler.streams.of_client(client)
        for stream in streams:
            self._scheduler.streams.close(stream)
        return self._grant() if streams else []

    def speed_changed(self, now: int) -> list[Action]:
        """Something has run: where the device has become slower or faster since the last grant, grant anew."""
        if not self._scheduler.streams or now < self._look_ns:
            return []
        self._look_ns = now + LOOK_NS
        if all(abs(self._pace(key) - pace) <= CHANGED * pace for key, pace in self._speed.items()):
            return []
        return self._grant()

    def _grant(self) -> list[Action]:
        self._speed = {key: self._pace(key) for key in self._names}
        changed = self._scheduler.streams.grant(self._scheduler.latency, self._scheduler.executors)
        return [self._granted(stream, way) for stream, way in changed]

    def _pace(self, key: WorkKey) -> int:
        return self._scheduler.latency.pessimistic(key)

    def _granted(self, stream: StreamId, way: WorkKey | None) -> Granted:
        return Granted(*stream, "", "overload") if way is None else Granted(*stream, self._names[way])
