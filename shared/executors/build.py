"""Everything between a bundle on disk and executors that take runs, for an edge agent and a node alike."""

from __future__ import annotations

from collections.abc import Sequence

from shared.bundle import Bundle
from shared.errors import SettingsError
from shared.executors.buffers import Buffers
from shared.executors.ort import load_programs
from shared.executors.programs import Programs
from shared.executors.slowness import Slowness
from shared.executors.thread import Sink, ThreadExecutor
from shared.settings import Batching, Execution, Memory
from shared.slots import Side, check_memory, rows_bound, slot_plan


def build_executors(
    bundles: Sequence[Bundle],
    execution: Execution,
    memory: Memory,
    batching: Batching,
    *,
    side: Side,
    sink: Sink,
) -> list[ThreadExecutor]:
    """Load and warm all plans, allocate all slots, and start `execution.executors` executors; their place in the list is
    the `executor` of a `Run`. The same numbers as `shared.slots.slot_plan` gives the arena that leases the slots.

    Raises `SettingsError` where the slots need more than `memory.preallocated_memory_mb`, where two bundles have one name,
    or the provider is not there, and `BundleError` for a bundle that does not run here. Nothing is left running then.
    """
    names = [bundle.name for bundle in bundles]
    for name in names:
        if names.count(name) > 1:
            paths = ", ".join(str(bundle.path) for bundle in bundles if bundle.name == name)
            raise SettingsError(f"models: two bundles are named {name!r}: {paths}")
    classes = [
        slot_plan(bundle.contract, bundle.plan, batching.max_batch_size, execution.executors, side)
        for bundle in bundles
    ]
    check_memory((c for of_one in classes for c in of_one), memory.preallocated_memory_mb)
    programs: dict[str, Programs] = {
        bundle.contract: load_programs(bundle, execution, side, rows_bound(bundle.plan, batching.max_batch_size))
        for bundle in bundles
    }
    buffers = Buffers(zip((bundle.plan for bundle in bundles), classes, strict=True), poison=memory.poison)
    slowness = Slowness(execution.slowdown, {bundle.contract: bundle.plan for bundle in bundles}, side)
    executors = [
        ThreadExecutor(f"executor-{number}", programs, buffers, slowness, sink) for number in range(execution.executors)
    ]
    for executor in executors:
        executor.start()
    return executors
