"""The simulator's world: one seed is one run, nothing is lost in the world itself, and every kind of trouble occurs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import msgspec
import pytest

from hil.journals import journal
from hil.sim.author import write
from hil.sim.play import Blind, Run, play, record, run
from hil.sim.scenario import SCENARIOS
from hil.sim.script import Ask, Fault, FaultKind, Script
from shared.journal.replay import verify

SCRIPT = "from hil.sim.play import *; from hil.sim.scenario import *; print(run(11, SCENARIOS['mixed'], Blind(), 150).digest)"
OUTCOMES = ("Answer-edge", "Answer-cloud", "late-edge", "late-cloud", "Missed", "Rejected", "Superseded")


def with_faults(seed: int, *faults: Fault, requests: int = 200, scenario: str = "calm") -> Script:
    script = write(seed, SCENARIOS[scenario], requests)
    end = max(script.end, *(fault.at + fault.lasts_ns + 1 for fault in faults))
    return msgspec.structs.replace(script, items=(*script.items, *faults), end=end)


def ended(result: Run) -> int:
    return sum(result.counters.get(kind, 0) for kind in OUTCOMES)


@cache
def mixed_counts() -> Counter[str]:
    """What happened in some runs of the mixed scenario."""
    total: Counter[str] = Counter()
    for seed in range(48):
        total.update(run(seed, SCENARIOS["mixed"], Blind(), 200).counters)
    return total


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


@pytest.mark.parametrize("name", list(SCENARIOS))
def test_no_request_is_lost_in_the_world(name: str) -> None:
    for seed in range(5):
        result = run(seed, SCENARIOS[name], Blind(), 150)
        gone = result.counters.get("withdrawn", 0) + result.counters.get("died-waiting", 0)

        assert result.requests == ended(result) + gone


@pytest.mark.parametrize("kind", SCENARIOS["mixed"].faults)
def test_each_fault_occurs_in_the_mixed_scenario(kind: FaultKind) -> None:
    assert mixed_counts()[f"fault-{kind}"] > 0


@pytest.mark.parametrize(
    "what",
    [
        "lost",
        "doubled",
        "disordered",
        "very-late",
        "echoed",
        "damaged",
        "refused-by-codec",
        "lost-with-connection",
        "given-up",
        "refused-full",
        "refused-unconnected",
        "run-failed",
        "row-failed",
        "overran",
        "hung",
        "killed-for-hanging",
        "aborted",
        "aborted-too-late",
        "deferred",
        "withdrawn",
        "nobody-asked",
        "asked-late",
        "clock-jumped",
        "stream-opened",
        "Answer-edge",
        "Answer-cloud",
        "Missed",
        "Rejected",
        "Superseded",
    ],
)
def test_each_of_these_happens_in_the_mixed_scenario(what: str) -> None:
    assert mixed_counts()[what] > 0


def test_leaving_one_request_out_leaves_the_others_as_they_were() -> None:
    script = write(5, SCENARIOS["calm"], 200)
    asks = [i for i, item in enumerate(script.items) if isinstance(item, Ask)]
    whole = play(script, 5, Blind())
    fewer = play(script.without(frozenset(asks[:1])), 5, Blind())

    assert fewer.requests == whole.requests - 1
    assert ended(fewer) == fewer.requests


def test_an_agent_that_is_killed_loses_no_request_of_its_clients() -> None:
    script = write(1, SCENARIOS["calm"], 300)
    device = next(d for d in script.devices if not d.embedded)
    at = script.items[len(script.items) // 2].at
    result = play(with_faults(1, Fault(at, "kill", device.name, 50_000_000), requests=300), 1, Blind())

    assert result.counters["fault-kill"] == 1
    assert result.requests == ended(result)


def test_a_client_that_is_killed_takes_its_open_requests_with_it() -> None:
    script = write(1, SCENARIOS["calm"], 200)
    ask = next(item for item in script.items if isinstance(item, Ask))
    result = play(with_faults(1, Fault(ask.at + 100_000, "kill", ask.client, 50_000_000)), 1, Blind())

    assert result.counters["died-waiting"] >= 1
    assert result.requests == ended(result) + result.counters["died-waiting"]


def test_a_suspended_host_loses_no_time_on_its_own_clock() -> None:
    script = write(2, SCENARIOS["calm"], 200)
    device = script.devices[0]
    at = script.items[len(script.items) // 2].at
    result = play(with_faults(2, Fault(at, "suspend", device.name, 3_000_000_000)), 2, Blind())

    assert result.counters["clock-jumped"] >= 1
    assert result.requests == ended(result)


def test_a_trace_of_a_network_is_played_in_its_order() -> None:
    trace = tuple(range(1_000_000, 3_000_000, 1_000))

    assert all(road.times == trace for road in write(4, SCENARIOS["mixed"], 50, trace).roads)
    assert run(4, SCENARIOS["mixed"], Blind(), 100, trace) == run(4, SCENARIOS["mixed"], Blind(), 100, trace)
    assert run(4, SCENARIOS["mixed"], Blind(), 100, trace).digest != run(4, SCENARIOS["mixed"], Blind(), 100).digest


def test_the_journals_of_a_run_replay_exactly() -> None:
    scenario = msgspec.structs.replace(SCENARIOS["mixed"], standby=0.0)
    recorders = record(write(6, scenario, 100), 6, 10_000)

    assert recorders
    for recorder in recorders.values():
        assert not recorder.stopped
        assert verify(journal(recorder)) is None
