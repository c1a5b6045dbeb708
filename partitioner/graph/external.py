"""Weights in a file beside the graph: what makes models above 2 GB possible, and what lets parts share their weights.

A weight file is always written fresh under another name and renamed when it is complete: libraries append to an
existing file when they save again, so that it grows with every save and an interrupted save leaves half of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import onnx
from onnx import TensorProto

from partitioner.graph.model import content_digest, raw_bytes, tensor_bytes, without_weights

SMALL_BYTES = 1024
"""Tensors up to this size stay inside the graph's file: shapes and scalars, which inference wants to see."""

PAGE = 4096
"""Offset granularity of large tensors, so that they can be mapped into memory."""


class WeightFile:
    """A weight file in the making. Equal tensors are stored once.

    Use as a context manager: leaving it without an error renames the file into place, with one removes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}")
        self._places: dict[str, tuple[int, int]] = {}
        self._file: BinaryIO | None = None
        self._end = 0

    def __enter__(self) -> WeightFile:
        self._file = self._draft.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None  # noqa: S101  (entered)
        self._file.close()
        if error is None:
            self._draft.replace(self._path)
        else:
            self._draft.unlink()

    def place(self, tensor: TensorProto) -> TensorProto:
        """A tensor of the same name whose elements lie in this file."""
        assert self._file is not None  # noqa: S101  (entered)
        key = content_digest(tensor)
        if key not in self._places:
            content = raw_bytes(tensor)
            step = PAGE if len(content) >= 16 * PAGE else 64
            padding = -self._end % step
            self._file.write(b"\0" * padding)
            self._file.write(content)
            self._places[key] = (self._end + padding, len(content))
            self._end += padding + len(content)
        offset, length = self._places[key]
        placed = TensorProto(
            name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, data_location=TensorProto.EXTERNAL
        )
        for name, value in (("location", self._path.name), ("offset", str(offset)), ("length", str(length))):
            entry = placed.external_data.add()
            entry.key, entry.value = name, value
        return placed


def with_external_weights(proto: onnx.ModelProto, weights: WeightFile) -> onnx.ModelProto:
    """A copy of the graph whose weights above `SMALL_BYTES` lie in `weights`."""
    copy = without_weights(proto)
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.STRING or tensor_bytes(tensor) <= SMALL_BYTES:
            copy.graph.initializer.append(tensor)
        else:
            copy.graph.initializer.append(weights.place(tensor))
    return copy


def save_with_weights(proto: onnx.ModelProto, folder: Path) -> Path:
    """Write `model.onnx` and `weights.bin` into a folder; the path of the former."""
    with WeightFile(folder / "weights.bin") as weights:
        copy = with_external_weights(proto, weights)
    path = folder / "model.onnx"
    path.write_bytes(copy.SerializeToString())
    return path
