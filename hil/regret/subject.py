"""A plan to replay links under where none is given: of a detector whose device cannot do the whole model in time.

It has what makes a choice hard: the raw input is exact and large, a JPEG of it small and not quite exact, a cut is exact and
smaller but costs the device a part of its time, and the cut in eight bits is the smallest. Times follow the deadline, as
somebody would choose model and device for it; sizes are those of an image of 192 x 192.
"""

from __future__ import annotations

import hashlib

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
)
from shared.request import TensorSpec

SIDE = 192
CHANNELS, SMALLER = 12, 24
BOXES = 550
HEADER_BYTES = 300
JPEG_BYTES = 12_000
MAX_BATCH = 4
SPREAD = 1.15
"""p99 over p50 of the times."""

IMAGE = TensorSpec("image", "uint8", (1, SIDE, SIDE, 3))
FEATURES = TensorSpec("features", "float32", (1, CHANNELS, SMALLER, SMALLER))
FOUND = TensorSpec("boxes", "float32", (1, BOXES))
JPEG = Coding("jpeg90", "jpeg", quality=90)
INT8 = Coding("int8", "int8", scales=((0.1,) * CHANNELS,))


def subject(deadline_ms: float, period_ms: float) -> Plan:
    """The plan for requests of this deadline and period. On the device the whole takes 1.2 times the deadline, its cheaper
    rung of agreement 0.9 takes 60 % of the deadline or of the period, whichever is shorter, and the head of the cut 8 % of
    the deadline or 15 % of the period, so that one executor can do both for each request. A node takes 30 % of the deadline
    for all, at most 9 ms."""
    whole, small = 1.2 * deadline_ms, min(0.6 * deadline_ms, 0.6 * period_ms)
    head, cloud = min(0.08 * deadline_ms, 0.15 * period_ms), min(0.3 * deadline_ms, 9.0)
    share = head / whole
    edge = _ranges(head, whole - head, small)
    node = _ranges(cloud * share, cloud * (1 - share), cloud)
    codecs = (
        CodecTime(0, "jpeg90", 600.0, 400.0),
        CodecTime(1, "int8", 100.0, 60.0),
    )
    device = ("stated", "CPUExecutionProvider", 1)
    down = FOUND.nbytes() + HEADER_BYTES
    return Plan(
        format=PLAN_FORMAT,
        name=f"detector-{deadline_ms:g}ms",
        model=hashlib.sha256(b"regret").hexdigest(),
        opset=17,
        ir_version=8,
        batchable=True,
        max_batch=MAX_BATCH,
        cuts=(Cut("image", (IMAGE,), (RAW, JPEG)), Cut("features", (FEATURES,), (RAW, INT8)), Cut("boxes", (FOUND,))),
        programs=(
            Program("whole", (Segment("head", "", (), ()), Segment("tail", "", (), ()))),
            Program("small", (Segment("small", "", (), ()),)),
        ),
        ladder=(Rung("whole", 0, 1.0), Rung("small", 1, 0.9)),
        routes=(
            Route(0, "raw", 1.0, IMAGE.nbytes() + HEADER_BYTES, down),
            Route(1, "raw", 1.0, FEATURES.nbytes() + HEADER_BYTES, down),
            Route(1, "int8", 0.99, FEATURES.nbytes() // 4 + HEADER_BYTES, down),
            Route(0, "jpeg90", 0.98, JPEG_BYTES, down),
        ),
        metric="stated",
        chosen="for replays of links",
        digests={},
        profiles=(
            Profile("edge", *device, 1.0, 1000.0 / period_ms, edge, codecs),
            Profile("cloud", *device, 1.0, 1000.0 / period_ms, node, codecs),
        ),
    )


def _ranges(head: float, tail: float, small: float) -> tuple[RangeTime, ...]:
    parts = ((0, 0, 1, head), (0, 1, 2, tail), (0, 0, 2, head + tail), (1, 0, 1, small))
    return tuple(
        RangeTime(program, first, last, rows, ms * 1000 * rows, ms * 1000 * rows * SPREAD)
        for rows in range(1, MAX_BATCH + 1)
        for program, first, last, ms in parts
    )
