"""Two hundred seeds of everything that can go wrong, every step of each held against the rules of docs/testing.md.

The seeds are spread over all cores. One seed of each batch is run twice, as a rule in two processes, whose sets have
different orders: the traces must be equal.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor

import pytest

from hil.sim.checks_many import Task, Verdict, judge

SEEDS, BATCH, REQUESTS = 200, 20, 1000
SHRINK_S = 20.0


@pytest.fixture(scope="module")
def cores() -> Generator[ProcessPoolExecutor, None, None]:
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_no_rule_is_broken_whatever_goes_wrong(cores: ProcessPoolExecutor, first: int) -> None:
    tasks = [Task(seed, "mixed", REQUESTS, SHRINK_S) for seed in range(first, first + BATCH)]
    verdicts: list[Verdict] = list(cores.map(judge, [*tasks, tasks[0]]))

    told = [v.breach.told for v in verdicts if v.breach is not None]
    assert not told, "\n\n".join(told)
    assert sum(v.requests for v in verdicts) > BATCH * REQUESTS // 2
    assert verdicts[0].digest == verdicts[-1].digest
