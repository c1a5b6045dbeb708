"""`Model`: an ONNX graph with the few facts that the partitioner asks for again and again."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shared.request import TensorSpec

ROW_AXIS = "N"
"""Name of the first axis of inputs and outputs of a batchable graph."""


SHARING_A_BYTE = frozenset(
    number for name, number in TensorProto.DataType.items() if name in {"UINT4", "INT4", "FLOAT4E2M1", "UINT2", "INT2"}
)
"""Element types of which several share a byte."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A graph in memory. `proto` is never changed in place once it is in here: passes copy.

    `name` is for messages (the file's name at first). `inputs` and `outputs` are at one row; of a file that was only read
    they are what the file says, unknown axes as -1. `batchable`: the first axis of every input and output counts rows
    and may be any number. It is False until a batch has been proven.
    """

    proto: onnx.ModelProto
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batchable: bool = False

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        return opset_of(self.proto)

    @property
    def ir_version(self) -> int:
        """Version of the file format."""
        return int(self.proto.ir_version)

    @property
    def parameters(self) -> int:
        """Elements of all initializers."""
        return sum(math.prod(_dims(t)) for t in self.proto.graph.initializer)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all initializers."""
        return sum(tensor_bytes(t) for t in self.proto.graph.initializer)

    @property
    def digest(self) -> str:
        """sha256 (hexadecimal) of graph and weights; names the model (`Plan.model`)."""
        total = hashlib.sha256()
        for tensor in self.proto.graph.initializer:
            total.update(f"{tensor.name}={content_digest(tensor)};".encode())
        skeleton = without_weights(self.proto)
        total.update(skeleton.SerializeToString(deterministic=True))
        return total.hexdigest()


def opset_of(proto: onnx.ModelProto) -> int:
    """Version of the default operator set (1 where the file names none)."""
    return max((o.version for o in proto.opset_import if o.domain in {"", "ai.onnx"}), default=1)


def _dims(tensor: TensorProto) -> list[int]:
    return [int(size) for size in tensor.dims]


def tensor_bytes(tensor: TensorProto) -> int:
    """Bytes of an initializer's elements, taken from type and shape where they tell: to ask for the elements copies them."""
    if tensor.data_type == TensorProto.STRING:
        return sum(len(s) for s in tensor.string_data)
    if tensor.data_type in SHARING_A_BYTE and tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    return math.prod(_dims(tensor)) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def raw_bytes(tensor: TensorProto) -> bytes:
    """An initializer's elements as little-endian bytes, however the file holds them. Not for strings."""
    if tensor.HasField("raw_data"):
        return tensor.raw_data
    return numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data


def content_digest(tensor: TensorProto) -> str:
    """sha256 (hexadecimal) of an initializer's type, shape and elements; its name does not count."""
    total = hashlib.sha256(f"{tensor.data_type}:{list(tensor.dims)}:".encode())
    if tensor.data_type == TensorProto.STRING:
        for item in tensor.string_data:
            total.update(len(item).to_bytes(8, "little") + item)
    else:
        total.update(raw_bytes(tensor))
    return total.hexdigest()


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of everything but the initializers. Cheap also where the whole is too large to be serialised."""
    copy = onnx.ModelProto()
    for field, value in proto.ListFields():
        if field.name == "graph":
            continue
        if field.is_repeated:
            getattr(copy, field.name).extend(value)
        elif field.message_type is not None:
            getattr(copy, field.name).CopyFrom(value)
        else:
            setattr(copy, field.name, value)
    graph = proto.graph
    copy.graph.name = graph.name
    copy.graph.node.extend(graph.node)
    copy.graph.input.extend(graph.input)
    copy.graph.output.extend(graph.output)
    copy.graph.value_info.extend(graph.value_info)
    copy.graph.sparse_initializer.extend(graph.sparse_initializer)
    return copy


def spec_of(value: onnx.ValueInfoProto) -> TensorSpec:
    """What a file says about a value: unknown axes are -1; the type is empty where it is not a tensor of numbers."""
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else -1 for d in dims)
    return TensorSpec(value.name, dtype_name(tensor.elem_type), shape)


def dtype_name(elem_type: int) -> str:
    """numpy's name of an ONNX element type, or "" where numpy has none (bfloat16, 8-bit floats, strings, no tensor)."""
    native: dict[int, str] = {
        TensorProto.FLOAT: "float32",
        TensorProto.DOUBLE: "float64",
        TensorProto.FLOAT16: "float16",
        TensorProto.INT8: "int8",
        TensorProto.INT16: "int16",
        TensorProto.INT32: "int32",
        TensorProto.INT64: "int64",
        TensorProto.UINT8: "uint8",
        TensorProto.UINT16: "uint16",
        TensorProto.UINT32: "uint32",
        TensorProto.UINT64: "uint64",
        TensorProto.BOOL: "bool",
    }
    return native.get(elem_type, "")


def value_info(spec: TensorSpec, batchable: bool) -> onnx.ValueInfoProto:
    """A graph input or output for a tensor; the first axis is `ROW_AXIS` where batchable."""
    shape: list[int | str] = list(spec.shape)
    if batchable:
        shape[0] = ROW_AXIS
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    return helper.make_tensor_value_info(spec.name, elem_type, shape)


def real_inputs(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs that are not initializers."""
    held = {t.name for t in proto.graph.initializer}
    return [v for v in proto.graph.input if v.name not in held]


def as_read(proto: onnx.ModelProto, name: str) -> Model:
    """A `Model` with only what the graph says of itself."""
    return Model(
        proto,
        name,
        tuple(spec_of(v) for v in real_inputs(proto)),
        tuple(spec_of(v) for v in proto.graph.output),
    )
