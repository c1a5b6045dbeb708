"""What a file says about its weights, held against what is there, before anything is made of it.

A model file may come from anywhere. It names other files, which must lie beside it, and sizes, which must fit what it
holds: a library that believes them reads files that are none of the model's, or asks for a terabyte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import GraphProto, TensorProto, helper

from partitioner.graph.model import SHARING_A_BYTE
from partitioner.graph.walk import bodies
from shared.errors import ModelError

COMPLEX = frozenset({TensorProto.COMPLEX64, TensorProto.COMPLEX128})
"""Element types that are written as two numbers."""


def check_files(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse weights in files that are not beside the model's, or too short.

    Raises:
        ModelError: it names the weight and its file.
    """
    folder = path.parent.resolve()
    for tensor in _weights(proto.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        said = {entry.key: entry.value for entry in tensor.external_data}
        location = said.get("location", "")
        what = f"{path}: weight '{tensor.name}'"
        if not location:
            raise ModelError(f"{what} lies in another file, which is not named")
        file = (folder / location).resolve()
        if Path(location).is_absolute() or folder not in file.parents:
            raise ModelError(
                f"{what} lies in {location}, outside the model's folder; expected a file beside the model's"
            )
        if not file.is_file():
            raise ModelError(f"{what} lies in {location}, and there is no such file beside the model's")
        offset, length = (_count(said.get(key, default)) for key, default in (("offset", "0"), ("length", "")))
        if offset is None or (length is None and said.get("length")):
            raise ModelError(f"{what}: offset and length in {location} must be numbers of bytes")
        needed = offset + (_bytes_of(tensor) if length is None else length)
        if needed > file.stat().st_size:
            raise ModelError(
                f"{what} ends at byte {needed:,} of {location}, which has {file.stat().st_size:,}: the file is cut off"
            )


def check_elements(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse weights of which there are not as many elements as their shape says.

    Raises:
        ModelError: it names the weight.
    """
    for tensor in _weights(proto.graph):
        shape = [int(size) for size in tensor.dims]
        what = f"{path}: weight '{tensor.name}' of shape {shape}"
        if any(size < 0 for size in shape):
            raise ModelError(f"{what}: expected no size below zero")
        if tensor.data_type == TensorProto.UNDEFINED or tensor.data_type not in TensorProto.DataType.values():
            raise ModelError(f"{what} has element type {tensor.data_type}, which is none")
        if tensor.data_type in SHARING_A_BYTE:  # their number is left to the libraries
            continue
        if tensor.HasField("raw_data"):
            held, needed, unit = len(tensor.raw_data), _bytes_of(tensor), "bytes"
        else:
            held = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
            needed, unit = math.prod(shape) * (2 if tensor.data_type in COMPLEX else 1), "elements"
        if held != needed:
            raise ModelError(f"{what} needs {needed:,} {unit}, and the file has {held:,}")


def _weights(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor that a graph holds, those of its `Constant` operators and bodies included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
        for body in bodies(node):
            yield from _weights(body)


def _bytes_of(tensor: TensorProto) -> int:
    if tensor.data_type in SHARING_A_BYTE or tensor.data_type == TensorProto.STRING:
        return 0
    return math.prod(int(size) for size in tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None
