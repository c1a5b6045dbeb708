"""Checks 10 and 14: what may run together, and that nobody is left behind who could have come along."""

from __future__ import annotations

from itertools import islice

from hil.sim import books_inside as inside
from hil.sim.books import EdgeBook, NodeBook, OutRun, WorkBook, ms
from hil.sim.books_schedule import expects, free_at, late
from hil.sim.checks_base import AllEars, Check
from shared.events import Event, Row, Run
from shared.plan import RAW, Plan, SegmentRange
from shared.queue import Job

SHORT_QUEUE = 32
"""Queues that are longer are looked through up to here: what is left behind is at their front."""


class FittingBatch(Check):
    """10. The rows of a batch share contract, range and shape, and its predicted finish is no later than any row's deadline
    when it is launched.

    What can no longer be done in time is given up before anything is launched: none of it waits behind a launch. At a node
    a row goes on where its request has got to, and only what is not of the most important class, or meets others there, may
    stop before its end.
    """

    number = 10

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.action(Run, self._edge_launches)
        ears.node.action(Run, self._node_launches)

    def _edge_launches(self, book: EdgeBook, run: Run, event: Event, now: int) -> None:
        out, plan = book.launched, book.plans[run.contract]
        self._rows(book, out)
        self._hopeless(book, run, now)
        for row in run.rows:
            key, attempt = book.work_of[row.job]
            request = book.open.get(key)
            if request is None:
                continue
            if request.request.plan != run.contract or row.rows != request.request.rows or row.decode != RAW:
                self.broken(book, f"run {run.run} has a row of {key} that is of another contract or shape")
            if not (_is_head(plan, run.range, row) if attempt else _is_rung(plan, run.range, row)):
                self.broken(book, f"run {run.run} runs {run.range} for attempt {attempt} of {key}")
            self._in_time(book, run, out, request.resolve_by)

    def _node_launches(self, book: NodeBook, run: Run, event: Event, now: int) -> None:
        out, plan = book.launched, book.plans[run.contract]
        self._rows(book, out)
        self._hopeless(book, run, now)
        for row in run.rows:
            let_in = book.by_job.get(row.job)
            if let_in is None:
                continue
            asked = let_in.message
            part, last = run.range, len(plan.cuts) - 1
            said = (run.contract, part.program, part.first, row.rows, row.decode.name, row.encode)
            if said != (asked.contract, 0, let_in.at, asked.rows, let_in.coding, None):
                self.broken(book, f"run {run.run} has a row of {let_in.identity} and does {said}")
            if part.last != last and not (part.first < part.last < last and (asked.priority or _met(book, run, last))):
                self.broken(book, f"run {run.run} of class {asked.priority} runs {part}, of {last} segments")
            self._in_time(book, run, out, let_in.deadline_ns)

    def _hopeless(self, book: WorkBook, run: Run, now: int) -> None:
        typical = book.scheduler.latency.typical
        for job in islice(inside.waiting(book.scheduler).values(), SHORT_QUEUE):
            if now + typical(job.key, job.rows) > job.deadline_ns:
                due = ms(job.deadline_ns - now)
                self.broken(
                    book, f"job {job.id}, due in {due}, waits while run {run.run} is launched, and cannot be in time"
                )

    def _rows(self, book: WorkBook, out: OutRun | None) -> None:
        most = 0 if out is None else book.scheduler.max_rows(out.run.contract)
        if out is not None and not 1 <= out.rows <= most:
            self.broken(book, f"run {out.run.run} has {out.rows} rows, and {most} is the most")

    def _in_time(self, book: WorkBook, run: Run, out: OutRun | None, due: int) -> None:
        if out is not None and out.typical_ns > due:
            self.broken(book, f"run {run.run} is predicted to end {ms(out.typical_ns - due)} after a row of it is due")


def _met(book: NodeBook, run: Run, last: int) -> bool:
    """Whether others wait where this run stops."""
    group = (run.contract, SegmentRange(0, run.range.last, last))
    return any(job.group == group for job in inside.waiting(book.scheduler).values())


def _is_rung(plan: Plan, part: SegmentRange, row: Row) -> bool:
    whole = SegmentRange(part.program, 0, len(plan.programs[part.program].segments))
    return part == whole and plan.rung_of(part.program) is not None and row.encode is None


def _is_head(plan: Plan, part: SegmentRange, row: Row) -> bool:
    coding = row.encode
    routes = [r for r in plan.routes if r.cut == part.last and coding is not None and r.coding == coding.name]
    return (part.program, part.first) == (0, 0) and bool(routes) and coding in plan.cuts[part.last].codings


class NobodyLeftBehind(Check):
    """14. Within a class, no compatible row with an earlier deadline that would fit into the batch that was chosen is left
    behind when a later one is launched.

    *Would fit*: the rows stay within the largest launch, joining pays, the whole still ends by every deadline in it, in the
    worst case that is planned for where that is promised, the row was not put off, and with it the launch would not make a
    promise late. (Where the first of a group would break a promise, one further back goes ahead; what joins it does so in
    its order, whatever its own class.) Where a stream at least
    as important is expected, which the books cannot foretell, long work may have to wait for it, and nothing is said.
    """

    number = 14

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.action(Run, self._launched)
        ears.node.action(Run, self._launched)

    def _launched(self, book: WorkBook, run: Run, event: Event, now: int) -> None:
        waiting = inside.waiting(book.scheduler)
        out = book.launched
        if not waiting or out is None or not run.rows:
            return
        jobs = inside.launched_jobs(book.scheduler, run.run)
        first, *joined = jobs
        for count, job in enumerate(waiting.values()):
            if count >= SHORT_QUEUE:
                return
            later = any((job.priority, job.deadline_ns) < (j.priority, j.deadline_ns) for j in joined)
            later = later and any(job.priority == j.priority for j in jobs)
            later = later or (job.priority == first.priority and job.deadline_ns < first.deadline_ns)
            if later and job.group == first.group and self._fits(book, out, jobs, job, now):
                self.broken(
                    book,
                    f"job {job.id}, due in {ms(job.deadline_ns - now)}, is left behind by run {run.run}, though it fits",
                )

    def _fits(self, book: WorkBook, out: OutRun, jobs: tuple[Job, ...], job: Job, now: int) -> bool:
        latency, rows, key = book.scheduler.latency, out.rows + job.rows, jobs[0].key
        typical = latency.typical(key, out.rows)
        if rows > book.scheduler.max_rows(job.contract) or job.earliest_ns > now:
            return False
        together = max(latency.typical(key, rows), typical)
        if now + together > min([job.deadline_ns, *(j.deadline_ns for j in jobs)]):
            return False
        if together - typical > latency.typical(job.key, job.rows):
            return False
        if isinstance(book, EdgeBook) and expects(book, job.priority):
            return False
        free = free_at(book, now)
        free[out.run.executor] = slowest = now + latency.pessimistic(key, rows)
        if any(slowest > j.deadline_ns for j in (job, *jobs) if j.promised):
            return False
        promised = [p for p in inside.promised(book.scheduler).values() if p.id != job.id]
        return late(book.scheduler, free, promised) is None
