"""The classical ways of forming batches, for those who want to compare: `batching.batch_strategy` on a node.

headtail's own (`adaptive`) launches what is there the moment an executor is free, as many rows as the earliest deadline
allows, and needs nothing of this. What a way here says bounds that from outside: from when on a launch may begin, and of how
many rows it may be; whether one more pays is not asked. Classes, deadlines, early drop and everything else stay as they
are, so that what differs between two runs is the forming. None of them makes anybody late by itself: what waits for more
begins at its latest start.

* `fixed`: batches of one size, as large as may be.
* `size_or_delay`: so many rows, or what is there when the oldest has waited so long (Triton Inference Server's dynamic
  batcher: preferred size and maximum queue delay; TF Serving's, TorchServe's).
* `step`: as many rows as have proven to take no longer than an objective: one more after each launch that kept it, a tenth
  less after one that did not (D. Crankshaw et al., Clipper, NSDI 2017, section 4.3).
"""

from __future__ import annotations

from typing import Protocol

from shared.settings import Batching, NodeBatching

BACK_OFF = 0.9
"""What is left of the largest batch of `step` after a launch that took too long."""


class Forming(Protocol):
    """A way of forming batches. Pure: all times are nanoseconds, and arguments."""

    def opens_ns(self, rows: int, oldest_ns: int, latest_ns: int, most: int) -> int:
        """From when on `rows` that wait may be launched, of which the first to come came at `oldest_ns`, which must begin at
        `latest_ns` to be in time, and of which `most` fit into a launch; 0 is at once."""
        ...

    def most(self, contract: str, most: int) -> int:
        """After how many rows the next launch is full, where `most` fit."""
        ...

    def ended(self, contract: str, rows: int, elapsed_ns: int) -> None:
        """A launch took so long."""
        ...


class Fixed:
    """Batches of one size."""

    def opens_ns(self, rows: int, oldest_ns: int, latest_ns: int, most: int) -> int:
        """When they are all there, or at the latest start."""
        return 0 if rows >= most else latest_ns

    def most(self, contract: str, most: int) -> int:
        """That size."""
        return most

    def ended(self, contract: str, rows: int, elapsed_ns: int) -> None:
        """It teaches nothing."""


class SizeOrDelay(Fixed):
    """So many rows (0: as many as fit), or what is there after a delay."""

    def __init__(self, size: int, delay_ns: int) -> None:
        self._size = size
        self._delay_ns = delay_ns

    def opens_ns(self, rows: int, oldest_ns: int, latest_ns: int, most: int) -> int:
        """When so many are there, or the oldest has waited that long, or at the latest start."""
        return 0 if rows >= min(self._size or most, most) else min(oldest_ns + self._delay_ns, latest_ns)


class Step:
    """As many rows as take no longer than an objective, found step by step for each model."""

    def __init__(self, objective_ns: int) -> None:
        self._objective_ns = objective_ns
        self._most: dict[str, float] = {}

    def opens_ns(self, rows: int, oldest_ns: int, latest_ns: int, most: int) -> int:
        """At once."""
        return 0

    def most(self, contract: str, most: int) -> int:
        """What was found so far."""
        return min(most, int(self._most.get(contract, 1.0)))

    def ended(self, contract: str, rows: int, elapsed_ns: int) -> None:
        """One more row, or a tenth less. A launch that was not full says nothing of a larger one."""
        most = self._most.get(contract, 1.0)
        if elapsed_ns > self._objective_ns:
            self._most[contract] = max(1.0, BACK_OFF * most)
        elif rows >= int(most):
            self._most[contract] = int(most) + 1.0


def forming_of(batching: Batching) -> Forming | None:
    """The way that the settings name; None for headtail's own, which is all that an agent has."""
    if not isinstance(batching, NodeBatching):
        return None
    delay_ns = int(batching.max_batch_latency_ms * 1e6)
    match batching.batch_strategy:
        case "adaptive":
            return None
        case "fixed":
            return Fixed()
        case "size_or_delay":
            return SizeOrDelay(batching.min_batch_size, delay_ns)
        case "step":
            return Step(delay_ns)
