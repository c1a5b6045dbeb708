"""What of a model decides where it can run and be cut: control flow, 8 bits, types of weights, what nothing runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import onnxruntime
from onnx import GraphProto, NodeProto, TensorProto, defs

from partitioner.graph.model import Model, tensor_bytes
from partitioner.graph.runtime import providers
from partitioner.graph.walk import bodies

CONTROL = frozenset({"If", "Loop", "Scan"})
STANDARD = ("", "ai.onnx")

_ort = cast(Any, onnxruntime)  # it has no types; what is used of it is typed below


class Quantisation(msgspec.Struct, frozen=True):
    """What of a model is in 8 bits. `quantise` and `dequantise` count those operators; `integer` counts the operators that
    compute with integers, by name; `dynamic` is whether ranges are found anew for each run."""

    quantise: int
    dequantise: int
    integer: dict[str, int]
    dynamic: bool

    @property
    def any(self) -> bool:
        """Whether anything is."""
        return bool(self.quantise or self.dequantise or self.integer or self.dynamic)


def quantisation(model: Model) -> Quantisation:
    """What of a model is in 8 bits, bodies of its operators included."""
    counts = Counter(node.op_type for node in all_nodes(model.proto.graph))
    integer = {name: count for name, count in sorted(counts.items()) if _integer(name)}
    dynamic = counts["DynamicQuantizeLinear"] > 0 or any(name.startswith("DynamicQuantize") for name in counts)
    return Quantisation(counts["QuantizeLinear"], counts["DequantizeLinear"], integer, dynamic)


def control_flow(model: Model) -> dict[str, int]:
    """How often each operator with a graph inside is used, bodies included."""
    return dict(sorted(Counter(n.op_type for n in all_nodes(model.proto.graph) if n.op_type in CONTROL).items()))


def weights_by_type(model: Model) -> dict[str, int]:
    """Bytes of the weights of each element type, by its ONNX name in small letters, the largest first."""
    total: Counter[str] = Counter()
    for tensor in model.proto.graph.initializer:
        total[TensorProto.DataType.Name(tensor.data_type).lower()] += tensor_bytes(tensor)
    return dict(total.most_common())


def unsupported(model: Model) -> tuple[str, ...]:
    """Operators for which no installed provider has a kernel and that are not made of others either, as `NAME` or
    `DOMAIN:NAME`, sorted. Types are not looked at: the runtime alone knows which it takes."""
    known = _kernels()
    local = {(function.domain, function.name) for function in model.proto.functions}
    found: set[str] = set()
    for node in all_nodes(model.proto.graph):
        if (node.domain, node.op_type) not in local and not _runs(node, model.opset, known):
            found.add(node.op_type if node.domain in STANDARD else f"{node.domain}:{node.op_type}")
    return tuple(sorted(found))


def all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Every operator of a graph and of the graphs inside of its operators."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def _integer(name: str) -> bool:
    return name.startswith(("QLinear", "DynamicQuantize")) or name.endswith("Integer")


def _kernels() -> dict[tuple[str, str], list[tuple[int, int]]]:
    """The versions of each operator that some installed provider implements, first and last, by domain and name."""
    installed = set(providers())
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for kernel in cast("list[Any]", _ort.capi.onnxruntime_pybind11_state.get_all_opkernel_def()):
        if kernel.provider in installed:
            domain = "" if kernel.domain in STANDARD else str(kernel.domain)
            first, last = kernel.version_range
            found.setdefault((domain, str(kernel.op_name)), []).append((int(first), int(last)))
    return found


def _runs(node: NodeProto, opset: int, known: dict[tuple[str, str], list[tuple[int, int]]]) -> bool:
    if node.op_type == "Constant":
        return True  # the runtime makes weights of these
    domain = "" if node.domain in STANDARD else node.domain
    kernels = known.get((domain, node.op_type), [])
    if domain:
        return bool(kernels)
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except defs.SchemaError:
        return False
    made_of_others = bool(cast(Any, schema).has_function or cast(Any, schema).has_context_dependent_function)
    return made_of_others or any(first <= schema.since_version <= last for first, last in kernels)
