"""The bench's models: identities of one float32 tensor, so that only headtail's own work is measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

from hil.small_bundle import IR_VERSION, OPSET, finish_small, write_segment
from shared.bundle import Golden
from shared.plan import PLAN_FORMAT, RAW, Cut, Plan, Profile, Program, RangeTime, Route, Rung, Segment
from shared.request import TensorSpec

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
    identity = [helper.make_node("Identity", ["x"], ["y"])]
    write_segment(path / "whole.onnx", identity, x, y, {})
    sample = np.random.default_rng(0).random(x.shape, np.float32)
    segment = Segment("whole", "whole.onnx", ("x",), ("y",))
    programs = [Program("whole", (segment,))]
    times = [RangeTime(0, 0, 1, 1, RUN_US, 2 * RUN_US)]
    if insured:
        write_segment(path / "rung.onnx", identity, x, y, {})
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
    return finish_small(path, plan, [Golden((sample,), (sample,))], "identity")
