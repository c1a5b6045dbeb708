"""What the running system tells, with psutil as an object of the test's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from shared.doctor.facts import Memory, Sensor, Throttled
from shared.doctor.machine import Watch, read_libraries, read_memory, read_privileges, read_sensors
from shared.doctor.tree import Tree

OWN = 1


class Times(NamedTuple):
    """Processor time as psutil gives it."""

    user: float
    system: float
    idle: float
    steal: float
    guest: float


class Older(NamedTuple):
    """Processor time of a kernel that does not count what is stolen."""

    user: float
    idle: float


class FakePsutil:
    """A machine whose times and processes the test moves by hand."""

    def __init__(self) -> None:
        self.times: object = Times(100.0, 0.0, 900.0, 5.0, 50.0)
        self.processes: dict[int, tuple[str, float]] = {OWN: ("doctor", 10.0), 7: ("cc1", 3.0)}
        self.chips: dict[str, list[SimpleNamespace]] = {}

    def virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=8 << 30, available=3 << 30)

    def swap_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=1 << 30, used=5 << 20)

    def cpu_times(self) -> object:
        return self.times

    def sensors_temperatures(self) -> dict[str, list[SimpleNamespace]]:
        return self.chips

    def process_iter(self, attrs: Sequence[str]) -> Iterable[SimpleNamespace]:
        assert attrs == ["name", "cpu_times"]
        yield SimpleNamespace(pid=99, info={"name": "secret", "cpu_times": None})
        for pid, (name, spent_s) in self.processes.items():
            times = SimpleNamespace(user=spent_s / 2, system=spent_s / 2)
            yield SimpleNamespace(pid=pid, info={"name": name, "cpu_times": times})


def test_memory_is_told_in_mebibytes() -> None:
    assert read_memory(FakePsutil()) == Memory(8192, 3072, 1024, 5)


def test_the_hottest_sensor_of_each_chip_is_told() -> None:
    psutil = FakePsutil()
    assert read_sensors(psutil) == ()
    psutil.chips = {
        "coretemp": [
            SimpleNamespace(label="Core 0", current=50.0, high=None),
            SimpleNamespace(label="Core 1", current=61.0, high=95.0),
        ],
        "empty": [],
        "acpi": [SimpleNamespace(label="", current=30.0, high=None)],
    }
    assert read_sensors(psutil) == (Sensor("coretemp Core 1", 61.0, 95.0), Sensor("acpi", 30.0))


def test_stolen_time_is_a_share_of_all_that_passed(tmp_path: Path) -> None:
    psutil = FakePsutil()
    watch = Watch(psutil, Tree(tmp_path), OWN)
    psutil.times = Times(106.0, 0.0, 903.0, 6.0, 56.0)
    assert watch.during().stolen == pytest.approx(1 / 10)
    psutil.times = Older(1.0, 2.0)
    assert Watch(psutil, Tree(tmp_path), OWN).during().stolen is None


def test_other_processes_are_named_by_what_they_used_and_we_ourselves_are_not(tmp_path: Path) -> None:
    psutil = FakePsutil()
    watch = Watch(psutil, Tree(tmp_path), OWN)
    psutil.processes = {OWN: ("doctor", 500.0), 7: ("cc1", 203.0), 8: ("new", 100.0), 9: ("idle", 0.0)}
    during = watch.during()
    assert [(busy.name, busy.pid) for busy in during.others] == [("cc1", 7), ("new", 8)]
    assert during.others[0].cores == pytest.approx(2 * during.others[1].cores, rel=0.01)
    assert during.others_cores == pytest.approx(sum(busy.cores for busy in during.others))


def test_only_what_happened_meanwhile_counts(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    group, core = tmp_path / "sys/fs/cgroup", tmp_path / "sys/devices/system/cpu/cpu0/thermal_throttle"
    group.mkdir(parents=True)
    core.mkdir(parents=True)
    (group / "cpu.stat").write_text("nr_throttled 5\nthrottled_usec 9000\n")
    (core / "core_throttle_count").write_text("4\n")
    watch = Watch(FakePsutil(), Tree(tmp_path), OWN)
    (group / "cpu.stat").write_text("nr_throttled 7\nthrottled_usec 12000\n")
    (core / "core_throttle_count").write_text("5\n")
    during = watch.during()
    assert during.throttled == Throttled(2, 3.0)
    assert during.heat_stops == 1


def test_what_is_allowed_is_tried_and_told_by_the_name_of_the_error() -> None:
    privileges = read_privileges()
    for trial in (privileges.realtime, privileges.lock):
        assert trial.allowed is (trial.error == "")


def test_the_libraries_of_this_environment_have_versions_and_providers() -> None:
    libraries, providers = read_libraries()
    assert {library.name for library in libraries if library.version} >= {"onnxruntime", "pyzmq", "numpy", "psutil"}
    assert "CPUExecutionProvider" in providers
