from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from partitioner.cost import Spread
from partitioner.timing import BLOCK, pooled, quantile, stable, time_at_cadence, time_warm


class World:
    """A clock that only jobs and sleep move."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.starts: list[tuple[str, int]] = []

    def clock(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)

    def job(self, name: str, times_us: Iterable[float]):  # type: ignore[no-untyped-def]
        times = iter(times_us)

        def run() -> None:
            self.starts.append((name, self.now_ns))
            self.now_ns += round(next(times) * 1000)

        return run


def test_jobs_run_once_a_period() -> None:
    world = World()
    jobs = {"a": world.job("a", itertools.repeat(2000.0))}
    time_at_cadence(jobs, 10.0, 1.0, world.clock, world.sleep)
    starts = [at for _, at in world.starts[1:]]
    assert {later - earlier for earlier, later in itertools.pairwise(starts[: BLOCK + 1])} == {100_000_000}


def test_the_first_run_of_a_block_does_not_count() -> None:
    world = World()
    times = itertools.cycle([9000.0] + [1000.0] * BLOCK)
    jobs = {"a": world.job("a", itertools.chain([5.0], times))}
    assert time_at_cadence(jobs, 30.0, 2.0, world.clock, world.sleep) == {"a": Spread(1000.0, 1000.0)}


def test_every_job_gets_a_block_even_without_time() -> None:
    world = World()
    jobs = {name: world.job(name, itertools.repeat(time_us)) for name, time_us in (("a", 100.0), ("b", 300.0))}
    times = time_at_cadence(jobs, 30.0, 0.0, world.clock, world.sleep)
    assert (times["a"].p50_us, times["b"].p50_us) == (100.0, 300.0)
    assert len(world.starts) == 2 * (1 + BLOCK + 1)


def test_a_job_that_stands_still_is_left_alone() -> None:
    world = World()
    jobs = {"a": world.job("a", itertools.repeat(100.0))}
    time_at_cadence(jobs, 30.0, 1e6, world.clock, world.sleep)
    assert len(world.starts) < 100


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
    times = pooled({"calm": calm, "hit": hit, "tiny": [10.0] * 49 + [900.0]})
    assert times["calm"] == Spread(1000.0, 1500.0)
    assert times["hit"] == Spread(2000.0, 3000.0)
    assert times["tiny"] == Spread(10.0, 15.0)


def test_warm_time_is_the_least_after_the_first() -> None:
    world = World()
    assert time_warm(world.job("a", [1.0, 50.0, 30.0, 40.0]), 3, world.clock) == pytest.approx(30.0)
