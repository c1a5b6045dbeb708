"""The kernel behind `shared.process_settings`, and the few lines with which an agent or a node asks it.

Python has no call for mlockall, so that the C library is called. Pages are locked as they are touched (MCL_ONFAULT): what
has been warmed stays, and stacks and arenas that were only reserved take no memory. Locking whole mappings at once was
rejected: a process with onnxruntime in it reserves far more than it uses.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from shared.process import OwnProcess, share_one_heap
from shared.process_settings import Effect, Host, Limits, apply, asks, check_cores
from shared.settings import Process

TRANSPORT = "ZMQ"
"""What the names of ZeroMQ's threads begin with."""

BEGIN_S, LOOK_S = 5.0, 0.001

_CAP_IPC_LOCK = 14
_CAP_SYS_NICE = 23
_LOCK_CURRENT, _LOCK_FUTURE, _LOCK_ON_FAULT = 1, 2, 4


_SET, _GET = (274, 275) if platform.machine() == "aarch64" else (314, 315)
"""Numbers of the calls sched_setattr and sched_getattr, for which neither Python nor the C library has names."""


class _Scheduling(ctypes.Structure):
    """Linux's `struct sched_attr`. Policy 0 is that of ordinary threads, `runtime` then their turn in nanoseconds."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
        ("least", ctypes.c_uint32),
        ("most", ctypes.c_uint32),
    )


class LinuxHost:
    """`Host` for the process that calls it. `proc` is where /proc is mounted."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._own = proc / "self"

    def cores(self) -> frozenset[int]:
        """Cores that this process may use."""
        return frozenset(os.sched_getaffinity(0))

    def limits(self) -> Limits:
        """The limits that hold now."""
        held = self._capabilities()
        ceiling = _soft(resource.RLIMIT_NICE)
        memlock = _soft(resource.RLIMIT_MEMLOCK)
        return Limits(
            rtprio=_soft(resource.RLIMIT_RTPRIO),
            nice=None if ceiling is None else min(0, 20 - ceiling),
            memlock_kb=None if memlock is None else memlock >> 10,
            sys_nice=bool(held >> _CAP_SYS_NICE & 1),
            ipc_lock=bool(held >> _CAP_IPC_LOCK & 1),
        )

    def boot_clock(self) -> bool:
        """Whether the kernel tells time that passes in a suspension."""
        return suspended_s() is not None

    def own_thread(self) -> int:
        """Id of the calling thread."""
        return threading.get_native_id()

    def threads(self) -> frozenset[int]:
        """Ids of all threads of this process."""
        return frozenset(int(task.name) for task in (self._own / "task").iterdir())

    def begun(self, transport: int) -> bool:
        """Whether a thread of ZeroMQ's has taken its name. Before that it sets its own scheduling as it found it, and ends
        the process where that has been changed meanwhile (libzmq's `thread.cpp`)."""
        try:
            return (self._own / "task" / str(transport) / "comm").read_text().startswith(TRANSPORT)
        except OSError:
            return True  # it is over

    def set_realtime(self, thread: int, priority: int) -> None:
        """SCHED_FIFO; threads that this one makes later stay ordinary."""
        os.sched_setscheduler(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))

    def set_nice(self, thread: int, nice: int) -> None:
        """A nice value for one thread."""
        os.setpriority(os.PRIO_PROCESS, thread, nice)

    def set_cores(self, thread: int, cores: Collection[int]) -> None:
        """Keep one thread on some cores."""
        os.sched_setaffinity(thread, cores)

    def set_slice(self, thread: int, slice_ns: int) -> None:
        """Turns of this length for one ordinary thread, whose nice value stays. `EOPNOTSUPP` where the kernel takes no note
        of it, which it says only when it is asked what it has."""
        libc = ctypes.CDLL(None, use_errno=True)
        asked = _Scheduling(ctypes.sizeof(_Scheduling), nice=os.getpriority(os.PRIO_PROCESS, thread), runtime=slice_ns)
        found = _Scheduling()
        if (
            libc.syscall(_SET, thread, ctypes.byref(asked), 0) != 0
            or libc.syscall(_GET, thread, ctypes.byref(found), ctypes.sizeof(found), 0) != 0
        ):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        if found.runtime != slice_ns:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def lock_memory(self) -> None:
        """Keep all pages in memory that are touched, now or later."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlockall(_LOCK_CURRENT | _LOCK_FUTURE | _LOCK_ON_FAULT) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _capabilities(self) -> int:
        for line in (self._own / "status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
        return 0


class Adaptation:
    """A process of our own made to fit its settings, before it makes threads. `effects` says what became of each that asks
    something.

    Raises `SettingsError` at once where they name a core that the process may not use.
    """

    def __init__(self, settings: Process, host: Host | None = None) -> None:
        self._settings = settings
        self._host = host or LinuxHost()
        self.effects: tuple[Effect, ...] = ()
        check_cores(settings, self._host)
        share_one_heap()

    def interpreter(self) -> OwnProcess:
        """What the loop does to interpreter and allocator while it runs."""
        return OwnProcess(self._settings.switch_interval_us, int(self._settings.heap_reserve_mb * 1e6))

    def apply(self, transport: Collection[int] = ()) -> None:
        """On the loop's thread, when all others are there: ask the system, and say on stderr what could not be had.
        `transport` are the ids of ZeroMQ's own threads, which are waited for until they have begun.

        Raises `SettingsError` where something could not be had and is `required`.
        """
        if asks(self._settings) or self._settings.slice_us:
            wait_for(transport, LinuxHost().begun, time.sleep)
        self.effects = apply(self._settings, self._host, transport)
        for effect in self.effects:
            if not effect.in_force:
                sys.stderr.write(f"headtail: {effect}\n")


def wait_for(transport: Collection[int], begun: Callable[[int], bool], sleep_s: Callable[[float], None]) -> None:
    """Wait until each of ZeroMQ's threads has begun, for some seconds at most (a busy host may take long to let one run)."""
    for _ in range(round(BEGIN_S / LOOK_S)):
        if all(map(begun, transport)):
            return
        sleep_s(LOOK_S)


def suspended_s() -> float | None:
    """How much further boot time is than monotonic time, in seconds; None where there is no boot time."""
    try:
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    except OSError:
        return None
    return max(0.0, boot - time.monotonic())


def _soft(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft
