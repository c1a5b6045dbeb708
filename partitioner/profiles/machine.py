"""What a profile is measured on: names, versions, clocks and power, as far as the system tells them.

What is not there is left out: virtual machines hide clocks, energy counters belong to root, and few boards have sensors.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from partitioner.costs.machine import device_name, library_version
from partitioner.profiles.record import Clock, Power
from shared.doctor.tree import Tree

MICRO = 1e-6
PICO = 1e-12


def board_name(root: Path = Path("/")) -> str:
    """The processor's name, behind the board's where the device tree has one."""
    text = _text(root / "proc/device-tree/model").strip("\0").strip()
    return f"{text}, {device_name()}" if text else device_name()


def versions() -> dict[str, str]:
    """What the times depend on, by name."""
    names = ("onnxruntime", "onnxruntime-gpu")
    runtime = next((v for v in map(library_version, names) if v != "not installed"), "unknown")
    return {
        "headtail": library_version("headtail"),
        "onnxruntime": runtime,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def read_clocks(root: Path = Path("/")) -> tuple[Clock, ...]:
    """The cores' frequencies, cores that are alike together; none where the system does not tell them."""
    found = Tree(root).cores(tuple(sorted(os.sched_getaffinity(0)))).frequencies
    return tuple(Clock(f.cores, f.governor, f.highest, f.limit, f.now) for f in found)


class PowerMeter:
    """The mean power of each source that can be read, from its making to `power`.

    Energy counters (powercap, which serves RAPL) are read at both ends; a discharging battery and the sensors of hwmon,
    which say what flows now, whenever `sample` is called.
    """

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._energy = self._energies()
        self._flows: dict[str, list[float]] = {}
        self.sample()

    def sample(self) -> None:
        """Read what flows now."""
        for source, watts in (*self._batteries(), *self._sensors()):
            self._flows.setdefault(source, []).append(watts)

    def power(self) -> tuple[Power, ...]:
        """The mean power of each source so far."""
        self.sample()
        seconds = self._clock_s() - self._began_s
        after = self._energies()
        counted = [
            Power(source, energy_used_j(begin, after[source][0], span) / seconds)
            for source, (begin, span) in self._energy.items()
            if source in after and seconds > 0.0
        ]
        return (*counted, *(Power(source, sum(flow) / len(flow)) for source, flow in self._flows.items()))

    def _energies(self) -> dict[str, tuple[int, int]]:
        """Counter and its range in microjoules, by source; the parts of a package are in it and are left out."""
        found: dict[str, tuple[int, int]] = {}
        for zone in sorted((self._root / "sys/class/powercap").glob("*:*")):
            energy, span = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
            if zone.name.count(":") == 1 and energy is not None and span is not None:
                found[f"{_text(zone / 'name') or zone.name} ({zone.name})"] = (energy, span)
        return found

    def _batteries(self) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        for supply in sorted((self._root / "sys/class/power_supply").glob("*")):
            if _text(supply / "type") != "Battery" or _text(supply / "status") != "Discharging":
                continue
            watts = _scaled(_number(supply / "power_now"), MICRO)
            current, voltage = _number(supply / "current_now"), _number(supply / "voltage_now")
            if watts is None and current is not None and voltage is not None:
                watts = abs(current) * voltage * PICO
            if watts is not None:
                found.append((f"battery {supply.name}", abs(watts)))
        return found

    def _sensors(self) -> list[tuple[str, float]]:
        found: list[tuple[str, float]] = []
        for chip in sorted((self._root / "sys/class/hwmon").glob("hwmon*")):
            for file in sorted(chip.glob("power*_input")) or sorted(chip.glob("power*_average")):
                watts = _scaled(_number(file), MICRO)
                sensor = file.name.partition("_")[0]
                label = _text(chip / f"{sensor}_label") or sensor
                if watts is not None and watts >= 0.0:
                    found.append((f"{_text(chip / 'name') or chip.name} {label}", watts))
        return found


def energy_used_j(begin_uj: int, end_uj: int, range_uj: int) -> float:
    """Joules between two readings of a counter that begins anew at its range, once at most."""
    used_uj = end_uj - begin_uj if end_uj >= begin_uj else end_uj - begin_uj + range_uj
    return max(0, used_uj) * MICRO


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.removeprefix("-").isdecimal() else None


def _scaled(value: int | None, unit: float) -> float | None:
    return None if value is None else value * unit
