"""What launches of a model take on a stand-in for a device. Plain data."""

from __future__ import annotations

import msgspec


class Device(msgspec.Struct, frozen=True):
    """What a model's launches take: a launch of b rows `alpha_ms` * b + `beta_ms`, of up to `max_batch`."""

    name: str
    alpha_ms: float
    beta_ms: float
    max_batch: int

    def launch_ms(self, rows: int) -> float:
        """Milliseconds of a launch."""
        return self.alpha_ms * rows + self.beta_ms

    def most_per_s(self, rows: int) -> float:
        """Rows a second of launches of so many, one after the other."""
        return rows / self.launch_ms(rows) * 1e3
