"""Loaded parts of a model and what they answer: the partitioner's own way to run rows.

Everything here works on tuples of arrays in a stated order, as segments and codecs do, so that a head, a coding and a tail
can be put one behind the other as a deployed pair would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partitioner.graph.model import Model
from partitioner.graph.run import Session, open_session, run_session
from shared.codecs import decode_into, dtype_of, encode
from shared.plan import Coding
from shared.request import Array, Buffer, TensorSpec

Tensors = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A loaded graph. `name` is for messages."""

    name: str
    session: Session
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __call__(self, tensors: Tensors) -> Tensors:
        """The outputs, in order, for the inputs, in order. Raises `ModelError` where the runtime refuses them."""
        feed = dict(zip(self.inputs, tensors, strict=True))
        return tuple(run_session(self.session, self.name, list(self.outputs), feed).values())

    def named(self, tensors: Tensors) -> dict[str, Array]:
        """The outputs by name."""
        return dict(zip(self.outputs, self(tensors), strict=True))


def load_part(model: Model, threads: int) -> Part:
    """Load a graph from memory. Raises `ModelError`."""
    session = open_session(model, threads=threads)
    return Part(
        model.name, session, tuple(spec.name for spec in model.inputs), tuple(spec.name for spec in model.outputs)
    )


def load_file(path: Path, inputs: Sequence[str], outputs: Sequence[str], threads: int) -> Part:
    """Load a segment's file. Raises `ModelError`."""
    return Part(path.name, open_session(path, threads=threads), tuple(inputs), tuple(outputs))


def run_chain(parts: Sequence[Part], tensors: Tensors) -> Tensors:
    """Run parts one behind the other. No part gives the tensors back."""
    for part in parts:
        tensors = part(tensors)
    return tensors


def encode_all(tensors: Tensors, coding: Coding) -> tuple[Buffer, ...]:
    """The frames of a cut's tensors."""
    return tuple(encode(array, coding, index) for index, array in enumerate(tensors))


def decode_all(frames: Sequence[Buffer], coding: Coding, specs: Sequence[TensorSpec], rows: int = 1) -> Tensors:
    """The tensors of a cut's frames, in arrays of their own."""
    tensors: list[Array] = []
    for index, (frame, spec) in enumerate(zip(frames, specs, strict=True)):
        out = np.empty(spec.at(rows), dtype_of(spec.dtype))
        decode_into(frame, coding, index, spec, rows, out)
        tensors.append(out)
    return tuple(tensors)


def frames_nbytes(frames: Sequence[Buffer]) -> int:
    """Bytes of some frames."""
    return sum(memoryview(frame).nbytes for frame in frames)


def join_rows(rows: Sequence[Tensors]) -> Tensors:
    """Rows joined on the first axis. A single row is given back as it is, with what has no axis."""
    if len(rows) == 1:
        return rows[0]
    return tuple(np.concatenate(arrays) for arrays in zip(*rows, strict=True))


def named(outputs: Sequence[TensorSpec], tensors: Tensors) -> Mapping[str, Array]:
    """Outputs by name, as the metrics take them."""
    return {spec.name: array for spec, array in zip(outputs, tensors, strict=True)}
