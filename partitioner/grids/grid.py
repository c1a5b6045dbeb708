"""A grid of conditions: every rate with every round trip and every device ratio, each with its weight.

It is written as TOML, three lists and, where some values matter more, a list of weights for each:

    rates = ["5mbit", "50mbit", "500mbit"]
    round_trips = ["2ms", "20ms"]
    device_ratios = [1, 4, 16]

    [weights]
    rates = [1, 2, 1]

A device ratio is how many times slower the device is than the machine its times are of. The weight of a combination is the
product of its values' weights; weights count in means and not in what is worst. Faults are told by the file, the key and
the place in its list.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Annotated, cast

import msgspec

from partitioner.options import MAX_SLOWDOWN, parse_duration, parse_rate
from shared.errors import UserError, shown
from shared.toml_text import parse_toml

MOST_POINTS = 2000
"""Combinations that a grid may have: each takes a minimum cut for every coding."""
LISTS = ("rates", "round_trips", "device_ratios")
WEIGHTS = "weights"

_ZERO = re.compile(r"^0+(?:\.0+)?\s*(ns|us|ms|s)$")
_EXAMPLES = {"rates": '["20mbit", "200mbit"]', "round_trips": '["2ms", "20ms"]', "device_ratios": "[1, 4]"}


class GridPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One combination: the rate in Mbit/s, the round trip in ms, how many times slower the device is, and its weight."""

    rate_mbit: Annotated[float, msgspec.Meta(gt=0.0)]
    rtt_ms: Annotated[float, msgspec.Meta(ge=0.0)]
    device_ratio: Annotated[float, msgspec.Meta(ge=1.0, le=MAX_SLOWDOWN)]
    weight: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0

    def __str__(self) -> str:
        return f"{self.rate_mbit:g} Mbit/s, {self.rtt_ms:g} ms round trip, a device {self.device_ratio:g} times slower"


def parse_grid(text: str, where: str) -> tuple[GridPoint, ...]:
    """Every combination, rates outermost, in the order of the lists. Raises `UserError` that begins with `where` and names
    the line, or the key, and what was expected."""
    tree = parse_toml(text, where)
    weights = tree.pop(WEIGHTS, {})
    if not isinstance(weights, dict):
        raise UserError(f"{where}: {WEIGHTS}: expected a table with lists of weights, not {shown(weights)}")
    weighed = cast(dict[str, object], weights)
    for key, prefix in [*((key, "") for key in tree), *((key, f"{WEIGHTS}.") for key in weighed)]:
        if key not in LISTS:
            raise UserError(f"{where}: unknown key {prefix + key!r}: expected {', '.join(LISTS)} or {WEIGHTS}")
    parsers: tuple[Callable[[object], float], ...] = (_rate_mbit, _rtt_ms, _ratio)
    axes: list[list[tuple[float, float]]] = []
    for key, parse in zip(LISTS, parsers, strict=True):
        if key not in tree:
            raise UserError(f"{where}: {key} is missing: expected a list such as {_EXAMPLES[key]}")
        values = _parsed(tree[key], parse, where, key)
        given = _parsed(weighed[key], _weight, where, f"{WEIGHTS}.{key}") if key in weighed else [1.0] * len(values)
        if len(given) != len(values):
            raise UserError(f"{where}: {WEIGHTS}.{key}: expected {len(values)} weights, one for each value of {key}")
        axes.append(list(zip(values, given, strict=True)))
    count = math.prod(len(axis) for axis in axes)
    if count > MOST_POINTS:
        raise UserError(f"{where}: {count} combinations, expected at most {MOST_POINTS}: shorten a list")
    return tuple(
        GridPoint(rate, rtt, ratio, rate_weight * rtt_weight * ratio_weight)
        for (rate, rate_weight), (rtt, rtt_weight), (ratio, ratio_weight) in itertools.product(*axes)
    )


def _parsed(values: object, parse: Callable[[object], float], where: str, key: str) -> list[float]:
    """The numbers of a list that is not empty and has none twice, except for weights."""
    given = shown(values)
    if not isinstance(values, list) or not values:
        example = _EXAMPLES.get(key, "[1, 2]")
        raise UserError(f"{where}: {key}: expected a list with at least one value, such as {example}, not {given}")
    found: list[float] = []
    for place, value in enumerate(cast(list[object], values), start=1):
        try:
            number = parse(value)
        except UserError as reason:
            raise UserError(f"{where}: {key}, value {place}: {reason}") from None
        if parse is not _weight and number in found:
            raise UserError(f"{where}: {key}, value {place}: {shown(value)} is there already")
        found.append(number)
    return found


def _rate_mbit(value: object) -> float:
    return parse_rate(_text(value, "a rate such as '200mbit'"))


def _rtt_ms(value: object) -> float:
    text = _text(value, "a duration such as '2ms'").strip().lower()
    return 0.0 if _ZERO.match(text) else parse_duration(text) / 1e6


def _ratio(value: object) -> float:
    number = _number(value)
    if not 1.0 <= number <= MAX_SLOWDOWN:
        raise UserError(f"device ratio {number:g}: expected 1 to {MAX_SLOWDOWN:g}")
    return number


def _weight(value: object) -> float:
    number = _number(value)
    if not 0.0 < number < math.inf:
        raise UserError(f"weight {number:g}: expected a number of more than zero")
    return number


def _text(value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"expected {expected} with its unit, not {shown(value)}")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"expected a number, not {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
