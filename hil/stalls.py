"""What the monitor saw of the machine's own lateness: figures, and each late wake-up with its time. Plain data."""

from __future__ import annotations

from collections.abc import Sequence

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


def together(seen: Sequence[Seen]) -> Seen:
    """What several monitors saw, one for each core: all late wake-ups in order, and of each figure the worst."""
    figures = [one.figures for one in seen]
    return Seen(
        LatenessFigures(
            sum(one.count for one in figures),
            *(
                max((getattr(one, name) for one in figures), default=0.0)
                for name in LatenessFigures.__struct_fields__[1:]
            ),
        ),
        tuple(sorted((stall for one in seen for stall in one.stalls), key=lambda stall: stall.due_ns)),
    )


def held_up(from_ns: int, to_ns: int, stalls: Sequence[Stall]) -> bool:
    """Whether the machine was late for something between these times."""
    return any(stall.due_ns <= to_ns and from_ns <= stall.due_ns + stall.late_ns for stall in stalls)
