"""How long things take in the world: named distributions, and traces.

A distribution is a table of factors by which a median is multiplied, made once by quantiles, so that a draw is one look-up.
A trace is a list of times that is gone through in its order, since what makes a real network hard is that bad times come
together; where none was recorded, `make_trace` makes one up, with bursts.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from statistics import NormalDist

from shared.errors import UserError

TABLE = 512
"""Entries of a table: a power of two, so that a draw is a few random bits."""

BITS = 9


def lognormal(sigma: float) -> tuple[float, ...]:
    """Factors around 1 whose logarithm has the standard deviation `sigma`."""
    normal = NormalDist()
    return tuple(math.exp(sigma * normal.inv_cdf((i + 0.5) / TABLE)) for i in range(TABLE))


def _spiked(sigma: float, share: float, factor: float) -> tuple[float, ...]:
    table = lognormal(sigma)
    spikes = int(TABLE * share)
    return (*table[: TABLE - spikes], *(table[i] * factor for i in range(TABLE - spikes, TABLE)))


DISTRIBUTIONS: dict[str, tuple[float, ...]] = {
    "steady": lognormal(0.05),
    "wired": lognormal(0.15),
    "wifi": _spiked(0.35, 0.02, 6.0),
    "cellular": _spiked(0.5, 0.05, 4.0),
}
"""Factors of a one-way time by name."""


def draws(rng: random.Random, table: tuple[int, ...]) -> Iterator[int]:
    """Endless draws from a table of `TABLE` whole numbers."""
    bits = rng.getrandbits
    while True:
        yield table[bits(BITS)]


def factors(rng: random.Random, table: tuple[float, ...]) -> Iterator[float]:
    """Endless draws from a table of `TABLE` factors."""
    bits = rng.getrandbits
    while True:
        yield table[bits(BITS)]


def one_way(rng: random.Random, times: str | tuple[int, ...], median_ns: int) -> Iterator[int]:
    """Endless one-way times: of the distribution with this name, or of a trace from a place drawn at random."""
    if isinstance(times, tuple):
        start = rng.randrange(len(times))
        return islice(cycle(times), start, None)
    return draws(rng, tuple(int(median_ns * f) for f in DISTRIBUTIONS[times]))


def read_trace(lines: Iterable[str], column: str) -> tuple[int, ...]:
    """One-way times in nanoseconds from a CSV file with a head line, whose column `column` holds round trips in
    milliseconds. Raises `UserError` where the column is missing, a value is no time, or there is none."""
    reader = csv.DictReader(lines)
    if column not in (reader.fieldnames or ()):
        raise UserError(f"trace: no column {column!r}; there are {', '.join(reader.fieldnames or ()) or 'none'}")
    times: list[int] = []
    for number, row in enumerate(reader, 2):
        try:
            rtt_ms = float(row[column])
        except (TypeError, ValueError):
            raise UserError(f"trace: line {number}: expected milliseconds, got {row[column]!r}") from None
        if not 0.0 <= rtt_ms < 3_600_000.0:
            raise UserError(f"trace: line {number}: expected 0 to 3600000 ms, got {rtt_ms}")
        times.append(int(rtt_ms * 500_000))
    if not times:
        raise UserError("trace: it has no line but its head")
    return tuple(times)


def make_trace(rng: random.Random, count: int, rtt_ms: float) -> tuple[int, ...]:
    """One-way times in nanoseconds of a network that is good for a while, then bad for a while: a chain of two states with
    the median round trip `rtt_ms` in the good one and five times that in the bad one."""
    table = DISTRIBUTIONS["wifi"]
    bad = False
    times: list[int] = []
    for _ in range(count):
        if rng.random() < (0.1 if bad else 0.02):
            bad = not bad
        factor = table[rng.getrandbits(BITS)] * (5.0 if bad else 1.0)
        times.append(int(rtt_ms * 500_000 * factor))
    return tuple(times)


LATENESS = _spiked(0.4, 0.004, 40.0)
"""Factors of the median lateness of a timer: now and then it is several milliseconds."""
