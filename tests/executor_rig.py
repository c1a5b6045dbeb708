"""What the tests of the executor share: programs that do as told, and a collector of what executors say."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping

import numpy as np
from tiny import run_chain

from shared import codecs
from shared.bundle import Bundle
from shared.errors import ModelError
from shared.events import Event, Failed, Finished, Row, Run
from shared.executors.buffers import Buffers
from shared.executors.ort import load_programs
from shared.executors.programs import Interrupt, Programs
from shared.executors.slowness import Slowness
from shared.executors.thread import ThreadExecutor
from shared.plan import RAW, SegmentRange
from shared.request import Array
from shared.settings import Execution
from shared.slots import slot_plan

PATIENCE_S = 30
NEVER_NS = 1 << 62
WHOLE = SegmentRange(0, 0, 3)
ROWS = 4


class ScriptedInterrupt:
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self) -> None:
        self.stopped.set()


class Scripted:
    """Programs that do as told; `began` is set when a run begins."""

    def __init__(self, bundle: Bundle, work: Callable[[Mapping[str, Array], ScriptedInterrupt], tuple[Array, ...]]):
        self.plan = bundle.plan
        self.work = work
        self.began = threading.Event()
        self.calls = 0

    def interrupt(self) -> ScriptedInterrupt:
        return ScriptedInterrupt()

    def run(self, part: SegmentRange, feeds: Mapping[str, Array], interrupt: Interrupt) -> tuple[Array, ...]:
        self.calls += 1
        self.began.set()
        return self.work(feeds, interrupt)


def double(feeds: Mapping[str, Array], _: ScriptedInterrupt) -> tuple[Array, ...]:
    return (feeds["x"] * 2,)


def until_stopped(_: Mapping[str, Array], interrupt: ScriptedInterrupt) -> tuple[Array, ...]:
    assert interrupt.stopped.wait(PATIENCE_S)
    raise ModelError("stopped")


class Rig:
    """Executors on one bundle, and what they say."""

    def __init__(self, *, poison: bool = False) -> None:
        self.poison = poison
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.open: list[ThreadExecutor] = []

    def make(self, bundle: Bundle, programs: Programs, slowdown: float = 1.0, rows: int = ROWS) -> ThreadExecutor:
        buffers = Buffers([(bundle.plan, slot_plan(bundle.contract, bundle.plan, rows, 1))], poison=self.poison)
        slowness = Slowness(slowdown, {bundle.contract: bundle.plan}, "edge")
        executor = ThreadExecutor("test", {bundle.contract: programs}, buffers, slowness, self.events.put)
        self.open.append(executor)
        executor.start()
        return executor

    def real(self, bundle: Bundle, slowdown: float = 1.0) -> ThreadExecutor:
        return self.make(bundle, load_programs(bundle, Execution(), "edge", ROWS), slowdown)

    def next(self) -> Event:
        return self.events.get(timeout=PATIENCE_S)

    def finished(self) -> Finished:
        event = self.next()
        assert isinstance(event, Finished), event
        return event

    def failed(self) -> Failed:
        event = self.next()
        assert isinstance(event, Failed), event
        return event


def run_of(
    bundle: Bundle, *rows: Row, part: SegmentRange = WHOLE, run: int = 1, slot: int = 0, latest_ns: int = NEVER_NS
) -> Run:
    return Run(run, 0, bundle.contract, part, rows, slot, latest_ns)


def identity_run(bundle: Bundle, *rows: Row, run: int = 1, slot: int = 0, latest_ns: int = NEVER_NS) -> Run:
    return run_of(bundle, *rows, part=SegmentRange(0, 0, 1), run=run, slot=slot, latest_ns=latest_ns)


def vector(*values: float) -> Array:
    return np.asarray([values], np.float32)


ONE = Row(1, 1, (vector(1, 2, 3, 4),), RAW)


def as_frames(bundle: Bundle, cut: int, coding: str, arrays: tuple[Array, ...]) -> tuple[bytes, ...]:
    chosen = bundle.plan.cuts[cut].coding(coding)
    assert chosen is not None
    return tuple(bytes(codecs.encode(array, chosen, i)) for i, array in enumerate(arrays))


def reference(bundle: Bundle, image: Array) -> dict[str, Array]:
    return run_chain(bundle.path, bundle.plan.programs[0].segments, {"image": image})
