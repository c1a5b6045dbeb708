"""How a process's scheduler is built from its plans and settings."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from shared.formed_scheduler import FormedScheduler
from shared.forming import forming_of
from shared.latency import US, Latency
from shared.memory import Arena
from shared.plan import Plan
from shared.scheduler import Scheduler
from shared.settings import Batching, Execution, Scheduling
from shared.slots import Side, rows_bound, slot_plan


def scheduler_of(
    plans: Mapping[str, Plan],
    side: Side,
    execution: Execution,
    batching: Batching,
    scheduling: Scheduling,
    max_streams: int = 0,
    *,
    in_pieces: bool = False,
) -> Scheduler:
    """The scheduler of a process that serves these plans (by contract digest) with these settings."""
    forming = forming_of(batching) if side == "cloud" else None
    slots = [slot_plan(c, plan, batching.max_batch_size, execution.executors, side) for c, plan in plans.items()]
    arena = Arena(chain.from_iterable(slots))
    latency = Latency.of(plans.items(), side, execution.slowdown)
    rows = {contract: rows_bound(plan, batching.max_batch_size) for contract, plan in plans.items()}
    in_place_ns = int(execution.in_place_us * US) if execution.slowdown == 1.0 else 0
    if forming is not None:
        return FormedScheduler(forming, execution.executors, latency, arena, rows, scheduling.max_queued, in_place_ns)
    return Scheduler(
        executors=execution.executors,
        latency=latency,
        arena=arena,
        max_rows=rows,
        max_queued=scheduling.max_queued,
        in_place_ns=in_place_ns,
        max_streams=max_streams,
        of_many=side == "cloud",
        in_pieces=in_pieces,
    )
