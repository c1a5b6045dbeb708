from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable

import pytest

from partitioner.costs.cost import Spread
from partitioner.costs.timing import BLOCK, Pace, Samples, quantile, sample_at, stable, time_warm


class World:
    """A clock that only jobs and sleep move, and a system that takes the processor away when a job says so."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.worked_ns = 0
        self.taken = 0
        self.starts: list[tuple[str, int]] = []

    def pace(self, cadence_hz: float) -> Pace:
        return Pace(cadence_hz, lambda: self.now_ns, lambda: self.worked_ns, self.sleep, lambda: self.taken)

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def job(self, name: str, times_us: Iterable[float], away_us: Iterable[float] = ()) -> Callable[[], None]:
        """A job that works for these times, while the processor is away for those."""
        times = iter(times_us)
        away = itertools.chain(away_us, itertools.repeat(0.0))

        def run() -> None:
            self.starts.append((name, self.now_ns))
            worked_us, away_us = next(times), next(away)
            self.now_ns += round((worked_us + away_us) * 1000)
            self.worked_ns += round(worked_us * 1000)
            self.taken += away_us > 0

        return run


def test_jobs_run_once_a_period() -> None:
    world = World()
    sample_at(world.pace(10.0), [{"a": world.job("a", itertools.repeat(2000.0))}], 1.0, Samples())
    starts = [at for _, at in world.starts[1:]]
    assert {later - earlier for earlier, later in itertools.pairwise(starts[: BLOCK + 1])} == {100_000_000}


def test_jobs_of_a_group_share_a_period() -> None:
    world = World()
    group = {name: world.job(name, itertools.repeat(1000.0)) for name in ("a", "b")}
    sample_at(world.pace(10.0), [group], 0.0, Samples())
    timed = world.starts[2:]
    assert [name for name, _ in timed[:4]] == ["a", "b", "a", "b"]
    assert timed[1][1] - timed[0][1] == 1_000_000
    assert timed[2][1] - timed[0][1] == 100_000_000


def test_the_first_run_of_a_block_does_not_count() -> None:
    world = World()
    times = itertools.chain([5.0], itertools.cycle([9000.0] + [1000.0] * BLOCK))
    samples: Samples[str] = Samples()
    sample_at(world.pace(30.0), [{"a": world.job("a", times)}], 2.0, samples)
    assert samples.spreads() == {"a": Spread(1000.0, 1000.0)}


def test_every_job_gets_a_block_even_without_time() -> None:
    world = World()
    groups = [{name: world.job(name, itertools.repeat(time_us))} for name, time_us in (("a", 100.0), ("b", 300.0))]
    samples: Samples[str] = Samples()
    sample_at(world.pace(30.0), groups, 0.0, samples)
    assert (samples.spreads()["a"].p50_us, samples.spreads()["b"].p50_us) == (100.0, 300.0)
    assert len(world.starts) == 2 * (1 + BLOCK + 1)


def test_a_job_that_stands_still_is_left_alone() -> None:
    world = World()
    sample_at(world.pace(30.0), [{"a": world.job("a", itertools.repeat(100.0))}], 1e6, Samples())
    assert len(world.starts) < 100


def test_a_run_from_which_the_processor_was_taken_counts_with_its_work() -> None:
    world = World()
    away = itertools.cycle([0.0, 0.0, 8000.0])
    samples: Samples[str] = Samples()
    sample_at(world.pace(30.0), [{"a": world.job("a", itertools.repeat(1000.0), away)}], 0.0, samples)
    assert samples.spreads() == {"a": Spread(1000.0, 1000.0)}
    assert 0.2 < samples.disturbed_share < 0.5


def test_with_several_threads_the_clock_counts() -> None:
    world = World()
    pace = dataclasses.replace(world.pace(30.0), work_ns=None)
    samples: Samples[str] = Samples()
    job = world.job("a", itertools.repeat(1000.0), itertools.repeat(500.0))
    sample_at(pace, [{"a": job}], 0.0, samples)
    assert samples.spreads()["a"].p50_us == 1500.0


def test_a_job_that_drifts_is_not_stable() -> None:
    assert stable([100.0] * 48)
    assert not stable([100.0] * 24 + [110.0] * 24)
    assert not stable([100.0] * 10)


def test_quantiles_are_linear_between_ranks() -> None:
    assert quantile([float(i) for i in range(101)], 0.99) == 99.0
    assert quantile([3.0, 1.0], 0.5) == 2.0
    assert quantile([7.0], 0.99) == 7.0


def test_the_tail_is_shared_by_all_jobs() -> None:
    calm, hit = [1000.0] * 50, [2000.0] * 48 + [3000.0] * 2
    times = Samples({"calm": calm, "hit": hit, "tiny": [10.0] * 49 + [900.0]}).spreads()
    assert times["calm"] == Spread(1000.0, 1500.0)
    assert times["hit"] == Spread(2000.0, 3000.0)
    assert times["tiny"] == Spread(10.0, 15.0)


def test_warm_time_is_the_least_after_the_first() -> None:
    world = World()
    job = world.job("a", [1.0, 50.0, 30.0, 40.0])
    assert time_warm(job, 3, lambda: world.now_ns) == pytest.approx(30.0)
