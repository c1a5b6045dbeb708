"""How a process's scheduler is built from its plans and settings."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

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
    slots = [slot_plan(c, plan, batching.max_batch_size, execution.executors, side) for c, plan in plans.items()]
    return Scheduler(
        executors=execution.executors,
        latency=Latency.of(plans.items(), side, execution.slowdown),
        arena=Arena(chain.from_iterable(slots)),
        max_rows={contract: rows_bound(plan, batching.max_batch_size) for contract, plan in plans.items()},
        max_queued=scheduling.max_queued,
        in_place_ns=int(execution.in_place_us * US) if execution.slowdown == 1.0 else 0,
        max_streams=max_streams,
        of_many=side == "cloud",
        in_pieces=in_pieces,
    )
