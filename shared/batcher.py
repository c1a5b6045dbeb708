"""Which rows go into the next launch.

A batch is formed when an executor is free, never held back to wait for more (a fixed window is paid even when nobody else
comes, and deferral collapses with many models on few devices). It is a prefix of the group's order: the earliest job and
then the next ones, as long as

* the rows stay within the largest batch;
* the whole batch is predicted to end by the earliest deadline in it;
* joining pays: the bigger launch adds less time than a launch of its own would take. On a CPU it often does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.latency import Latency
from shared.queue import Job


def form(jobs: Iterable[Job], latency: Latency, now: int, max_rows: int) -> list[Job]:
    """The jobs of the next launch. `jobs` are compatible and in order, and the first is known to fit by itself."""
    batch: list[Job] = []
    rows = 0
    duration = 0
    deadline = 0
    for job in jobs:
        alone = latency.typical(job.key, job.rows)
        if not batch:
            batch, rows, duration, deadline = [job], job.rows, alone, job.deadline_ns
            continue
        if rows + job.rows > max_rows:
            break
        together = max(latency.typical(batch[0].key, rows + job.rows), duration)
        earliest = min(deadline, job.deadline_ns)
        if together - duration > alone or now + together > earliest:
            break
        batch.append(job)
        rows, duration, deadline = rows + job.rows, together, earliest
    return batch
