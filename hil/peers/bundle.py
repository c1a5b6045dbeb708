"""A bundle of one ONNX model as it is: one segment, one input, one output, sent raw; timed by batch size in this process."""

from __future__ import annotations

import importlib
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from hil.small_bundle import finish_small
from shared.bundle import Golden
from shared.plan import PLAN_FORMAT, RAW, Cut, Plan, Profile, Program, RangeTime, Route, Segment
from shared.request import Array, TensorSpec

runtime: Any = importlib.import_module("onnxruntime")

BATCHES = (1, 2, 4, 8, 16)
RUNS = 30
HEADER_BYTES = 300


def write_served(model: Path, folder: Path) -> tuple[Path, tuple[int, ...], bytes]:
    """Write the bundle `NAME.plan` of a model with one float32 input and one float32 output and an open first axis. Returns
    its path, the shape of a row without the first axis, and the bytes of a sample row."""
    proto = ModelProto.FromString(model.read_bytes())
    path = folder / f"{model.stem}.plan"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    shutil.copyfile(model, path / "whole.onnx")
    session = runtime.InferenceSession(str(model), _options(), providers=["CPUExecutionProvider"])
    entry, leaving = session.get_inputs()[0], session.get_outputs()[0]
    shape = tuple(int(n) for n in entry.shape[1:])
    sample = np.random.default_rng(3).standard_normal((1, *shape), dtype=np.float32)
    answer: Array = np.asarray(session.run(None, {entry.name: sample})[0])
    times: list[RangeTime] = []
    for batch in BATCHES:
        rows = np.repeat(sample, batch, axis=0)
        taken: list[float] = []
        for _ in range(RUNS):
            began = time.perf_counter_ns()
            session.run(None, {entry.name: rows})
            taken.append((time.perf_counter_ns() - began) / 1e3)
        times.append(RangeTime(0, 0, 1, batch, statistics.median(taken), max(sorted(taken)[-2], 1.0)))
    x = TensorSpec(entry.name, "float32", (1, *shape))
    y = TensorSpec(leaving.name, "float32", (1, *answer.shape[1:]))
    profile = ("this machine", "CPUExecutionProvider", 1, 1.0, 0.0, tuple(times))
    plan = Plan(
        format=PLAN_FORMAT,
        name=model.stem,
        model=model.stem,
        opset=max(o.version for o in proto.opset_import if o.domain in {"", "ai.onnx"}),
        ir_version=proto.ir_version,
        batchable=True,
        max_batch=BATCHES[-1],
        cuts=(Cut(x.name, (x,), (RAW,)), Cut(y.name, (y,), (RAW,))),
        programs=(Program("whole", (Segment("whole", "whole.onnx", (x.name,), (y.name,)),)),),
        ladder=(),
        routes=(Route(0, "raw", 1.0, sample.nbytes + HEADER_BYTES, answer.nbytes + HEADER_BYTES),),
        metric="exact",
        chosen="the whole model on the node, for measuring",
        digests={},
        profiles=(Profile("edge", *profile), Profile("cloud", *profile)),
    )
    finish_small(path, plan, [Golden((sample,), (answer,))], model.stem)
    return path, shape, sample.tobytes()


def _options() -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
