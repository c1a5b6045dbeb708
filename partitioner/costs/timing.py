"""How long work takes at the pace at which it will be asked for.

Run back to back, a network finds its weights in the caches; at thirty frames a second it does not, and takes a third
longer. So a job is run once a period, with nothing between but sleep, in blocks of one job, and the first run of a
block is thrown away, since another job was before it. Blocks of all jobs take turns, so that a disturbance of some seconds
falls on all of them alike. Jobs of one group (the codings of a cut, which follow a head or a receipt anyway) share a
period and run one after the other in it.

Where the system took the processor away during a run to give it to another process, the run counts with the processor's
time and not with the clock's: what a compiler beside us takes is not the network's time. (With several threads the
processor's time says little, and the clock's is kept.) And p99 is pooled: the excess of each run over its job's middle, as a
share of it, from all jobs of the plan together. One job's 99th percentile from thirty runs is its slowest run, and ways
would be ranked by who was hit.

Clocks, sleep and the count of such switches are passed in, so that the rules are tested without time.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from partitioner.costs.cost import Spread

Key = TypeVar("Key", bound=Hashable)
Job = Callable[[], object]

BLOCK = 8
STABLE_RUNS = 48
STABLE_SHARE = 0.02
POOLED_US = 200.0
NS_PER_US = 1000.0


def switches() -> int:
    """How often the system took the processor from this process for another one."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@dataclass(frozen=True, slots=True)
class Pace:
    """One run every `1 / cadence_hz` seconds, and what tells and passes the time. `work_ns` is the processor time of the
    running thread, None where several threads work."""

    cadence_hz: float
    clock_ns: Callable[[], int] = time.perf_counter_ns
    work_ns: Callable[[], int] | None = time.thread_time_ns
    sleep_s: Callable[[float], None] = time.sleep
    switches: Callable[[], int] = switches

    @classmethod
    def of(cls, cadence_hz: float, threads: int) -> Pace:
        """A pace in real time for jobs of so many threads."""
        return cls(cadence_hz, work_ns=time.thread_time_ns if threads == 1 else None)


@dataclass(slots=True)
class Samples(Generic[Key]):
    """All runs so far, in microseconds, of all jobs of a plan, and how many of them were `disturbed`."""

    runs: dict[Key, list[float]] = field(default_factory=dict[Key, list[float]])
    disturbed: int = 0

    def add(self, key: Key, time_us: float, *, disturbed: bool) -> None:
        """Take in one run."""
        self.runs.setdefault(key, []).append(time_us)
        self.disturbed += disturbed

    @property
    def disturbed_share(self) -> float:
        """The share of runs that were disturbed."""
        return self.disturbed / max(1, sum(len(runs) for runs in self.runs.values()))

    def spreads(self) -> dict[Key, Spread]:
        """Middle of each job's runs, and its p99 by the excess of all jobs that take `POOLED_US` or more (of all, where
        none does): quicker ones are shaken by the clock itself."""
        middles = {key: statistics.median(runs) for key, runs in self.runs.items()}
        ample = [key for key in middles if middles[key] >= POOLED_US] or list(middles)
        ratios = [run / max(middles[key], 1e-3) for key in ample for run in self.runs[key]]
        excess = max(1.0, quantile(ratios, 0.99)) if ratios else 1.0
        return {key: Spread(middle, middle * excess) for key, middle in middles.items()}


def sample_at(pace: Pace, groups: Sequence[Mapping[Key, Job]], budget_s: float, into: Samples[Key]) -> None:
    """Run each group of jobs at this pace, about `budget_s` in all and at least one block each."""
    for group in groups:
        for job in group.values():
            job()
    end_ns = pace.clock_ns() + budget_s * 1e9
    left = list(groups)
    while left:
        for group in left:
            _block(pace, group, into)
        if pace.clock_ns() >= end_ns:
            return
        left = [group for group in left if not all(stable(into.runs[key]) for key in group)]


def time_warm(job: Job, runs: int, clock_ns: Callable[[], int] = time.thread_time_ns) -> float:
    """Least time of a job in microseconds over some runs back to back, after one that is not counted. By default the
    processor's time of this thread; give a clock where a job has several."""
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


def _block(pace: Pace, group: Mapping[Key, Job], into: Samples[Key]) -> None:
    period_ns = 1e9 / pace.cadence_hz
    due_ns = float(pace.clock_ns())
    for index in range(BLOCK + 1):
        due_ns += period_ns
        wait_ns = due_ns - pace.clock_ns()
        if wait_ns > 0:
            pace.sleep_s(wait_ns / 1e9)
        for key, job in group.items():
            time_us, disturbed = _run(pace, job)
            if index > 0:
                into.add(key, time_us, disturbed=disturbed)


def _run(pace: Pace, job: Job) -> tuple[float, bool]:
    """Microseconds of one run, and whether the processor was taken away in it."""
    before = pace.switches()
    work_ns = pace.work_ns() if pace.work_ns else 0
    start_ns = pace.clock_ns()
    job()
    elapsed_ns = pace.clock_ns() - start_ns
    if pace.work_ns:
        work_ns = pace.work_ns() - work_ns
    disturbed = pace.switches() != before
    return (work_ns if disturbed and pace.work_ns else elapsed_ns) / NS_PER_US, disturbed
