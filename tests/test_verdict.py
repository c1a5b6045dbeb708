"""Phases as data, their accounts, and the rules of the verdict, each seen to fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hil.ledger import Entry
from hil.phases import Heat, LinkShape, demo_phases, repeats_to_keep, why_not_repeated
from hil.results import PhaseResult, summarise
from hil.verdict import NOT_JUDGED, judge
from shared.lateness import LatenessFigures

MS = 1_000_000
HEAT = Heat(1.6, ("small", "smaller"))
PHASES = demo_phases(300, LinkShape(200, 2), LinkShape(20, 6), HEAT)


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


def hot(usual: int = 0, misses: int = 0) -> PhaseResult:
    """The phase with a hot device, hot from frame 30 to 270: the usual rung still answers `usual` of those frames."""
    phase = next(phase for phase in PHASES if phase.kind == "hot")
    made = [
        Entry(entry.due_ns, entry.kind, entry.latency_ns, entry.source, "small", "rung(small, 0.6)")
        if 30 + usual <= number < 270 and entry.source
        else entry
        for number, entry in enumerate(entries(300, 0, misses))
    ]
    return summarise(phase, made, 10.0, 0, (), LatenessFigures(), False)


def result(name: str, cloud: int = 0, misses: int = 0) -> PhaseResult:
    phase = next(phase for phase in PHASES if phase.name == name)
    if phase.kind == "hot":
        return hot(misses=misses)
    return summarise(phase, entries(300, cloud, misses), 10.0, 0, (), LatenessFigures(), False)


CLOUD = {"good-link": 300, "one-node-killed": 290, "nodes-back": 300, "forced-split": 280}


def all_results() -> list[PhaseResult]:
    return [result(phase.name, CLOUD.get(phase.name, 0)) for phase in PHASES]


def broken(results: list[PhaseResult]) -> set[str]:
    verdict = judge(results)
    assert verdict.holds == all(rule.holds for rule in verdict.rules)
    assert (verdict.not_judged, verdict.too_noisy) == (0, False)
    return {rule.phase for rule in verdict.rules if not rule.holds}


def replaced(name: str, new: PhaseResult) -> list[PhaseResult]:
    return [new if old.name == name else old for old in all_results()]


def test_the_demo_has_controls_before_between_and_after_and_every_fault() -> None:
    kinds = [phase.kind for phase in PHASES]
    assert kinds[0] == kinds[-1] == "control"
    assert kinds.count("control") >= 3
    assert set(kinds) == {
        "control",
        "good",
        "slow",
        "stalled",
        "one-killed",
        "both-killed",
        "hot",
        "nodes-back",
        "split",
    }
    assert all(phase.agent == "control" for phase in PHASES if phase.kind == "control")
    assert all(0 <= fault.frame < phase.frames for phase in PHASES for fault in phase.faults)
    stall, resume = next(phase for phase in PHASES if phase.kind == "stalled").faults
    assert resume.frame - stall.frame > 150
    warm, cool = next(phase for phase in PHASES if phase.kind == "hot").faults
    assert (warm.times, cool.times) == (1.6, 1.0)
    assert cool.frame - warm.frame > 150


def test_without_heat_no_phase_is_hot() -> None:
    cold = demo_phases(300, LinkShape(200, 2), LinkShape(20, 6), None)
    assert [phase for phase in PHASES if phase.kind != "hot"] == list(cold)


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
    assert summary.whole_on_time == 0.4
    assert summary.whole_on_time_last_half == 0.0


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


def test_what_the_device_answers_by_the_whole_model_is_as_good_as_the_cloud_s_and_nothing_else_is() -> None:
    phase = next(phase for phase in PHASES if phase.kind == "good")
    for rung, breaks in (("whole", set()), ("res-128", {"good-link"})):
        made = [replace(entry, source="edge", rung=rung) for entry in entries(300, 300)]
        assert broken(replaced("good-link", summarise(phase, made, 10.0, 0, (), LatenessFigures(), False))) == breaks


def test_one_answer_by_the_cloud_with_both_nodes_killed_breaks_the_rule() -> None:
    assert broken(replaced("both-killed", result("both-killed", cloud=1))) == {"both-killed"}


def test_a_hot_device_has_to_answer_on_time_and_by_a_cheaper_rung() -> None:
    assert hot().cheaper_on_time == 1.0
    assert broken(replaced("hot-device", hot(usual=24))) == set()
    assert broken(replaced("hot-device", hot(usual=25))) == {"hot-device"}
    assert broken(replaced("hot-device", hot(misses=15))) == set()
    assert broken(replaced("hot-device", hot(misses=16))) == {"hot-device"}


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


def test_a_share_that_is_missed_while_the_machine_stalled_is_not_judged() -> None:
    stalled = replace(result("good-link", 200, misses=90), machine_stalled=True)
    verdict = judge(replaced("good-link", stalled))
    assert [rule.phase for rule in verdict.rules if not rule.judged] == ["good-link", "good-link"]
    assert {rule.word for rule in verdict.rules if rule.phase == "good-link"} == {NOT_JUDGED}
    assert verdict.holds
    assert verdict.not_judged == 2
    assert verdict.words == "every judged rule holds; 2 rules were not judged: the machine stalled"
    held = judge(replaced("good-link", replace(result("good-link", 300), machine_stalled=True)))
    assert (held.not_judged, held.words) == (0, "every rule holds")


@pytest.mark.parametrize("field", ["duplicated", "wrong", "lost"])
def test_a_stall_excuses_no_lost_duplicated_or_wrong_answer_nor_does_a_repeat(field: str) -> None:
    bad = replace(result("good-link", 300), machine_stalled=True, **{field: 1})
    assert not judge(replaced("good-link", bad)).holds
    repeated = replace(result("good-link", 300), repeated=True, first_try=bad)
    verdict = judge(replaced("good-link", repeated))
    assert not verdict.holds
    assert verdict.words == "a rule is BROKEN"


def test_a_stall_excuses_no_frame_without_outcome_and_no_answer_from_the_dead() -> None:
    unsound = replace(result("good-link", 300), machine_stalled=True, on_time=299)
    assert not judge(replaced("good-link", unsound)).holds
    assert not judge(replaced("both-killed", replace(result("both-killed", cloud=1), machine_stalled=True))).holds


def test_a_broken_rule_is_told_with_those_that_were_not_judged() -> None:
    results = replaced("good-link", replace(result("good-link", 100), machine_stalled=True))
    results[8] = result("forced-split", 10)
    verdict = judge(results)
    assert not verdict.holds
    assert verdict.words == "a rule is BROKEN; 1 rule was not judged: the machine stalled"


def test_a_machine_on_which_most_phases_cannot_be_judged_is_no_success() -> None:
    def noisy(count: int) -> list[PhaseResult]:
        names = [phase.name for phase in PHASES if phase.kind != "control"][:count]
        shaken = {name: replace(result(name, misses=200), machine_stalled=True) for name in names}
        return [shaken.get(one.name, one) for one in all_results()]

    assert judge(noisy(4)).holds
    verdict = judge(noisy(5))
    assert not verdict.holds
    assert verdict.too_noisy
    assert verdict.words.startswith(
        "this machine is too noisy to judge: it stalled in 5 of 8 phases; every judged rule"
    )


def test_a_control_in_which_the_machine_stalled_is_compared_with_as_measured_and_named() -> None:
    results = replaced("slow-link", result("slow-link", misses=7))
    results[4] = replace(result("control-between", misses=4), machine_stalled=True)
    verdict = judge(results)
    assert verdict.holds
    assert [rule.phase for rule in verdict.rules if "control, in which the machine stalled," in rule.expected] == [
        "good-link", "slow-link", "stalled-link", "one-node-killed", "both-killed", "nodes-back", "forced-split",
    ]  # fmt: skip


def test_marks_tell_a_stall_and_a_repeat() -> None:
    one = result("good-link", 300)
    marks = [replace(one, machine_stalled=a, repeated=b).marks for a in (False, True) for b in (False, True)]
    assert marks == ["", "repeated", "stalled", "stalled twice"]


def test_a_phase_that_broke_a_rule_goes_before_a_control_and_both_before_those_that_held() -> None:
    assert [repeats_to_keep(held, control, 6) for held in (False, True) for control in (False, True)] == [0, 1, 6, 6]
    assert repeats_to_keep(held=False, control=True, later_phases=0) == 0


def test_a_phase_is_repeated_while_time_allows_it_and_those_it_leaves_room_for() -> None:
    assert "no time" in why_not_repeated(spare_phases=0, kept_phases=0)
    assert "no time" in why_not_repeated(spare_phases=-1, kept_phases=3)
    assert "later phases" in why_not_repeated(spare_phases=2, kept_phases=2)
    assert why_not_repeated(spare_phases=3, kept_phases=2) == ""
    assert why_not_repeated(spare_phases=1, kept_phases=0) == ""
