"""How the book of a node is kept (`hil.sim.books_keep` says how that goes)."""

from __future__ import annotations

from hil.sim import books_inside as inside
from hil.sim.books import (
    Greeted,
    LetIn,
    NodeBook,
)
from hil.sim.books_keep import close_work, open_work
from hil.sim.checks_hear import Ears
from shared.events import (
    ClockJumped,
    Draining,
    Event,
    Finished,
    Received,
    Send,
    SendFailed,
)
from shared.plan import RAW
from shared.wire.messages import Bye, Hello, Infer, Refusal, Reply, Welcome

REMEMBERED = 4096
"""Answered requests of which copies may still come."""


def open_node(ears: Ears[NodeBook]) -> None:
    """What is known of a session before the checks look."""
    open_work(ears)
    ears.event(Finished, _got_further)
    ears.received(Infer, _came)
    ears.received(Bye, _edge_leaves)
    ears.event(SendFailed, _edge_is_gone)
    ears.event(ClockJumped, _all_gone)
    ears.event(Draining, _told_to_leave)
    ears.sent(Welcome, _greeted)
    ears.sent(Reply, _replies)
    ears.sent(Refusal, _refuses)


def close_node(ears: Ears[NodeBook]) -> None:
    """What is carried over."""
    ears.sent(Reply, _is_over)
    ears.sent(Refusal, _is_over)
    ears.sent(Bye, _leaves)
    ears.end_of(Received, _nothing_arrived)
    ears.end(_step_is_over)
    close_work(ears)


def _came(book: NodeBook, message: Infer, event: Received, now: int) -> None:
    greeted = book.links.get(event.link)
    peer = event.link if greeted is None else greeted.peer
    identity = (peer, message.incarnation, message.sequence, message.attempt)
    book.arrived = identity
    book.again = None
    if greeted is not None and greeted.connection == "data" and greeted.incarnation == message.incarnation:
        known = book.open.get(identity)
        if known is not None and _is_copy(known, event.link, message):
            known.links.append(event.link)
            book.arrived = None
            return
        answered = book.answered.get(identity)
        if answered is not None and _is_copy(answered, event.link, message):
            book.again = answered
    job = inside.job_of(book.session, identity)
    if greeted is None or job is None or identity in book.open:
        return
    book.arrived = None
    sender = book.session.peers.of_link(event.link)
    low = None if sender is None else inside.bounds(sender.offset, now)[0]
    deadline = message.sent_ns + message.budget_ns - (low if low is not None else message.sent_ns - now)
    let_in = LetIn(identity, event.link, message, event.frames, job, now, deadline)
    book.open[identity] = book.by_job[job] = let_in
    book.accounts[let_in.account] += 1


def _got_further(book: NodeBook, event: Finished, now: int) -> None:
    """A run has ended that was a first part: what its rows gave is what a further one begins with."""
    out = book.ended
    if out is None or out.run.range.last == len(book.plans[out.run.contract].cuts) - 1:
        return
    for result in event.results:
        let_in = book.by_job.get(result.job)
        if let_in is not None and not result.error:
            let_in.at, let_in.frames, let_in.coding = out.run.range.last, result.outputs, RAW.name


def _is_copy(known: LetIn, link: str, message: Infer) -> bool:
    """Whether a request is here already, and came on another connection."""
    asked = known.message
    same = (asked.contract, asked.cut, asked.coding, asked.rows)
    return link not in known.links and same == (message.contract, message.cut, message.coding, message.rows)


def _nothing_arrived(book: NodeBook, event: Received, now: int) -> None:
    book.arrived = book.again = None


def _edge_leaves(book: NodeBook, message: Bye, event: Received, now: int) -> None:
    _gone(book, event.link)


def _edge_is_gone(book: NodeBook, event: SendFailed, now: int) -> None:
    """The path of a connection is gone, and with the last path to it the edge."""
    greeted = book.links.get(event.link)
    if greeted is None:
        return
    account = (greeted.peer, greeted.incarnation)
    same = [link for link, g in book.links.items() if (g.peer, g.path) == (greeted.peer, greeted.path)]
    for link in same:
        del book.links[link]
    if not any((g.peer, g.incarnation, g.connection) == (*account, "data") for g in book.links.values()):
        book.forget(account)
        return
    for let_in in [r for r in book.open.values() if r.account == account]:
        let_in.links = [link for link in let_in.links if link not in same]
        if not let_in.links:
            book.over(let_in)


def _all_gone(book: NodeBook, event: ClockJumped, now: int) -> None:
    for account in sorted({(g.peer, g.incarnation) for g in book.links.values()} | set(book.accounts)):
        book.forget(account)


def _told_to_leave(book: NodeBook, event: Draining, now: int) -> None:
    book.draining = True


def _leaves(book: NodeBook, message: Bye, action: Send, event: Event, now: int) -> None:
    """A node that goes is done with the peer that it says good-bye to."""
    if message.reason == "closing":
        _gone(book, action.link)


def _gone(book: NodeBook, link: str) -> None:
    greeted = book.links.get(link)
    if greeted is not None:
        book.forget((greeted.peer, greeted.incarnation))


def _greeted(book: NodeBook, message: Welcome, action: Send, event: Event, now: int) -> None:
    if not isinstance(event, Received) or not isinstance(event.message, Hello):
        return
    hello = event.message
    former = book.links.get(event.link)
    if former is not None and former.peer != hello.peer:
        book.forget((former.peer, former.incarnation))
    known = {(g.peer, g.incarnation) for g in book.links.values()} | set(book.accounts)
    for account in sorted(known):
        if account[0] == hello.peer and account[1] != hello.incarnation:
            book.forget(account)
    for link, g in list(book.links.items()):
        if (g.peer, g.connection, g.path) == (hello.peer, hello.connection, hello.path):
            del book.links[link]
    book.links[event.link] = Greeted(hello.peer, hello.incarnation, hello.connection, hello.path)


def _named(book: NodeBook, message: Reply | Refusal, link: str) -> tuple[str, int, int, int]:
    greeted = book.links.get(link)
    peer = link if greeted is None else greeted.peer
    return (peer, message.incarnation, message.sequence, message.attempt)


def _replies(book: NodeBook, message: Reply, action: Send, event: Event, now: int) -> None:
    identity = _named(book, message, action.link)
    book.closing = book.open.get(identity) or book.ending.get(identity)


def _refuses(book: NodeBook, message: Refusal, action: Send, event: Event, now: int) -> None:
    identity = _named(book, message, action.link)
    book.closing = None if identity == book.arrived else book.open.get(identity) or book.ending.get(identity)


def _is_over(book: NodeBook, message: Reply | Refusal, action: Send, event: Event, now: int) -> None:
    closing = book.closing
    if closing is None:
        if book.again is not None and isinstance(message, Reply):
            book.again.links.append(action.link)
        book.arrived = None
        return
    if closing.identity not in book.ending:
        book.ending[closing.identity] = closing
        closing.owed = list(closing.links)
        book.over(closing)
        if isinstance(message, Reply):
            closing.outputs = action.frames
            book.answered[closing.identity] = closing
    if action.link in closing.owed:
        closing.owed.remove(action.link)


def _step_is_over(book: NodeBook, event: Event, now: int) -> None:
    book.ending.clear()
    while book.answered:
        oldest = next(iter(book.answered.values()))
        if oldest.deadline_ns > now and len(book.answered) <= REMEMBERED:
            return
        del book.answered[oldest.identity]
