"""How the books are kept: what each event, message and action changes in them.

Of each step `open_*` hear first, and leave in the book what the step is about (the request that an outcome ends, the attempt
that a reply answers); the checks come after them and find the state before and the thing in hand; `close_*` hear last, and
carry over.
"""

from __future__ import annotations

from heapq import heappush

from edge.owed import outcome_kind
from hil.sim.books import (
    Asked,
    Book,
    ClientBook,
    EdgeBook,
    NodeBook,
    OutRun,
    WorkBook,
    work_key,
)
from hil.sim.checks_hear import Ears
from shared.events import (
    Abort,
    Arrived,
    Event,
    Failed,
    Finished,
    Resolve,
    Run,
    Tick,
    WakeAt,
    Withdrawn,
)

# --- every process -------------------------------------------------------------------------------------------------------


def _ticked(book: Book, event: Tick, now: int) -> None:
    book.wake_ns = None


def _woken_at(book: Book, action: WakeAt, event: Event, now: int) -> None:
    book.wake_ns = action.at_ns


def _carry_over(book: Book, event: Event, now: int) -> None:
    book.wake_before_ns = book.wake_ns
    book.before_ns = now
    book.step += 1


# --- clients -------------------------------------------------------------------------------------------------------------


def open_client(ears: Ears[ClientBook]) -> None:
    """What is known of a client before the checks look."""
    ears.event(Tick, _ticked)
    ears.action(WakeAt, _woken_at)
    ears.event(Arrived, _reached_client)
    ears.event(Withdrawn, _withdrawn_by_client)
    ears.action(Resolve, _resolved_by_client)


def close_client(ears: Ears[ClientBook]) -> None:
    """What is carried over."""
    ears.end(_carry_over)


def _reached_client(book: ClientBook, event: Arrived, now: int) -> None:
    request = book.waiting.pop(event.request.sequence, None)
    if request is not None:
        book.asked += 1
        book.open[request.sequence] = Asked(request, now)
        heappush(book.due, (request.deadline_ns, request.sequence))


def _withdrawn_by_client(book: ClientBook, event: Withdrawn, now: int) -> None:
    book.delivered.pop(event.sequence, None)
    if book.open.pop(event.sequence, None) is not None:
        book.withdrawn += 1


def _resolved_by_client(book: ClientBook, action: Resolve, event: Event, now: int) -> None:
    book.closing = book.open.pop(action.sequence, None)
    book.ended[outcome_kind(action.outcome)] += 1


# --- executors -----------------------------------------------------------------------------------------------------------


def open_work(ears: Ears[EdgeBook] | Ears[NodeBook]) -> None:
    """What is known of a process's runs before the checks look."""
    ears.event(Tick, _ticked)
    ears.action(WakeAt, _woken_at)
    ears.event(Finished, _run_ends)
    ears.event(Failed, _run_ends)
    ears.action(Run, _run_starts)
    ears.action(Abort, _run_aborted)
    ears.end(_look_for_overruns)


def close_work(ears: Ears[EdgeBook] | Ears[NodeBook]) -> None:
    """What is carried over."""
    ears.event(Finished, _run_is_over)
    ears.event(Failed, _run_is_over)
    ears.action(Run, _run_is_out)
    ears.end(_carry_over_runs)


def _run_starts(book: WorkBook, run: Run, event: Event, now: int) -> None:
    key = work_key(run)
    rows = sum([row.rows for row in run.rows])
    latency = book.scheduler.latency
    book.launched = OutRun(run, key, now, latency.typical(key, rows), latency.pessimistic(key, rows))


def _run_is_out(book: WorkBook, run: Run, event: Event, now: int) -> None:
    out = book.launched
    if out is None:
        return
    book.changed = True
    book.out[run.run] = out
    book.busy[run.executor] += 1
    book.last_run = run.run
    for row in run.rows:
        book.jobs[row.job] = run.run
    if out.pool is not None:
        book.slots[out.pool, run.slot] = run.run


def _run_ends(book: WorkBook, event: Finished | Failed, now: int) -> None:
    book.ended = out = book.out.get(event.run)
    if out is not None and now > out.due_ns:
        book.slow_ns = now


def _run_is_over(book: WorkBook, event: Finished | Failed, now: int) -> None:
    out = book.out.pop(event.run, None)
    if out is None:
        return
    book.changed = True
    book.busy[out.run.executor] -= 1
    for row in out.run.rows:
        book.jobs.pop(row.job, None)
    if out.pool is not None:
        book.slots.pop((out.pool, out.run.slot), None)
        book.freed[out.pool, out.run.slot] += 1


def _run_aborted(book: WorkBook, action: Abort, event: Event, now: int) -> None:
    out = book.out.get(action.run)
    if out is not None:
        out.aborted = True


def _carry_over_runs(book: WorkBook, event: Event, now: int) -> None:
    book.changed = False
    book.wake_before_ns = book.wake_ns
    book.before_ns = now
    book.step += 1


def _look_for_overruns(book: WorkBook, event: Event, now: int) -> None:
    for out in book.out.values():
        if now > out.due_ns:
            book.slow_ns = now
