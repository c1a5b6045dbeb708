"""How long work takes at the pace at which it will be asked for.

Run back to back, a network finds its weights in the caches; at thirty frames a second it does not, and takes a third
longer. So a job is run once a period, with nothing between but sleep, in blocks of one job, and the first run of a
block is thrown away, since another job was before it. Blocks of all jobs take turns, so that a disturbance of some seconds
falls on all of them alike. Jobs of one group (the codings of a cut, which follow a head or a receipt anyway) share a
period and run one after the other in it.

A run in which the system took the processor away for another process is not counted, as long as others are left: what a
compiler beside us takes is not the network's time. And p99 is pooled: the excess of each run over its job's middle, as
a share of it, from all jobs of the plan together. One job's 99th percentile from thirty runs is its slowest run, and ways
would be ranked by who was hit.

Clock, sleep and the count of such switches are passed in, so that the rules are tested without time.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from partitioner.cost import Spread

Key = TypeVar("Key", bound=Hashable)
Job = Callable[[], object]

BLOCK = 8
STABLE_RUNS = 48
STABLE_SHARE = 0.02
POOLED_US = 200.0
EXTRA_BLOCKS = 3
"""Blocks beyond its share that a job may take to get a block of undisturbed runs."""
NS_PER_US = 1000.0


def switches() -> int:
    """How often the system took the processor from this process for another one."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@dataclass(frozen=True, slots=True)
class Pace:
    """One run every `1 / cadence_hz` seconds, and what tells and passes the time."""

    cadence_hz: float
    clock_ns: Callable[[], int] = time.perf_counter_ns
    sleep_s: Callable[[float], None] = time.sleep
    switches: Callable[[], int] = switches


@dataclass(slots=True)
class Samples(Generic[Key]):
    """All runs so far, in microseconds, of all jobs of a plan. `clean` are those that were not disturbed."""

    clean: dict[Key, list[float]] = field(default_factory=dict[Key, list[float]])
    disturbed: dict[Key, list[float]] = field(default_factory=dict[Key, list[float]])

    def add(self, key: Key, time_us: float, *, clean: bool) -> None:
        """Take in one run."""
        (self.clean if clean else self.disturbed).setdefault(key, []).append(time_us)

    def of(self, key: Key) -> list[float]:
        """The runs that count: those undisturbed, or all where half a block of them is not there."""
        clean = self.clean.get(key, [])
        return clean if len(clean) >= BLOCK // 2 else clean + self.disturbed.get(key, [])

    @property
    def disturbed_share(self) -> float:
        """The share of runs that were disturbed."""
        bad = sum(len(runs) for runs in self.disturbed.values())
        return bad / max(1, bad + sum(len(runs) for runs in self.clean.values()))

    def spreads(self) -> dict[Key, Spread]:
        """Middle of each job's runs, and its p99 by the excess of all jobs that take `POOLED_US` or more (of all, where
        none does): quicker ones are shaken by the clock itself."""
        keys = list(dict.fromkeys([*self.clean, *self.disturbed]))
        middles = {key: statistics.median(self.of(key)) for key in keys}
        ample = [key for key in keys if middles[key] >= POOLED_US] or keys
        ratios = [run / max(middles[key], 1e-3) for key in ample for run in self.of(key)]
        excess = max(1.0, quantile(ratios, 0.99)) if ratios else 1.0
        return {key: Spread(middle, middle * excess) for key, middle in middles.items()}


def sample_at(pace: Pace, groups: Sequence[Mapping[Key, Job]], budget_s: float, into: Samples[Key]) -> None:
    """Run each group of jobs at this pace, about `budget_s` in all and at least one block each."""
    for group in groups:
        for job in group.values():
            job()
    end_ns = pace.clock_ns() + budget_s * 1e9
    extra = dict.fromkeys(range(len(groups)), EXTRA_BLOCKS)
    left = list(range(len(groups)))
    while left:
        for index in left:
            _block(pace, groups[index], into)
        if pace.clock_ns() < end_ns:
            left = [index for index in left if not all(stable(into.of(key)) for key in groups[index])]
            continue
        left = [index for index in left if extra[index] > 0 and _starved(groups[index], into)]
        for index in left:
            extra[index] -= 1


def time_warm(job: Job, runs: int, clock_ns: Callable[[], int] = time.perf_counter_ns) -> float:
    """Least time of a job in microseconds over some runs back to back, after one that is not counted."""
    job()
    best = float("inf")
    for _ in range(runs):
        start_ns = clock_ns()
        job()
        best = min(best, (clock_ns() - start_ns) / NS_PER_US)
    return best


def quantile(values: list[float], share: float) -> float:
    """A quantile, linear between ranks."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def stable(samples_us: list[float]) -> bool:
    """Whether enough runs were made and the middles of both halves are alike."""
    if len(samples_us) < STABLE_RUNS:
        return False
    half = len(samples_us) // 2
    first, second = statistics.median(samples_us[:half]), statistics.median(samples_us[half:])
    return abs(first - second) <= STABLE_SHARE * max(first, second)


def _starved(group: Mapping[Key, Job], samples: Samples[Key]) -> bool:
    return any(len(samples.clean.get(key, [])) < BLOCK // 2 for key in group)


def _block(pace: Pace, group: Mapping[Key, Job], into: Samples[Key]) -> None:
    period_ns = 1e9 / pace.cadence_hz
    due_ns = float(pace.clock_ns())
    for index in range(BLOCK + 1):
        due_ns += period_ns
        wait_ns = due_ns - pace.clock_ns()
        if wait_ns > 0:
            pace.sleep_s(wait_ns / 1e9)
        for key, job in group.items():
            before = pace.switches()
            start_ns = pace.clock_ns()
            job()
            time_us = (pace.clock_ns() - start_ns) / NS_PER_US
            if index > 0:
                into.add(key, time_us, clean=pace.switches() == before)
