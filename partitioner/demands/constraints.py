"""What a user demands of the ways through the cloud, and what is said where none obeys: which demand binds, and the nearest
value that would do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from partitioner.costs.cost import HEADER_BYTES
from partitioner.options import PlanOptions
from partitioner.search.answers import Constraint, Impossible
from shared.errors import Unsatisfiable

SHARE_SLACK = 1e-9
"""Of a share of the compute: two ways to add it up."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What demands are held against: of one way through the cloud whether it sends an input, whether all pins are kept, the
    share of the compute before the cut (0 to 1), bytes sent for a request, bytes of weights on the device with the insurance,
    and the agreement (NaN where it was not measured)."""

    sends_input: bool
    pins_kept: bool
    share: float
    bytes_up: int
    memory: int
    agreement: float


def broken(way: Figures, options: PlanOptions) -> tuple[Constraint, ...]:
    """The demands that a way does not obey, but for the least agreement, which may not be known yet."""
    most, memory = options.max_bytes, options.device_memory
    checks: tuple[tuple[Constraint, bool], ...] = (
        ("private input", options.private_input and way.sends_input),
        ("pins", not way.pins_kept),
        ("share", way.share < options.least_share - SHARE_SLACK),
        ("bytes", most is not None and way.bytes_up > most),
        ("memory", memory is not None and way.memory > memory),
    )
    return tuple(name for name, fails in checks if fails)


def binding(ways: Iterable[Figures], options: PlanOptions) -> Impossible:
    """The demand that has to give way least for one of these ways to obey all, of ways that break the fewest; measured ones,
    one or more, none of which obeys."""
    told: list[tuple[int, float, Impossible]] = []
    for way in ways:
        names = list(broken(way, options))
        if not way.agreement >= options.min_agreement:
            names.append("agreement")
        for name in names:
            asked, value = _values(name, way, options)
            gap = 0.0 if asked is None or value is None else abs(value - asked) / max(asked, 1e-9)
            alone = value if len(names) == 1 else None
            told.append((len(names), gap, Impossible(name, asked, alone, None, proven=True)))
    return min(told, key=lambda one: one[:2])[2]


def refuse(found: Impossible, options: PlanOptions, insured: int = 0) -> Unsatisfiable:
    """The error that says which demand binds. `insured` are bytes of weights that the device holds beside a head."""
    flag, nearest = _told(found, options, insured)
    would = f"; the nearest that would do is {nearest}" if nearest else "; no value of it alone would do"
    if found.constraint in {"pins", "private input", "codings"}:
        would = ""
    elif not found.proven:
        would += " (as far as was searched)"
    cloud = "a cut that is forced" if options.force_cuts else "what is pinned to the cloud"
    return Unsatisfiable(f"{flag}: {cloud} leaves no way through the cloud that obeys it and all else{would}")


def _values(name: Constraint, way: Figures, options: PlanOptions) -> tuple[float | None, float | None]:
    """What was asked, and what the way has."""
    values: dict[Constraint, tuple[float | None, float]] = {
        "share": (options.least_share, way.share),
        "bytes": (options.max_bytes, way.bytes_up - HEADER_BYTES),
        "memory": (options.device_memory, way.memory),
        "agreement": (options.min_agreement, way.agreement),
    }
    return values.get(name, (None, None))


def _told(found: Impossible, options: PlanOptions, insured: int) -> tuple[str, str]:
    """The option as it was given, and the nearest value as it would be given: rounded to the side that does."""
    nearest = found.nearest
    match found.constraint:
        case "share":
            value = "" if nearest is None else f"{math.floor(nearest * 1e4) / 1e4:g}"
            return f"--least-share {options.least_share:g}", value
        case "bytes":
            need = None if nearest is None else math.ceil((nearest + HEADER_BYTES) * options.cadence_hz) + 1
            return f"--max-bytes-per-second {options.max_bytes_per_second}", "" if need is None else str(need)
        case "memory":
            value = "" if nearest is None else f"{math.ceil(nearest) + insured}B"
            return f"--device-memory of {options.device_memory} bytes", value
        case "agreement":
            value = "" if nearest is None or math.isnan(nearest) else f"{math.floor(nearest * 1e3) / 1e3:g}"
            return f"--min-agreement {options.min_agreement:g}", value
        case "private input":
            return "--private-input", ""
        case "pins" | "codings":
            return f"--pin {', --pin '.join(options.pins)}", ""
