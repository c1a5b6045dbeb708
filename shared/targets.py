"""How many rows the launches of a group must have on average for the executors to keep up with what is offered.

A request at the head of its queue that has little time left allows only a small batch. Serving it costs the executors a
launch of few rows, and when they have no time to spare, more than one request behind it. Nexus (Shen and others, SOSP 2019)
drops such a head where it would make the batch smaller than one that is aimed at. What to aim at decides how good that is:
too large an aim drops what could be served, too small a one makes launches that are too small to keep up. No constant is
right for one model on many devices and for many models on few, so it is found from what is measured:

* the rate of each group, a decayed count, and the budget that its requests come with;
* one share of the budget for all groups of a class: the smallest at which launches that take that share of their budgets
  all but sustain all rates together, those of more important classes included. What is less important never counts.

While the executors keep up with launches of one row, the aim is one row and nothing is dropped before it is late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from shared.latency import Latency, WorkKey
from shared.plan import SegmentRange
from shared.queue import Job
from shared.room import Demand

MEMORY_NS = 1_000_000_000
"""The time in which a count decays to 1/e."""
LEAST_NS = 100_000_000
"""The least time over which a rate is taken: the first few requests tell nothing of it."""
EVERY_NS = 50_000_000
"""How often the aims are found anew."""
STEPS = 16
"""In how many parts a budget is divided to look for the share."""
MOST = 14
"""The largest share that is aimed at, in such parts: requests come at random, and an aim of the whole budget drops
nearly all."""
FULL = 1.05
"""Up to this load, in parts of the executors, rates count as sustained: what is aimed at is the least of a launch, and most
launches are larger. An aim at which the load is 1 drops more than it gains."""
CHOICE = 0.2
"""The load may be so much above that, times the chance that two launches are of different groups: where there are others to
go on with, those that would make launches too small may wait for their turn (`shared.overload`)."""
FORGOTTEN_NS = 10 * MEMORY_NS
"""What has not come for so long is forgotten."""
SILENT = 5.0
"""A kind of work is still expected for so many of its usual gaps after the last, a second at least, so many seconds at
most."""

NO_CLASS = 1 << 30
"""Less important than any."""

Kind = tuple[int, str, SegmentRange]
"""Class, contract and range: what has a target."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The device time that is asked for, in parts of what all executors have. `least` is that less its own uncertainty, one
    standard deviation of counts that come at random. `rows_per_s` come; `classes` are those that they are of."""

    load: float
    least: float
    rows_per_s: float
    classes: frozenset[int]


class _Offered(msgspec.Struct, gc=False):
    key: WorkKey
    rows: float = 0.0
    budget_ns: float = 0.0
    """Sum over the rows, decayed likewise."""
    at_ns: int = 0
    target: int = 1

    @property
    def expected_ns(self) -> int:
        """Until when more is expected."""
        return self.at_ns + int(MEMORY_NS * max(1.0, SILENT / self.rows))


class Targets:
    """Rates and targets of one process. Pure: `now` is nanoseconds and never falls."""

    def __init__(self, executors: int, latency: Latency, max_rows: Mapping[str, int]) -> None:
        """`max_rows`: the largest launch by contract."""
        self._executors = executors
        self._latency = latency
        self._max_rows = max_rows
        self._offered: dict[Kind, _Offered] = {}
        self._since_ns = -1
        self.due_ns = 0
        """When `find` should be called again."""
        self.first = NO_CLASS
        """The most important class of which anything comes."""
        self.aims = False
        """Whether any target is above 1."""

    def came(self, job: Job, now: int) -> None:
        """A request came."""
        kind = (job.priority, job.contract, job.range)
        offered = self._offered.get(kind)
        if offered is None:
            if self._since_ns < 0:
                self._since_ns = now
            offered = self._offered[kind] = _Offered(job.key, at_ns=now)
            self.first = min(self.first, job.priority)
        rows = job.row.rows
        fade = math.exp((offered.at_ns - now) / MEMORY_NS)
        offered.rows = offered.rows * fade + rows
        offered.budget_ns = offered.budget_ns * fade + rows * (job.deadline_ns - now)
        offered.at_ns = now
        offered.key = job.key

    def of(self, job: Job) -> int:
        """The rows to aim at for jobs of this kind; 1 where nothing is known."""
        offered = self._offered.get((job.priority, job.contract, job.range))
        return 1 if offered is None else offered.target

    def demands(self, level: int, now: int) -> list[Demand]:
        """What comes of classes that are more important than this one."""
        found: list[Demand] = []
        for kind, offered in self._offered.items():
            if kind[0] >= level or now > offered.expected_ns:
                continue
            budget = offered.budget_ns / max(offered.rows, 1e-9)
            rows = self._rows(offered, 0.5)
            takes = self._latency.pessimistic(offered.key, rows)
            first = self._latency.pessimistic(offered.key, 1)
            if takes >= budget:
                rows, takes = 1, first
            if takes >= budget:
                continue  # nothing would be in time anyhow
            found.append(Demand(self._per_ns(offered, now), first, takes / rows, budget - takes))
        return found

    def _per_ns(self, offered: _Offered, now: int) -> float:
        over = MEMORY_NS * (1.0 - math.exp((self._since_ns - now) / MEMORY_NS))
        return offered.rows * math.exp((offered.at_ns - now) / MEMORY_NS) / max(over, LEAST_NS)

    def asked(self, now: int) -> Asked:
        """How much device time all that comes takes at the least. Where `n` executors begin in turn, a row waits for an nth
        of a launch before its own, so that a launch may take n / (n + 1) of the budget."""
        share = self._executors / (self._executors + 1)
        load = variance = rows_per_s = 0.0
        for offered in self._offered.values():
            rate = self._per_ns(offered, now)
            one = self._load([(offered, rate)], share) / self._executors
            load += one
            variance += one * one / (2.0 * max(1.0, offered.rows))
            rows_per_s += rate * 1e9
        return Asked(load, load - math.sqrt(variance), rows_per_s, frozenset(kind[0] for kind in self._offered))

    def find(self, now: int) -> bool:
        """Find all targets anew; whether any is another."""
        self.due_ns = now + EVERY_NS
        rates = {kind: self._per_ns(offered, now) for kind, offered in self._offered.items()}
        used, changed = 0.0, False
        self.aims = False
        for level in sorted({kind[0] for kind in rates}):
            own = [(self._offered[kind], rate) for kind, rate in rates.items() if kind[0] == level]
            most = (FULL + CHOICE * self._choice(own)) * self._executors - used
            low, high = 1, MOST
            while low < high:
                middle = (low + high) // 2
                if self._load(own, middle / STEPS) <= most:
                    high = middle
                else:
                    low = middle + 1
            used += self._load(own, low / STEPS)
            for offered, _ in own:
                target = self._rows(offered, low / STEPS)
                changed = changed or target != offered.target
                offered.target = target
                self.aims = self.aims or offered.target > 1
        for kind in rates:
            if now > self._offered[kind].expected_ns + FORGOTTEN_NS:
                del self._offered[kind]
        self.first = min([kind[0] for kind in self._offered], default=NO_CLASS)
        return changed

    def _choice(self, offered: list[tuple[_Offered, float]]) -> float:
        """The chance that two launches are of different groups."""
        loads = [rate * self._latency.typical(one.key) for one, rate in offered]
        return 1.0 - sum([load * load for load in loads]) / max(sum(loads) ** 2, 1e-9)

    def _load(self, offered: list[tuple[_Offered, float]], share: float) -> float:
        """How many executors these rates keep busy, with launches that take this share of their budgets."""
        load = 0.0
        for one, rate in offered:
            rows = self._rows(one, share)
            load += rate * self._latency.typical(one.key, rows) / rows
        return load

    def _rows(self, offered: _Offered, share: float) -> int:
        budget = share * offered.budget_ns / max(offered.rows, 1e-9)
        return self._latency.best_rows(offered.key, int(budget), self._max_rows[offered.key.contract])
