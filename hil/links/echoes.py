"""Logs of round trips, and what such a log says about the link: delays, losses and the gaps in which nothing passed.

A link that stands still holds what is sent into it and delivers all of it when it goes on. A log shows this as a sawtooth:
echoes sent 55 ms apart come back together, the first after 323 ms, the next after 268, 213, 158. Delay and outage are
told apart by this: an echo that took `held_ms` longer than the median says that the link stood still from when it was sent
until a median round trip before it came back. Both directions are then out, since a gap of the radio stops both; a log of
round trips cannot say which. `probed` is the other way: what a log of echoes over a trace would show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hil.links.trace import MAX_STEPS, Bools, Direction, Floats, Trace, runs
from hil.links.trace_csv import ROUND_TRIP, TIME, number, table
from shared.errors import UserError

HELD_MS = 60.0
UNSEEN_MS = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class EchoLog:
    """Round trips of echoes: `sent_ms` [echoes], rising; `rtt_ms` [echoes], NaN where an echo was lost."""

    sent_ms: Floats
    rtt_ms: Floats


def read_echoes(text: str, name: str) -> EchoLog:
    """The echo log in the text of a CSV file: the columns `t_ms` (when sent) and `rtt_ms` (empty: lost); others are left
    alone, as are lines that begin with `#`.

    Raises `UserError` that names the line.
    """
    header, rows = table(text, name)
    if TIME not in header or ROUND_TRIP not in header:
        raise UserError(f"{name}: expected the columns {TIME} and {ROUND_TRIP}; it has {', '.join(header)}")
    time_at, rtt_at = header.index(TIME), header.index(ROUND_TRIP)
    sent: list[float] = []
    rtt: list[float] = []
    for line, cells in rows:
        time = number(cells[time_at], f"{name}, line {line}: {TIME}", 0.0, 1e15, "a number of 0 or more")
        if sent and time < sent[-1]:
            raise UserError(
                f"{name}, line {line}: {TIME} is {time:g}; expected at least {sent[-1]:g}, as in the row before"
            )
        lost = not cells[rtt_at].strip()
        form = "a number of 0 or more, or nothing for a lost echo"
        rtt.append(np.nan if lost else number(cells[rtt_at], f"{name}, line {line}: {ROUND_TRIP}", 0.0, 1e9, form))
        sent.append(time)
    if len(sent) < 2 or np.all(np.isnan(rtt)) or sent[-1] <= sent[0]:
        raise UserError(f"{name}: expected at least two echoes at different times, and one of them answered")
    return EchoLog(np.array(sent), np.array(rtt))


def usual_step_us(log: EchoLog) -> int:
    """The log's median interval as a step of a trace: a multiple of 5 ms from 10 to 100."""
    median_ms = float(np.median(np.diff(log.sent_ms)))
    return 1000 * min(100, max(10, 5 * round(median_ms / 5)))


def to_trace(log: EchoLog, step_us: int, held_ms: float = HELD_MS, unseen_ms: float = UNSEEN_MS) -> Trace:
    """The link that a log of echoes shows, in steps of `step_us`, each direction with half of a round trip.

    A pause of more than `unseen_ms` without any echo sent is time nobody watched, and is closed up. A step's delay is the
    mean of the echoes sent in it that were not held, else that of the step before; its loss in each direction is
    1 - sqrt(1 - share of echoes lost), which two independent directions make of it.

    Raises `UserError` where the log spans less than two steps, or too many.
    """
    pauses = np.diff(log.sent_ms, prepend=log.sent_ms[0])
    usual = float(np.median(pauses[1:]))
    pauses[pauses > unseen_ms] = usual
    sent = np.cumsum(pauses)
    step_ms = step_us / 1000
    steps = int(sent[-1] // step_ms) + 1
    if not 2 <= steps <= MAX_STEPS:
        raise UserError(f"the echoes span {sent[-1]:g} ms; expected 2 to {MAX_STEPS} steps of {step_ms:g} ms")
    base = float(np.nanmedian(log.rtt_ms))
    extra = np.nan_to_num(log.rtt_ms - base)
    held = extra > held_ms
    outage = _stood_still(sent[held], sent[held] + extra[held], step_ms, steps)
    where = (sent // step_ms).astype(np.intp)
    free = ~held & ~np.isnan(log.rtt_ms)
    sums = np.bincount(where[free], log.rtt_ms[free], steps)
    counts = np.bincount(where[free], minlength=steps)
    delay = _carried(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), base)
    lost = np.bincount(where[np.isnan(log.rtt_ms)], minlength=steps) / np.maximum(
        np.bincount(where, minlength=steps), 1
    )
    side = Direction(delay / 2, np.zeros(steps), 1.0 - np.sqrt(1.0 - lost), outage)
    return Trace(step_us, side, side, halved=True)


def probed(trace: Trace) -> Floats:
    """Round trips in ms that small echoes sent at the start of each step would show, those that waited for the end of an
    outage included, [at most steps]; NaN for those whose outage outlasts the trace. Neither loss nor rate counts."""
    sent = np.arange(trace.steps, dtype=np.float64) * (trace.step_us / 1000)
    there = _passed(sent, trace, trace.up)
    return _passed(there, trace, trace.down) - sent


def split(trace: Trace, block_ms: float) -> tuple[Trace, Trace]:
    """Every other block of `block_ms`, the first included, and the rest, each with time closed up. A border that falls into
    an outage moves to its end, so that no outage is cut.

    Raises `UserError` where there are fewer than four blocks.
    """
    many = trace.duration_us / 1000 / block_ms
    if many < 4:
        raise UserError(
            f"{trace.duration_us / 1e6:g} s do not hold four blocks of {block_ms / 1000:g} s, of which every other is held "
            "back; expected a longer trace or shorter blocks"
        )
    blocks = np.floor(np.arange(trace.steps) * (trace.step_us / 1000) / block_ms)
    for start, end in runs(trace.outage):
        blocks[start:end] = blocks[start]
    return trace.taken(np.flatnonzero(blocks % 2 == 0)), trace.taken(np.flatnonzero(blocks % 2 == 1))


def _stood_still(sent: Floats, ends: Floats, step_ms: float, steps: int) -> Bools:
    """The steps in which the link stood still, from held echoes and when the link let them go.

    Where a link passes only a part of what waits before it stands still again, times overlap; then the step after each
    lot of echoes that came back together is open, without which the earlier lot would seem to wait for the later.
    """
    outage = np.zeros(steps, np.bool_)
    first, past = np.round(sent / step_ms).astype(np.intp), np.round(ends / step_ms).astype(np.intp)
    for start, end in zip(first.tolist(), np.maximum(past, first + 1).tolist(), strict=True):
        outage[start:end] = True
    ordered = np.sort(ends)
    last = np.diff(ordered, append=np.inf) > 2 * step_ms
    opened = np.round(ordered[last] / step_ms).astype(np.intp)
    outage[opened[opened < steps]] = False
    return outage


def _carried(values: Floats, first: float) -> Floats:
    """`values` with each NaN replaced by what came before it, `first` where nothing did."""
    seen = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(values.size)))
    return np.where(seen < 0, first, values[np.maximum(seen, 0)])


def _passed(times_ms: Floats, trace: Trace, direction: Direction) -> Floats:
    """When what enters a direction at `times_ms` leaves it; NaN where it never does."""
    step_ms = trace.step_us / 1000
    open_at = _next_open(direction.outage)
    known = np.nan_to_num(times_ms)
    index = np.minimum((known / step_ms + 1e-9).astype(np.intp), trace.steps - 1)
    opened = open_at[index]
    never = np.isnan(times_ms) | (opened >= trace.steps)
    goes = np.maximum(known, np.where(opened > index, opened * step_ms, 0.0))
    return np.where(never, np.nan, goes + direction.delay_ms[np.minimum(opened, trace.steps - 1)])


def _next_open(outage: Bools) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """For each step the first at or after it that is no outage; the number of steps where there is none."""
    places = np.where(outage, outage.size, np.arange(outage.size))
    return np.minimum.accumulate(places[::-1])[::-1].astype(np.intp)
