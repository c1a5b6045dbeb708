"""Checks 4 and 16: what was promised can be kept, and nothing is promised on what is suspect."""

from __future__ import annotations

from collections.abc import Mapping

from edge.nodes import FORGET_NS
from edge.paths import State
from hil.sim import books_inside as inside
from hil.sim.books import EdgeBook, EdgeRequest, PathView, Promised, link_parts, ms
from hil.sim.books_schedule import expects, free_at, unkept
from hil.sim.checks_base import AllEars, Check, Shelf
from shared.events import Arrived, ClockJumped, Event, Resolve, Run, Send, Tick
from shared.queue import Job
from shared.request import Answer, Superseded
from shared.running import NEVER_NS
from shared.wire.messages import Infer


class PromisesKept(Check):
    """4. The forward schedule of promised work is feasible on each executor, unless an overrun is on record.

    Three rules come of it. What is promised after a step can be kept, counted from the books' own times of what is out.
    A promise leaves the queue to be launched, or because its request is over; it is revoked only where an overrun is on
    record since it was given (a run took longer than the worst case that was planned for, or was handled later; that work
    was found to take longer; a wake-up for work that was put off came late), where a more important promise took its
    place, or where streams as important are expected. And a request whose answer was promised ends with one, unless an
    overrun is on record, its run failed, or nobody wants it any more.
    """

    number = 4

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.action(Run, self._launched)
        ears.edge.action(Resolve, self._resolved)
        ears.edge.end(self._look)

    def _launched(self, book: EdgeBook, run: Run, event: Event, now: int) -> None:
        for row in run.rows:
            book.promised.pop(row.job, None)

    def _resolved(self, book: EdgeBook, action: Resolve, event: Event, now: int) -> None:
        request = book.closing
        if request is None or request.promised_ns is None or isinstance(action.outcome, Answer | Superseded):
            return
        if request.broken_run or expects(book, request.request.priority) or isinstance(event, ClockJumped):
            return
        _look_for_longer_work(book, now)
        if max([book.slow_ns, *(now for out in book.out.values() if now > out.due_ns)]) >= request.promised_ns:
            return
        if isinstance(event, Arrived) and event.request.priority < request.request.priority:
            return
        if request.displaced or _woken_late(book, event, now):
            return
        key = f"{action.client}'s request {action.sequence}"
        self.broken(book, f"{key} was promised {ms(now - request.promised_ns)} ago and ends as {action.outcome}")

    def _look(self, book: EdgeBook, event: Event, now: int) -> None:
        jobs = inside.promised(book.scheduler)
        if not jobs and not book.promised:
            return
        self._kept(book, jobs, event, now)
        if jobs:
            self._feasible(book, jobs, now)

    def _kept(self, book: EdgeBook, jobs: Mapping[int, Job], event: Event, now: int) -> None:
        _look_for_longer_work(book, now)
        gone = [promised for number, promised in book.promised.items() if number not in jobs]
        for number, job in jobs.items():
            if number not in book.promised:
                self._promised(book, job, now)
            if job.earliest_ns:
                book.put_off = True
        for promised in gone:
            del book.promised[promised.job.id]
            request = book.open.get(promised.key)
            if request is not None and not self._excused(book, request, promised, event, now):
                since = ms(now - promised.since_ns)
                self.broken(book, f"the promise to {promised.key} is taken back after {since}, and nothing had overrun")

    def _promised(self, book: EdgeBook, job: Job, now: int) -> None:
        key = book.numbers.get(inside.job_owner(book.broker, job.id)[0])
        request = None if key is None else book.open.get(key)
        if key is None or request is None:
            self.broken(book, f"job {job.id} is promised to nobody")
        if job.deadline_ns > request.resolve_by:
            self.broken(book, f"job {job.id} is promised {ms(job.deadline_ns - request.resolve_by)} after {key} is due")
        request.promised_ns = now if request.promised_ns is None else request.promised_ns
        book.promised[job.id] = Promised(job, key, book.scheduler.latency.pessimistic(job.key, job.rows), now)

    def _excused(self, book: EdgeBook, request: EdgeRequest, promised: Promised, event: Event, now: int) -> bool:
        since, priority = promised.since_ns, promised.job.priority
        if book.slow_ns >= since or request.broken_run or expects(book, priority) or _woken_late(book, event, now):
            # A promise that was taken back for a cause is none any more, also when the cause has gone.
            request.displaced = True
        if isinstance(event, Arrived) and event.request.priority < priority:
            key = (event.request.client, event.request.sequence)
            works = [*book.work_of.values(), *((known.key, 0) for known in book.promised.values())]
            request.displaced = request.displaced or (key, 0) in works
        return request.displaced

    def _feasible(self, book: EdgeBook, jobs: Mapping[int, Job], now: int) -> None:
        free = free_at(book, now)
        broken = None if NEVER_NS in free else unkept(book, free, jobs.values())
        if broken is not None:
            due = ms(broken.deadline_ns - now)
            self.broken(book, f"job {broken.id}, due in {due}, is promised, and cannot be done in time")


def _look_for_longer_work(book: EdgeBook, now: int) -> None:
    """Promised work that is found to take longer than when it was last looked at counts as an overrun."""
    pessimistic = book.scheduler.latency.pessimistic
    for promised in book.promised.values():
        longest_ns = pessimistic(promised.job.key, promised.job.rows)
        if longest_ns > promised.longest_ns:
            promised.longest_ns = longest_ns
            book.slow_ns = now


def _woken_late(book: EdgeBook, event: Event, now: int) -> bool:
    """Whether work that was put off may begin too late since the wake-up for it is late, or has not even come yet."""
    if isinstance(event, Tick):
        return book.put_off and event.late_ns > 0
    return book.put_off and book.wake_before_ns is not None and now > book.wake_before_ns


class NothingOnSuspects(Check):
    """16. A suspect executor or a stalled connection gets no new promise, and a node that is stalled, gone or not greeted no
    request.

    A node that was lost and comes back as another incarnation is not used again before the least pause after its return is
    over. One that is about to leave, or is left alone for doing worse than its peers, gets no request either (but further
    copies of one that it was asked), and of those that are left alone at least as many are not. An executor whose run is
    overdue counts as never free: what is promised must be kept by the others. A connection is stalled where an answer on
    it is overdue by more than the settings allow and the broker has had a step since then in which it could have seen
    that, unless the connection has carried something in between, or the answer is overdue for so long (5 s) that the
    broker has given it up.
    """

    number = 16

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.sent(Infer, self._asks)
        ears.edge.end(self._look)

    def _asks(self, book: EdgeBook, message: Infer, action: Send, event: Event, now: int) -> None:
        if book.sending is None:
            return
        view, _ = book.sending
        name = view.node.name
        if not view.linked or not view.welcomed or message.contract not in view.node.contracts:
            state = "connected" if not view.linked else "greeted" if not view.welcomed else "serving the contract"
            self.broken(book, f"{name} is sent request {message.sequence}, and is not {state}")
        if not view.node.listed:
            self.broken(book, f"{name} is sent request {message.sequence}, and is not in the directory")
        if view.node.draining:
            self.broken(book, f"{name} is sent request {message.sequence}, and is about to leave")
        first = view.node.asked.count((message.sequence, message.attempt)) == 1
        if first and inside.ejected(book.broker, name, now):
            self._left_alone(book, name, message, now)
        if now < view.return_ns:
            self.broken(
                book,
                f"{name} is sent request {message.sequence} {ms(view.return_ns - now)} too soon after its loss",
            )
        if link_parts(action.link)[1] != "data":
            self.broken(book, f"{name} is sent request {message.sequence} on {action.link}")
        self._stalled(book, view, message)

    def _left_alone(self, book: EdgeBook, name: str, message: Infer, now: int) -> None:
        """A node that is to be left alone is asked only where no other could be: none that is idle is passed over."""
        for other in book.nodes.values():
            idle = any(path.state is State.UP and not path.out for path in inside.paths_of(book.broker, other.name))
            if (
                idle
                and not other.out
                and other.credits > 0
                and other.listed
                and not other.draining
                and message.contract in other.contracts
                and not inside.ejected(book.broker, other.name, now)
            ):
                self.broken(
                    book,
                    f"{name} is sent request {message.sequence}, and is to be left alone, while {other.name} is idle",
                )

    def _stalled(self, book: EdgeBook, view: PathView, message: Infer) -> None:
        if view.moved_step >= book.step - 1:
            return
        for (sequence, number), attempt in view.out.items():
            overdue = book.before_ns - (attempt.typical_ns + book.stall_ns)
            forgotten = book.before_ns > attempt.typical_ns + FORGET_NS
            if overdue > 0 and attempt.step < book.step - 1 and not forgotten:
                self.broken(
                    book,
                    f"{view.node.name} is sent request {message.sequence}, and its answer to {sequence}/{number} is "
                    f"overdue for {ms(overdue + book.stall_ns)}",
                )

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for book in shelf.edges:
            out = [name for name in book.nodes if inside.ejected(book.broker, name, book.host.local(at))]
            if 2 * len(out) > len(book.nodes):
                self.broken(book, f"{out} are left alone, of {len(book.nodes)} nodes")

    def _look(self, book: EdgeBook, event: Event, now: int) -> None:
        if not any(now >= out.overdue_ns for out in book.out.values()):
            return
        jobs = inside.promised(book.scheduler)
        broken = unkept(book, free_at(book, now), jobs.values())
        if broken is not None:
            runs = [out.run.run for out in book.out.values() if now >= out.overdue_ns]
            self.broken(
                book,
                f"job {broken.id}, due in {ms(broken.deadline_ns - now)}, is promised, and cannot be done without the "
                f"executors of the overdue runs {runs}",
            )
