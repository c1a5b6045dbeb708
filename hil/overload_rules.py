"""What becomes of twice the highest rate: what five runs are held against. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cloud.launches import LaunchCount
from hil.load.figures import Figures
from hil.load.search import Found
from hil.load.source import Source
from hil.timed_device import Device

DEVICE = Device("served", 1.053, 5.072, 32)
"""A ResNet-50 on a GTX 1080 Ti, as it is often taken to compare schedulers."""

SOURCE = Source(name="load", deadline_ms=25.0, priority=1, rate_per_s=100.0, process="poisson")
SHARE = 0.99
RUNS = 5
TIMES = 2.0
MOST_FALL = 0.1
MOST_WASTED = 0.001
"""Of the rows that a node executes, those that come too late, where the machine did not stand still."""


WORDS = ("refused-expired", "refused-overload", "unwanted-rows", "overdue")


class Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stretch on a node of its own. `figures` are of what counts, after the warm-up. `executed`: rows that the node ran
    by its own count, from its start on; `on_time`: those of them that were answered on time by the load generator's;
    `held_up`: late ones during which the machine stood still. `words`: what the node counted beside. `overdue`: requests of
    which there was no word by the deadline, not counting those during which the machine stood still. `why`: the load
    generator was the bottleneck."""

    rate_per_s: float
    figures: Figures
    executed: int
    on_time: int
    held_up: int
    overdue: int
    words: dict[str, int]
    node_busy: float
    why: str

    @property
    def wasted(self) -> int:
        """Rows that were executed for nothing, where the machine did not stand still."""
        return max(0, self.executed - self.on_time - self.held_up)


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run: the highest rate, and twice that."""

    at: Side
    beyond: Side

    @property
    def fall(self) -> float:
        """By what share fewer requests a second were on time; below 0 where more were."""
        return 1.0 - self.beyond.figures.on_time_per_s / max(self.at.figures.on_time_per_s, 1e-9)

    @property
    def broken(self) -> tuple[str, ...]:
        """Which limits it does not keep, in words."""
        found: list[str] = []
        if self.fall >= MOST_FALL:
            found.append(f"goodput falls by {self.fall:.1%}")
        if self.beyond.wasted > MOST_WASTED * self.beyond.executed:
            found.append(f"{self.beyond.wasted} of {self.beyond.executed} rows were executed for nothing")
        if self.beyond.overdue:
            found.append(f"no word of {self.beyond.overdue} requests by the deadline")
        return tuple(found)

    @property
    def why(self) -> str:
        """Why it is not judged; empty where it is."""
        return self.at.why or self.beyond.why


class Overload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The search for the highest rate, and the runs."""

    found: Found
    pairs: tuple[Pair, ...]

    @property
    def holds(self) -> bool:
        """Whether every run was judged and keeps the limits."""
        return bool(self.pairs) and not any(pair.why or pair.broken for pair in self.pairs)


def executed_rows(launches: Sequence[LaunchCount]) -> int:
    """Rows that a node has run to their end, by its own count of launches."""
    return sum(launch.rows * launch.count for launch in launches)


def told(counters: Mapping[str, int]) -> dict[str, int]:
    """What a node counted of what is of interest here."""
    return {word: counters[word] for word in WORDS if counters.get(word)}
