"""What the runtime's own profile says of each kernel in each run.

Times come in whole microseconds, cut off, so that half a microsecond is added to each: a network of small kernels would
otherwise lose a tenth of its time. Kernels inside a body of `If`, `Loop` or `Scan` lie within the time of the operator that
holds them and are left out. Nothing here needs the format of ONNX files: a device reads its own profile, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from shared.errors import ModelError

SUFFIX = "_kernel_time"
RUN = "model_run"
HALF_TICK_US = 0.5
"""What is cut off of a time in whole microseconds, on average."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One line of the runtime's profile; begin and duration in whole microseconds."""

    name: str
    cat: str
    ts: int
    dur: int = 0


def kernel_times(profile: bytes, name: str) -> dict[str, list[float]]:
    """Microseconds of each kernel by its name, one for each run, in the order of the runs.

    Raises `ModelError` that begins with `name` where the profile cannot be read or holds no run.
    """
    try:
        events = msgspec.json.decode(profile, type=list[Event])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{name}: the runtime's profile cannot be read: {error}") from error
    starts = sorted(event.ts for event in events if (event.cat, event.name) == ("Session", RUN))
    if not starts:
        raise ModelError(f"{name}: the runtime's profile holds no run")
    times: dict[str, list[float]] = {}
    for event in _outermost(event for event in events if event.cat == "Node" and event.name.endswith(SUFFIX)):
        run = bisect_right(starts, event.ts) - 1
        if run >= 0:
            of_runs = times.setdefault(event.name.removesuffix(SUFFIX), [0.0] * len(starts))
            of_runs[run] += event.dur + HALF_TICK_US
    return times


def _outermost(events: Iterable[Event]) -> Sequence[Event]:
    """The events that lie within no other one."""
    found: list[Event] = []
    end = -1
    for event in sorted(events, key=lambda event: (event.ts, -event.dur)):
        if event.ts >= end or event.ts + event.dur > end:
            found.append(event)
            end = event.ts + event.dur
    return found
