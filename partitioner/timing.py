"""How long work takes at the pace at which it will be asked for.

Run back to back, a network finds its weights in the caches; at thirty frames a second it does not, and takes a third
longer. So every job is run once a period, with nothing between but sleep, in blocks of one job, and the first run of a
block is thrown away, since another job was before it. Blocks of all jobs take turns, so that a disturbance of some seconds
falls on all of them alike. Timing goes on until a job's middle stands still or its share of the time is used up.

p99 is pooled: each run's excess over its job's middle, as a share of it, from all jobs together. One job's 99th percentile
from thirty runs is its slowest run, and ways would be ranked by who was hit by the machine's noise. On a processor without
other load, what jitters is the machine and not the network.

The clock and the sleep are passed in, so that the rules are tested without time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from partitioner.cost import Spread

Key = TypeVar("Key", bound=Hashable)
Job = Callable[[], object]

BLOCK = 8
STABLE_RUNS = 48
STABLE_SHARE = 0.02
POOLED_US = 200.0
NS_PER_US = 1000.0


def time_at_cadence(
    jobs: Mapping[Key, Job],
    cadence_hz: float,
    budget_s: float,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
    sleep_s: Callable[[float], None] = time.sleep,
) -> dict[Key, Spread]:
    """Time of each job in microseconds, run once a period of `1 / cadence_hz` seconds.

    All jobs together take about `budget_s`, and each gets at least one block.
    """
    runs: dict[Key, list[float]] = {key: [] for key in jobs}
    for job in jobs.values():
        job()
    period_ns = 1e9 / cadence_hz
    end_ns = clock_ns() + budget_s * 1e9
    open_keys = list(jobs)
    while open_keys:
        for key in open_keys:
            runs[key].extend(_block(jobs[key], period_ns, clock_ns, sleep_s))
        if clock_ns() >= end_ns:
            break
        open_keys = [key for key in open_keys if not stable(runs[key])]
    return pooled(runs)


def pooled(runs: Mapping[Key, list[float]]) -> dict[Key, Spread]:
    """Middle of each job's runs, and its p99 by the excess of all jobs that take `POOLED_US` or more (of all, where none
    does): quicker ones are shaken by the clock itself."""
    middles = {key: statistics.median(samples) for key, samples in runs.items()}
    ample = [key for key in runs if middles[key] >= POOLED_US] or list(runs)
    ratios = [sample / max(middles[key], 1e-3) for key in ample for sample in runs[key]]
    excess = max(1.0, quantile(ratios, 0.99)) if ratios else 1.0
    return {key: Spread(middle, middle * excess) for key, middle in middles.items()}


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


def _block(job: Job, period_ns: float, clock_ns: Callable[[], int], sleep_s: Callable[[float], None]) -> list[float]:
    samples: list[float] = []
    due_ns = float(clock_ns())
    for index in range(BLOCK + 1):
        due_ns += period_ns
        wait_ns = due_ns - clock_ns()
        if wait_ns > 0:
            sleep_s(wait_ns / 1e9)
        start_ns = clock_ns()
        job()
        if index > 0:
            samples.append((clock_ns() - start_ns) / NS_PER_US)
    return samples
