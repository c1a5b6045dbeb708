"""What the monitor saw of the machine's own lateness: figures, and each late wake-up with its time. Plain data."""

from __future__ import annotations

import msgspec

from shared.lateness import LatenessFigures


class Stall(msgspec.Struct, frozen=True, array_like=True):
    """One late wake-up: when it was due, in nanoseconds of CLOCK_MONOTONIC, and how much later it came."""

    due_ns: int
    late_ns: int


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the monitor saw: the figures of all wake-ups, and those that were late, the first `MOST_STALLS` of them."""

    figures: LatenessFigures
    stalls: tuple[Stall, ...] = ()
