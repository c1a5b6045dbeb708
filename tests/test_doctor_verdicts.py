"""Verdicts on a host that is well but for one thing."""

from __future__ import annotations

import pytest
from doctor_rig import GOOD, spoiled, wakes

from shared.doctor.facts import (
    Busy,
    Facts,
    Frequency,
    Gpu,
    Gpus,
    IdleState,
    Library,
    Quota,
    Sensor,
    Throttled,
    Trial,
)
from shared.doctor.findings import Finding
from shared.doctor.verdicts import processor_findings, time_findings
from shared.doctor.verdicts_host import (
    gpu_findings,
    heat_findings,
    library_findings,
    limit_findings,
    memory_findings,
)
from shared.process_settings import Limits
from shared.settings import Insurance

MARGINS = Insurance(hold_ms=0.5, hold_max_ms=1.0)
POOR = {"limits": Limits(memlock_kb=8192), "realtime": Trial(False, "EPERM")}


def all_of(facts: Facts) -> list[Finding]:
    return [
        *time_findings(facts, MARGINS),
        *processor_findings(facts),
        *memory_findings(facts),
        *limit_findings(facts, MARGINS),
        *library_findings(facts),
        *heat_findings(facts),
        *gpu_findings(facts),
    ]


def wrong(facts: Facts) -> list[tuple[str, str]]:
    return [(finding.name, finding.verdict) for finding in all_of(facts) if finding.verdict != "ok"]


def test_a_host_on_which_all_is_well_has_nothing_to_look_at() -> None:
    assert wrong(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"wakes": wakes(0.7)}, [("wake-ups, alone", "look")]),
        ({"wakes": wakes(1.5)}, [("wake-ups, alone", "bad")]),
        ({"wakes": wakes(0.1, 0.7)}, [("wake-ups, busy", "look")]),
        ({"collector": {"young_ms": 2.0}}, [("collector", "look")]),
        ({"collector": {"young_ms": 7.0}}, [("collector", "bad")]),
        ({"clocks": {"source": "hpet"}}, [("clock source", "bad")]),
        ({"clocks": {"suspended_s": None}}, [("suspension", "look")]),
        ({"cores": {"may": (1,)}}, [("cores", "look")]),
        ({"cores": {"quota": Quota("/sys/fs/cgroup", 1.5, 100.0)}}, [("quota", "look")]),
        ({"cores": {"quota": Quota("/sys/fs/cgroup", 8.0, 100.0)}}, []),
        (
            {"cores": {"quota": Quota("/g", 8.0, 100.0)}, "during": {"throttled": Throttled(3, 120.0)}},
            [("quota", "bad")],
        ),
        ({"during": {"stolen": 0.005}}, [("stolen time", "look")]),
        ({"during": {"stolen": 0.05}}, [("stolen time", "bad")]),
        ({"during": {"others_cores": 1.5, "others": (Busy("cc1", 7, 1.5),)}}, [("other processes", "look")]),
        ({"during": {"others_cores": 3.5}}, [("other processes", "bad")]),
        ({"cores": {"frequencies": (Frequency(4, "schedutil", 800, 3000, 3000),)}}, [("clock speed", "look")]),
        ({"cores": {"frequencies": (Frequency(4, "performance", 800, 2000, 3000),)}}, [("clock speed", "look")]),
        ({"cores": {"frequencies": ()}}, []),
        ({"cores": {"idle": IdleState("C6", 300)}}, [("core sleep", "look")]),
        ({"cores": {"idle": None}}, []),
        ({"kernel": {"preemption": "none"}}, [("preemption", "look")]),
        ({"kernel": {"preemption": "voluntary"}}, [("preemption", "look")]),
        ({"kernel": {"preemption": None}}, []),
        ({"kernel": {"rt_share": 0.0}}, [("real-time share", "look")]),
        ({"kernel": {"rt_share": -1.0}}, [("real-time share", "look")]),
        ({"kernel": {"rt_share": None}}, []),
        ({"kernel": {"huge_pages": "always"}}, [("huge pages", "look")]),
        ({"memory": {"available_mb": 1000}}, [("memory", "look")]),
        ({"memory": {"available_mb": 100}}, [("memory", "bad")]),
        ({"memory": {"swap_mb": 2000}}, []),
        ({"memory": {"swap_mb": 2000, "swapped_mb": 5}}, [("swap", "look")]),
        ({"during": {"major_faults": 4}}, [("page faults", "look")]),
        ({"privileges": {"open_files": 256}}, [("open files", "look")]),
        ({"privileges": {"open_files": None}}, []),
        ({"libraries": (Library("pyzmq"),)}, [("pyzmq", "bad")]),
        ({"libraries": (Library("numpy"),)}, []),
        ({"sensors": (Sensor("core", 95.0, 100.0),)}, [("core", "look")]),
        ({"sensors": (Sensor("core", 95.0),)}, []),
        ({"during": {"heat_stops": 2}}, [("slowed for heat", "bad")]),
        ({"gpus": Gpus((Gpu("H1", slowed=("power limit",)),))}, [("H1", "bad")]),
        ({"gpus": Gpus((Gpu("H1", persistent=False),))}, [("H1", "look")]),
        ({"gpus": Gpus((Gpu("H1", "590", 1900, 1980, (), True, 40, 1000, 2000),))}, []),
    ],
)
def test_one_thing_that_is_wrong_is_the_one_that_is_told(
    changes: dict[str, object], expected: list[tuple[str, str]]
) -> None:
    assert wrong(spoiled(**changes)) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"wakes": wakes(1.5, 1.5), "privileges": POOR},
        {"clocks": {"source": "hpet", "available": ("hpet",)}},
        {"cores": {"may": (1,), "quota": Quota("/g", 0.5, 100.0)}},
        {"during": {"stolen": 0.5, "others_cores": 4.0, "throttled": Throttled(1, 1.0), "heat_stops": 1}},
        {"libraries": (Library("pyzmq"),), "gpus": Gpus((Gpu("H1", slowed=("power limit",), persistent=False),))},
    ],
)
def test_whatever_is_not_well_comes_with_what_to_do(changes: dict[str, object]) -> None:
    told = [finding for finding in all_of(spoiled(**changes)) if finding.verdict != "ok"]
    assert told
    assert all(finding.advice for finding in told)


def test_what_is_not_allowed_matters_only_where_it_would_help() -> None:
    assert wrong(spoiled(privileges=POOR)) == []
    late = wrong(spoiled(privileges=POOR, wakes=wakes(0.7)))
    assert late == [("wake-ups, alone", "look"), ("real time", "look"), ("nice", "look")]
    swapped = wrong(spoiled(privileges=POOR, memory={"swap_mb": 2000, "swapped_mb": 5}))
    assert swapped == [("swap", "look"), ("locked memory", "look")]


def test_only_a_library_that_is_needed_stops_the_promise() -> None:
    missing = library_findings(spoiled(libraries=(Library("onnxruntime"), Library("psutil"))))
    assert [finding.name for finding in missing if finding.stops] == ["onnxruntime"]


def test_a_virtual_machine_is_the_reason_for_what_cannot_be_read() -> None:
    facts = spoiled(kernel={"virtual": True}, cores={"frequencies": ()}, sensors=(), during={"heat_stops": None})
    values = {finding.name: finding.value for finding in all_of(facts)}
    assert "virtual machine" in values["clock speed"]
    assert "virtual machine" in values["temperature"]


def test_the_processes_that_take_the_cores_are_named() -> None:
    facts = spoiled(during={"others_cores": 1.5, "others": (Busy("cc1", 7, 1.2), Busy("x", 8, 0.3))})
    (value,) = (finding.value for finding in processor_findings(facts) if finding.name == "other processes")
    assert "1.50 cores" in value
    assert "cc1 (7) 1.20, x (8) 0.30" in value
