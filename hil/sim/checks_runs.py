"""Checks 5, 6 and 7: what is out on the executors, whether it may begin, and which slots it holds."""

from __future__ import annotations

from hil.sim import books_inside as inside
from hil.sim.books import EdgeBook, NodeBook, WorkBook, ms
from hil.sim.checks_base import AllEars, Check, Shelf
from shared.errors import InvariantBroken
from shared.events import Abort, Event, Run


class OneRunEach(Check):
    """5. At most one job is running and one staged on each executor; rows are disjoint.

    The scheduler stages nothing so far, so that it is held to one run on each executor, from its launch to the event that
    ends it, aborted or not. Rows: a job is in one run that is out at most, once, and runs are numbered upwards.
    """

    number = 5

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        for kind in (ears.edge, ears.node):
            kind.action(Run, self._launched)
            kind.action(Abort, self._aborted)

    def _launched(self, book: WorkBook, run: Run, event: Event, now: int) -> None:
        if not 0 <= run.executor < book.scheduler.executors:
            self.broken(book, f"run {run.run} is launched on executor {run.executor}, which there is not")
        if book.busy[run.executor]:
            out = [o.run.run for o in book.out.values() if o.run.executor == run.executor]
            self.broken(book, f"run {run.run} is launched on executor {run.executor}, where {out} are out")
        jobs = {row.job for row in run.rows}
        if not jobs or len(jobs) != len(run.rows) or not book.jobs.keys().isdisjoint(jobs):
            self.broken(
                book, f"run {run.run} has jobs {[r.job for r in run.rows]}; {sorted(book.jobs)} are out already"
            )
        if run.run <= book.last_run:
            self.broken(book, f"run {run.run} comes after run {book.last_run}")

    def _aborted(self, book: WorkBook, action: Abort, event: Event, now: int) -> None:
        out = book.out.get(action.run)
        if out is None or out.run.executor != action.executor:
            self.broken(book, f"run {action.run} is aborted on executor {action.executor}, where it is not out")


class InItsWindow(Check):
    """6. No run starts outside its window, nor for rows that are cancelled, expired or superseded when it is launched.

    The window ends when the run, at its typical time, would miss the first of its deadlines; it must not be over at
    the launch, and no executor may begin after it. A row that is wanted belongs to a request that is open (at a broker) or
    was let in and is not over (at a node).
    """

    number = 6

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.action(Run, self._edge_launches)
        ears.node.action(Run, self._node_launches)

    def _edge_launches(self, book: EdgeBook, run: Run, event: Event, now: int) -> None:
        for row in run.rows:
            key, _ = book.work_of[row.job]
            request = book.open.get(key)
            if request is None:
                whose = f"of {key[0]}'s request {key[1]}" if key[0] else "of nobody"
                self.broken(book, f"run {run.run} is launched for job {row.job} {whose}, which nobody wants any more")
            self._window(book, run, request.resolve_by, now)

    def _node_launches(self, book: NodeBook, run: Run, event: Event, now: int) -> None:
        for row in run.rows:
            let_in = book.by_job.get(row.job)
            if let_in is None:
                self.broken(book, f"run {run.run} is launched for job {row.job}, which nobody wants any more")
            self._window(book, run, let_in.deadline_ns, now)

    def _window(self, book: WorkBook, run: Run, due: int, now: int) -> None:
        if run.latest_ns < now:
            self.broken(book, f"run {run.run} is launched {ms(now - run.latest_ns)} after its window")
        if run.latest_ns > due:
            self.broken(book, f"run {run.run} may begin until {ms(run.latest_ns - due)} after a row of it is due")

    def began(self, book: WorkBook, run: Run, now: int) -> None:
        """An executor has begun with a run."""
        out = book.out.get(run.run)
        if out is None or out.begun:
            self.broken(book, f"run {run.run} begins {'twice' if out else 'and is not out'}")
        out.begun = True
        if now > run.latest_ns:
            self.broken(book, f"run {run.run} begins {ms(now - run.latest_ns)} after its window")


class Leases(Check):
    """7. A slot is held exactly by the run that was launched into it, and is free when and only when that is over;
    generations match.

    There is one holder, the launch: what is sent has been copied. How often a slot was freed, by the events, is its
    generation.
    """

    number = 7

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        for kind in (ears.edge, ears.node):
            kind.action(Run, self._launched)
            kind.end(self._held)

    def _launched(self, book: WorkBook, run: Run, event: Event, now: int) -> None:
        out = book.launched
        pool = None if out is None else out.pool
        if pool is None:
            if run.slot != -1:
                self.broken(book, f"run {run.run} runs no segment and holds slot {run.slot}")
            return
        there = inside.slots(inside.arena(book.scheduler), pool)
        if not 0 <= run.slot < there:
            self.broken(book, f"run {run.run} is launched into slot {run.slot} of the {there} of {pool}")
        if (pool, run.slot) in book.slots:
            holder = book.slots[pool, run.slot]
            self.broken(book, f"run {run.run} is launched into slot {run.slot} of {pool}, which run {holder} holds")

    def _held(self, book: WorkBook, event: Event, now: int) -> None:
        if book.changed:
            in_use = inside.arena(book.scheduler).in_use()
            if in_use != len(book.slots):
                self.broken(book, f"{in_use} slots are leased, and {len(book.slots)} runs are out in slots")

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for book in (*shelf.edges, *shelf.nodes):
            arena = inside.arena(book.scheduler)
            for (pool, slot), freed in book.freed.items():
                generation = inside.generation(arena, pool, slot)
                if generation != freed:
                    self.broken(book, f"slot {slot} of {pool} was freed {freed} times, and is at {generation}")
            try:
                arena.validate()
            except InvariantBroken as error:
                self.broken(book, str(error))
