"""Plans made in code, for the pure machines: no bundle, no runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shared.plan import (
    PLAN_FORMAT,
    RAW,
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
    contract_digest,
)
from shared.request import Array, TensorSpec

X = TensorSpec("x", "float32", (1, 64))
MID = TensorSpec("mid", "float32", (1, 16))
Y = TensorSpec("y", "float32", (1, 4))
INT8 = Coding("int8", "int8", scales=((1.0,) * 16,))
RAW_ROUTE = Route(0, "raw", 1.0, 400, 200)
INT8_ROUTE = Route(1, "int8", 0.97, 160, 200)


def make_plan(
    *,
    edge_ms: tuple[float, float] = (6.0, 4.0),
    cloud_ms: float = 1.0,
    routes: Sequence[Route] = (RAW_ROUTE,),
    rung_agreement: float = 0.9,
    ladder: bool = True,
    max_batch: int = 8,
    batch_slope: float = 0.25,
) -> tuple[str, Plan]:
    """(contract, plan): program 0 of two segments (`edge_ms[0]` each on the edge, `cloud_ms` each in the cloud) and a rung
    `small` of `edge_ms[1]`. A further row costs `batch_slope` of the first."""

    def times(whole_ms: float, small_ms: float) -> tuple[RangeTime, ...]:
        rows = []
        for batch in (1, 2, 4, 8):
            factor = 1 + batch_slope * (batch - 1)
            for first, last in ((0, 1), (1, 2), (0, 2)):
                us = whole_ms * 1000 * (last - first) * factor
                rows.append(RangeTime(0, first, last, batch, us, us * 1.1))
            rows.append(RangeTime(1, 0, 1, batch, small_ms * 1000 * factor, small_ms * 1100 * factor))
        return tuple(rows)

    codecs = (CodecTime(1, "int8", 100.0, 100.0),)
    plan = Plan(
        format=PLAN_FORMAT,
        name="test",
        model="0" * 64,
        opset=17,
        ir_version=8,
        batchable=True,
        max_batch=max_batch,
        cuts=(Cut("x", (X,)), Cut("mid", (MID,), (RAW, INT8)), Cut("y", (Y,))),
        programs=(
            Program("whole", (Segment("s0", "s0.onnx", ("x",), ("mid",)), Segment("s1", "s1.onnx", ("mid",), ("y",)))),
            Program("small", (Segment("r0", "r0.onnx", ("x",), ("y",)),)),
        ),
        ladder=(Rung("whole", 0, 1.0), Rung("small", 1, rung_agreement)) if ladder else (),
        routes=tuple(routes),
        metric="relative",
        chosen="",
        digests={},
        profiles=(
            Profile("edge", "test", "CPUExecutionProvider", 1, 1.0, 30.0, times(*edge_ms), codecs),
            Profile("cloud", "test", "CPUExecutionProvider", 1, 1.0, 30.0, times(cloud_ms, cloud_ms), codecs),
        ),
    )
    return contract_digest(plan), plan


def make_input(seed: int = 0, rows: int = 1) -> tuple[Array, ...]:
    """Seeded inputs of cut 0."""
    return (np.random.default_rng(seed).integers(0, 100, X.at(rows)).astype(np.float32),)
