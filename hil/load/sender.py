"""Whether the load generator was itself what limited a run. Pure.

An open loop that sends late measures itself. A run in which it did so more often than a stated share is not judged, nor is
one in which its thread had no time to spare, since it then notes answers late as well.
"""

from __future__ import annotations

import msgspec

from hil.load.rows import Rows
from hil.load.source import Source
from shared.errors import UserError
from shared.lateness import Lateness, LatenessFigures

LATE_PART = 0.05
"""A request counts as sent late by more than this part of its deadline."""

LEAST_LATE_NS = 200_000
"""But never below this: a timer of the system comes about that much late on a machine that has other things to do."""

MOST_SHARE = 0.01
"""The share of requests that may be sent late, where no less is asked for."""

MOST_BUSY = 0.9
"""The share of the time that the generator's thread may be at work."""


class Sender(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the load generator itself fared in a run. `lateness`: of sends after their scheduled times, open loops only, with
    `late_ms` as what counts as late. `thread_busy`, `process_busy`: seconds of the processor a second, of the thread that
    sends and of all its process, client included. `unsent`: requests that the connection did not take."""

    lateness: LatenessFigures
    late_ms: float
    thread_busy: float
    process_busy: float
    unsent: int = 0


def late_limit_ns(deadline_ns: int) -> int:
    """From when on a request counts as sent late."""
    return max(LEAST_LATE_NS, round(LATE_PART * deadline_ns))


def sender_of(rows: Rows, source: Source, thread_busy: float, process_busy: float, unsent: int) -> Sender:
    """How the load generator fared, from the rows of this source."""
    counted = Lateness(late_limit_ns(source.deadline_ns))
    if source.open_loop:
        for late_ns in (rows.sent_ns - rows.scheduled_ns).tolist():
            counted.add(late_ns)
    limit_ms = late_limit_ns(source.deadline_ns) / 1e6
    return Sender(counted.figures(), limit_ms, round(thread_busy, 4), round(process_busy, 4), unsent)


def allowed_share(on_time_share: float, asked: float | None = None) -> float:
    """The share that may be sent late: what was asked for, else `MOST_SHARE`, or what an on-time share to be judged leaves
    room for where that is less. Raises `UserError` for what is no share."""
    if asked is not None:
        if not 0.0 <= asked <= 1.0:
            raise UserError(f"late share {asked}: expected 0 to 1")
        return asked
    return min(MOST_SHARE, max(0.0, 1.0 - on_time_share)) or MOST_SHARE


def bottleneck(sender: Sender, most_share: float) -> str:
    """Why the load generator was the bottleneck, in words; empty where it was not."""
    if sender.lateness.late_share > most_share:
        return (
            f"the load generator sent {sender.lateness.late_share:.2%} of the requests more than {sender.late_ms:g} ms late "
            f"(limit {most_share:.2%})"
        )
    if sender.unsent:
        return f"the load generator's connection did not take {sender.unsent} requests"
    if sender.thread_busy > MOST_BUSY:
        return (
            f"the load generator's thread was at work for {sender.thread_busy:.0%} of the time (limit {MOST_BUSY:.0%})"
        )
    return ""
