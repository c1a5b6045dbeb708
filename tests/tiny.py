"""Small bundles for tests, made without the partitioner. `from tiny import make_bundle`.

`identity`: one float32 input "x" of (1, elements), one output "y" equal to it; two cuts, one segment.

`chain`: a uint8 image (1, 32, 32, 3) through three segments with seeded random weights to "logits" (1, 5) and "best"
(1,), int64. Cut 1 is one tensor, cut 2 has two. Codings: raw and jpeg90 at cut 0, raw and int8 at cuts 1 and 2. Program 1,
"small", is a cheaper rung that gives other answers.

`passing`: two segments; the first output of the whole, "early", is finished at cut 1 and is passed along; the input
itself is an output as well, so that outputs of a run are tensors of its entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from shared.bundle import digests, write_manifest
from shared.codecs import calibrate_int8
from shared.plan import (
    GOLDEN_FILE,
    PLAN_FILE,
    PLAN_FORMAT,
    RAW,
    REPORT_FILE,
    WEIGHTS_FILE,
    CodecTime,
    Coding,
    Cut,
    Plan,
    Profile,
    Program,
    RangeTime,
    Route,
    Rung,
    Segment,
)
from shared.request import Array, TensorSpec

Kind = Literal["identity", "chain", "passing"]

OPSET = 17
IR_VERSION = 8
SIDE = 32
CLASSES = 5


class Weights:
    """All weights once, in one file; tensors refer to it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.arrays: dict[str, Array] = {}

    def add(self, name: str, array: Array) -> TensorProto:
        self.data += bytes(-len(self.data) % 64)
        tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS_FILE), ("offset", len(self.data)), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.data += array.tobytes()
        self.arrays[name] = array
        return tensor


def _write_segment(
    folder: Path,
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    weights: Sequence[TensorProto] = (),
    *,
    batchable: bool = True,
    opset: int = OPSET,
) -> Segment:
    def value(spec: TensorSpec) -> onnx.ValueInfoProto:
        axis: list[str | int] = ["N", *spec.shape[1:]] if batchable else list(spec.shape)
        return helper.make_tensor_value_info(spec.name, helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype)), axis)

    graph = helper.make_graph(nodes, name, [value(s) for s in inputs], [value(s) for s in outputs], list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    return Segment(name, f"{name}.onnx", tuple(s.name for s in inputs), tuple(s.name for s in outputs))


def run_chain(folder: Path, segments: Sequence[Segment], tensors: dict[str, Array]) -> dict[str, Array]:
    """All tensors after each segment ran in its own session: the reference for tests."""
    known = dict(tensors)
    for segment in segments:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(folder / segment.file, options, providers=["CPUExecutionProvider"])
        made = session.run(list(segment.outputs), {name: known[name] for name in segment.inputs})
        known.update(zip(segment.outputs, made, strict=True))
    return known


def inputs_for(plan: Plan, rows: int = 1, seed: int = 0) -> tuple[Array, ...]:
    """Random inputs of cut 0."""
    rng = np.random.default_rng(seed)
    return tuple(
        rng.integers(0, 256, spec.at(rows), dtype=np.uint8)
        if spec.dtype == "uint8"
        else rng.standard_normal(spec.at(rows)).astype(spec.dtype)
        for spec in plan.inputs
    )


def make_bundle(
    folder: Path,
    kind: Kind = "chain",
    *,
    name: str | None = None,
    elements: int = 1024,
    batchable: bool = True,
    max_batch: int = 8,
    slowdown: float = 1.0,
    microseconds: float = 100.0,
    seed: int = 0,
    golden: int = 2,
) -> Path:
    """Write `folder/NAME.plan` and return its path. `elements` is the identity model's input length (1024 is 4 KB, 36,864
    is 147 KB, 147,456 is 590 KB). `microseconds` is the profiled p50 of one segment and one row, on both sides."""
    name = name or kind
    path = folder / f"{name}.plan"
    path.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    weights = Weights()
    build = {"identity": _identity, "chain": _chain, "passing": _passing}[kind]
    cuts, programs, ladder, routes = build(path, rng, weights, elements, batchable)
    (path / WEIGHTS_FILE).write_bytes(bytes(weights.data))
    cuts = _with_int8(path, cuts, programs[0])
    files = [WEIGHTS_FILE, *(segment.file for program in programs for segment in program.segments)]
    plan = Plan(
        format=PLAN_FORMAT,
        name=name,
        model=hashlib.sha256(f"{kind} {seed} {elements}".encode()).hexdigest(),
        opset=OPSET,
        ir_version=IR_VERSION,
        batchable=batchable,
        max_batch=max_batch if batchable else 1,
        cuts=cuts,
        programs=programs,
        ladder=ladder,
        routes=routes,
        metric="cosine",
        chosen="made for tests",
        digests=digests(path, files),
        profiles=_profiles(cuts, programs, max_batch if batchable else 1, slowdown, microseconds),
    )
    write_plan(path, plan)
    arrays: dict[str, Array] = {}
    for index in range(golden):
        given = dict(zip((s.name for s in plan.inputs), inputs_for(plan, seed=100 + index), strict=True))
        made = run_chain(path, programs[0].segments, given)
        arrays |= {f"in/{index}/{tensor}": array for tensor, array in given.items()}
        arrays |= {f"out/{index}/{spec.name}": made[spec.name] for spec in plan.outputs}
    np.savez(path / GOLDEN_FILE, **arrays)
    (path / REPORT_FILE).write_text("<title>made for tests</title>")
    write_manifest(path)
    return path


def write_plan(path: Path, plan: Plan) -> None:
    """Write `plan.json`; a changed bundle needs `write_manifest` after it."""
    (path / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))


Parts = tuple[tuple[Cut, ...], tuple[Program, ...], tuple[Rung, ...], tuple[Route, ...]]


def _identity(path: Path, rng: np.random.Generator, weights: Weights, elements: int, batchable: bool) -> Parts:
    x, y = TensorSpec("x", "float32", (1, elements)), TensorSpec("y", "float32", (1, elements))
    node = helper.make_node("Identity", ["x"], ["y"])
    whole = Program("whole", (_write_segment(path, "whole-0", [node], [x], [y], batchable=batchable),))
    route = Route(0, "raw", 1.0, x.nbytes() + 256, y.nbytes() + 256)
    return (Cut("input", (x,)), Cut("output", (y,))), (whole,), (Rung("whole", 0, 1.0),), (route,)


def _chain(path: Path, rng: np.random.Generator, weights: Weights, elements: int, batchable: bool) -> Parts:
    def random(name: str, *shape: int) -> TensorProto:
        return weights.add(name, (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    node = helper.make_node
    image = TensorSpec("image", "uint8", (1, SIDE, SIDE, 3))
    wide = TensorSpec("wide", "float32", (1, 6, 16, 16))
    deep, pooled = TensorSpec("deep", "float32", (1, 8, 8, 8)), TensorSpec("pooled", "float32", (1, 6, 1, 1))
    logits, best = TensorSpec("logits", "float32", (1, CLASSES)), TensorSpec("best", "int64", (1,))
    rows = -1 if batchable else 1
    flat = helper.make_tensor("flat", TensorProto.INT64, [2], [rows, 8 * 8 * 8 + 6])
    end = [
        node("MatMul", ["row", "head"], ["logits"]),
        node("ArgMax", ["logits"], ["best"], axis=1, keepdims=0),
    ]
    scale = weights.add("scale", np.asarray(1 / 128, np.float32))
    segments = (
        _write_segment(
            path,
            "whole-0",
            [
                node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
                node("Mul", ["float", "scale"], ["scaled"]),
                node("Transpose", ["scaled"], ["planes"], perm=[0, 3, 1, 2]),
                node("Conv", ["planes", "conv0"], ["conv"], pads=[1, 1, 1, 1], strides=[2, 2]),
                node("Relu", ["conv"], ["wide"]),
            ],
            [image],
            [wide],
            [scale, random("conv0", 6, 3, 3, 3)],
            batchable=batchable,
        ),
        _write_segment(
            path,
            "whole-1",
            [
                node("Conv", ["wide", "conv1"], ["conv"], pads=[1, 1, 1, 1], strides=[2, 2]),
                node("Relu", ["conv"], ["deep"]),
                node("GlobalAveragePool", ["wide"], ["pooled"]),
            ],
            [wide],
            [deep, pooled],
            [random("conv1", 8, 6, 3, 3)],
            batchable=batchable,
        ),
        _write_segment(
            path,
            "whole-2",
            [
                node("Flatten", ["deep"], ["deep_row"]),
                node("Flatten", ["pooled"], ["pooled_row"]),
                node("Concat", ["deep_row", "pooled_row"], ["joined"], axis=1),
                node("Reshape", ["joined", "flat"], ["row"]),
                *end,
            ],
            [deep, pooled],
            [logits, best],
            [flat, random("head", 8 * 8 * 8 + 6, CLASSES)],
            batchable=batchable,
        ),
    )
    small = _write_segment(
        path,
        "small-0",
        [
            node("Cast", ["image"], ["float"], to=TensorProto.FLOAT),
            node("Mul", ["float", "scale"], ["scaled"]),
            node("Transpose", ["scaled"], ["planes"], perm=[0, 3, 1, 2]),
            node("AveragePool", ["planes"], ["less"], kernel_shape=[8, 8], strides=[8, 8]),
            node("Flatten", ["less"], ["row"]),
            *end,
        ],
        [image],
        [logits, best],
        [weights_again(scale), random("head", 4 * 4 * 3, CLASSES)],
        batchable=batchable,
    )
    cuts = (
        Cut("input", (image,), (RAW, Coding("jpeg90", "jpeg", quality=90))),
        Cut("wide", (wide,)),
        Cut("deep", (deep, pooled)),
        Cut("output", (logits, best)),
    )
    routes = (
        Route(0, "jpeg90", 0.98, 1500, 300),
        Route(0, "raw", 1.0, image.nbytes() + 256, 300),
        Route(1, "int8", 0.99, 1536 + 256, 300),
        Route(1, "raw", 1.0, wide.nbytes() + 256, 300),
        Route(2, "raw", 1.0, deep.nbytes() + pooled.nbytes() + 256, 300),
    )
    ladder = (Rung("whole", 0, 1.0), Rung("small", 1, 0.5))
    return cuts, (Program("whole", segments), Program("small", (small,))), ladder, routes


def weights_again(tensor: TensorProto) -> TensorProto:
    """The same weights in another segment."""
    again = TensorProto()
    again.CopyFrom(tensor)
    return again


def _passing(path: Path, rng: np.random.Generator, weights: Weights, elements: int, batchable: bool) -> Parts:
    x = TensorSpec("x", "float32", (1, elements))
    early, middle, late = (TensorSpec(name, "float32", (1, elements)) for name in ("early", "middle", "late"))
    two = weights.add("two", np.asarray(2, np.float32))
    first = _write_segment(
        path,
        "whole-0",
        [helper.make_node("Mul", ["x", "two"], ["early"]), helper.make_node("Neg", ["x"], ["middle"])],
        [x],
        [early, middle],
        [two],
        batchable=batchable,
    )
    second = _write_segment(
        path,
        "whole-1",
        [helper.make_node("Add", ["middle", "two"], ["late"])],
        [middle],
        [late],
        [weights_again(two)],
        batchable=batchable,
    )
    cuts = (Cut("input", (x,)), Cut("middle", (early, middle, x)), Cut("output", (late, early, x)))
    routes = (
        Route(0, "raw", 1.0, 3 * x.nbytes(), 3 * x.nbytes()),
        Route(1, "raw", 1.0, 3 * x.nbytes(), 3 * x.nbytes()),
    )
    return cuts, (Program("whole", (first, second)),), (Rung("whole", 0, 1.0),), routes


def _with_int8(path: Path, cuts: tuple[Cut, ...], whole: Program) -> tuple[Cut, ...]:
    """Add a calibrated int8 coding to the inner cuts."""
    given = np.random.default_rng(9)
    samples: list[dict[str, Array]] = []
    for _ in range(3):
        start: dict[str, Array] = {
            s.name: given.integers(0, 256, s.shape, dtype=np.uint8)
            if s.dtype == "uint8"
            else given.standard_normal(s.shape).astype(s.dtype)
            for s in cuts[0].tensors
        }
        samples.append(run_chain(path, whole.segments, start))
    inner = tuple(
        msgspec.structs.replace(
            cut,
            codings=(
                *cut.codings,
                Coding("int8", "int8", scales=tuple(calibrate_int8([s[t.name] for s in samples]) for t in cut.tensors)),
            ),
        )
        for cut in cuts[1:-1]
    )
    return (cuts[0], *inner, cuts[-1])


def _profiles(
    cuts: tuple[Cut, ...], programs: tuple[Program, ...], max_batch: int, slowdown: float, microseconds: float
) -> tuple[Profile, ...]:
    def times(factor: float) -> tuple[RangeTime, ...]:
        return tuple(
            RangeTime(p, first, last, batch, cost, cost * 1.2)
            for p, program in enumerate(programs)
            for first in range(len(program.segments))
            for last in range(first + 1, len(program.segments) + 1)
            for batch in range(1, max_batch + 1)
            if p == 0 or (first, last) == (0, len(program.segments))
            for cost in [microseconds * factor * (last - first) * (0.4 + 0.6 * batch) * (1.0 if p == 0 else 0.5)]
        )

    codecs = tuple(CodecTime(c, coding.name, 20.0, 15.0) for c, cut in enumerate(cuts[:-1]) for coding in cut.codings)
    slow = tuple(CodecTime(t.cut, t.coding, t.encode_us * slowdown, t.decode_us * slowdown) for t in codecs)
    edge = Profile("edge", "test", "CPUExecutionProvider", 1, slowdown, 30.0, times(slowdown), slow)
    cloud = Profile("cloud", "test", "CPUExecutionProvider", 1, 1.0, 30.0, times(1.0), codecs)
    return edge, cloud
