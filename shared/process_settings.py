"""What the settings ask of the process itself (`[process]`), whether it could be had, and what to do where not.

The process starts without what the system does not allow, says so in one line for each setting, and keeps it in its
stats; with `process.required` it refuses to start instead. Cores that the process may not use are a mistake in the file
and always refused.

Real time is for the loop's thread and ZeroMQ's own (without the latter a message would wait on a busy machine before the
loop could see it). Both work in turns of well under a millisecond. Executors are never real-time: a run of a model at
SCHED_FIFO takes its core from everything else, the thread that must abort it included. `nice` is for them, and cores of
their own. A loop that waits for the interpreter while an executor's thread holds it waits all the same, however high its
priority: that thread must get a core soon, so real time without `nice` or `executor_cores` is half of it.

Where they are ordinary threads, they ask for short turns (`slice_us`): the scheduler of Linux runs first whose turn would
end first (EEVDF, I. Stoica and H. Abdel-Wahab, 1995), so that they run sooner when they wake up, for no more of the
processor. Nobody's leave is needed, so that it is asked for by default; kernels before 6.12 know nothing of it. In a trial
beside two busy processes on two cores a node's answers took 0.7 to 0.8 ms at the median instead of 1.0 to 1.1, and 5 to 7
ms at the 99th percentile instead of 7 to 10.

Everything is set for each thread by its id, since Linux schedules threads. Threads made later by a real-time one are ordinary
(SCHED_RESET_ON_FORK). `Host` is the port to the kernel; the real one is `shared.process_host.LinuxHost`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from shared.errors import SettingsError
from shared.settings import Process

Value = TypeVar("Value")


WHY_NO_SUSPENSION = (
    "the kernel has no boot time (CLOCK_BOOTTIME), or a sandbox forbids it",
    "do not suspend this host: what was asked before would be answered as if no time had passed",
)


class Limits(msgspec.Struct, frozen=True):
    """What the system lets this process ask for. `rtprio`: highest real-time priority. `nice`: lowest nice value.
    `memlock_kb`: memory that may be locked. None is no limit. `sys_nice`, `ipc_lock`: capabilities that lift them."""

    rtprio: int | None = 0
    nice: int | None = 0
    memlock_kb: int | None = 0
    sys_nice: bool = False
    ipc_lock: bool = False


class Host(Protocol):
    """The kernel, as far as a process's own threads are concerned. What it refuses is an `OSError`."""

    def cores(self) -> frozenset[int]:
        """Cores that this process may use."""
        ...

    def limits(self) -> Limits:
        """The limits that hold now."""
        ...

    def boot_clock(self) -> bool:
        """Whether the kernel tells time that passes in a suspension."""
        ...

    def own_thread(self) -> int:
        """Id of the calling thread."""
        ...

    def threads(self) -> frozenset[int]:
        """Ids of all threads of this process."""
        ...

    def set_realtime(self, thread: int, priority: int) -> None:
        """SCHED_FIFO; threads that this one makes later stay ordinary."""
        ...

    def set_nice(self, thread: int, nice: int) -> None:
        """A nice value for one thread."""
        ...

    def set_cores(self, thread: int, cores: Collection[int]) -> None:
        """Keep one thread on some cores."""
        ...

    def set_slice(self, thread: int, slice_ns: int) -> None:
        """Ask for turns of this length for one ordinary thread."""
        ...

    def lock_memory(self) -> None:
        """Keep all pages in memory that are touched, now or later."""
        ...


class Effect(msgspec.Struct, frozen=True):
    """What became of one setting, or of what is always wanted. `why` and `advice` are empty where it is in force."""

    setting: str
    asked: str
    in_force: bool
    why: str = ""
    advice: str = ""

    def __str__(self) -> str:
        """One line."""
        asked = f"{self.setting} = {self.asked}"
        return f"{asked} is in force" if self.in_force else f"{asked} is not in force: {self.why}; {self.advice}"


def asks(settings: Process) -> tuple[str, ...]:
    """Paths of the settings that ask something of the system, as nobody does by default."""
    default = Process()
    keys = ("cores", "executor_cores", "nice", "realtime_priority", "slice_us", "lock_memory")
    return tuple(f"process.{key}" for key in keys if getattr(settings, key) not in {0.0, getattr(default, key)})


def check_cores(settings: Process, host: Host) -> None:
    """Raise `SettingsError` for a core that this process may not use."""
    may = host.cores()
    for key in ("cores", "executor_cores"):
        wrong = sorted(set(getattr(settings, key)) - may)
        if wrong:
            raise SettingsError(
                f"process.{key}: names core {wrong[0]}, which this process may not use; expected some of {spans(may)}"
            )


def apply(settings: Process, host: Host, transport: Collection[int] = ()) -> tuple[Effect, ...]:
    """Ask the system for what the settings ask for, on the thread that will run the loop, when all others are there.

    `transport` are the ids of ZeroMQ's own threads. (They take their telling names some time after they have begun.)
    Raises `SettingsError` where something could not be had and is `required`.
    """
    threads = host.threads()
    loop = {host.own_thread(), *transport}
    others = threads - loop
    limits = host.limits()
    effects: list[Effect] = []

    def ask(key: str, asked: str, act: Callable[[], None], explain: Callable[[OSError], tuple[str, str]]) -> None:
        try:
            act()
        except OSError as error:
            effects.append(Effect(f"process.{key}", asked, False, *explain(error)))
        else:
            effects.append(Effect(f"process.{key}", asked, True))

    for key, cores, where in (("cores", settings.cores, loop), ("executor_cores", settings.executor_cores, others)):
        if cores:
            ask(key, str(list(cores)), partial(_each, where, host.set_cores, cores), _why_not_cores)
    if settings.nice:
        ask(
            "nice",
            str(settings.nice),
            partial(_each, threads, host.set_nice, settings.nice),
            lambda error: _why_not_nice(error, settings.nice, limits),
        )
    priority = settings.realtime_priority
    if priority:
        ask(
            "realtime_priority",
            str(priority),
            partial(_each, loop, host.set_realtime, priority),
            lambda error: _why_not_realtime(error, priority, limits),
        )
    if settings.slice_us and not priority:
        ask(
            "slice_us",
            str(settings.slice_us),
            partial(_each, loop, host.set_slice, int(settings.slice_us * 1000)),
            _why_no_slice,
        )
        if settings.slice_us == Process().slice_us and not effects[-1].in_force:
            del effects[-1]
    if settings.lock_memory:
        bounded = limits.memlock_kb is not None and not limits.ipc_lock
        if bounded:
            effects.append(Effect("process.lock_memory", "true", False, *_why_not_locked(None, limits)))
        else:
            ask("lock_memory", "true", host.lock_memory, lambda error: _why_not_locked(error, limits))
    missing = [str(effect) for effect in effects if not effect.in_force]
    if missing and settings.required:
        raise SettingsError(f"process.required: {'; '.join(missing)}")
    if not host.boot_clock():
        effects.append(Effect("suspension", "noticed", False, *WHY_NO_SUSPENSION))
    return tuple(effects)


def check_untouched(settings: Process) -> str:
    """For the embedded form, whose process is the application's: nothing is applied there. What to say about settings that
    ask for it; empty where none does. Raises `SettingsError` where they are `required`."""
    asked = asks(settings)
    if settings.switch_interval_us != Process().switch_interval_us:
        asked = (*asked, "process.switch_interval_us")
    if not asked:
        return ""
    line = f"{', '.join(asked)}: not applied: an embedded agent leaves the application's process as it is"
    if settings.required:
        raise SettingsError(f"{line}; expected process.required = false, or an agent in a process of its own")
    return line


def spans(numbers: Iterable[int]) -> str:
    """`0-3, 6` for 0, 1, 2, 3, 6."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _each(threads: Iterable[int], act: Callable[[int, Value], None], value: Value) -> None:
    for thread in threads:
        try:
            act(thread, value)
        except ProcessLookupError:
            continue


def _why_not_cores(error: OSError) -> tuple[str, str]:
    return f"the kernel refuses ({_name(error)})", "see which cores the control group allows (cpuset.cpus.effective)"


def _why_not_nice(error: OSError, nice: int, limits: Limits) -> tuple[str, str]:
    if not _forbidden(error) or limits.sys_nice or limits.nice is None or nice >= limits.nice:
        return f"the kernel refuses ({_name(error)})", "leave process.nice at 0"
    return (
        f"the lowest nice value allowed is {limits.nice} (RLIMIT_NICE) and CAP_SYS_NICE is not held",
        f"allow it with LimitNICE={nice} in the systemd unit, 'nice {nice}' in /etc/security/limits.conf, "
        f"'ulimit -e {20 - nice}', or CAP_SYS_NICE",
    )


def _why_not_realtime(error: OSError, priority: int, limits: Limits) -> tuple[str, str]:
    if not _forbidden(error):
        return f"the kernel refuses SCHED_FIFO ({_name(error)})", "use process.nice in its place"
    if not limits.sys_nice and limits.rtprio is not None and limits.rtprio < priority:
        return (
            f"the highest real-time priority allowed is {limits.rtprio} (RLIMIT_RTPRIO) and CAP_SYS_NICE is not held",
            f"allow it with LimitRTPRIO={priority} in the systemd unit, 'rtprio {priority}' in "
            f"/etc/security/limits.conf, 'ulimit -r {priority}', or CAP_SYS_NICE",
        )
    return (
        f"the kernel refuses it although the limits allow it ({_name(error)})",
        "give the control group real-time budget (cpu.rt_runtime_us), or see whether a sandbox forbids it",
    )


def _why_no_slice(error: OSError) -> tuple[str, str]:
    return f"the kernel does not do it ({_name(error)})", "use Linux 6.12 or later, or process.nice in its place"


def _why_not_locked(error: OSError | None, limits: Limits) -> tuple[str, str]:
    if error is not None:
        return f"the kernel refuses ({_name(error)})", "see whether a sandbox forbids mlockall"
    return (
        f"only {limits.memlock_kb} KiB may be locked (RLIMIT_MEMLOCK), and a process that locks all it will ever have "
        f"fails to get more at that limit",
        "allow it with LimitMEMLOCK=infinity in the systemd unit, 'memlock unlimited' in /etc/security/limits.conf, "
        "'ulimit -l unlimited', or CAP_IPC_LOCK",
    )


def _forbidden(error: OSError) -> bool:
    return error.errno in {errno.EPERM, errno.EACCES}


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))
