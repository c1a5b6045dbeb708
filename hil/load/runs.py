"""Runs a target at one load or at many, and searches for the highest rate that it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import msgspec

from hil.load.figures import figures_of
from hil.load.opening import Opened
from hil.load.play import play
from hil.load.report import Load
from hil.load.search import MOST_RATE, Found, RateSearch
from hil.load.sender import bottleneck, sender_of
from hil.load.source import MOST_REQUESTS, Source
from hil.monitor import Monitor, Noise
from shared.errors import UserError

Progress = Callable[[str], None]
NOTHING = "no request was due in it"
"""Why a run without requests is not judged."""
MOST_KEPT = 0.9 * MOST_REQUESTS
"""Requests expected of a run of a search; they come at random."""


class Way(msgspec.Struct, frozen=True):
    """How each run goes: `warm_up_s` seconds that are sent and not counted, then `seconds`; requests drawn from `seed`; and
    the share of requests that the load generator may send late."""

    seconds: float
    warm_up_s: float
    seed: int
    late_share: float


def measure(opened: Opened, source: Source, way: Way, monitor: Monitor, noise: Noise) -> Load:
    """One run of one source. Raises `HeadtailError` where the target is lost."""
    with closing(opened.target(source.priority)) as target:
        monitor.take()
        played = play([target], [source], way.warm_up_s + way.seconds, way.seed)
        machine = monitor.take()
    rows = played.rows.since(played.began_ns + round(way.warm_up_s * 1e9))
    sender = sender_of(rows, source, played.thread_busy, played.process_busy, played.unsent[0])
    return Load(
        source=source,
        figures=figures_of(rows, way.seconds),
        sender=sender,
        why=bottleneck(sender, way.late_share) if len(rows) else NOTHING,
        machine=machine,
        stalled=noise.stalled(machine),
    )


def sweep(opened: Opened, sources: Sequence[Source], way: Way, progress: Progress) -> list[Load]:
    """One run of each source, in order."""
    noise = Noise()
    with Monitor(noise.late_ms) as monitor:
        found: list[Load] = []
        for source in sources:
            progress(str(source))
            found.append(measure(opened, source, way, monitor, noise))
        return found


def search(
    opened: Opened, source: Source, share: float, precision: float, way: Way, progress: Progress
) -> tuple[Found, list[Load]]:
    """The highest rate of a source, from its own rate on, at which this share is on time; and all runs. Raises `UserError`
    where none was due in a run, which says nothing of its rate."""
    most = min(MOST_RATE, MOST_KEPT / (way.warm_up_s + way.seconds))
    noise, seeking, found = Noise(), RateSearch(source.rate_per_s, share, precision, most), list[Load]()
    with Monitor(noise.late_ms) as monitor:
        while seeking.rate is not None:
            trial = msgspec.structs.replace(source, rate_per_s=seeking.rate)
            progress(str(trial))
            load = measure(opened, trial, way, monitor, noise)
            if not load.figures.requests:
                raise UserError(f"{trial}: {NOTHING}, {way.seconds:g} s; expected a longer run or a higher rate")
            found.append(load)
            seeking.told(load.figures.on_time_share, load.judged)
    return seeking.found(), found
