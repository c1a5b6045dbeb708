"""A model in 8 bits: weights and activations, by ranges that were seen on real rows.

The work is onnxruntime's: static, pairs of QuantizeLinear and DequantizeLinear (QDQ), weights by channel, ranges of
activations by the least and the largest value seen. Only the model itself is quantised. What was put in front of it and
behind it stays as it is: pixels are 8 bits already, and boxes that are rounded to 256 steps are worth little.

Weights take 7 of their 8 bits: processors without VNNI add two products of 8 bits in 16, which overflows at full range, so
that a rung judged on one machine would give other answers on the next.

Ranges that are found anew for each run (dynamic quantisation) are refused, see `refuse_dynamic`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

import onnx

from partitioner.graph.load import load_model
from partitioner.graph.model import Model
from partitioner.graph.normalise import normalise, settled, tidy
from partitioner.graph.observe import batch_works
from partitioner.graph.recipe import Recipe
from partitioner.graph.run import Tensors
from partitioner.graph.runtime import LARGE_BYTES
from partitioner.graph.shapes import parse_shapes
from shared.errors import ModelError, UserError
from shared.request import Array

HEAVY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators whose time 8 bits can save."""

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})


def refuse_dynamic(model: Model) -> NoReturn:
    """The `UserError` that says why dynamic quantisation is refused: what it does to convolutions, else to a batch's rows."""
    count = sum(node.op_type in CONVOLUTIONS for node in model.proto.graph.node)
    if count:
        raise UserError(
            f"{model.name}: dynamic int8 is refused: there are {count} convolutions, which take 4 to 12 times as long with "
            "ranges that are found anew for each run; expected static int8 (rung int8)"
        )
    raise UserError(
        f"{model.name}: dynamic int8 is refused: it takes its ranges over a whole batch, so that a row's answer would depend "
        "on the rows beside it; expected static int8 (rung int8)"
    )


def build_quantised(recipe: Recipe, whole: Model, rows: Sequence[Tensors]) -> Model:
    """`whole`, which is `build(recipe)`, with the model itself in 8 bits and its pre- and post-processing as they are.

    `rows` are inputs of `whole` of one row each, by name, to which the ranges are fitted.

    Raises:
        ModelError: as `quantise`.
    """
    read = load_model(recipe.path)
    bare = normalise(read, parse_shapes(read, recipe.shapes))
    return quantise(whole, {node.name for node in bare.proto.graph.node}, rows)


def quantise(model: Model, nodes: Collection[str], rows: Sequence[Tensors]) -> Model:
    """The model with the operators of these names in 8 bits, same inputs and outputs. Batchable where it was, proven.

    Raises:
        ModelError: there is nothing to fit to or to gain, it is quantised already or too large, the library refuses it, or
            outputs or batches do not outlive it.
    """
    operators = model.proto.graph.node
    if not rows:
        raise ModelError(f"{model.name}: int8 needs rows to fit its ranges to")
    if any(node.op_type == "QuantizeLinear" for node in operators):
        raise ModelError(f"{model.name}: it is quantised already")
    chosen = [node.name for node in operators if node.name in nodes]
    if not any(node.op_type in HEAVY for node in operators if node.name in nodes):
        raise ModelError(f"{model.name}: it has none of {', '.join(sorted(HEAVY))}, so that int8 has nothing to gain")
    if model.weight_bytes > LARGE_BYTES:
        raise ModelError(f"{model.name}: {model.weight_bytes:,} bytes of weights are too many to be quantised here")
    result = settled(tidy(replace(model, proto=_quantised(model, chosen, rows))))
    if result.outputs != model.outputs:
        raise ModelError(f"{model.name}: in int8 its outputs would have other types or shapes")
    if model.batchable and not batch_works(result):
        raise ModelError(f"{model.name}: in int8, two rows at once differ from one by one")
    return result


class _Reader:
    """Rows as the library asks for them: one after the other, then None."""

    def __init__(self, rows: Sequence[Tensors]) -> None:
        self._rows = iter(rows)

    def get_next(self) -> dict[str, Array] | None:
        """The next row, by input name."""
        row = next(self._rows, None)
        return None if row is None else dict(row)


def _quantised(model: Model, nodes: list[str], rows: Sequence[Tensors]) -> onnx.ModelProto:
    from onnxruntime import quantization  # a second of imports, for few plans

    library = cast(Any, quantization)
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    with tempfile.TemporaryDirectory() as folder, _unheard():
        path = Path(folder) / "int8.onnx"
        try:
            library.quantize_static(
                proto,
                str(path),
                _Reader(rows),
                quant_format=library.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=True,
                activation_type=library.QuantType.QUInt8,
                weight_type=library.QuantType.QInt8,
                nodes_to_quantize=nodes,
            )
        except Exception as error:  # it raises whatever its parts raise
            words = " ".join(str(error).split())[:400]
            raise ModelError(f"{model.name}: cannot be quantised: {type(error).__name__}: {words}") from error
        return onnx.load(str(path), format="protobuf")  # pyright: ignore[reportUnknownMemberType]


@contextmanager
def _unheard() -> Generator[None]:
    """Keep the library's advice on preparing graphs, which it gives through the root logger, from the user's screen."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    root = logging.getLogger()
    root.addFilter(is_error)
    try:
        yield
    finally:
        root.removeFilter(is_error)
