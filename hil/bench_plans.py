"""The bench's models: identities of one float32 tensor, so that only headtail's own work is measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from shared.bundle import digests, write_manifest
from shared.plan import (
    GOLDEN_FILE,
    PLAN_FILE,
    PLAN_FORMAT,
    RAW,
    REPORT_FILE,
    WEIGHTS_FILE,
    Cut,
    Plan,
    Profile,
    Program,
    RangeTime,
    Route,
    Rung,
    Segment,
)
from shared.request import TensorSpec

OPSET = 17
IR_VERSION = 8
HEADER_BYTES = 300
RUN_US = 60.0
"""What one run of an identity takes, with its copy, about; the latency models correct it from the first runs on."""


def write_identity(folder: Path, name: str, nbytes: int, *, insured: bool) -> Path:
    """Write the bundle `NAME.plan` of an identity of `nbytes` bytes and return its path.

    Its one route sends the input raw. Where `insured`, the device has a rung of agreement 0.5, the same identity, so that a
    cloud answer is the better one; else the ladder is empty and the cloud answers alone.
    """
    path = folder / f"{name}.plan"
    path.mkdir(parents=True)
    x = TensorSpec("x", "float32", (1, nbytes // 4))
    y = TensorSpec("y", "float32", (1, nbytes // 4))
    _write_model(path / "whole.onnx", x, y)
    (path / WEIGHTS_FILE).write_bytes(b"")
    (path / REPORT_FILE).write_text("<!doctype html><title>identity</title>", encoding="utf-8")
    sample = np.random.default_rng(0).random(x.shape, np.float32)
    np.savez(path / GOLDEN_FILE, **{"in/0/x": sample, "out/0/y": sample})  # type: ignore[arg-type]
    segment = Segment("whole", "whole.onnx", ("x",), ("y",))
    programs = [Program("whole", (segment,))]
    times = [RangeTime(0, 0, 1, 1, RUN_US, 2 * RUN_US)]
    if insured:
        _write_model(path / "rung.onnx", x, y)
        programs.append(Program("rung", (Segment("rung", "rung.onnx", ("x",), ("y",)),)))
        times.append(RangeTime(1, 0, 1, 1, RUN_US, 2 * RUN_US))
    profile = ("bench", "CPUExecutionProvider", 1, 1.0, 30.0, tuple(times))
    plan = Plan(
        format=PLAN_FORMAT,
        name=name,
        model=name,
        opset=OPSET,
        ir_version=IR_VERSION,
        batchable=True,
        max_batch=4,
        cuts=(Cut("x", (x,), (RAW,)), Cut("y", (y,), (RAW,))),
        programs=tuple(programs),
        ladder=(Rung("rung", 1, 0.5),) if insured else (),
        routes=(Route(0, "raw", 1.0, nbytes + HEADER_BYTES, nbytes + HEADER_BYTES),),
        metric="exact",
        chosen="an identity, for measuring",
        digests={},
        profiles=(Profile("edge", *profile), Profile("cloud", *profile)),
    )
    files = [s.file for p in programs for s in p.segments]
    plan = msgspec.structs.replace(plan, digests=digests(path, [*files, WEIGHTS_FILE]))
    (path / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    write_manifest(path)
    return path


def _write_model(path: Path, x: TensorSpec, y: TensorSpec) -> None:
    def value(spec: TensorSpec) -> ValueInfoProto:
        return helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, ["N", *spec.shape[1:]])

    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", [value(x)], [value(y)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    path.write_bytes(model.SerializeToString())
