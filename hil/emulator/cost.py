"""What the emulator itself costs on this machine: how many packets a second it moves, and how late they leave."""

from __future__ import annotations

import os
import signal
import statistics
import time

import msgspec

from hil.emulator.handle import Emulator
from hil.emulator.messages import Link
from hil.emulator.probe import Probe
from hil.emulator.shape import GilbertElliott, Shape

LINK = Link("air", "edge", "cloud")
BACKLOG = 4000
"""Packets that wait while the emulator is stopped: fewer than its devices hold."""

SIZE = 1200
TOLD_MS = 5.0
FULL = Shape(delay_ms=1.0, jitter_ms=1.0, rate_mbit=9000.0, queue_bytes=64 << 20, bursts=GilbertElliott(0.0, 1.0))
"""Everything is worked out for each packet, and nothing is lost or held up for long."""


class Cost(msgspec.Struct, frozen=True):
    """Packets a second of one direction through an open link and through one where everything is switched on, each the median
    of some turns; and milliseconds from sending to receiving beyond the delay, on a link that delays nothing and on one that
    delays `TOLD_MS`."""

    plain_pps: float
    full_pps: float
    plain_p50_ms: float
    plain_p99_ms: float
    delayed_p50_ms: float
    delayed_p99_ms: float


def measure(turns: int = 5, packets: int = 500) -> Cost:
    """Measure in `turns` turns of a backlog, and by `packets` packets sent one by one. Raises what `Emulator` raises."""
    with Emulator((LINK,)) as emulator, Probe(emulator, LINK.name, LINK.near, LINK.far) as probe:
        plain = _throughput(emulator, probe, Shape(), turns)
        full = _throughput(emulator, probe, FULL, turns)
        beyond = [_beyond_ms(emulator, probe, told_ms, packets) for told_ms in (0.0, TOLD_MS)]
    return Cost(plain, full, *beyond[0], *beyond[1])


def _throughput(emulator: Emulator, probe: Probe, shape: Shape, turns: int) -> float:
    """Packets a second, from a backlog that came while the emulator's process was stopped, until the last was received: no
    sender takes its time meanwhile. Where the receiver is slower, it is the receiver's figure."""
    emulator.shape(shape, Shape())
    rates: list[float] = []
    for _ in range(turns):
        os.kill(emulator.pid, signal.SIGSTOP)
        try:
            probe.send(range(BACKLOG), SIZE)
        finally:
            began_ns = time.monotonic_ns()
            os.kill(emulator.pid, signal.SIGCONT)
        came = probe.receive(BACKLOG)
        rates.append(BACKLOG / ((came[-1].came_ns - began_ns) / 1e9))
    return statistics.median(rates)


def _beyond_ms(emulator: Emulator, probe: Probe, told_ms: float, packets: int) -> tuple[float, float]:
    emulator.shape(Shape(delay_ms=told_ms), Shape())
    took: list[float] = []
    for number in range(packets):
        probe.send([number], SIZE)
        took.append(probe.receive(1)[0].took_ms - told_ms)
    hundredths = statistics.quantiles(took, n=100, method="inclusive")
    return hundredths[49], hundredths[98]
