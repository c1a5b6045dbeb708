"""The shapes that a user states, and the inputs of a graph made to fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from partitioner.graph.model import Model, value_info
from shared.errors import ModelError
from shared.request import TensorSpec

Shapes = Mapping[str, tuple[int, ...]]
"""Shape at one row by input name."""


MAX_INPUT_BYTES = 1 << 30
"""Of one row of one input. What is larger is a slip of the pen, and fills the memory of whoever tries it."""


def parse_shapes(model: Model, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes from `"1,3,192,192"` (a model with one input) or `"name=1,3,192,192"` (any).

    Raises:
        ModelError: not numbers, an unknown input, one given twice, or another number of axes than the model has.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    names = [spec.name for spec in model.inputs]
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        if not equals:
            if len(names) != 1:
                raise ModelError(f"shape '{text}': {model.name} has inputs {', '.join(names)}; write NAME={text}")
            name = names[0]
        if name not in names:
            raise ModelError(f"shape '{text}': {model.name} has no input '{name}'; it has {', '.join(names)}")
        if name in shapes:
            raise ModelError(f"shape '{text}': input '{name}' has a shape already")
        shapes[name] = _numbers(text, numbers)
    for value in model.proto.graph.input:
        tensor = value.type.tensor_type
        if value.name in shapes and tensor.HasField("shape") and len(tensor.shape.dim) != len(shapes[value.name]):
            raise ModelError(
                f"shape '{','.join(map(str, shapes[value.name]))}': input '{value.name}' of {model.name} has "
                f"{len(tensor.shape.dim)} axes, {describe_axes(value)}"
            )
    return shapes


def _numbers(text: str, numbers: str) -> tuple[int, ...]:
    parts = [part.strip() for part in numbers.split(",")] if numbers.strip() else []
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ModelError(f"shape '{text}': expected positive numbers joined by commas, such as 1,3,192,192")
    return tuple(int(part) for part in parts)


def describe_axes(value: onnx.ValueInfoProto) -> str:
    """The shape as the file gives it, `?` for what it leaves open."""
    names = [str(d.dim_value) if d.dim_value > 0 else (d.dim_param or "?") for d in value.type.tensor_type.shape.dim]
    return f"({', '.join(names)})"


def concrete_inputs(model: Model, shapes: Shapes) -> tuple[TensorSpec, ...]:
    """Every input at one row. A first axis that is open counts one; any other open axis must be stated.

    Raises:
        ModelError: an axis is open, an input is no tensor of numbers, or it is larger than `MAX_INPUT_BYTES`.
    """
    values = {value.name: value for value in model.proto.graph.input}
    specs: list[TensorSpec] = []
    for spec in model.inputs:
        value = values[spec.name]
        if not spec.dtype:
            raise ModelError(f"{model.name}: input '{spec.name}' is not a tensor of numbers that numpy knows")
        shape = shapes.get(spec.name)
        if shape is None:
            if not value.type.tensor_type.HasField("shape"):
                raise ModelError(f"{model.name}: input '{spec.name}' has no shape; state it with --shape")
            shape = tuple(1 if axis == 0 and size < 0 else size for axis, size in enumerate(spec.shape))
        if any(size < 0 for size in shape):
            raise ModelError(
                f"{model.name}: input '{spec.name}' has open axes {describe_axes(value)}; state them with "
                f"--shape {spec.name}={','.join('?' if size < 0 else str(size) for size in shape)}"
            )
        specs.append(TensorSpec(spec.name, spec.dtype, shape))
        if specs[-1].nbytes() > MAX_INPUT_BYTES:
            raise ModelError(
                f"{model.name}: input '{spec.name}' of shape {','.join(map(str, shape))} takes {specs[-1].nbytes():,} bytes, "
                f"expected at most {MAX_INPUT_BYTES:,}"
            )
    return tuple(specs)


def check_one_row(model: Model, shapes: Shapes) -> None:
    """Refuse stated shapes of several rows, for a model of which a batch gives the same as its rows one by one.

    A first axis that the file itself fixes may be stated as it is there. Raises `ModelError`.
    """
    fixed = {spec.name: spec.shape[0] for spec in model.inputs if spec.shape}
    for name, shape in shapes.items():
        if shape and shape[0] not in {1, fixed.get(name)}:
            one = ",".join(map(str, (1, *shape[1:])))
            raise ModelError(
                f"shape '{name}={','.join(map(str, shape))}': the first axis of '{name}' counts the rows of a batch, and a "
                f"shape is that of one row: expected {one}"
            )


def set_inputs(proto: onnx.ModelProto, specs: Sequence[TensorSpec], free_rows: bool) -> None:
    """Give the graph these inputs, in place; the first axis stays open where `free_rows`."""
    del proto.graph.input[:]
    proto.graph.input.extend(value_info(spec, free_rows) for spec in specs)
