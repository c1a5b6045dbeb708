"""Phases as data, their accounts, and the rules of the verdict, each seen to fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hil.lateness import LatenessFigures
from hil.ledger import Entry
from hil.phases import LinkShape, demo_phases, worth_repeating
from hil.results import PhaseResult, summarise
from hil.verdict import judge

MS = 1_000_000
PHASES = demo_phases(300, LinkShape(200, 2), LinkShape(20, 6))


def entries(count: int, cloud: int, misses: int = 0) -> list[Entry]:
    """`count` frames, of which the first `cloud` are answered by the cloud and the last `misses` by nobody."""
    made: list[Entry] = []
    for number in range(count):
        due = number * 33 * MS
        if number >= count - misses:
            made.append(Entry(due, "missed", 10 * MS, detail="agent"))
        elif number < cloud:
            made.append(Entry(due, "on_time", 5 * MS, "cloud", "whole", "exact"))
        else:
            made.append(Entry(due, "on_time", 8 * MS, "edge", "res-128", "rung(res-128, 0.9)"))
    return made


def result(name: str, cloud: int = 0, misses: int = 0) -> PhaseResult:
    phase = next(phase for phase in PHASES if phase.name == name)
    return summarise(phase, entries(300, cloud, misses), 10.0, 0, (), LatenessFigures(), False)


CLOUD = {"good-link": 300, "one-node-killed": 290, "nodes-back": 300, "forced-split": 280}


def all_results() -> list[PhaseResult]:
    return [result(phase.name, CLOUD.get(phase.name, 0)) for phase in PHASES]


def broken(results: list[PhaseResult]) -> set[str]:
    verdict = judge(results)
    assert verdict.holds == all(rule.holds for rule in verdict.rules)
    return {rule.phase for rule in verdict.rules if not rule.holds}


def replaced(name: str, new: PhaseResult) -> list[PhaseResult]:
    return [new if old.name == name else old for old in all_results()]


def test_the_demo_has_controls_before_between_and_after_and_every_fault() -> None:
    kinds = [phase.kind for phase in PHASES]
    assert kinds[0] == kinds[-1] == "control"
    assert kinds.count("control") >= 3
    assert set(kinds) == {"control", "good", "slow", "stalled", "one-killed", "both-killed", "nodes-back", "split"}
    assert all(phase.agent == "control" for phase in PHASES if phase.kind == "control")
    assert all(0 <= fault.frame < phase.frames for phase in PHASES for fault in phase.faults)
    stall, resume = next(phase for phase in PHASES if phase.kind == "stalled").faults
    assert resume.frame - stall.frame > 150


def test_frames_are_the_sum_of_the_outcomes() -> None:
    made = entries(100, 40, misses=3)
    made[50] = Entry(made[50].due_ns, "late", 11 * MS, "edge", "res-128", "rung(res-128, 0.9)")
    made[51] = Entry(made[51].due_ns, "rejected", 0, detail="overload")
    made[52] = Entry(made[52].due_ns, "superseded", 0)
    summary = summarise(PHASES[1], made, 10.0, 0, ((5 * MS, "something"),), LatenessFigures(p99_ms=0.5), False)
    assert (summary.on_time, summary.late, summary.missed, summary.rejected, summary.superseded) == (94, 1, 3, 1, 1)
    assert summary.adds_up
    assert summary.by_source == {"cloud": 40, "edge": 55}
    assert summary.by_rung == {"res-128": 55, "whole": 40}
    assert summary.misses == {"agent": 3, "overload": 1}
    assert (summary.p50_ms, summary.p99_ms) == (8.0, 11.0)
    assert summary.machine_lateness_p99_ms == 0.5
    assert summary.faults == ((5.0, "something"),)
    assert len(summary.timeline) == 100
    assert summary.cloud_on_time == 0.4
    assert summary.cloud_on_time_last_half == 0.0


def test_a_lost_frame_does_not_add_up() -> None:
    made = entries(100, 40)
    made[7] = Entry(made[7].due_ns, "lost")
    summary = summarise(PHASES[1], made, 10.0, 0, (), LatenessFigures(), False)
    assert summary.lost == 1
    assert not summary.adds_up
    assert summary.timeline[7].latency_ms is None


def test_all_rules_hold_where_every_phase_does_its_part() -> None:
    verdict = judge(all_results())
    assert verdict.holds, [rule for rule in verdict.rules if not rule.holds]


@pytest.mark.parametrize(
    ("name", "cloud"), [("good-link", 284), ("one-node-killed", 269), ("nodes-back", 284), ("forced-split", 149)]
)
def test_too_little_by_the_cloud_breaks_the_phase_s_rule(name: str, cloud: int) -> None:
    assert broken(replaced(name, result(name, cloud))) == {name}


def test_one_answer_by_the_cloud_with_both_nodes_killed_breaks_the_rule() -> None:
    assert broken(replaced("both-killed", result("both-killed", cloud=1))) == {"both-killed"}


def test_a_phase_may_be_one_point_below_the_worse_neighbouring_control_and_no_more() -> None:
    assert broken(replaced("slow-link", result("slow-link", misses=3))) == set()
    assert broken(replaced("slow-link", result("slow-link", misses=4))) == {"slow-link"}
    results = replaced("slow-link", result("slow-link", misses=7))
    results[4] = result("control-between", misses=4)
    assert broken(results) == set()
    results[4] = result("control-between")
    results[-1] = result("control-after", misses=4)
    assert broken(results) == {"slow-link"}


@pytest.mark.parametrize("field", ["duplicated", "wrong", "lost"])
def test_one_lost_duplicated_or_wrong_answer_breaks_the_verdict(field: str) -> None:
    changed = replace(result("good-link", 300), **{field: 1})
    assert "" in broken(replaced("good-link", changed))


def test_no_phases_are_no_success() -> None:
    assert not judge([]).holds


def test_only_a_stalled_machine_repeats_a_phase_and_only_while_time_allows() -> None:
    assert not worth_repeating(stalled=False, held=False, spare_phases=5)
    assert not worth_repeating(stalled=True, held=False, spare_phases=0)
    assert worth_repeating(stalled=True, held=False, spare_phases=1)
    assert not worth_repeating(stalled=True, held=True, spare_phases=1)
    assert worth_repeating(stalled=True, held=True, spare_phases=2)
