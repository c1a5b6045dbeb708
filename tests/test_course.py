"""Which phases of the demo's course are played once more, on a scripted rig: no processes, no time."""

from __future__ import annotations

import time
from typing import cast

from msgspec.structs import replace
from test_verdict import CLOUD, PHASES, result

from edge.client import Client
from hil.course import Course, Plans
from hil.demo_settings import DemoSettings
from hil.phases import Phase
from hil.plant import Plant
from hil.results import PhaseResult
from hil.rig import Rig

LONG_S = 1e6


class StillRig:
    """A rig whose processes are always there; remembers what was restored."""

    def __init__(self) -> None:
        self.restored: list[str] = []

    def check(self) -> None:
        """Everything lives."""

    def restore(self, phase: Phase) -> None:
        """Remember it."""
        self.restored.append(phase.name)


class Scripted(Course):
    """Plays nothing: each phase goes as it is written in `tries`, the last try again and again, else as it should."""

    def __init__(self, rig: StillRig, tries: dict[str, list[PhaseResult]]) -> None:
        super().__init__(cast(Rig, rig), DemoSettings(), Plans("main", "split"), (), {}, lambda *_: None)
        self.tries = tries
        self.played: list[str] = []

    def _play(self, phase: Phase, deadline_ms: float, plant: Plant | None) -> PhaseResult:
        self.played.append(phase.name)
        left = self.tries.get(phase.name, [])
        if not left:
            return result(phase.name, CLOUD.get(phase.name, 0))
        return left.pop(0) if len(left) > 1 else left[0]

    def _recover(self, phase: Phase, deadline_ms: float) -> None:
        pass


def play(tries: dict[str, list[PhaseResult]], seconds: float) -> tuple[Scripted, dict[str, PhaseResult], StillRig]:
    rig = StillRig()
    course = Scripted(rig, tries)
    results = course.play_all(PHASES, 10.0, 20.0, None, time.monotonic() + seconds)
    assert [one.name for one in results] == [phase.name for phase in PHASES]
    return course, {one.name: one for one in results}, rig


def stalled(name: str, cloud: int = 0, misses: int = 0) -> PhaseResult:
    return replace(result(name, cloud, misses), machine_stalled=True)


def test_a_phase_in_which_the_machine_stalled_is_restored_and_played_once_more_and_no_oftener() -> None:
    course, results, rig = play({"one-node-killed": [stalled("one-node-killed", 100)]}, LONG_S)
    again = results["one-node-killed"]
    assert course.played.count("one-node-killed") == 2
    assert rig.restored == ["one-node-killed"]
    assert (again.repeated, again.not_repeated_because, again.marks) == (True, "", "stalled twice")
    assert again.first_try is not None
    assert not again.first_try.timeline
    assert sum(one.repeated for one in results.values()) == 1


def test_a_phase_that_failed_on_a_still_machine_is_not_repeated() -> None:
    course, results, _ = play({"good-link": [result("good-link", 0)]}, LONG_S)
    assert course.played.count("good-link") == 1
    assert results["good-link"].not_repeated_because == ""


def test_without_time_the_result_says_that_it_was_not_repeated() -> None:
    _, results, rig = play({"good-link": [stalled("good-link", 0)]}, 0.0)
    assert not results["good-link"].repeated
    assert "no time" in results["good-link"].not_repeated_because
    assert rig.restored == []


def test_what_held_leaves_the_time_to_later_phases_that_do_not() -> None:
    seconds = sum(phase.frames / 30.0 + 0.4 for phase in PHASES) + 11.0
    tries = {"good-link": [stalled("good-link", 300)], "control-after": [stalled("control-after")]}
    _, results, _ = play(tries, seconds)
    assert "later phases" in results["good-link"].not_repeated_because
    assert results["control-after"].repeated
    _, results, _ = play({"good-link": [stalled("good-link", 0)]}, seconds)
    assert results["good-link"].repeated
    _, results, _ = play({"good-link": [stalled("good-link", 300)]}, LONG_S)
    assert results["good-link"].repeated


class Trials(Course):
    """Finds a deadline by trials that go as they are written: what an agent without a cloud takes (p99), and the share that
    the cloud answers, by the deadline that is asked for."""

    def __init__(self, p99_ms: float, cloud: dict[float, float], reached: bool = True) -> None:
        super().__init__(cast(Rig, StillRig()), DemoSettings(), Plans("main", "split"), (), {}, lambda *_: None)
        self._clients = {"edge": cast(Client, None), "control": cast(Client, None)}
        self.p99_ms = p99_ms
        self.cloud = cloud
        self.reached = reached

    def _play(self, phase: Phase, deadline_ms: float, plant: Plant | None) -> PhaseResult:
        if phase.agent == "edge":
            return replace(result("good-link"), cloud_on_time=self.cloud[deadline_ms])
        on_time = 300 if self.p99_ms <= deadline_ms else 0
        return replace(result("control-before"), on_time=on_time, p50_ms=self.p99_ms - 0.5, p99_ms=self.p99_ms)

    def _warm(self, client: Client, plan: str, source: str, deadline_ms: float, limit_s: float) -> bool:
        return self.reached


def test_the_deadline_is_one_that_the_device_holds_and_the_cloud_as_well_with_time_to_spare() -> None:
    found = Trials(8.0, {9.0: 0.97, 13.5: 0.99}).find_deadline()
    assert found.ms == 15.0
    assert "100.0% at 10 ms, p99 8.0, with the cloud 97.0%; 100.0% at 15 ms, p99 8.0, with the cloud 99.0%" in found.why
    assert Trials(9.0, {13.5: 1.0}).find_deadline().ms == 15.0, "at 10 ms the device has too little to spare"
    assert Trials(8.0, {9.0: 1.0}).find_deadline().ms == 10.0


def test_where_the_cloud_holds_no_deadline_the_last_is_used_and_it_is_said() -> None:
    for course in (Trials(8.0, dict.fromkeys((9.0, 13.5, 18.0, 27.0), 0.5)), Trials(8.0, {}, reached=False)):
        found = course.find_deadline()
        assert found.ms == 30.0
        assert found.why.startswith("None of 10, 15, 20, 30 ms was held without a cloud and with one")
