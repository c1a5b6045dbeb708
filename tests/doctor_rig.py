"""Facts of a host on which all is well, for tests that spoil one of them."""

from __future__ import annotations

import msgspec

from shared.doctor.facts import (
    Clocks,
    Collector,
    Cores,
    During,
    Facts,
    Frequency,
    Gpus,
    IdleState,
    Kernel,
    Library,
    Memory,
    Privileges,
    Sensor,
    Throttled,
    Trial,
    Wakes,
)
from shared.lateness import LatenessFigures
from shared.process_settings import Limits


def wakes(alone_ms: float = 0.1, busy_ms: float = 0.2) -> Wakes:
    """Wake-ups whose p99.9 are these."""
    return Wakes(
        5.0,
        100.0,
        LatenessFigures(5000, 0.05, 0.08, alone_ms, 2 * alone_ms),
        LatenessFigures(5000, 0.1, 0.15, busy_ms, 2 * busy_ms),
        LatenessFigures(1000, 5.0, 5.2, 5.4, 6.0),
    )


GOOD = Facts(
    headtail="0.1.0",
    python="3.12.1",
    wakes=wakes(),
    collector=Collector(60_000, 30.0, 0.2),
    clocks=Clocks("tsc", ("tsc", "hpet"), 0.0),
    kernel=Kernel("6.8.0", "x86_64", False, "full", 0.95, "madvise"),
    cores=Cores(4, (0, 1, 2, 3), (Frequency(4, "performance", 800, 3000, 3000, 2900),), IdleState("C1", 2)),
    memory=Memory(16_000, 12_000, 0, 0),
    privileges=Privileges(Limits(99, -20, None, True, True), 65_536, Trial(True), Trial(True)),
    during=During(0.0, 0.1, (), Throttled(), 0, 0),
    sensors=(Sensor("coretemp Package", 50.0, 100.0),),
    libraries=(Library("onnxruntime", "1.20.0"), Library("pyzmq", "26.4.0", "libzmq 4.3.5")),
    providers=("CPUExecutionProvider",),
    gpus=Gpus(absent="no NVIDIA driver"),
)


def spoiled(**changes: object) -> Facts:
    """`GOOD` with some fields replaced: `cores={"may": (0,)}` replaces inside of `cores`."""
    made: dict[str, object] = {}
    for field, value in changes.items():
        made[field] = msgspec.structs.replace(getattr(GOOD, field), **value) if isinstance(value, dict) else value
    return msgspec.structs.replace(GOOD, **made)
