"""Nodes that do much worse than their peers are left alone for a while: *ejected*.

A node is an outlier when several requests in a row come to nothing there (refused as failed, lost, or not
back when they were due), or when what it runs takes far longer, against the plan's times, than at its peers. It is then not
asked for a pause that doubles each time; it is told nothing. After the pause it is asked again, and one more failure is
enough to leave it alone once more, until it has done well for a while.

Never more than half of the nodes are ejected, so never all of them: where all do badly, it is not the node that is at fault.
Where no other can be asked, since they are down, stalled or full, an ejected one is asked after all (`edge.nodes`). Its
failures then make its pause no longer; and where it does well, the pause is over.
The rules follow Envoy's outlier detection (consecutive failures, growing pauses, a most share), with slowness relative to the
median of the peers in place of its success rate.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

from shared.settings import Outliers as Settings

MS = 1_000_000
SAMPLES = 15
"""Runs of a node by which it is judged; fewer than half of them say nothing."""


class Record:
    """What one node did of late."""

    def __init__(self) -> None:
        self.failures = 0
        """Requests in a row that came to nothing."""
        self.slowness: deque[float] = deque(maxlen=SAMPLES)
        """How long its runs took, in times of what the plan says."""
        self.until = 0
        """When its pause is over."""
        self.ejections = 0
        """Pauses of late: how long the next one is."""
        self.well = 0
        """Answers in a row since the last pause."""


class Outliers:
    """The records of all nodes, by name. `rng` comes seeded: pauses are drawn, so that a fleet does not return as one."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self._most_failures = settings.failures
        self._slower = settings.slower
        self._pause_ms = settings.pause_ms
        self._rng = rng
        self._records: dict[str, Record] = {}

    def know(self, names: Iterable[str]) -> None:
        """These are the nodes there are."""
        before = self._records
        self._records = {name: before.get(name) or Record() for name in names}
        alone = sorted((r for r in self._records.values() if r.until), key=lambda record: record.until)
        for record in alone[: max(0, len(alone) - len(self._records) // 2)]:
            record.until = 0

    def ejected(self, name: str, now: int) -> bool:
        """Whether a node is left alone now."""
        record = self._records.get(name)
        return record is not None and now < record.until

    def answered(self, name: str, slowness: float, now: int) -> None:
        """A node answered, and its run took `slowness` times as long as the plan says."""
        record = self._records.get(name)
        if record is None:
            return
        record.failures = 0
        record.well += 1
        record.slowness.append(slowness)
        if now < record.until and record.well >= SAMPLES:
            record.until = now
        if record.well >= 10 * SAMPLES:
            record.ejections = 0
        if self._is_slow(name):
            self._eject(record, now)

    def failed(self, name: str, now: int) -> None:
        """A request came to nothing at this node, and it is the node's fault."""
        record = self._records.get(name)
        if record is None:
            return
        if now < record.until:
            record.well = 0
            return
        record.failures += 1
        once_more = record.ejections > 0 and record.well < SAMPLES
        record.well = 0
        if record.failures >= (1 if once_more else self._most_failures):
            self._eject(record, now)

    def restarted(self, name: str) -> None:
        """Another process answers for this node: what was before is no fault of it."""
        if name in self._records:
            self._records[name] = Record()

    def _is_slow(self, name: str) -> bool:
        if not self._slower or len(self._records) < 2:
            return False
        own = _median(self._records[name].slowness)
        peers = sorted(
            median
            for other, record in self._records.items()
            if other != name and (median := _median(record.slowness)) is not None
        )
        return own is not None and bool(peers) and own > self._slower * max(peers[len(peers) // 2], 1.0)

    def _eject(self, record: Record, now: int) -> None:
        out = sum(now < other.until for other in self._records.values() if other is not record)
        if not self._most_failures or 2 * (out + 1) > len(self._records):
            return
        least, most = self._pause_ms
        pause_ms = min(least * 2.0**record.ejections, most) * self._rng.uniform(1.0, 1.25)
        record.until = now + int(pause_ms * MS)
        record.ejections = min(record.ejections + 1, 30)
        record.failures = record.well = 0
        record.slowness.clear()


def _median(samples: deque[float]) -> float | None:
    if 2 * len(samples) < SAMPLES:
        return None
    return sorted(samples)[len(samples) // 2]
