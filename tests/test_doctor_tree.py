"""Readers of /proc and /sys on trees of several kinds of machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.doctor.facts import Clocks, Frequency, IdleState, Kernel, Quota, Throttled
from shared.doctor.tree import Tree

CPU = "sys/devices/system/cpu"


def plant(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return Tree(root)


def test_an_empty_tree_knows_nothing_and_guesses_nothing(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert tree.clocks(None) == Clocks(None, (), None)
    assert tree.kernel("6", "#1 SMP", "aarch64") == Kernel("6", "aarch64", None, None, None, None)
    cores = tree.cores((0, 2))
    assert (cores.online, cores.may, cores.frequencies, cores.idle, cores.quota) == (2, (0, 2), (), None, None)
    assert tree.throttled() is None
    assert tree.heat_stops() is None


def test_clock_sources_are_read(tmp_path: Path) -> None:
    where = "sys/devices/system/clocksource/clocksource0"
    tree = plant(tmp_path, {f"{where}/current_clocksource": "tsc", f"{where}/available_clocksource": "tsc hpet"})
    assert tree.clocks(3.0) == Clocks("tsc", ("tsc", "hpet"), 3.0)


@pytest.mark.parametrize(
    ("files", "version", "model"),
    [
        ({"sys/kernel/realtime": "1"}, "#1 SMP PREEMPT_RT", "rt"),
        ({"sys/kernel/debug/sched/preempt": "none voluntary (full)"}, "#1 SMP PREEMPT_DYNAMIC", "full"),
        ({"sys/kernel/debug/sched/preempt": "(none) voluntary full"}, "#1 SMP PREEMPT_DYNAMIC", "none"),
        ({}, "#1 SMP PREEMPT_DYNAMIC Thu", "dynamic"),
        ({}, "#1 SMP PREEMPT Thu", "full"),
        ({}, "#1 SMP Thu", None),
    ],
)
def test_the_preemption_model_is_read_where_the_kernel_shows_it(
    tmp_path: Path, files: dict[str, str], version: str, model: str | None
) -> None:
    assert plant(tmp_path, files).kernel("6", version, "x86_64").preemption == model


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        ({"proc/cpuinfo": "flags\t: fpu hypervisor lm"}, True),
        ({"proc/cpuinfo": "model name\t: hypervisor\nflags\t: fpu lm"}, False),
        ({"proc/cpuinfo": "Features\t: fp asimd"}, None),
        ({"sys/hypervisor/type": "xen"}, True),
    ],
)
def test_a_virtual_machine_is_known_by_its_processor(
    tmp_path: Path, files: dict[str, str], virtual: bool | None
) -> None:
    assert plant(tmp_path, files).kernel("6", "", "x86_64").virtual is virtual


@pytest.mark.parametrize(("budget", "share"), [("950000", 0.95), ("0", 0.0), ("-1", -1.0), ("many", None)])
def test_the_share_of_real_time_threads_is_read(tmp_path: Path, budget: str, share: float | None) -> None:
    kernel = "proc/sys/kernel"
    files = {f"{kernel}/sched_rt_runtime_us": budget, f"{kernel}/sched_rt_period_us": "1000000"}
    assert plant(tmp_path, files).kernel("6", "", "x86_64").rt_share == share


def test_huge_pages_are_the_chosen_one(tmp_path: Path) -> None:
    tree = plant(tmp_path, {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"})
    assert tree.kernel("6", "", "x86_64").huge_pages == "madvise"


def frequency(core: int, governor: str, limit: int, now: int) -> dict[str, str]:
    values = {"cpuinfo_min": 800, "cpuinfo_max": 3000, "scaling_max": limit, "scaling_cur": now}
    folder = f"{CPU}/cpu{core}/cpufreq"
    return {f"{folder}/{name}_freq": f"{mhz}000" for name, mhz in values.items()} | {
        f"{folder}/scaling_governor": governor
    }


def test_cores_with_the_same_limits_are_told_together(tmp_path: Path) -> None:
    files = {
        **frequency(0, "performance", 3000, 2900),
        **frequency(1, "performance", 3000, 2800),
        **frequency(2, "powersave", 2000, 900),
        f"{CPU}/online": "0-2",
        f"{CPU}/cpufreq/policy0": "not a core",
    }
    cores = plant(tmp_path, files).cores((0, 1, 2))
    assert cores.online == 3
    assert cores.frequencies == (
        Frequency(2, "performance", 800, 3000, 3000, 2900),
        Frequency(1, "powersave", 800, 2000, 3000, 900),
    )


def test_the_deepest_sleep_that_is_not_switched_off_counts(tmp_path: Path) -> None:
    states = {0: ("POLL", 0, 0), 1: ("C1", 2, 0), 2: ("C3", 80, 0), 3: ("C6", 300, 1)}
    files: dict[str, str] = {}
    for number, (name, leaves_us, off) in states.items():
        folder = f"{CPU}/cpu0/cpuidle/state{number}"
        files |= {f"{folder}/name": name, f"{folder}/latency": str(leaves_us), f"{folder}/disable": str(off)}
    assert plant(tmp_path, files).cores((0,)).idle == IdleState("C3", 80)


def test_the_tightest_quota_of_all_groups_above_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pods/one/app",
        "sys/fs/cgroup/pods/cpu.max": "150000 100000",
        "sys/fs/cgroup/pods/one/cpu.max": "400000 100000",
        "sys/fs/cgroup/pods/one/app/cpu.max": "max 100000",
        "sys/fs/cgroup/pods/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 250000",
        "sys/fs/cgroup/pods/one/cpu.stat": "nr_throttled 1\nthrottled_usec 50000",
    }
    tree = plant(tmp_path, files)
    assert tree.cores((0,)).quota == Quota("/sys/fs/cgroup/pods", 1.5, 100.0)
    assert tree.throttled() == Throttled(4, 300.0)


@pytest.mark.parametrize("path", ["/", "/docker/abc", "/../.."])
def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path, path: str) -> None:
    files = {
        "proc/self/cgroup": f"0::{path}",
        "sys/fs/cgroup/cpu.max": "50000 100000",
        "sys/fs/cgroup/cpu.stat": "nr_throttled 2\nthrottled_usec 1000",
    }
    tree = plant(tmp_path, files)
    assert tree.cores((0,)).quota == Quota("/sys/fs/cgroup", 0.5, 100.0)
    assert tree.throttled() == Throttled(2, 1.0)


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct"])
def test_the_old_kind_of_groups_is_read_as_well(tmp_path: Path, controllers: str) -> None:
    files = {
        "proc/self/cgroup": f"5:memory:/m\n1:{controllers}:/a",
        f"sys/fs/cgroup/{controllers}/a/cpu.cfs_quota_us": "200000",
        f"sys/fs/cgroup/{controllers}/a/cpu.cfs_period_us": "50000",
        f"sys/fs/cgroup/{controllers}/cpu.cfs_quota_us": "-1",
        f"sys/fs/cgroup/{controllers}/cpu.cfs_period_us": "100000",
        f"sys/fs/cgroup/{controllers}/a/cpu.stat": "nr_periods 1\nnr_throttled 1\nthrottled_time 7000000",
    }
    tree = plant(tmp_path, files)
    assert tree.cores((0,)).quota == Quota(f"/sys/fs/cgroup/{controllers}/a", 4.0, 50.0)
    assert tree.throttled() == Throttled(1, 7.0)


def test_slow_downs_for_heat_are_added_up(tmp_path: Path) -> None:
    files = {
        f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "2",
        f"{CPU}/cpu1/thermal_throttle/core_throttle_count": "3",
        f"{CPU}/cpu1/thermal_throttle/package_throttle_count": "1",
    }
    assert plant(tmp_path, files).heat_stops() == 6


def test_a_file_that_says_something_else_is_none(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-x", f"{CPU}/cpu0/cpufreq/scaling_governor": "performance", "proc/self/cgroup": "x"}
    cores = plant(tmp_path, files).cores((0,))
    assert cores.online == 1
    assert cores.frequencies == ()
    assert cores.quota is None
