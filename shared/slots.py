"""How many batch-shaped input buffers a process holds, of which shape: the one set of numbers that the pure arena (which
leases them by index) and the executors (which own the memory) are both built from.

An executor has at most one run going and one staged behind it, so each entry of each plan has `2 * executors` slots.
Entries are the cuts of program 0 (a request may come in at any of them, or go on from one), and on the edge cut 0 of each
cheaper rung; a standby edge has cut 0 of its one rung. An edge whose ladder does without the whole model holds of program 0
only what lies before the last cut of a route: that is how a model that is larger than the device can be cut. Rejected: one
pool of bytes for all entries (a slot's view would change shape from run to run, and the sum is dominated by one or two
entries anyway); slots for each executor apart (a lease would bind a row to an executor before it is known which will be
free).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from shared.errors import SettingsError
from shared.plan import Plan

SLOTS_PER_EXECUTOR = 2
MEGABYTE = 1 << 20

Side = Literal["edge", "cloud", "standby"]
"""Where a process stands. A node runs program 0 only; an edge the rungs as well; a standby edge the cheapest rung only."""


class SlotClass(msgspec.Struct, frozen=True, gc=False):
    """`slots` equal buffers at the entry of segment `first` of `program`, each for `rows` rows and `nbytes` bytes."""

    contract: str
    program: int
    first: int
    slots: int
    rows: int
    nbytes: int


def rows_bound(plan: Plan, max_batch: int) -> int:
    """The most rows of one launch: the smaller of the plan's bound and the settings'; 1 where not batchable."""
    return max(1, min(plan.max_batch, max_batch)) if plan.batchable else 1


def programs_of(plan: Plan, side: Side) -> tuple[int, ...]:
    """The programs that a process on this side runs."""
    match side:
        case "edge":
            return tuple(range(len(plan.programs)))
        case "standby":
            return tuple(rung.program for rung in plan.ladder[-1:])
        case "cloud":
            return (0,)


def segments_of(plan: Plan, side: Side, program: int) -> int:
    """How many segments of a program that a process on this side runs, from the first, it holds: all, but on an edge without
    the whole model among its rungs those of program 0 before the last cut of a route."""
    if program != 0 or side == "cloud" or plan.rung_of(0) is not None:
        return len(plan.programs[program].segments)
    return max((route.cut for route in plan.routes), default=0)


def served_plan(plan: Plan, side: Side) -> Plan:
    """What of a plan a process on this side serves: a standby edge its cheapest rung only, and no cloud. The contract stays
    that of the whole plan. Raises `SettingsError` where there is no rung."""
    if side != "standby":
        return plan
    if not plan.ladder:
        raise SettingsError(f"agent.standby: model {plan.name!r} has no rung that a device could run")
    return msgspec.structs.replace(plan, ladder=plan.ladder[-1:], routes=())


def slot_plan(contract: str, plan: Plan, max_batch: int, executors: int, side: Side = "edge") -> tuple[SlotClass, ...]:
    """The slots of one plan, in the order of programs and cuts."""
    rows = rows_bound(plan, max_batch)
    slots = SLOTS_PER_EXECUTOR * executors
    held = max(1, segments_of(plan, side, 0))  # an input is encoded where it came in
    entries = [(0, first) for first in range(1 if side == "standby" else held)]
    entries = entries if 0 in programs_of(plan, side) else []
    entries += [(program, 0) for program in programs_of(plan, side) if program != 0]
    return tuple(
        SlotClass(
            contract=contract,
            program=program,
            first=first,
            slots=slots,
            rows=rows,
            nbytes=sum(spec.nbytes(rows) for spec in plan.cuts[first].tensors),
        )
        for program, first in entries
    )


def check_memory(classes: Iterable[SlotClass], preallocated_memory_mb: int) -> int:
    """Bytes that all slots take. Raises `SettingsError` naming need and limit where they do not fit."""
    need = sum(c.slots * c.nbytes for c in classes)
    limit = preallocated_memory_mb * MEGABYTE
    if need > limit:
        raise SettingsError(
            f"memory.preallocated_memory_mb: the input slots need {-(-need // MEGABYTE)} MB and the limit is "
            f"{preallocated_memory_mb} MB; raise it, or lower batching.max_batch_size or execution.executors"
        )
    return need
