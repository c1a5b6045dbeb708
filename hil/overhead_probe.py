"""The probes of `hil.overhead`: models that move a stated number of bytes and compute for a known while."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import NodeProto, helper

from hil.small_bundle import IR_VERSION, OPSET, finish_small, write_segment
from partitioner.costs.cost import HEADER_BYTES
from shared.bundle import Golden
from shared.plan import PLAN_FORMAT, RAW, Cut, Plan, Profile, Program, RangeTime, Route, Rung, Segment
from shared.request import TensorSpec

WIDTH = 512
LAYERS = 8
"""Products of a row of `WIDTH` with a square matrix in each of the two segments: about half a millisecond together."""

RUN_US = 400.0
"""What a segment takes, about: more than what an agent or a node carries out in its loop."""


def write_probe(folder: Path, name: str, nbytes: int) -> Path:
    """Write the bundle `NAME.plan` of a probe of `nbytes` bytes, float32, and return its path. Its output is its input, and
    so is what crosses its one inner cut, `middle`."""
    path = folder / f"{name}.plan"
    path.mkdir(parents=True)
    specs = [TensorSpec(tensor, "float32", (1, nbytes // 4)) for tensor in ("x", "middle", "y")]
    segments = (Segment("head", "head.onnx", ("x",), ("middle",)), Segment("tail", "tail.onnx", ("middle",), ("y",)))
    for segment, entry, leaving in zip(segments, specs, specs[1:], strict=False):
        _write_segment(path / segment.file, entry, leaving)
    sample = np.random.default_rng(0).random(specs[0].shape, np.float32)
    times = tuple(
        RangeTime(0, first, last, 1, RUN_US * (last - first), 2 * RUN_US * (last - first))
        for first, last in ((0, 1), (1, 2), (0, 2))
    )
    profile = ("probe", "CPUExecutionProvider", 1, 1.0, 30.0, times)
    plan = Plan(
        format=PLAN_FORMAT,
        name=name,
        model=name,
        opset=OPSET,
        ir_version=IR_VERSION,
        batchable=False,
        max_batch=1,
        cuts=tuple(Cut(spec.name, (spec,), (RAW,)) for spec in specs),
        programs=(Program("whole", segments),),
        ladder=(Rung("whole", 0, 1.0),),
        routes=tuple(Route(cut, "raw", 1.0, nbytes + HEADER_BYTES, nbytes + HEADER_BYTES) for cut in (0, 1)),
        metric="exact",
        chosen="a probe, for measuring",
        digests={},
        profiles=(Profile("edge", *profile), Profile("cloud", *profile)),
    )
    return finish_small(path, plan, [Golden((sample,), (sample,))], "a probe")


def _write_segment(path: Path, entry: TensorSpec, leaving: TensorSpec) -> None:
    """What leaves is what enters, plus nothing that was computed from the beginning of it."""
    width = min(WIDTH, entry.shape[1])
    nodes: list[NodeProto] = [helper.make_node("Slice", [entry.name, "first", "last", "axis"], ["row0"])]
    nodes += [helper.make_node("MatMul", [f"row{layer}", "square"], [f"row{layer + 1}"]) for layer in range(LAYERS)]
    nodes += [
        helper.make_node("ReduceMax", [f"row{LAYERS}"], ["most"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["most", "zero"], ["nothing"]),
        helper.make_node("Add", [entry.name, "nothing"], [leaving.name]),
    ]
    square = np.random.default_rng(1).standard_normal((width, width)).astype(np.float32) / np.float32(np.sqrt(width))
    constants = {
        "first": np.array([0], np.int64),
        "last": np.array([width], np.int64),
        "axis": np.array([1], np.int64),
        "square": square,
        "zero": np.zeros((), np.float32),
    }
    write_segment(path, nodes, entry, leaving, constants, batchable=False)
