"""Faults planted on purpose, to show that the verdict sees them. For tests only.

Each is planted once, where outcomes reach the rig's ledger: an answer that is delivered twice, two answers whose outputs are
exchanged, an answer that never arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from shared.request import Answer, Outcome

Plant = Literal["duplicated", "swapped", "dropped"]
Tap = Callable[[int, Outcome, int], None]
"""What takes a delivery: ticket, outcome, time."""

AFTER = 10
"""Deliveries that pass untouched before the fault."""


def planted(tap: Tap, plant: Plant | None) -> Tap:
    """`tap` with the fault in front of it, or itself."""
    return tap if plant is None else _Faulty(tap, plant)


class _Faulty:
    def __init__(self, tap: Tap, plant: Plant) -> None:
        self._tap = tap
        self._plant = plant
        self._seen = 0
        self._kept: tuple[int, Answer, int] | None = None

    def __call__(self, ticket: int, outcome: Outcome, now: int) -> None:
        if not isinstance(outcome, Answer):
            self._tap(ticket, outcome, now)
            return
        self._seen += 1
        if self._kept is not None:
            first, earlier, then = self._kept
            self._kept = None
            self._tap(first, replace(earlier, outputs=outcome.outputs), then)
            self._tap(ticket, replace(outcome, outputs=earlier.outputs), now)
        elif self._seen != AFTER + 1:
            self._tap(ticket, outcome, now)
        elif self._plant == "duplicated":
            self._tap(ticket, outcome, now)
            self._tap(ticket, outcome, now)
        elif self._plant == "swapped":
            self._kept = (ticket, outcome, now)
