"""What the running system tells: memory, processor time, other processes, libraries, and what it allows when asked.

psutil is imported when it is needed and used through `Psutil`, so that tests put an object of their own in its place.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, cast

from shared.doctor.facts import Busy, During, Library, Memory, Privileges, Sensor, Throttled, Trial
from shared.doctor.tree import Tree
from shared.process_host import LinuxHost

MOST_OTHERS = 3
"""How many other processes are named."""

LEAST_CORES = 0.02
"""A process that used less than this is not named."""

_PAGE = 4096


class _Virtual(Protocol):
    total: int
    available: int


class _Swap(Protocol):
    total: int
    used: int


class _Heat(Protocol):
    label: str
    current: float
    high: float | None


class _Process(Protocol):
    pid: int
    info: Mapping[str, object]


class Psutil(Protocol):
    """The few functions that are used, as psutil names them."""

    def virtual_memory(self) -> _Virtual:
        """Memory in bytes."""
        ...

    def swap_memory(self) -> _Swap:
        """Swap in bytes."""
        ...

    def cpu_times(self) -> object:
        """Seconds of all cores since boot, by kind."""
        ...

    def process_iter(self, attrs: Sequence[str]) -> Iterable[_Process]:
        """All processes, with the attributes asked for in `info`."""
        ...


def load_psutil() -> Psutil:
    """The real library."""
    return cast(Psutil, importlib.import_module("psutil"))


def read_memory(psutil: Psutil) -> Memory:
    """Memory and swap."""
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Memory(memory.total >> 20, memory.available >> 20, swap.total >> 20, swap.used >> 20)


def read_sensors(psutil: Psutil) -> tuple[Sensor, ...]:
    """The hottest sensor of each chip; none where the system shows none."""
    ask = cast("Callable[[], Mapping[str, Sequence[_Heat]]] | None", getattr(psutil, "sensors_temperatures", None))
    chips: Mapping[str, Sequence[_Heat]] = ask() if ask else {}
    found: list[Sensor] = []
    for chip, heats in chips.items():
        if heats:
            hottest = max(heats, key=lambda heat: heat.current)
            found.append(Sensor(f"{chip} {hottest.label}".strip(), hottest.current, hottest.high))
    return tuple(found)


class Watch:
    """What the machine did between two moments, `begin` and `during`."""

    def __init__(self, psutil: Psutil, tree: Tree, own: int) -> None:
        """`own` is the process id that counts as ourselves."""
        self._psutil = psutil
        self._tree = tree
        self._own = own
        self.begin()

    def begin(self) -> None:
        """Count from now."""
        self._began_s = time.monotonic()
        self._times = _times(self._psutil)
        self._processes = _processes(self._psutil)
        self._throttled = self._tree.throttled()
        self._heat_stops = self._tree.heat_stops()
        self._faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt

    def during(self) -> During:
        """What happened since `begin`."""
        passed_s = max(time.monotonic() - self._began_s, 1e-3)
        times = _times(self._psutil)
        spent = {kind: times[kind] - self._times.get(kind, 0.0) for kind in times}
        whole = sum(share for kind, share in spent.items() if not kind.startswith("guest"))
        others = sorted(self._others(passed_s), key=lambda busy: -busy.cores)
        throttled, heat_stops = self._tree.throttled(), self._tree.heat_stops()
        return During(
            stolen=max(0.0, spent["steal"]) / whole if "steal" in spent and whole > 0 else None,
            others_cores=sum(busy.cores for busy in others),
            others=tuple(busy for busy in others[:MOST_OTHERS] if busy.cores >= LEAST_CORES),
            throttled=_since(self._throttled, throttled),
            heat_stops=None if heat_stops is None or self._heat_stops is None else heat_stops - self._heat_stops,
            major_faults=resource.getrusage(resource.RUSAGE_SELF).ru_majflt - self._faults,
        )

    def _others(self, passed_s: float) -> Iterable[Busy]:
        for pid, (name, spent_s) in _processes(self._psutil).items():
            before = self._processes.get(pid)
            cores = (spent_s - (before[1] if before else 0.0)) / passed_s
            if pid != self._own and cores > 0:
                yield Busy(name, pid, cores)


def read_privileges() -> Privileges:
    """Limits, and what is allowed when it is tried and undone."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    open_files = None if soft == resource.RLIM_INFINITY else soft
    return Privileges(LinuxHost().limits(), open_files, _try_realtime(), _try_lock())


def read_libraries() -> tuple[tuple[Library, ...], tuple[str, ...]]:
    """The libraries that agent and node need, and the execution providers that onnxruntime was built with."""
    providers: tuple[str, ...] = ()
    runtime, transport = _module("onnxruntime"), _module("zmq")
    if runtime is not None:
        providers = tuple(cast("Callable[[], list[str]]", runtime["get_available_providers"])())
    libzmq = "" if transport is None else f"libzmq {cast('Callable[[], str]', transport['zmq_version'])()}"
    found = (
        Library("onnxruntime", "" if runtime is None else str(runtime["__version__"])),
        Library("pyzmq", "" if transport is None else str(transport["__version__"]), libzmq),
        Library("numpy", _version("numpy")),
        Library("psutil", _version("psutil")),
    )
    return found, providers


def _try_realtime() -> Trial:
    """On a thread of its own, which ends: with it ends its priority."""
    trials: list[Trial] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        except OSError as error:
            trials.append(Trial(False, _name(error.errno)))
        else:
            trials.append(Trial(True))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return trials[0]


def _try_lock() -> Trial:
    libc = ctypes.CDLL(None, use_errno=True)
    page = ctypes.create_string_buffer(_PAGE)
    if libc.mlock(page, _PAGE) != 0:
        return Trial(False, _name(ctypes.get_errno()))
    libc.munlock(page, _PAGE)
    return Trial(True)


def _times(psutil: Psutil) -> dict[str, float]:
    times = psutil.cpu_times()
    return {kind: float(getattr(times, kind)) for kind in cast("tuple[str, ...]", getattr(times, "_fields", ()))}


def _processes(psutil: Psutil) -> dict[int, tuple[str, float]]:
    """Name and seconds of processor time by process id."""
    found: dict[int, tuple[str, float]] = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            spent_s = float(getattr(times, "user", 0.0)) + float(getattr(times, "system", 0.0))
            found[process.pid] = (str(process.info["name"]), spent_s)
    return found


def _since(before: Throttled | None, now: Throttled | None) -> Throttled | None:
    if before is None or now is None:
        return None
    return Throttled(now.times - before.times, now.stopped_ms - before.stopped_ms)


def _module(name: str) -> Mapping[str, object] | None:
    try:
        return vars(importlib.import_module(name))
    except ImportError:
        return None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _name(number: int | None) -> str:
    return errno.errorcode.get(number or 0, str(number))
