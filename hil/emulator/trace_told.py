"""When packets that are sent into a trace arrive, and whether what arrived is what the trace told.

The arithmetic is not the emulator's: a trace's capacity and its open time are added up once, and each packet is a look into
both sums (Lindley's recursion for a queue, Proceedings of the Cambridge Philosophical Society, 1952). So either finds the
other's mistakes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hil.emulator.row import Row
from hil.emulator.shape import MAX_RATE_MBIT
from hil.links.trace import Bools, Direction, Floats
from shared.errors import UserError

Times = NDArray[np.int64]

LEVELS = (0.01, 0.5, 0.9, 0.99, 1.0)
EARLY_MS, EARLY_SHARE = 1.0, 0.02
"""A quantile that is earlier than told by more than this, or this share of it if that is more, is wrong. It is not 0, since a
packet that is sent at the end of a step may be read in the next."""

LATE_MS = 3.0
"""A quantile that is later than told by no more than this counts as punctual."""

BESIDE = 0.002
"""A quantile may be the one that was told for so many more or fewer of the packets: beside an outage delays leap, and one
packet that came to its beginning a little later or earlier makes a step of its whole length. The longest delay has no
such room."""

DEVIATIONS = 4.0
"""So many standard deviations of the number of lost packets are chance."""


def arrivals_ns(direction: Direction, step_us: int, sent_ns: Times, came: Bools, size: int) -> Times:
    """When packets of `size` bytes arrive that are sent into a trace's direction at `sent_ns` [packets] (ascending), counted
    from its beginning. The trace repeats. Only those that `came` [packets] hold up others behind them under way.

    An outage stops everything; otherwise a packet waits for the one before it, takes its time at the rate, then the delay of
    the step in which it left, and overtakes none. Raises `UserError` where nothing ever passes.
    """
    step_ns = step_us * 1000
    edges = np.arange(direction.delay_ms.size + 1, dtype=np.float64) * step_ns
    passing = ~direction.outage
    if not passing.any():
        raise UserError("nothing passes in any step of the trace; expected one without an outage")
    mbit = np.where(direction.rate_mbit > 0, direction.rate_mbit, MAX_RATE_MBIT)
    bits = _summed(np.where(passing, mbit, 0.0) * 1e-3 * step_ns)
    opened = _summed(np.where(passing, float(step_ns), 0.0))
    one = size * 8.0
    before = one * np.arange(sent_ns.size)
    ready: Floats = np.maximum.accumulate(_on(sent_ns.astype(np.float64), edges, bits) - before)
    left = _back(ready + before + one, edges, bits)
    steps = (left // step_ns).astype(np.intp) % direction.delay_ms.size
    arrive: Floats = _on(left, edges, opened) + direction.delay_ms[steps] * 1e6
    ahead = np.maximum.accumulate(np.where(came, arrive, 0.0))
    return np.rint(_back(np.maximum(arrive, ahead), edges, opened)).astype(np.int64)


def loss_at(direction: Direction, step_us: int, sent_ns: Times) -> Floats:
    """The probability that each packet is lost, [packets], for the times at which they are sent."""
    return direction.loss[(sent_ns // (step_us * 1000)) % direction.loss.size]


def judged(side: str, sent_ns: Times, told_ns: Times, came_ns: Times, came: Bools, loss: Floats) -> list[Row]:
    """Rows on one direction: quantiles of delay and the longest gap between two arrivals, of the packets that `came`; loss.

    All arrays are [packets]; `told_ns` and `came_ns` are counted from the same moment as `sent_ns`, and `came_ns` is read
    where a packet came.
    """
    rows = [_lost(side, came, loss)]
    if came.sum() < 2:
        return [*rows, Row(f"delay {side}", "of 2 packets or more", f"{came.sum()} came", right=False)]
    sent, told, real = sent_ns[came], told_ns[came], came_ns[came]
    took_told, took = (told - sent) / 1e6, (real - sent) / 1e6
    for level in LEVELS:
        name, beside = ("most", 0.0) if level == 1.0 else (f"p{100 * level:g}", BESIDE)
        least, one, most = np.quantile(took_told, (level - beside, level, level + beside)).tolist()
        rows.append(_timed(f"delay {side}, {name}", (least, one, most), float(np.quantile(took, level))))
    one, measured = (float(np.diff(np.sort(times)).max()) / 1e6 for times in (told, real))
    rows.append(_timed(f"longest gap {side}", (one, one, one), measured))
    return rows


def _timed(what: str, told_ms: tuple[float, float, float], measured_ms: float) -> Row:
    """`told_ms`: the least that counts as told, what was told, the most."""
    least, told, most = told_ms
    right = measured_ms >= least - max(EARLY_MS, EARLY_SHARE * least)
    return Row(what, f"{told:.2f} ms", f"{measured_ms:.2f} ms", right, measured_ms <= most + LATE_MS)


def _lost(side: str, came: Bools, loss: Floats) -> Row:
    count, lost, expected = came.size, int((~came).sum()), float(loss.sum())
    room = DEVIATIONS * math.sqrt(float((loss * (1.0 - loss)).sum())) + (1.0 if expected > 0 else 0.0)
    right = abs(lost - expected) <= room
    return Row(f"loss {side}", f"{expected / count:.2%} of {count:,}", f"{lost / count:.2%}", right)


def _summed(values: Floats) -> Floats:
    return np.concatenate(([0.0], np.cumsum(values)))


def _on(times_ns: Floats, edges: Floats, sums: Floats) -> Floats:
    """The sum at each time, over as many rounds of the trace as there are."""
    rounds = np.floor(times_ns / edges.item(-1))
    sums_then: Floats = rounds * sums.item(-1) + np.interp(times_ns - rounds * edges.item(-1), edges, sums)
    return sums_then


def _back(values: Floats, edges: Floats, sums: Floats) -> Floats:
    """The last time at which the sum is each value."""
    return _on(values, sums, edges)
