"""Work of several segments that is run in pieces, so that what is more important can go in between.

A launch that has begun is not stopped. Where the whole of a lesser one would leave no room for what comes of more important
classes (`shared.room`), as long a first part of it is launched as does. When that has ended, what it gave waits as the rest
of the same job: with its deadline, its class and its place in the order. The rest stands with those that entered there.

By the same means requests that entered at different cuts share the segments that they have in common: some are run up to the
cut at which others wait, where the rest then takes less time for all together than apart, and all stay in time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from shared.errors import InvariantBroken
from shared.latency import Latency, WorkKey
from shared.plan import RAW, SegmentRange
from shared.queue import DeadlineQueue, Job
from shared.request import Array, Buffer
from shared.running import Launch

WORTH = 0.95
"""What is shared must take less than this part of the time that it takes apart: each launch costs more than its run."""


def part_key(whole: WorkKey, first: int, last: int) -> WorkKey:
    """What a part of a job's work is timed by: decoding falls to its beginning, encoding to its end."""
    return WorkKey(
        whole.contract,
        SegmentRange(whole.range.program, first, last),
        whole.decode if first == whole.range.first else "",
        whole.encode if last == whole.range.last else "",
    )


def rest_of(job: Job, launch: Launch, outputs: tuple[Array | Buffer, ...]) -> Job:
    """What is left of a job of which `launch` has run a first part, which gave `outputs`, the tensors at the cut where it
    ended. Raises `InvariantBroken` where nothing is left."""
    if not launch.partial:
        raise InvariantBroken(f"run {launch.run.run} has done all of job {job.id}")
    key = part_key(job.key, launch.run.range.last, job.range.last)
    row = replace(job.row, inputs=outputs, decode=RAW)
    return replace(job, range=key.range, row=row, key=key)


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A first part of what some jobs need: what it is timed by, its rows, and how long it takes at the longest."""

    jobs: list[Job]
    key: WorkKey
    rows: int
    longest_ns: int


def longest_piece(
    head: Job, batch: list[Job], latency: Latency, fits: Callable[[list[Job], int], bool]
) -> Piece | None:
    """The longest first part of the head's work, shorter than the whole, that `fits` with how long it takes at the longest,
    and as many of the jobs of `batch`, whose first is `head`, as do; None where there is none.

    Nothing is begun that could not be brought to its end: each segment must fit by itself.
    """
    first, last = head.range.first, head.range.last
    if last - first < 2:
        return None
    longest = max(latency.pessimistic(part_key(head.key, i, i + 1), head.rows) for i in range(first, last))
    if not fits([head], longest):
        return None
    for end in range(last - 1, first, -1):
        key, some = part_key(head.key, first, end), batch
        while some:
            rows = sum(job.rows for job in some)
            takes = latency.pessimistic(key, rows)
            if fits(some, takes):
                return Piece(some, key, rows, takes)
            some = some[: len(some) // 2]
    return None


def find_meeting(
    head: Job, queue: DeadlineQueue, batch: Callable[[Job], list[Job]], latency: Latency, now: int, most: int
) -> Piece | None:
    """What of the head's plan should run first so that two groups, of which the head's is one, can share what is left
    (`meeting`). `batch` gives the launch that a group's first job would begin with."""
    lanes = [lane for lane in queue.lanes() if lane.group[0] == head.contract]
    lanes.sort(key=lambda lane: lane.group[1].first)
    for low, high in pairwise(lanes):
        if head.range not in {low.group[1], high.group[1]} or high.rows >= most:
            continue
        first = head if head.range == low.group[1] else queue.head(low, now)
        if first is not None:
            piece = meeting(batch(first), high.jobs, latency, now, most)
            if piece is not None:
                return piece
    return None


def meeting(low: list[Job], high: list[Job], latency: Latency, now: int, most: int) -> Piece | None:
    """The first part of the work of `low`, a launch, up to the cut at which `high` waits, so that both share what is left:
    where they are of one class and fit into one launch of `most` rows, that takes less time than one after the other, and all
    would be in time. None where that is not so."""
    one, other = low[0], high[0]
    mine, theirs = sum(job.rows for job in low), sum(job.rows for job in high)
    if mine + theirs > most or any(job.priority != one.priority for job in (*low, *high)):
        return None
    key = part_key(one.key, one.range.first, other.range.first)
    rest = part_key(one.key, other.range.first, one.range.last)
    together = latency.typical(key, mine) + latency.typical(rest, mine + theirs)
    apart = latency.typical(one.key, mine) + latency.typical(other.key, theirs)
    if latency.paying(rest) < mine + theirs:
        return None
    if together > WORTH * apart or now + together > min(job.deadline_ns for job in (*low, *high)):
        return None
    return Piece(low, key, mine, latency.pessimistic(key, mine))
