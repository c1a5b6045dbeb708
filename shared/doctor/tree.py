"""Readers of /proc and /sys, whose place is an argument, so that tests give them a tree of their own.

A file that is not there, may not be read or says something else than expected is None: virtual machines and containers hide
most of this, and no two kernels show the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from shared.doctor.facts import Clocks, Cores, Frequency, IdleState, Kernel, Quota, Throttled

_CORE = re.compile(r"cpu\d+")
_PREEMPTION = re.compile(r"\((\w+)\)")


class Tree:
    """/proc and /sys below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._sys = root / "sys"
        self._cpu = root / "sys/devices/system/cpu"

    def clocks(self, suspended_s: float | None) -> Clocks:
        """Clock source; what is known of suspensions is handed through."""
        where = self._sys / "devices/system/clocksource/clocksource0"
        available = tuple((_text(where / "available_clocksource") or "").split())
        return Clocks(_text(where / "current_clocksource"), available, suspended_s)

    def kernel(self, release: str, version: str, architecture: str) -> Kernel:
        """`release`, `version` and `architecture` as `os.uname` gives them."""
        budget = _number(self._proc / "sys/kernel/sched_rt_runtime_us")
        period = _number(self._proc / "sys/kernel/sched_rt_period_us")
        share = None if budget is None or not period else max(-1.0, budget / period)
        pages = re.search(r"\[(\w+)\]", _text(self._sys / "kernel/mm/transparent_hugepage/enabled") or "")
        return Kernel(
            release=release,
            architecture=architecture,
            virtual=self._virtual(),
            preemption=self._preemption(version),
            rt_share=-1.0 if share is not None and share < 0 else share,
            huge_pages=pages[1] if pages else None,
        )

    def cores(self, may: tuple[int, ...]) -> Cores:
        """The processor; `may` are the cores that this process may use."""
        return Cores(
            online=len(_range(_text(self._cpu / "online") or "")) or len(may),
            may=may,
            frequencies=self._frequencies(),
            idle=self._idle(may),
            quota=self.quota(),
        )

    def throttled(self) -> Throttled | None:
        """Counters of all control groups above this process; None where none counts."""
        found = False
        times, stopped_ns = 0, 0
        for group in self._groups():
            counts = _pairs(group / "cpu.stat")
            if "nr_throttled" in counts:
                found = True
                times += counts["nr_throttled"]
                stopped_ns += counts.get("throttled_usec", 0) * 1000 + counts.get("throttled_time", 0)
        return Throttled(times, stopped_ns / 1e6) if found else None

    def heat_stops(self) -> int | None:
        """How often cores were slowed down for their heat since boot; None where the hardware does not count it."""
        counts = [
            count
            for core in self._cores()
            for name in ("core_throttle_count", "package_throttle_count")
            if (count := _number(core / "thermal_throttle" / name)) is not None
        ]
        return sum(counts) if counts else None

    def _virtual(self) -> bool | None:
        if (self._sys / "hypervisor/type").exists() or (self._proc / "device-tree/hypervisor").exists():
            return True
        flags = re.search(r"^flags\s*:(.*)$", _text(self._proc / "cpuinfo") or "", re.MULTILINE)
        return "hypervisor" in flags[1].split() if flags else None

    def _preemption(self, version: str) -> str | None:
        if _text(self._sys / "kernel/realtime") == "1" or "PREEMPT_RT" in version:
            return "rt"
        chosen = _PREEMPTION.search(_text(self._sys / "kernel/debug/sched/preempt") or "")
        if chosen:
            return chosen[1]
        if "PREEMPT_DYNAMIC" in version:
            return "dynamic"
        return "full" if "PREEMPT" in version else None

    def _frequencies(self) -> tuple[Frequency, ...]:
        alike: dict[tuple[str, int, int, int], list[int]] = {}
        for core in self._cores():
            folder = core / "cpufreq"
            governor = _text(folder / "scaling_governor")
            lowest, highest = (_number(folder / f"cpuinfo_{end}_freq") for end in ("min", "max"))
            if governor is None or lowest is None or highest is None:
                continue
            limit = _number(folder / "scaling_max_freq") or highest
            now = alike.setdefault((governor, lowest, limit, highest), [])
            now.append(_number(folder / "scaling_cur_freq") or 0)
        return tuple(
            Frequency(len(now), governor, lowest // 1000, limit // 1000, highest // 1000, max(now) // 1000 or None)
            for (governor, lowest, limit, highest), now in alike.items()
        )

    def _idle(self, may: tuple[int, ...]) -> IdleState | None:
        deepest: IdleState | None = None
        for core in may[:1]:
            for state in sorted(self._cpu.glob(f"cpu{core}/cpuidle/state*")):
                name, leaves = _text(state / "name"), _number(state / "latency")
                if name is None or leaves is None or _text(state / "disable") == "1":
                    continue
                if deepest is None or leaves > deepest.leaves_us:
                    deepest = IdleState(name, leaves)
        return deepest

    def quota(self) -> Quota | None:
        """The tightest bound on processor time of the control groups of this process; None where there is none."""
        tightest: Quota | None = None
        for group in self._groups():
            words = (_text(group / "cpu.max") or "").split()
            if len(words) != 2:
                words = [_text(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
            if not all(word.isdecimal() for word in words) or int(words[1]) == 0:
                continue
            quota, period = int(words[0]), int(words[1])
            if tightest is None or quota / period < tightest.cores:
                tightest = Quota(f"/sys/{group.relative_to(self._sys)}", quota / period, period / 1000)
        return tightest

    def _groups(self) -> list[Path]:
        """Folders of the control groups of this process that say something of processor time, innermost first. A
        container shows only some of them, and its own as the root."""
        mount = self._sys / "fs/cgroup"
        folders: list[Path] = []
        for line in (_text(self._proc / "self/cgroup") or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controllers and "cpu" not in controllers.split(","):
                continue
            roots = [mount, mount / "unified"] if not controllers else [mount / controllers, mount / "cpu"]
            for root in roots:
                inner = root if ".." in path else root / path.lstrip("/")
                while root in inner.parents:
                    folders.append(inner)
                    inner = inner.parent
                folders.append(root)
        return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    def _cores(self) -> list[Path]:
        cores = [path for path in self._cpu.glob("cpu*") if _CORE.fullmatch(path.name)]
        return sorted(cores, key=lambda path: int(path.name[3:]))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_text(path) or "")
    except ValueError:
        return None


def _pairs(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if value.strip().isdecimal():
            found[key] = int(value)
    return found


def _range(text: str) -> list[int]:
    """`0-3,6` as numbers; nothing for what is none."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
