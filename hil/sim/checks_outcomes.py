"""Checks 1, 2 and 3: one outcome for each request, a timer behind each, and none called on time that is late."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.owed import outcome_kind
from hil.sim import books_inside as inside
from hil.sim.books import Book, ClientBook, EdgeBook, NodeBook, ms
from hil.sim.checks_base import AllEars, Check, Shelf
from shared.events import ClockJumped, Event, Hold, Received, Resolve, Tick
from shared.request import Answer, Outcome, Rejected


class OneOutcome(Check):
    """1. For each (client incarnation, sequence) there is at most one outcome, and exactly one once now > D + ε.

    Here ε is no constant: a client asks to be woken by D at the latest (check 2), and an outcome may be as late as that
    wake-up, and no later; nor may a wake-up at D or after it leave a request open. A client that is stopped is woken
    when it runs again. A broker is held to the same rule with its own time, the guard before D: it must not give an outcome
    to what is not open, nor leave anything open past its time, or past a suspension that it has noticed.
    """

    number = 1

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.client.action(Resolve, self._client_resolves)
        ears.client.end_of(Tick, self._client_woken)
        ears.edge.action(Resolve, self._broker_resolves)
        ears.edge.action(Hold, self._broker_pushes)
        ears.edge.end_of(ClockJumped, self._broker_jumped)
        ears.edge.end(self._broker_due)

    def _client_resolves(self, book: ClientBook, action: Resolve, event: Event, now: int) -> None:
        sequence, asked = action.sequence, book.closing
        if asked is None:
            self.broken(book, f"request {sequence} gets {outcome_kind(action.outcome)}, but it is not open")
        book.delivered[sequence] = action.outcome
        due, woken = asked.request.deadline_ns, book.wake_before_ns
        if now > due >= asked.asked_ns and (woken is None or woken > due):
            self.broken(book, f"request {sequence} ends {ms(now - due)} late, and no wake-up was asked for by then")

    def _client_woken(self, book: ClientBook, event: Tick, now: int) -> None:
        if book.open:
            due = book.soonest()
            if due is not None and due <= now:
                self.broken(book, f"request {book.due[0][1]} is open {ms(now - due)} past its deadline after a wake-up")

    def _broker_resolves(self, book: EdgeBook, action: Resolve, event: Event, now: int) -> None:
        if book.closing is None and not _at_the_door(book, action):
            self.broken(book, f"{action.client}'s request {action.sequence} gets an outcome, but it is not open")

    def _broker_pushes(self, book: EdgeBook, action: Hold, event: Event, now: int) -> None:
        if book.closing is None:
            self.broken(book, f"{action.client}'s request {action.sequence} is pushed an answer, but it is not open")

    def _broker_jumped(self, book: EdgeBook, event: ClockJumped, now: int) -> None:
        if book.open:
            client, sequence = next(iter(book.open))
            self.broken(book, f"{client}'s request {sequence} is still open after a suspension of {ms(event.jump_ns)}")

    def _broker_due(self, book: EdgeBook, event: Event, now: int) -> None:
        if book.open and (book.wake_ns is None or book.wake_ns <= now):  # else nothing can be due, by check 2
            due = book.soonest()
            if due is not None and due <= now:
                client, sequence = book.due[0][1]
                self.broken(book, f"{client}'s request {sequence} is open {ms(now - due)} past its time")

    def ended(self, book: ClientBook, sequence: int, outcome: Outcome) -> None:
        """The application has got an outcome: the one that the machine gave, once; or it has closed its client."""
        if isinstance(outcome, Rejected) and outcome.reason == "closed" and book.open.pop(sequence, None) is not None:
            return
        if book.delivered.pop(sequence, None) is not outcome:
            self.broken(
                book, f"request {sequence}: the application got an outcome that the client did not give just now"
            )

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for book in shelf.clients:
            self._same(book, "open requests", set(book.open), set(book.owed.open))
            self._counted(book)
        for edge in shelf.edges:
            theirs = {(o.request.client, o.request.sequence) for o in inside.register(edge.broker)}
            self._same(edge, "open requests", set(edge.open), theirs)

    def rest(self, shelf: Shelf, at: int) -> None:
        """At the end."""
        self.sweep(shelf, at)
        for book in shelf.clients:
            if book.open or book.waiting:
                left = sorted([*book.open, *book.waiting])
                self.broken(book, f"requests {left[:5]} never got an outcome")
        for edge in shelf.edges:
            if edge.open:
                self.broken(edge, f"requests {sorted(edge.open)[:5]} never got an outcome")

    def _same(self, book: Book, what: str, ours: set[int] | set[tuple[str, int]], theirs: object) -> None:
        if ours != theirs:
            self.broken(book, f"{what}: by the events they are {ours}, by the machine {theirs}")

    def _counted(self, book: ClientBook) -> None:
        counts: Mapping[str, int] = msgspec.structs.asdict(book.owed.counts)
        ours = {**book.ended, "asked": book.asked, "open": len(book.open), "withdrawn": book.withdrawn}
        wrong = {name: (count, counts[name]) for name, count in ours.items() if count != counts[name]}
        if wrong:
            self.broken(book, f"outcomes do not add up: (by the events, by the machine): {wrong}")


def _at_the_door(book: EdgeBook, action: Resolve) -> bool:
    outcome = action.outcome
    refused = isinstance(outcome, Rejected) and outcome.reason == "duplicate"
    return refused and book.twice == (action.client, action.sequence)


class Timers(Check):
    """2. Every open request has a timer no later than its deadline.

    At a client that is D, at a broker the guard before D, both also where an answer is held, since that must be handed over;
    at a node it is when the first request that waits can no longer be done in time, read kindly, and asked for behind the
    last of what came together.
    """

    number = 2

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.client.end(self._timed)
        ears.edge.end(self._timed)
        ears.node.end(self._node_timed)

    def _timed(self, book: ClientBook | EdgeBook, event: Event, now: int) -> None:
        if book.open:
            due, wake = book.soonest(), book.wake_ns
            if due is not None and (wake is None or wake > due):
                asked = "no wake-up is asked for" if wake is None else f"the wake-up is {ms(wake - due)} later"
                self.broken(book, f"request {book.due[0][1]} is due in {ms(due - now)}, and {asked}")

    def _node_timed(self, book: NodeBook, event: Event, now: int) -> None:
        if isinstance(event, Received) and event.more:
            return
        wake = book.wake_ns
        for job in inside.waiting(book.scheduler).values():
            if wake is None or wake > job.deadline_ns:
                asked = (
                    "no wake-up is asked for" if wake is None else f"the wake-up is {ms(wake - job.deadline_ns)} later"
                )
                self.broken(
                    book, f"job {job.id} waits and can be done until {ms(job.deadline_ns - now)} from now; {asked}"
                )


class OnTime(Check):
    """3. No answer is called on time after D, by the client's own clock; and none that is on time is called late."""

    number = 3

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.client.action(Resolve, self._resolves)

    def _resolves(self, book: ClientBook, action: Resolve, event: Event, now: int) -> None:
        outcome, asked = action.outcome, book.closing
        if asked is not None and isinstance(outcome, Answer):
            due = asked.request.deadline_ns
            if outcome.on_time != (now <= due):
                called = "on time" if outcome.on_time else "late"
                self.broken(book, f"request {action.sequence} is called {called} {ms(now - due)} after its deadline")
