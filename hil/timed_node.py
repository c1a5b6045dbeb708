"""Nodes whose device takes the time that a launch is said to take, so that what it could serve is known.

The model is a small one, and the executor waits out the rest of the time (`shared.executors.slowness`): a stand-in for a
device, as in the rigs of agents. All else is as ever: the process, its loop, its sockets, its scheduler. The device's time is
not the processor's, so that on a machine of few cores the load generator and the node do not fight for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hil.small_plans import write_small
from hil.timed_device import Device
from shared.bundle import write_manifest
from shared.plan import PLAN_FILE, CodecTime, Plan, Profile, RangeTime
from shared.settings import CloudLimits, CloudSettings, NodeExecution, NodeGroup, NodeScheduling

SLOWDOWN = 500.0
"""Nearly all of a launch is the wait that stands for the device."""

SPREAD = 1.05
CREDITS = 4096
WHOLE = (0, 2)


def write_timed(folder: Path, device: Device, seed: int) -> Path:
    """Write the bundle `NAME.plan` of a model that takes one uint8 image of 16 x 16 and runs on such a device; its path."""
    path = write_small(folder, device.name, rungs=(), routes=("raw",), seed=seed)
    plan = msgspec.json.decode((path / PLAN_FILE).read_bytes(), type=Plan)
    first, last = WHOLE
    times = tuple(
        RangeTime(0, part, until, rows, us, us * SPREAD)
        for rows in range(1, device.max_batch + 1)
        for part, until, us in (
            (0, 1, device.launch_ms(rows) * 500.0),
            (1, 2, device.launch_ms(rows) * 500.0),
            (first, last, device.launch_ms(rows) * 1e3),
        )
    )
    free = (CodecTime(0, "raw", 0.0, 0.0),)  # else what copying takes here would be slowed as well
    profile = Profile("cloud", "a timed wait", "CPUExecutionProvider", 1, SLOWDOWN, 30.0, times, free)
    profiles = (*(each for each in plan.profiles if each.side == "edge"), profile)
    plan = msgspec.structs.replace(plan, max_batch=device.max_batch, profiles=profiles)
    (path / PLAN_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    write_manifest(path)
    return path


def timed_settings(bundles: Sequence[Path], endpoint: str) -> CloudSettings:
    """A node of one executor for these bundles, with credit for a load generator that stands for many edges."""
    return CloudSettings(
        node=NodeGroup(name="timed", endpoint=endpoint, models=tuple(map(str, bundles)), credits=CREDITS),
        execution=NodeExecution(slowdown=SLOWDOWN),
        scheduling=NodeScheduling(max_queued=2 * CREDITS),
        limits=CloudLimits(max_open=2 * CREDITS),
    )
