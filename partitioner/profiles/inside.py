"""What a device is measured with where it serves: the program that an agent or a node starts beside itself.

    python -m partitioner.profiles.inside ORDER        (`shared.measurer.Order` as JSON)

It loads the bundle's segments as its parent did, runs the whole model at the stated cadence, in turn with and without the
runtime's own profiling, and says what came of it in lines on its standard output (`shared.measurer`). Runs in which its
parent stopped it do not count, nor does the run after, which finds cold caches. It needs no more than an agent or a node
does: whoever asked has the model, and makes of the kernels' times those of the groups of operators
(`partitioner.profiles.through`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from partitioner.costs.timing import Job, Pace, Samples, sample_at, stable, switches
from partitioner.graph.kernel_times import kernel_times
from partitioner.profiles.machine import PowerMeter, board_name, read_clocks, versions
from partitioner.profiles.record import Clock, Power
from shared.bundle import Bundle, load_bundle
from shared.errors import HeadtailError, UserError
from shared.executors.ort import OrtPrograms, load_programs
from shared.measurer import Order
from shared.plan import SegmentRange
from shared.request import Array
from shared.settings import Execution

CPU = "CPUExecutionProvider"
LEAST_RUNS = 16
"""Runs of the whole at each batch size that must count, however long that takes."""

MEMORY_FACTOR = 3
MEMORY_MORE = 256 << 20
"""Bytes that must be free: so many times the model's files (two sessions and what lies between them), and this much more."""

PR_SET_PDEATHSIG = 1


class BatchRuns(msgspec.Struct, frozen=True):
    """Runs of `batch` rows, in microseconds: of the whole, and of each segment's kernels in each run, with which of these
    runs were undisturbed. `stable` as in a profile."""

    batch: int
    runs_us: list[float]
    stable: bool
    kernels_us: list[dict[str, list[float]]]
    quiet: list[int]


class Inside(msgspec.Struct, frozen=True):
    """All that is told. `stopped` counts the runs that do not count, since work came."""

    name: str
    device: str
    provider: str
    threads: int
    slowdown: float
    cadence_hz: float
    segments: int
    versions: dict[str, str]
    clocks: tuple[Clock, ...]
    power: tuple[Power, ...]
    batches: tuple[BatchRuns, ...]
    disturbed_share: float
    stopped: int


Key = tuple[str, int]


class Stops:
    """Counts how often the parent has stopped this process, by the bytes that it writes before each stop."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._count = 0
        os.set_blocking(descriptor, False)

    def count(self) -> int:
        """Stops so far."""
        with suppress(BlockingIOError):
            self._count += len(os.read(self._descriptor, 1 << 16))
        return self._count


class Undisturbed(Samples[Key]):
    """Samples without the runs in which the process was stopped, and without the one after each, which finds cold caches."""

    def __init__(self, stops: Callable[[], int]) -> None:
        super().__init__()
        self.stopped = 0
        self._stops = stops
        self._before = stops()
        self._again = False

    def add(self, key: Key, time_us: float, *, disturbed: bool) -> None:
        """Take in one run, or leave it out."""
        stops = self._stops()
        held = stops != self._before
        self._before = stops
        if held or self._again:
            self.stopped += 1
        else:
            super().add(key, time_us, disturbed=disturbed)
        self._again = held


class _Watch:
    """The kernels' runs of one loaded model, in their order: which batch size each was of, and whether it was disturbed."""

    def __init__(self, programs: OrtPrograms, whole: SegmentRange, stops: Callable[[], int]) -> None:
        self._programs = programs
        self._whole = whole
        self._stops = stops
        self.order: list[tuple[int, bool]] = []

    def run(self, batch: int, feeds: dict[str, Array]) -> None:
        before = (switches(), self._stops())
        self._programs.run(self._whole, feeds, self._programs.interrupt())
        self.order.append((batch, (switches(), self._stops()) != before))

    def kernels(self) -> list[dict[str, list[float]]]:
        """Of each segment its kernels, with the time in each of the runs; those from before are left out."""
        count = len(self.order)
        return [
            {name: times[-count:] for name, times in kernel_times(path.read_bytes(), f"segment {segment}").items()}
            for (_, segment), path in sorted(self._programs.end_watching().items())
        ]


def measure_inside(order: Order, stops: Stops) -> Inside:
    """Measure. Raises `HeadtailError` for a bundle that is no longer there, or does not run, or for too little memory."""
    bundle = load_bundle(order.bundle)
    if bundle.contract != order.contract:
        raise UserError(
            f"{bundle.path} was replaced since it is served: start the process again, or ask for the new one"
        )
    _check_memory(bundle)
    execution = Execution(provider=order.provider, threads=order.threads)
    whole = SegmentRange(0, 0, len(bundle.plan.cuts) - 1)
    most = max(order.batches)
    meter = PowerMeter()
    clocks = read_clocks()
    plain = load_programs(bundle, execution, "cloud", most)
    with tempfile.TemporaryDirectory() as folder:
        watched = None
        if order.provider == CPU:
            watched = _Watch(load_programs(bundle, execution, "cloud", most, watched=Path(folder)), whole, stops.count)
        jobs: list[dict[Key, Job]] = []
        for batch in order.batches:
            feeds = _feeds(bundle, batch)
            jobs.append({("whole", batch): _turns(feeds, lambda feed: plain.run(whole, feed, plain.interrupt()))})
            if watched is not None:
                jobs.append({("kernels", batch): _turns(feeds, partial(watched.run, batch))})
        samples = Undisturbed(stops.count)
        _sample(order, jobs, samples, meter)
        ran = [] if watched is None else watched.order
        kernels = [] if watched is None else watched.kernels()
    return Inside(
        name=order.name,
        device=board_name(),
        provider=order.provider,
        threads=order.threads,
        slowdown=order.slowdown,
        cadence_hz=order.cadence_hz,
        segments=len(bundle.plan.programs[0].segments),
        versions=versions(),
        clocks=read_clocks() or clocks,  # under load, where there are any
        power=meter.power(),
        batches=tuple(_batch(batch, samples, ran, kernels) for batch in order.batches),
        disturbed_share=samples.disturbed_share,
        stopped=samples.stopped,
    )


def _feeds(bundle: Bundle, batch: int) -> list[dict[str, Array]]:
    """The bundle's golden inputs at so many rows, each of them first in one."""
    rows = [vector.inputs for vector in bundle.golden()]
    names = [spec.name for spec in bundle.plan.inputs]
    found: list[dict[str, Array]] = []
    for start in range(len(rows)):
        chosen = [rows[(start + i) % len(rows)] for i in range(batch)]
        joined = chosen[0] if batch == 1 else tuple(np.concatenate(arrays) for arrays in zip(*chosen, strict=True))
        found.append(dict(zip(names, joined, strict=True)))
    return found


def _turns(feeds: Sequence[dict[str, Array]], run: Callable[[dict[str, Array]], object]) -> Job:
    """A job that runs with each of the feeds in turn."""
    turn = 0

    def job() -> object:
        nonlocal turn
        turn += 1
        return run(feeds[turn % len(feeds)])

    return job


def _sample(order: Order, jobs: Sequence[dict[Key, Job]], samples: Undisturbed, meter: PowerMeter) -> None:
    pace = Pace.of(order.cadence_hz, order.threads)
    if order.provider != CPU:
        pace = replace(pace, work_ns=None)
    wholes: list[Key] = [("whole", batch) for batch in order.batches]
    began_s = time.monotonic()
    while True:
        for group in jobs:
            sample_at(pace, [group], 0.0, samples)
            meter.sample()
        runs = [samples.runs.get(key, []) for key in wholes]
        passed_s = time.monotonic() - began_s
        enough = min(len(of_one) for of_one in runs) / LEAST_RUNS
        say(f"progress {min(1.0, passed_s / max(order.seconds, 1e-9), enough):.4f}")
        if enough >= 1.0 and (passed_s >= order.seconds or all(map(stable, runs))):
            return


def _batch(
    batch: int, samples: Undisturbed, ran: Sequence[tuple[int, bool]], kernels: Sequence[dict[str, list[float]]]
) -> BatchRuns:
    runs = samples.runs["whole", batch]
    mine = [place for place, (of, _) in enumerate(ran) if of == batch]
    return BatchRuns(
        batch=batch,
        runs_us=[round(run, 1) for run in runs],
        stable=stable(runs),
        kernels_us=[{name: [times[place] for place in mine] for name, times in part.items()} for part in kernels],
        quiet=[number for number, place in enumerate(mine) if not ran[place][1]],
    )


def _check_memory(bundle: Bundle) -> None:
    """Raise `UserError` where the system has too little left for two more copies of the model."""
    need = MEMORY_FACTOR * sum(path.stat().st_size for path in bundle.files.values()) + MEMORY_MORE
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
        if free < need:
            raise UserError(f"there is too little memory to measure beside what is served: {free:,} bytes of {need:,}")


def say(line: str, content: bytes = b"") -> None:
    """Write a line for the parent, and what belongs to it."""
    sys.stdout.buffer.write(line.replace("\n", " ").encode() + b"\n" + content)
    sys.stdout.buffer.flush()


def give_way() -> None:
    """Let the system take this process's memory before any other's, and end it with its parent."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(text: str) -> None:
    """Measure what the order says, and tell the parent."""
    give_way()
    try:
        found = measure_inside(msgspec.json.decode(text, type=Order), Stops(sys.stdin.fileno()))
    except HeadtailError as error:
        say(f"broke {error}")
        return
    content = zlib.compress(msgspec.json.encode(found), 1)
    say(f"result {len(content)}", content)


if __name__ == "__main__":
    main(sys.argv[1])
