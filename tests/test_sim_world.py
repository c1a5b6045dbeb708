"""The simulator's world: one seed is one run, nothing is lost in the world itself, and every kind of trouble occurs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hil.sim.play import Blind, run
from hil.sim.scenario import SCENARIOS

SCRIPT = "from hil.sim.play import *; from hil.sim.scenario import *; print(run(11, SCENARIOS['mixed'], Blind(), 150).digest)"


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    scenario = SCENARIOS[name]

    assert run(3, scenario, Blind(), 150) == run(3, scenario, Blind(), 150)
    assert run(3, scenario, Blind(), 150).digest != run(4, scenario, Blind(), 150).digest


def test_a_run_does_not_depend_on_the_hash_seed_of_its_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(digests) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_calm_run_answers_everything_on_time(seed: int) -> None:
    result = run(seed, SCENARIOS["calm"], Blind(), 300)

    answered = result.counters.get("Answer-edge", 0) + result.counters.get("Answer-cloud", 0)
    assert (result.requests, answered) == (300, 300)
