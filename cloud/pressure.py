"""How pressed a node is, and so which of its edges' requests would better be done without it.

A node that refuses has wasted the edge's time: the request was sent, waited, and comes to nothing when little time is left.
So it says beforehand, with everything that it says to an edge, what share of each class had better step back, and edges whose
device has promised an answer of its own take that instead (`edge.yielding`). What only the cloud can answer then finds room.

The node cannot know how much an edge can do by itself, so that the shares are not computed but led: a *level*, in
classes counted from the least important one that was ever asked for here. At 1.4 the whole of the least important class and
0.4 of the next one step back. It rises while too much is asked for, the faster the more that is:

* by the device time that is asked for (`Targets.asked`), in parts of `FULL` of what the executors have, as far as
  that is more than chance;
* or by the share of rows that left the queue too late or found it full, on a node that is at all busy: where many models
  share few devices, these collide long before the load is 1.

It falls slowly, and only while clearly less is asked for and next to nothing is refused: between `CALM` and `FULL` it stays.
What steps back is not asked for any more, so that a level that fell with the load at once would swing.

Rejected: a share worked out from the load alone (edges without a ladder cannot step back, so that it would not be
enough), the predicted wait (it is told already; what it says comes too late, and says nothing of classes).
"""

from __future__ import annotations

import math

import msgspec

from shared.targets import MEMORY_NS, Targets
from shared.wire.messages import FULL_PRESSURE

FULL = 0.92
"""From this load on the level rises: beyond it queues that form at random make rows late."""
CALM = 0.85
"""Below this load it falls."""
BUSY = 0.5
"""Rows that are refused on a node of less load than this are not refused for want of device time."""
LOST = 0.01
"""Up to this share of rows may be refused."""
RISE_PER_S = 2.0
"""Classes a second, where all that is asked for is too much."""
EVERY_NS = 50_000_000
"""How often the level is found anew."""
MOST_STEP_NS = 4 * EVERY_NS
"""The longest time for which it rises at once, if nobody was told anything for longer."""


class PressureFigures(msgspec.Struct, frozen=True):
    """What became of it. `level` as it was told last and at its `most`, in classes; `load` in parts of the executors, when it
    was last looked at."""

    level: float = 0.0
    most: float = 0.0
    load: float = 0.0


class Pressure:
    """The level of one node. Pure: `now` is nanoseconds and never falls."""

    def __init__(self, targets: Targets, return_ms: float) -> None:
        """`targets` know what comes. `return_ms`: a class that has stepped back is wholly back after so long; 0: nobody is
        ever asked to step back."""
        self._targets = targets
        self._return_ns = return_ms * 1e6
        self._classes: frozenset[int] = frozenset()
        self._level = 0.0
        self._most = 0.0
        self._load = 0.0
        self._lost = 0.0
        self._lost_ns = 0
        self._found_ns = 0
        self._told: tuple[int, ...] = ()

    def lost(self, rows: int, now: int) -> None:
        """So many rows were refused for want of time or room."""
        self._lost = self._lost * math.exp((self._lost_ns - now) / MEMORY_NS) + rows
        self._lost_ns = now

    def told(self, now: int) -> tuple[int, ...]:
        """Of each class, from 0 on, the thousandths that had better step back; empty where none need to."""
        if now >= self._found_ns + EVERY_NS and self._return_ns:
            self._find(now)
        return self._told

    def figures(self) -> PressureFigures:
        """What became of it."""
        return PressureFigures(self._level, self._most, self._load)

    def _find(self, now: int) -> None:
        asked = self._targets.asked(now)
        passed, self._found_ns = now - self._found_ns, now
        self._load = asked.load
        self._classes |= asked.classes
        strain = max(1.0 - FULL / asked.least if asked.least > FULL else 0.0, self._refused(asked.rows_per_s, now))
        if strain:
            self._level += RISE_PER_S * strain * min(passed, MOST_STEP_NS) / 1e9
        elif asked.load < CALM:
            self._level -= passed / self._return_ns
        self._level = min(max(self._level, 0.0), float(len(self._classes)))
        self._most = max(self._most, self._level)
        self._told = shares(self._level, self._classes)

    def _refused(self, rows_per_s: float, now: int) -> float:
        """The share of rows that are refused, where it is worth mentioning."""
        if self._load < BUSY or not self._lost:
            return 0.0
        per_s = self._lost * math.exp((self._lost_ns - now) / MEMORY_NS) * 1e9 / MEMORY_NS
        share = min(1.0, per_s / max(rows_per_s, per_s))
        return share if share > LOST else 0.0


def shares(level: float, classes: frozenset[int]) -> tuple[int, ...]:
    """What a level means for each class from 0 on, in thousandths. A class that nobody asks for is like the next less
    important one that is, below all of them like the least."""
    if level <= 0.0 or not classes:
        return ()
    told: list[int] = []
    left = {number: level - place for place, number in enumerate(sorted(classes, reverse=True))}
    for number in range(max(classes) + 1):
        counted = min(c for c in classes if c >= number)
        told.append(round(FULL_PRESSURE * min(1.0, max(0.0, left[counted]))))
    return tuple(told) if any(told) else ()
