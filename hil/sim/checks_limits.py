"""Checks 8 and 18: everything that can grow stays within its limit, and at rest nothing is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloud.kept import MOST
from edge.direct import Direct
from edge.nodes import FORGET_NS
from edge.stub import Stub
from hil.sim import books_inside as inside
from hil.sim.books import Book, ClientBook, EdgeBook, NodeBook, WorkBook
from hil.sim.checks_base import AllEars, Check, Shelf
from shared.events import Arrived, Received
from shared.wire.messages import Infer


class WithinLimits(Check):
    """8. Leases stay within the arena; every queue and set stays within its limit.

    What waits for an executor, what is open, the times that are kept, clients, peers, the attempts that a node
    remembers. (How many slots there are is check 7; how many attempts are out is check 11.)
    """

    number = 8

    def listen(self, ears: AllEars) -> None:
        """What concerns it."""
        ears.client.event(Arrived, self._asked)
        ears.edge.event(Arrived, self._arrived)
        ears.node.received(Infer, self._came)

    def _asked(self, book: ClientBook, event: Arrived, now: int) -> None:
        self._within(book, "open requests", len(book.owed.open), inside.most_open(book.owed))

    def _arrived(self, book: EdgeBook, event: Arrived, now: int) -> None:
        most = inside.edge_settings(book.broker).limits.max_open
        self._within(book, "open requests", len(inside.register(book.broker)), most)
        self._queued(book)

    def _came(self, book: NodeBook, message: Infer, event: Received, now: int) -> None:
        self._within(book, "open requests", len(book.open), inside.session_settings(book.session).limits.max_open)
        self._queued(book)

    def _queued(self, book: WorkBook) -> None:
        self._within(book, "waiting jobs", book.scheduler.queued, inside.most_waiting(book.scheduler))

    def sweep(self, shelf: Shelf, at: int) -> None:
        """All of it, now and then."""
        for book in shelf.clients:
            due = book.owed.due
            self._within(book, "times", len(due), inside.most_due(due))
            machine = book.host.machine
            if isinstance(machine, Stub | Direct):
                self._within(book, "requests kept", inside.kept_by(machine), len(book.open))
        for edge in shelf.edges:
            due = inside.register(edge.broker).due
            self._within(edge, "times", len(due), inside.most_due(due))
            self._within(edge, "owners of jobs", inside.job_owners(edge.broker), edge.scheduler.queued + len(edge.jobs))
            self._queued(edge)
            streams = edge.scheduler.streams
            self._within(edge, "streams", len(streams), inside.most_streams(edge.scheduler))
            if edge.front is not None:
                self._within(edge, "requests of its clients", inside.asked_of(edge.front), len(edge.open))
                self._within(edge, "clients", edge.front.clients, inside.most_clients(edge.front))
        for node in shelf.nodes:
            settings = inside.session_settings(node.session)
            self._within(node, "peers", inside.peers_known(node.session), settings.limits.max_peers)
            self._within(node, "answers kept", inside.kept_answers(node.session), MOST)
            self._within(node, "peers that left", inside.peers_left(node.session), 2 * settings.limits.max_peers)
            for count, most in inside.remembered(node.session):
                self._within(node, "remembered attempts of a peer", count, most)
            self._queued(node)

    def _within(self, book: Book, what: str, count: int, most: int) -> None:
        if count > most:
            self.broken(book, f"{count} {what}, and {most} is the most")


class NothingLeft(Check):
    """18. At rest there are no leases, timers or lent credits out, nothing open, nothing waiting. Same seed, same trace.

    Timers of the living stay: an agent probes its nodes and greets those that do not answer, a client greets an agent that is
    not there. An attempt whose answer was lost is given up when it is 5 s overdue and its node is looked at again, so
    that the newest of them may still hold its credit at the edge, and never at the node. (That the same seed gives the same
    trace is seen by running some of them twice: `hil.sim.check_cli`.)
    """

    number = 18

    def rest(self, shelf: Shelf, at: int) -> None:
        """At the end."""
        for edge in shelf.edges:
            self._idle(edge, sorted(edge.open))
        for node in shelf.nodes:
            self._idle(node, sorted(node.open))
        for client in shelf.clients:
            self._nothing(client, {"requests": sorted(client.open), "outcomes not delivered": sorted(client.delivered)})
            stub = client.host.machine
            if isinstance(stub, Stub) and client.wake_ns not in {None, *inside.greetings(stub)}:
                self.broken(client, "a wake-up is asked for, and nothing is open")
        for edge in shelf.edges:
            due = edge.broker.nodes.next_wakeup()
            if edge.wake_ns is not None and edge.wake_ns < due:
                self.broken(edge, "a wake-up is asked for that is not for its nodes")
            for name, known in inside.edge_nodes(edge.broker).items():
                old = [k for k, s in known.out.items() if edge.host.local(at) > s.typical_ns + 2 * FORGET_NS]
                self._nothing(edge, {f"credits of {name} in use": old})
        for node in shelf.nodes:
            self._nothing(node, {"credits in use": [a for a, n in inside.out_of(node.session).items() if n]})
            if node.wake_ns is not None and node.wake_ns > node.host.local(at):
                self.broken(node, "a wake-up is asked for, and nothing is here")

    def _idle(self, book: WorkBook, requests: Sequence[object]) -> None:
        scheduler = book.scheduler
        left = {
            "runs": sorted(book.out),
            "leases": inside.arena(scheduler).in_use(),
            "waiting jobs": scheduler.queued,
            "launches": scheduler.running,
            "requests": requests,
        }
        self._nothing(book, left)

    def _nothing(self, book: Book, left: Mapping[str, object]) -> None:
        found = {what: count for what, count in left.items() if count}
        if found:
            self.broken(book, f"left at rest: {found}")
