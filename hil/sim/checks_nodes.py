"""Checks 11, 12 and 15: what edges and nodes owe each other: credit, one execution and one ending, and clocks."""

from __future__ import annotations

from edge.nodes import FORGET_NS
from hil.sim import books_inside as inside
from hil.sim.books import Book, EdgeBook, LetIn, NodeBook
from hil.sim.checks_base import AllEars, Check, Shelf
from shared.events import Event, Finished, Received, Run, Send
from shared.offset import OffsetInterval
from shared.running import NEVER_NS
from shared.wire.messages import Cancel, Infer, Probe, ProbeReply, Refusal, Reply, Welcome


class Credit(Check):
    """11. Credits lent never exceed capacity; what is out and what is left add up to what was granted.

    At a node the requests of each incarnation of a peer that are here, counted from what came in and went out, never
    exceed its grant, nor all of them together the capacity; the last message of a step to a peer says no more than its grant
    as it is. At an edge the attempts
    that are out at a node never exceed what the node said last, nor the settings' own bound. What an edge has given up
    (5 s overdue) it may send again.
    """

    number = 11

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        """The last that a step has said of credits, by peer."""
        self._over = ""
        """What is wrong about a request that came beyond its peer's grant as it is after the step."""

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.edge.sent(Infer, self._asks)
        ears.node.received(Infer, self._comes)
        ears.node.sent(Welcome, self._welcomes)
        ears.node.sent(Reply, self._tells)
        ears.node.sent(Refusal, self._tells)
        ears.node.sent(ProbeReply, self._tells)
        ears.node.end(self._stepped)

    def _asks(self, book: EdgeBook, message: Infer, action: Send, event: Event, now: int) -> None:
        if book.sending is None:
            return
        view, attempt = book.sending
        node = view.node
        # A copy of what is out there needs no further credit.
        over = not attempt.copy and len(node.out) > node.credits
        if over or len(view.out) > book.most_outstanding:
            for path in node.paths:
                for key in [key for key, out in path.out.items() if now > out.typical_ns + FORGET_NS]:
                    path.drop(key)
            if len(view.out) > book.most_outstanding or (over and len(node.out) > node.credits):
                self.broken(
                    book,
                    f"{len(node.out)} attempts are out at {node.name}, {len(view.out)} of them on one path; "
                    f"{book.most_outstanding} may be on each, of {node.credits} lent",
                )

    def _comes(self, book: NodeBook, message: Infer, event: Received, now: int) -> None:
        if book.arrived is None and book.open:
            let_in = next(reversed(book.open.values()))
            name, incarnation = let_in.account
            here, granted = book.accounts[let_in.account], inside.granted(book.session).get(f"{name}:{incarnation}", 0)
            if here > granted:
                self._over = f"{here} requests of {let_in.account} are here, and {granted} credits are lent to it"
            elif len(book.open) > inside.capacity(book.session):
                self.broken(
                    book, f"{len(book.open)} requests are here, and {inside.capacity(book.session)} credits exist"
                )

    def _welcomes(self, book: NodeBook, message: Welcome, action: Send, event: Event, now: int) -> None:
        self._told(book, action.link, message.credits)

    def _tells(
        self, book: NodeBook, message: Reply | Refusal | ProbeReply, action: Send, event: Event, now: int
    ) -> None:
        self._told(book, action.link, message.load.credits)
        if isinstance(message, Refusal):
            # The grant may have shrunk by it, after the request that came had been let in.
            self._over = ""

    def _told(self, book: NodeBook, link: str, credits_: int) -> None:
        greeted = book.links.get(link)
        if greeted is not None:
            self._said[f"{greeted.peer}:{greeted.incarnation}"] = credits_

    def _stepped(self, book: NodeBook, event: Event, now: int) -> None:
        if self._over:
            self.broken(book, self._over)
        if not self._said:
            return
        lent = inside.granted(book.session)
        said, self._said = self._said, {}
        for peer, credits_ in said.items():
            if credits_ > lent.get(peer, 0):
                self.broken(book, f"{peer} is told of {credits_} credits, and has fewer")
        if sum(lent.values()) > inside.capacity(book.session):
            self.broken(book, f"{sum(lent.values())} credits are lent of {inside.capacity(book.session)}")

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for book in shelf.nodes:
            ours = {f"{name}:{incarnation}": count for (name, incarnation), count in book.accounts.items()}
            theirs = {account: count for account, count in inside.out_of(book.session).items() if count}
            if ours != theirs:
                self.broken(book, f"requests that are here, by the messages {ours}, by the machine {theirs}")
        for edge in shelf.edges:
            for name, node in inside.edge_nodes(edge.broker).items():
                if not node.out.keys() <= edge.nodes[name].out.keys():
                    extra = sorted(node.out.keys() - edge.nodes[name].out.keys())
                    self.broken(edge, f"attempts {extra} hold credit of {name}, and are answered or lost")
                for path, view in zip(node.paths, edge.nodes[name].paths, strict=True):
                    if not path.out.keys() <= view.out.keys():
                        extra = sorted(path.out.keys() - view.out.keys())
                        self.broken(edge, f"copies {extra} are out on {path.data}, and are answered or lost")


class OnceEach(Check):
    """12. In one node process a (peer, incarnation, sequence, attempt) executes at most once, and ends as answer, refusal or
    peer gone.

    Executed is each segment, in one launch or in several. By attempt and not by sequence: an edge may ask a node again
    after that node has refused, and gives that another number. What came in is let in or refused in the same step; what was
    let in ends exactly once; what is cancelled ends in that step. An answer comes of the row's own run. A copy on the same
    connection is refused and changes nothing; one on another is not run, and what its request ends with is said on each
    connection that it came on, also when it comes after the end. A node that was told to leave lets nothing more in.
    """

    number = 12

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.node.action(Run, self._launches)
        ears.node.sent(Reply, self._replies)
        ears.node.sent(Refusal, self._refuses)
        ears.node.received(Infer, self._comes)
        ears.node.end_of(Received, self._came_to_something)
        ears.node.end(self._said_everywhere)

    def _launches(self, book: NodeBook, run: Run, event: Event, now: int) -> None:
        for row in run.rows:
            let_in = book.by_job.get(row.job)
            if let_in is None:
                continue
            ran = {(let_in.identity, segment) for segment in range(run.range.first, run.range.last)}
            if not ran.isdisjoint(book.executed):
                self.broken(book, f"{let_in.identity} is executed twice")
            book.executed |= ran

    def _replies(self, book: NodeBook, message: Reply, action: Send, event: Event, now: int) -> None:
        if book.again is not None and book.closing is None and action.link not in book.again.links:
            if action.frames is not book.again.outputs:
                self.broken(book, f"the copy of {book.again.identity} is answered with something else")
            return
        twice = book.closing is not None and not _owed(book, book.closing, action.link)
        if book.closing is None or twice or not isinstance(event, Finished):
            self.broken(
                book,
                f"{action.link} is answered {message.sequence}/{message.attempt}, which is not here or did not run",
            )

    def _refuses(self, book: NodeBook, message: Refusal, action: Send, event: Event, now: int) -> None:
        twice = book.closing is not None and not _owed(book, book.closing, action.link)
        if twice or (book.closing is None and book.arrived is None):
            self.broken(
                book,
                f"{action.link} is refused {message.sequence}/{message.attempt} ({message.reason}), which is not here",
            )

    def _said_everywhere(self, book: NodeBook, event: Event, now: int) -> None:
        for let_in in book.ending.values():
            if let_in.owed:
                self.broken(book, f"{let_in.identity} has ended, and {let_in.owed} were not told")

    def _comes(self, book: NodeBook, message: Infer, event: Received, now: int) -> None:
        let_in = next(reversed(book.open.values()), None)
        if book.draining and let_in is not None and let_in.message is message:
            self.broken(book, f"{let_in.identity} is let in, and this node was told to leave")

    def _came_to_something(self, book: NodeBook, event: Received, now: int) -> None:
        if book.arrived is not None:
            self.broken(book, f"{book.arrived} came in, and was neither let in nor refused")
        message, greeted = event.message, book.links.get(event.link)
        if type(message) is Cancel and greeted is not None:
            cancelled = (greeted.peer, message.incarnation, message.sequence, message.attempt)
            if cancelled in book.open:
                self.broken(book, f"{cancelled} was cancelled, and is not over")

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for book in shelf.nodes:
            theirs = inside.admitted(book.session)
            if book.open.keys() != theirs.keys():
                self.broken(book, f"let in: by the messages {sorted(book.open)}, by the machine {sorted(theirs)}")


def _owed(book: NodeBook, let_in: LetIn, link: str) -> bool:
    """Whether what a request ends with is still to be said on this connection."""
    return link in (let_in.owed if let_in.identity in book.ending else let_in.links)


TEACHES = frozenset({Infer, Probe})
"""What a node learns of an edge's clock by."""

SLACK_NS = 2
"""Both clocks are read in whole nanoseconds."""

JUMP_NS = 5_000_000
"""A clock that has fallen behind by this much since it was last looked at has stood still."""

NOTICED_NS = 50_000_000
"""A suspension is noticed from here on (`shared.driver`)."""


class Offsets(Check):
    """15. The interval of a peer's clock offset contains the true offset, at all times, with all drift.

    After each message that teaches it, and of every pair now and then. There is one thing that no message tells: that one of
    the two hosts was suspended. The other side can find out only by a contradiction, and the one that was suspended
    may still have messages of the time before in its sockets. So after a suspension an interval is let be until it is
    found right again; from then on it must stay so. A suspension of less than 50 ms is not noticed by anybody, may be
    smaller than what the interval spans, and may be crossed by a message that comes long after; what it spoils is let be
    for good. While a process does not run nothing is looked at.
    """

    number = 15

    def __init__(self) -> None:
        self._settled: dict[tuple[Book, str], int] = {}
        self._clocks: dict[str, tuple[int, int]] = {}
        """By how much each process's clock lags behind true time, and when it was last found to have stood still: over all of
        its incarnations, since messages of the one before may still come."""

    def heard(self, shelf: Shelf, book: EdgeBook | NodeBook, event: Event, at: int) -> None:
        """A process has taken a step."""
        if book.host.name not in self._clocks:
            self._jumped(book.host.name, book.host.local(at), at)
        if type(event) is Received:
            if isinstance(book, EdgeBook):
                name = event.link.rpartition("/")[0]
                if name in book.nodes:
                    self._edge(shelf, book, name, at)
            elif type(event.message) in TEACHES:
                self._node(shelf, book, event.link, at)

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for edge in shelf.edges:
            for name in edge.nodes:
                self._edge(shelf, edge, name, at)
        for node in shelf.nodes:
            for link in node.links:
                self._node(shelf, node, link, at)

    def rest(self, shelf: Shelf, at: int) -> None:
        """At the end."""
        self.sweep(shelf, at)

    def _edge(self, shelf: Shelf, book: EdgeBook, name: str, at: int) -> None:
        node, known = shelf.node_of.get(name), inside.edge_nodes(book.broker).get(name)
        if node is not None and known is not None:
            self._look(book, node, known.offset, at)

    def _node(self, shelf: Shelf, book: NodeBook, link: str, at: int) -> None:
        peer = book.session.peers.of_link(link)
        edge = None if peer is None else shelf.edge_of.get((peer.name, peer.incarnation))
        if peer is not None and edge is not None:
            self._look(book, edge, peer.offset, at)

    def _look(self, book: Book, other: Book, interval: OffsetInterval, at: int) -> None:
        if book.host.stopped or other.host.stopped:
            return
        own, theirs = book.host.local(at), other.host.local(at)
        jumped = max(self._jumped(book.host.name, own, at), self._jumped(other.host.name, theirs, at))
        low, high = inside.bounds(interval, own)
        true = theirs - own
        right = (low is None or low <= true + SLACK_NS) and (high is None or true - SLACK_NS <= high)
        pair = (book, other.name)
        if jumped >= self._settled.get(pair, 0):
            if right and low is not None and high is not None and at > jumped + NOTICED_NS:
                self._settled[pair] = at
            return
        if not right:
            self.broken(
                book, f"the clock of {other.name} is {true} ns ahead, and is held to be between {low} and {high}"
            )

    def _jumped(self, name: str, local: int, at: int) -> int:
        """When the host of the process of this name was last found to have been suspended; for ever, where that was too
        short to be noticed."""
        lag = at - local
        before, jumped = self._clocks.get(name, (lag, -1))
        if lag > before + JUMP_NS:
            jumped = max(jumped, at if lag > before + NOTICED_NS else NEVER_NS)
        self._clocks[name] = (lag, jumped)
        return jumped
