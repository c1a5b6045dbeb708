"""The conditions under which a way wins, and the five axes along which each of them can be varied alone.

Values on an axis are numbers in the unit that a person says: Mbit/s, ms, times, ms, and a share. They are read with their
units (`link.rate=10..1000mbit`) and shown with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from partitioner.options import MAX_SLOWDOWN, LinkGuess, parse_duration, parse_rate
from shared.errors import UserError

Axis = Literal["link.rate", "link.rtt", "edge-slowdown", "deadline", "min-agreement"]
AXES: tuple[Axis, ...] = ("link.rate", "link.rtt", "edge-slowdown", "deadline", "min-agreement")

LIMITS: dict[Axis, tuple[float, float]] = {
    "link.rate": (0.01, 100_000.0),
    "link.rtt": (0.0, 10_000.0),
    "edge-slowdown": (1.0, MAX_SLOWDOWN),
    "deadline": (0.001, 100_000.0),
    "min-agreement": (0.0, 1.0),
}
"""How far each axis is searched for a change, in its unit: well beyond any link, device or deadline that there is."""

TITLES: dict[Axis, str] = {
    "link.rate": "rate of the link",
    "link.rtt": "round trip",
    "edge-slowdown": "device ratio",
    "deadline": "deadline",
    "min-agreement": "least agreement",
}
"""What a person calls each axis."""

_AXES: dict[str, Axis] = {axis: axis for axis in AXES}
_RANGE = re.compile(r"^([a-z.-]+)=(.+?)\.\.(.+)$")
_BARE = re.compile(r"^\d+(?:\.\d+)?$")
_UNIT = re.compile(r"[a-z]+$")
_ZERO = re.compile(r"^0+(?:\.0+)?\s*(ns|us|ms|s)$")


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What decides which way wins: the link, how many times slower than the measuring machine the device is, when an answer
    is due, and the least agreement with the whole model."""

    link: LinkGuess
    edge_slowdown: Annotated[float, msgspec.Meta(ge=1.0, le=MAX_SLOWDOWN)]
    deadline_ns: Annotated[int, msgspec.Meta(gt=0)]
    min_agreement: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]

    @property
    def deadline_ms(self) -> float:
        """The deadline in milliseconds."""
        return self.deadline_ns / 1e6

    def value(self, axis: Axis) -> float:
        """Where these conditions are on an axis, in its unit."""
        return {
            "link.rate": self.link.rate_mbit,
            "link.rtt": self.link.rtt_ms,
            "edge-slowdown": self.edge_slowdown,
            "deadline": self.deadline_ms,
            "min-agreement": self.min_agreement,
        }[axis]

    def at(self, axis: Axis, value: float) -> Conditions:
        """These conditions with another value on one axis, in its unit."""
        if axis == "link.rate":
            return msgspec.structs.replace(self, link=LinkGuess(value, self.link.rtt_ms))
        if axis == "link.rtt":
            return msgspec.structs.replace(self, link=LinkGuess(self.link.rate_mbit, value))
        if axis == "edge-slowdown":
            return msgspec.structs.replace(self, edge_slowdown=value)
        if axis == "deadline":
            return msgspec.structs.replace(self, deadline_ns=round(value * 1e6))
        return msgspec.structs.replace(self, min_agreement=value)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one axis, in its unit."""

    axis: Axis
    low: float
    high: float


def check_conditions(conditions: Conditions) -> Conditions:
    """The same conditions. Raises `UserError` that names the first that is out of its range."""
    if not 1.0 <= conditions.edge_slowdown <= MAX_SLOWDOWN:
        raise UserError(f"edge slowdown {conditions.edge_slowdown:g}: expected 1 to {MAX_SLOWDOWN:g}")
    if not 0.0 <= conditions.min_agreement <= 1.0:
        raise UserError(f"least agreement {conditions.min_agreement:g}: expected 0 to 1")
    return conditions


def parse_span(text: str) -> Span:
    """A range such as `link.rate=10..1000mbit` or `edge-slowdown=1..16`; a unit at its end holds for both ends. Raises
    `UserError`."""
    match = _RANGE.match(text.strip().lower())
    axis = _AXES.get(match[1]) if match else None
    if match is None or axis is None:
        raise UserError(
            f"what-if {text!r}: expected AXIS=LOW..HIGH with an axis of {', '.join(AXES)}, such as link.rate=10..1000mbit"
        )
    first, last = match[2].strip(), match[3].strip()
    unit = _UNIT.search(last)
    if _BARE.match(first) and unit:
        first += unit[0]
    low, high = (_PARSERS[axis](end) for end in (first, last))
    least, most = LIMITS[axis]
    if not least <= low < high <= most:
        raise UserError(
            f"what-if {text!r}: expected {show_value(axis, least)} to {show_value(axis, most)}, the lower end first"
        )
    return Span(axis, low, high)


def show_value(axis: Axis, value: float) -> str:
    """A value with its unit, in four significant digits."""
    number = f"{value:.4g}" if value < 10_000 else f"{value:,.0f}"
    return {
        "link.rate": f"{number} Mbit/s",
        "link.rtt": f"{number} ms",
        "edge-slowdown": f"{number} times slower",
        "deadline": f"{number} ms",
        "min-agreement": number,
    }[axis]


def _number(text: str) -> float:
    if not _BARE.match(text):
        raise UserError(f"what-if: {text!r} is not a plain number")
    return float(text)


def _duration_ms(text: str) -> float:
    return 0.0 if _ZERO.match(text) else parse_duration(text) / 1e6


_PARSERS: dict[Axis, Callable[[str], float]] = {
    "link.rate": parse_rate,
    "link.rtt": _duration_ms,
    "edge-slowdown": _number,
    "deadline": _duration_ms,
    "min-agreement": _number,
}
