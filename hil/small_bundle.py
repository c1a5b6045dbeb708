"""What the rigs' own small bundles have in common: segments written in code, and the files around them.

Cutting, weighing and proving are left out: whoever writes a bundle this way knows what it answers, and says so by its golden
vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from shared.bundle import Golden, digests, write_manifest
from shared.plan import GOLDEN_FILE, PLAN_FILE, REPORT_FILE, WEIGHTS_FILE, Plan
from shared.request import Array, TensorSpec

OPSET = 17
IR_VERSION = 8


def write_segment(
    path: Path,
    nodes: Sequence[NodeProto],
    entry: TensorSpec,
    leaving: TensorSpec,
    weights: Mapping[str, Array],
    *,
    batchable: bool = True,
) -> None:
    """Write an ONNX file of one input and one output, whose first axis is open where `batchable`."""

    def value(spec: TensorSpec) -> ValueInfoProto:
        shape: list[int | str] = ["N", *spec.shape[1:]] if batchable else list(spec.shape)
        return helper.make_tensor_value_info(spec.name, helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype)), shape)

    kept = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), path.stem, [value(entry)], [value(leaving)], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    path.write_bytes(model.SerializeToString())


def finish_small(folder: Path, plan: Plan, vectors: Sequence[Golden], about: str) -> Path:
    """Write everything but the segments, which lie in `folder`, and return that. The plan's digests are made here; `about` is
    the title of its page."""
    (folder / WEIGHTS_FILE).write_bytes(b"")
    (folder / REPORT_FILE).write_text(f"<!doctype html><title>{about}</title>", encoding="utf-8")
    golden: dict[str, Array] = {}
    for number, vector in enumerate(vectors):
        golden |= {f"in/{number}/{s.name}": array for s, array in zip(plan.inputs, vector.inputs, strict=True)}
        golden |= {f"out/{number}/{s.name}": array for s, array in zip(plan.outputs, vector.outputs, strict=True)}
    np.savez(folder / GOLDEN_FILE, **golden)  # type: ignore[arg-type]
    files = [segment.file for program in plan.programs for segment in program.segments]
    whole = msgspec.structs.replace(plan, digests=digests(folder, [WEIGHTS_FILE, *files]))
    (folder / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(whole)))
    write_manifest(folder)
    return folder
