"""Scales: from values to pixels, with ticks that are round numbers and leave each other room."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Protocol

from partitioner.charts.svg import text_width

GAP = 10.0
"""Least distance of two labels of an axis, in pixels."""
TALL = 16.0
"""Room for a label on an upright axis."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis. One without words is a thin line of the grid only."""

    value: float
    words: str


class Scale(Protocol):
    """What a chart asks of a scale. `start` and `end` are pixels; an upright scale ends above its start."""

    @property
    def start(self) -> float:
        """The pixel of the lowest value."""
        ...

    @property
    def end(self) -> float:
        """The pixel of the highest value."""
        ...

    def at(self, value: float) -> float:
        """The pixel of a value; that of the nearer end where it is outside."""
        ...

    def ticks(self) -> list[Tick]:
        """The marks of the axis, from low to high."""
        ...


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Equal distances for equal differences."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """See `Scale`."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[Tick]:
        """Multiples of 1, 2 or 5 times a power of ten, as many as have room."""
        room = abs(self.end - self.start)
        most = max(2, int(room / 56))
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [Tick(n * step, number(n * step)) for n in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """Equal distances for equal ratios. `base` is 10, or 2 for ratios."""

    low: float
    high: float
    start: float
    end: float
    base: int = 10

    def at(self, value: float) -> float:
        """See `Scale`."""
        share = math.log(max(value, 1e-12) / self.low) / math.log(self.high / self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def ticks(self) -> list[Tick]:
        """Powers of the base, and 2 and 5 times powers of ten where they have room; what has none is left without words."""
        factors = (1.0,) if self.base == 2 else (1.0, 2.0, 5.0)
        first = math.floor(math.log(self.low, self.base) - 1e-9)
        last = math.ceil(math.log(self.high, self.base) + 1e-9)
        values = [factor * float(self.base) ** power for power in range(first, last + 1) for factor in factors]
        values = [v for v in values if self.low * 0.9999 <= v <= self.high * 1.0001]
        for kept in (factors, (1.0,)):
            named = [v for v in values if any(math.isclose(v, f * self._power(v)) for f in kept)]
            if len(named) >= 2 and self._fit(named):
                break
        else:
            named = values[:: max(1, len(values) - 1)]
        return [Tick(value, number(value) if value in named else "") for value in values]

    def _power(self, value: float) -> float:
        return float(self.base) ** math.floor(math.log(value, self.base) + 1e-9)

    def _fit(self, values: list[float]) -> bool:
        upright = self.end < self.start
        for left, right in itertools.pairwise(values):
            need = TALL if upright else (text_width(number(left)) + text_width(number(right))) / 2 + GAP
            if abs(self.at(right) - self.at(left)) < need:
                return False
        return True


def number(value: float) -> str:
    """A tick's value without needless digits: `0.5`, `200`, `1,000`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def decades(low: float, high: float) -> tuple[float, float]:
    """The least range from 1, 2 or 5 times a power of ten to another that holds both."""
    steps = (1.0, 2.0, 5.0)
    below = 10.0 ** math.floor(math.log10(low))
    above = 10.0 ** math.floor(math.log10(high))
    start = max(below * s for s in steps if below * s <= low * 1.0001)
    end = min(above * s for s in (*steps, 10.0) if above * s >= high * 0.9999)
    return start, end
