"""The stated plan of many edges on virtual time: a small model with one cheaper rung, sent whole to a node."""

from __future__ import annotations

import hashlib

from shared.plan import PLAN_FORMAT, Cut, Plan, Profile, Program, RangeTime, Route, Rung, Segment
from shared.request import TensorSpec

SMALL = TensorSpec("small", "float32", (1, 16))
BYTES = 20_000
AGREES = 0.8
"""What the device's own answer agrees."""


def stated_plan(name: str, chosen: str, hz: float, deadline_ms: float, tail_ms: float) -> Plan:
    """Its cheaper rung on the device takes 0.4 of the deadline, the whole one never fits; a node runs it in `tail_ms`."""
    edge = (_time(0, 2 * deadline_ms), _time(1, 0.4 * deadline_ms))
    return Plan(
        format=PLAN_FORMAT,
        name=name,
        model=hashlib.sha256(name.encode()).hexdigest(),
        opset=17,
        ir_version=8,
        batchable=False,
        max_batch=1,
        cuts=(Cut("in", (SMALL,)), Cut("out", (SMALL,))),
        programs=(
            Program("whole", (Segment("whole", "", (), ()),)),
            Program("small", (Segment("small", "", (), ()),)),
        ),
        ladder=(Rung("small", 1, AGREES),),
        routes=(Route(0, "raw", 1.0, BYTES, 500),),
        metric="stated",
        chosen=chosen,
        digests={},
        profiles=(
            Profile("edge", "stated", "CPUExecutionProvider", 1, 1.0, hz, edge),
            Profile("cloud", "stated", "CPUExecutionProvider", 1, 1.0, hz, (_time(0, tail_ms),)),
        ),
    )


def _time(program: int, ms: float) -> RangeTime:
    return RangeTime(program, 0, 1, 1, ms * 1000, ms * 1150)
