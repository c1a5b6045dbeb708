"""Which rows go into the next launch.

A batch is formed when an executor is free, never held back to wait for more (a fixed window is paid even when nobody else
comes, and deferral collapses with many models on few devices). It is a prefix of the group's order: the earliest job and
then the next ones, as long as

* the rows stay within the largest batch;
* the whole batch is predicted to end by the earliest deadline in it, and, where promised work is in it, by that work's
  deadline even pessimistically: nobody joins a promise at its expense;
* joining pays: the bigger launch adds less time than a launch of its own would take. On a CPU it often does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.latency import Latency
from shared.queue import Job

NEVER_NS = 1 << 62


def form(jobs: Iterable[Job], latency: Latency, now: int, max_rows: int) -> list[Job]:
    """The jobs of the next launch. `jobs` are compatible and in order but for the first, which is known to fit by itself and
    may stand behind others: of those before it, the ones that do not fit are passed over."""
    batch: list[Job] = []
    rows = 0
    duration = 0
    deadline = promised = NEVER_NS
    for job in jobs:
        together = alone = latency.typical(job.key, job.rows)
        if batch:
            together = max(latency.typical(batch[0].key, rows + job.rows), duration)
            due = min(promised, job.deadline_ns) if job.promised else promised
            fits = (
                rows + job.rows <= max_rows
                and together - duration <= alone
                and now + together <= min(deadline, job.deadline_ns)
                and (due == NEVER_NS or now + latency.pessimistic(batch[0].key, rows + job.rows) <= due)
            )
            if not fits:
                if job.order < batch[0].order:
                    continue
                break
        batch.append(job)
        rows, duration, deadline = rows + job.rows, together, min(deadline, job.deadline_ns)
        if job.promised:
            promised = min(promised, job.deadline_ns)
    return batch
