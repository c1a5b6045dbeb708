"""What the runtime really runs, and how long each kernel of it takes.

The graph is optimised as it will run, saved as optimised, and run with the runtime's own profiling; the two are joined by the
kernels' names (`partitioner.graph.kernel_times`).

A provider that only launches its kernels (a graphics device) shows the launches here and not the work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, cast

import onnx

from partitioner.graph.kernel_times import kernel_times
from partitioner.graph.model import Model
from partitioner.graph.run import Tensors, run_session
from partitioner.graph.runtime import CPU, open_session
from partitioner.graph.walk import node_inputs, node_outputs
from shared.errors import ModelError


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operator of the optimised graph: the values that it uses and makes, and its time in microseconds in each run."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    times_us: tuple[float, ...]


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
        return read_kernels(_read_graph(self._graph), written.read_bytes(), self._name)


def read_kernels(graph: onnx.GraphProto, profile: bytes, name: str) -> tuple[Kernel, ...]:
    """The kernels of an optimised graph with the times that a profile of it tells. What the profile names and the graph does
    not comes last, without values.

    Raises `ModelError` that begins with `name` where the profile cannot be read or holds no run.
    """
    return known_kernels(graph, [kernel_times(profile, name)])


def known_kernels(graph: onnx.GraphProto, parts: Iterable[Mapping[str, Sequence[float]]]) -> tuple[Kernel, ...]:
    """The same for a graph that ran as several parts, one after the other, of each of which the kernels' times are given."""
    nodes = {node.name: (place, node) for place, node in enumerate(graph.node)}
    known: list[tuple[int, Kernel]] = []
    others: list[Kernel] = []
    for times in parts:
        for name, of_runs in times.items():
            if name in nodes:
                place, node = nodes[name]
                values = (tuple(node_inputs(node)), tuple(node_outputs(node)))
                known.append((place, Kernel(name, node.op_type, *values, tuple(of_runs))))
            else:
                others.append(Kernel(name, "", (), (), tuple(of_runs)))
    return (*(kernel for _, kernel in sorted(known, key=lambda pair: pair[0])), *others)


def optimised_graph(model: Model, threads: int = 1) -> onnx.GraphProto:
    """The graph as the runtime optimises it here, for its names. Raises `ModelError` where it refuses the model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        open_session(model, threads=threads, save_to=path)
        return _read_graph(path)


def _read_graph(path: Path) -> onnx.GraphProto:
    return onnx.load(  # pyright: ignore[reportUnknownMemberType]
        str(path), format="protobuf", load_external_data=False
    ).graph
