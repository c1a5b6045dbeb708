"""What the runtime really runs, and how long each kernel of it takes.

The graph is optimised as it will run, saved as optimised, and run with the runtime's own profiling; the two are joined by the
kernels' names. Times come in whole microseconds, cut off, so that half a microsecond is added to each: a network of small
kernels would otherwise lose a tenth of its time. Kernels inside a body of `If`, `Loop` or `Scan` lie within the time of
the operator that holds them and are left out.

A provider that only launches its kernels (a graphics device) shows the launches here and not the work.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, cast

import msgspec
import onnx

from partitioner.graph.model import Model
from partitioner.graph.run import Tensors, run_session
from partitioner.graph.runtime import CPU, open_session
from partitioner.graph.walk import node_inputs, node_outputs
from shared.errors import ModelError

SUFFIX = "_kernel_time"
RUN = "model_run"
HALF_TICK_US = 0.5
"""What is cut off of a time in whole microseconds, on average."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operator of the optimised graph: the values that it uses and makes, and its time in microseconds in each run."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    times_us: tuple[float, ...]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One line of the runtime's profile; begin and duration in whole microseconds."""

    name: str
    cat: str
    ts: int
    dur: int = 0


class _Profiling(Protocol):
    def end_profiling(self) -> str: ...


class Watched:
    """A loaded model whose kernels are timed in each run, until `kernels` ends that. Used as a context."""

    def __init__(self, model: Model, threads: int = 1, provider: str = CPU) -> None:
        """Raises `ModelError` where the runtime refuses the model."""
        self._name = model.name
        self._outputs = [spec.name for spec in model.outputs]
        self._folder = tempfile.TemporaryDirectory()
        self._graph = Path(self._folder.name) / "optimised.onnx"
        prefix = Path(self._folder.name) / "kernels"
        try:
            self._session = open_session(
                model, threads=threads, provider=provider, save_to=self._graph, profile_to=prefix
            )
        except ModelError:
            self._folder.cleanup()
            raise

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._session  # it may hold files in the folder
        self._folder.cleanup()

    def run(self, inputs: Tensors) -> None:
        """Run once. Raises `ModelError`."""
        run_session(self._session, self._name, self._outputs, inputs)

    def kernels(self) -> tuple[Kernel, ...]:
        """Every kernel of the optimised graph with its times, in the order of the graph; further runs are not timed.

        Raises `ModelError` where the runtime's profile cannot be read.
        """
        written = Path(cast(_Profiling, self._session).end_profiling())
        proto = onnx.load(  # pyright: ignore[reportUnknownMemberType]
            str(self._graph), format="protobuf", load_external_data=False
        )
        return read_kernels(proto.graph, written.read_bytes(), self._name)


def read_kernels(graph: onnx.GraphProto, profile: bytes, name: str) -> tuple[Kernel, ...]:
    """The kernels of an optimised graph with the times that a profile of it tells. What the profile names and the graph does
    not comes last, without values.

    Raises `ModelError` that begins with `name` where the profile cannot be read or holds no run.
    """
    try:
        events = msgspec.json.decode(profile, type=list[Event])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{name}: the runtime's profile cannot be read: {error}") from error
    starts = sorted(event.ts for event in events if (event.cat, event.name) == ("Session", RUN))
    if not starts:
        raise ModelError(f"{name}: the runtime's profile holds no run")
    times: dict[str, list[float]] = {}
    for event in _outermost(event for event in events if event.cat == "Node" and event.name.endswith(SUFFIX)):
        run = bisect_right(starts, event.ts) - 1
        if run >= 0:
            of_runs = times.setdefault(event.name.removesuffix(SUFFIX), [0.0] * len(starts))
            of_runs[run] += event.dur + HALF_TICK_US
    known = [
        Kernel(
            node.name, node.op_type, tuple(node_inputs(node)), tuple(node_outputs(node)), tuple(times.pop(node.name))
        )
        for node in graph.node
        if node.name in times
    ]
    return (*known, *(Kernel(other, "", (), (), tuple(of_runs)) for other, of_runs in times.items()))


def _outermost(events: Iterable[Event]) -> Sequence[Event]:
    """The events that lie within no other one."""
    found: list[Event] = []
    end = -1
    for event in sorted(events, key=lambda event: (event.ts, -event.dur)):
        if event.ts >= end or event.ts + event.dur > end:
            found.append(event)
            end = event.ts + event.dur
    return found
