"""What the doctor reads of a host: plain data, so that verdicts are tested without a host of that kind.

None means that it cannot be read here, which is different from zero.
"""

from __future__ import annotations

import msgspec

from shared.lateness import LatenessFigures
from shared.process_settings import Limits


class Wakes(msgspec.Struct, frozen=True):
    """Lateness of the wake-ups of a 1 ms timer, each measured for `seconds`. `busy`: beside a thread of the same process that
    never lets go of the interpreter by itself. `busy_python`: that for a moment at Python's own switch interval."""

    seconds: float
    switch_us: float
    alone: LatenessFigures
    busy: LatenessFigures
    busy_python: LatenessFigures


class Collector(msgspec.Struct, frozen=True):
    """Longest collections in milliseconds: of the whole heap as it is, and of young objects when all else is frozen, as
    agent and node do it."""

    objects: int
    whole_ms: float
    young_ms: float


class Clocks(msgspec.Struct, frozen=True):
    """`source`: the kernel's clock source. `suspended_s`: how much further boot time is than monotonic time; None where the
    kernel has no boot time."""

    source: str | None = None
    available: tuple[str, ...] = ()
    suspended_s: float | None = None


class Frequency(msgspec.Struct, frozen=True):
    """Cores that share governor and limits, in MHz. `highest`: what the hardware can; `limit`: what it may."""

    cores: int
    governor: str
    lowest: int
    limit: int
    highest: int
    now: int | None = None


class Quota(msgspec.Struct, frozen=True):
    """The tightest bound on processor time of the control groups above this process. `cores` is quota by period."""

    group: str
    cores: float
    period_ms: float


class Throttled(msgspec.Struct, frozen=True):
    """How often the control groups of this process were stopped for the rest of a period, and for how long in all."""

    times: int = 0
    stopped_ms: float = 0.0


class IdleState(msgspec.Struct, frozen=True):
    """The deepest sleep that a core may fall into, and how long it takes to leave it."""

    name: str
    leaves_us: int


class Kernel(msgspec.Struct, frozen=True):
    """`preemption` as the kernel tells it: `full`, `lazy`, `voluntary`, `none`, `rt`, or `dynamic` where the choice made at
    boot is not shown. `rt_share`: share of a second that real-time threads may have, -1.0 is all of it."""

    release: str = ""
    architecture: str = ""
    virtual: bool | None = None
    preemption: str | None = None
    rt_share: float | None = None
    huge_pages: str | None = None


class Cores(msgspec.Struct, frozen=True):
    """`online` cores of the machine, and those that this process `may` use."""

    online: int
    may: tuple[int, ...]
    frequencies: tuple[Frequency, ...] = ()
    idle: IdleState | None = None
    quota: Quota | None = None


class Memory(msgspec.Struct, frozen=True):
    """In mebibytes."""

    total_mb: int
    available_mb: int
    swap_mb: int
    swapped_mb: int


class Trial(msgspec.Struct, frozen=True):
    """Whether something was allowed when it was tried (and undone); else the name of the error."""

    allowed: bool
    error: str = ""


class Privileges(msgspec.Struct, frozen=True):
    """What this process may ask of the system. `open_files` is the soft limit, None is none."""

    limits: Limits
    open_files: int | None
    realtime: Trial
    lock: Trial


class Busy(msgspec.Struct, frozen=True):
    """Another process and how many cores it used during the measurement."""

    name: str
    pid: int
    cores: float


class During(msgspec.Struct, frozen=True):
    """What happened to the machine while wake-ups were measured. `stolen`: share of the processor time that the hypervisor
    gave to others; None where the kernel does not count it. `others`: the busiest other processes. `heat_stops`: how often
    cores were slowed down for their heat. `major_faults`: pages of this process that were fetched from a disk."""

    stolen: float | None = None
    others_cores: float = 0.0
    others: tuple[Busy, ...] = ()
    throttled: Throttled | None = None
    heat_stops: int | None = None
    major_faults: int = 0


class Sensor(msgspec.Struct, frozen=True):
    """A temperature in degrees Celsius; `high` is where the hardware begins to mind, None where it does not say."""

    name: str
    now: float
    high: float | None = None


class Library(msgspec.Struct, frozen=True):
    """A library that agent and node need; `version` is empty where it is missing. `detail`: what else it says of itself."""

    name: str
    version: str = ""
    detail: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """An NVIDIA device. Clocks in MHz; `slowed` are the reasons for which its clocks are held down right now."""

    name: str
    driver: str = ""
    clock_mhz: int | None = None
    highest_mhz: int | None = None
    slowed: tuple[str, ...] = ()
    persistent: bool | None = None
    celsius: int | None = None
    free_mb: int | None = None
    total_mb: int | None = None


class Gpus(msgspec.Struct, frozen=True):
    """All NVIDIA devices; `absent` says why none is known."""

    devices: tuple[Gpu, ...] = ()
    absent: str = ""


class Facts(msgspec.Struct, frozen=True):
    """All that was read and measured."""

    headtail: str
    python: str
    wakes: Wakes
    collector: Collector
    clocks: Clocks
    kernel: Kernel
    cores: Cores
    memory: Memory
    privileges: Privileges
    during: During
    sensors: tuple[Sensor, ...] = ()
    libraries: tuple[Library, ...] = ()
    providers: tuple[str, ...] = ()
    gpus: Gpus = Gpus()
