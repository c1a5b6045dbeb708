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
    Event,
    Received,
    Send,
    SendFailed,
)
from shared.wire.messages import Bye, Hello, Infer, Refusal, Reply, Welcome


def open_node(ears: Ears[NodeBook]) -> None:
    """What is known of a session before the checks look."""
    open_work(ears)
    ears.received(Infer, _came)
    ears.received(Bye, _edge_leaves)
    ears.event(SendFailed, _edge_is_gone)
    ears.event(ClockJumped, _all_gone)
    ears.sent(Welcome, _greeted)
    ears.sent(Reply, _replies)
    ears.sent(Refusal, _refuses)


def close_node(ears: Ears[NodeBook]) -> None:
    """What is carried over."""
    ears.sent(Reply, _is_over)
    ears.sent(Refusal, _is_over)
    ears.end_of(Received, _nothing_arrived)
    close_work(ears)


def _came(book: NodeBook, message: Infer, event: Received, now: int) -> None:
    greeted = book.links.get(event.link)
    peer = event.link if greeted is None else greeted.peer
    identity = (peer, message.incarnation, message.sequence, message.attempt)
    book.arrived = identity
    job = inside.job_of(book.session, identity)
    if greeted is None or job is None or identity in book.open:
        return
    book.arrived = None
    known = book.session.peers.of_link(event.link)
    low = None if known is None else inside.bounds(known.offset, now)[0]
    deadline = message.sent_ns + message.budget_ns - (low if low is not None else message.sent_ns - now)
    let_in = LetIn(identity, event.link, message, event.frames, job, now, deadline)
    book.open[identity] = book.by_job[job] = let_in
    book.accounts[let_in.account] += 1


def _nothing_arrived(book: NodeBook, event: Received, now: int) -> None:
    book.arrived = None


def _edge_leaves(book: NodeBook, message: Bye, event: Received, now: int) -> None:
    _gone(book, event.link)


def _edge_is_gone(book: NodeBook, event: SendFailed, now: int) -> None:
    _gone(book, event.link)


def _all_gone(book: NodeBook, event: ClockJumped, now: int) -> None:
    for account in sorted({(g.peer, g.incarnation) for g in book.links.values()} | set(book.accounts)):
        book.forget(account)


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
        if (g.peer, g.connection) == (hello.peer, hello.connection):
            del book.links[link]
    book.links[event.link] = Greeted(hello.peer, hello.incarnation, hello.connection)


def _named(book: NodeBook, message: Reply | Refusal, link: str) -> tuple[str, int, int, int]:
    greeted = book.links.get(link)
    peer = link if greeted is None else greeted.peer
    return (peer, message.incarnation, message.sequence, message.attempt)


def _replies(book: NodeBook, message: Reply, action: Send, event: Event, now: int) -> None:
    book.closing = book.open.get(_named(book, message, action.link))


def _refuses(book: NodeBook, message: Refusal, action: Send, event: Event, now: int) -> None:
    identity = _named(book, message, action.link)
    book.closing = None if identity == book.arrived else book.open.get(identity)


def _is_over(book: NodeBook, message: Reply | Refusal, action: Send, event: Event, now: int) -> None:
    if book.closing is not None:
        book.over(book.closing)
    elif isinstance(message, Refusal):
        book.arrived = None
