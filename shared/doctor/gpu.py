"""What NVIDIA's management library (module `pynvml` of the package nvidia-ml-py) tells of the devices.

The module is imported here only, when it is asked for; what it gives is used through `Nvml`, so that tests put an object of
their own in its place. A device that does not know an answer (many a Jetson) leaves that field None.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from shared.doctor.facts import Gpu, Gpus

Value = TypeVar("Value")

_SM_CLOCK = 1
_CORE_HEAT = 0

SLOWED = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "software heat limit",
    0x40: "hardware heat limit",
    0x80: "power brake",
}
"""Reasons for clocks held down, by their bit in `nvml.h`. Those that are no fault (idle, a clock that was asked for) are left
out."""


class _Used(Protocol):
    free: int
    total: int


class Nvml(Protocol):
    """The few functions that are used, as `pynvml` names them. Each may raise `NVMLError`."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:  # noqa: N802
        """Begin."""
        ...

    def nvmlShutdown(self) -> None:  # noqa: N802
        """End."""
        ...

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        """The driver's version."""
        ...

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """How many devices there are."""
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:  # noqa: N802
        """One device."""
        ...

    def nvmlDeviceGetName(self, handle: object) -> str:  # noqa: N802
        """Its name."""
        ...

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802
        """A clock in MHz."""
        ...

    def nvmlDeviceGetMaxClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802
        """The highest that this clock may be, in MHz."""
        ...

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int:  # noqa: N802
        """Bits of the reasons for which clocks are held down."""
        ...

    def nvmlDeviceGetPersistenceMode(self, handle: object) -> int:  # noqa: N802
        """1 where the driver stays loaded without a user."""
        ...

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:  # noqa: N802
        """Degrees Celsius."""
        ...

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> _Used:  # noqa: N802
        """Memory in bytes."""
        ...


def load_nvml() -> Nvml | None:
    """The real library; None where it is not installed."""
    try:
        return cast(Nvml, importlib.import_module("pynvml"))
    except ImportError:
        return None


def read_gpus(nvml: Nvml | None) -> Gpus:
    """All devices, or why none is known."""
    if nvml is None:
        return Gpus(absent="the package nvidia-ml-py is not installed (extras edge-gpu, cloud-gpu)")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(absent=f"no NVIDIA driver ({error})")
    try:
        driver = _known(nvml, nvml.nvmlSystemGetDriverVersion) or ""
        count = _known(nvml, nvml.nvmlDeviceGetCount) or 0
        devices = tuple(_device(nvml, index, driver) for index in range(count))
        return Gpus(devices, "" if devices else "the driver shows no device")
    finally:
        nvml.nvmlShutdown()


def _device(nvml: Nvml, index: int, driver: str) -> Gpu:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return Gpu(f"device {index}, which the driver cannot open ({error})", driver)
    reasons = _known(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    persistence = _known(nvml, lambda: nvml.nvmlDeviceGetPersistenceMode(handle))
    memory = _known(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return Gpu(
        name=_known(nvml, lambda: nvml.nvmlDeviceGetName(handle)) or f"device {index}",
        driver=driver,
        clock_mhz=_known(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK)),
        highest_mhz=_known(nvml, lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, _SM_CLOCK)),
        slowed=tuple(reason for bit, reason in SLOWED.items() if reasons & bit),
        persistent=None if persistence is None else persistence == 1,
        celsius=_known(nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, _CORE_HEAT)),
        free_mb=None if memory is None else memory.free >> 20,
        total_mb=None if memory is None else memory.total >> 20,
    )


def _known(nvml: Nvml, ask: Callable[[], Value]) -> Value | None:
    try:
        return ask()
    except nvml.NVMLError:
        return None
