"""What a model is weighed with: the price of each second and byte, and what the user allows.

A request through the cloud costs

    slowdown * device_us + us_per_byte * bytes_up + cloud_factor * cloud_us + constant_us

microseconds, with encoding in the device's time and decoding in the cloud's; one that stays on the device costs
slowdown * device_us. Constraints are of two kinds. *Pins* are part of the graph, so that the search stays exact with them.
*Limits* bound sums over the whole plan; with them the problem is a knapsack (`partitioner.search.limited`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shared.errors import UserError


@dataclass(frozen=True, slots=True)
class Conditions:
    """The price of everything. `slowdown` multiplies all times of the device and `cloud_factor` all of the cloud;
    `us_per_byte` is what a byte takes on the way up; `constant_us` is what any use of the cloud takes (round trip, answer).
    Codings of less agreement than `least_agreement` are not admissible. Raises `UserError` where a number makes no sense."""

    slowdown: float = 1.0
    us_per_byte: float = 0.0
    cloud_factor: float = 1.0
    constant_us: float = 0.0
    least_agreement: float = 0.0

    def __post_init__(self) -> None:
        for name in ("slowdown", "us_per_byte", "cloud_factor", "constant_us", "least_agreement"):
            number: float = getattr(self, name)
            if not (math.isfinite(number) and number >= 0.0):
                raise UserError(f"{name} is a finite number and not negative, not {number}")


@dataclass(frozen=True, slots=True)
class Pins:
    """What the graph itself must obey: groups that must run on the device (`edge`) or in the cloud (`cloud`), by index, and
    whether no input of the model may cross (`private_input`)."""

    edge: frozenset[int] = frozenset()
    cloud: frozenset[int] = frozenset()
    private_input: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on sums: the least share of all work that must be done before the cut (0 to 1), the most bytes of
    weights on the device, and the most bytes that a request may send. None is no limit. Raises `UserError`."""

    least_share: float | None = None
    memory_bytes: int | None = None
    bytes_up: int | None = None

    def __post_init__(self) -> None:
        if self.least_share is not None and not 0.0 <= self.least_share <= 1.0:
            raise UserError(f"the least share of device work is a number from 0 to 1, not {self.least_share}")
        for name, limit in (("device memory", self.memory_bytes), ("bytes per request", self.bytes_up)):
            if limit is not None and limit < 0:
                raise UserError(f"the limit on {name} is not negative, so not {limit}")

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        return self.least_share is not None or self.memory_bytes is not None or self.bytes_up is not None


NO_PINS = Pins()
NO_LIMITS = Limits()
