"""The edges that talk to this node: who greeted on which connection, their clocks, their credit, what they sent before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from cloud.credit import Credits
from cloud.seen import Seen
from shared.errors import PeerError
from shared.offset import OffsetInterval
from shared.wire.messages import MAX_PATHS, PROTOCOL, Hello, Infer

SILENT_NS = 10_000_000_000
"""A peer that said nothing for this long is forgotten: a killed one would keep its credit from the others for ever."""

QUIET_NS = 1_000_000_000
"""What one that said nothing for this long has of the share of others is theirs: it was not told, but is likely to be gone,
and whoever came meanwhile would wait for it until it is forgotten."""

TOO_MUCH = ("expired", "overload")
"""Why those are refused who ask for more than is done in time."""

LOOK_NS = 1_000_000_000
"""How often the silent are looked for."""


class Peer:
    """One edge process. It has one data and one probe connection on each path at most; the newest greeting of each counts."""

    def __init__(self, name: str, incarnation: int, attempts: Seen) -> None:
        self.name = name
        self.incarnation = incarnation
        self.account = _account(name, incarnation)
        """Whose credit it is: another incarnation never has to answer for what the one before it had out."""
        self.links: dict[tuple[str, int], str] = {}
        """Its connections, by kind and path; changed by `Peers` only."""
        self.data: tuple[str, ...] = ()
        """The connections that carry requests."""
        self.offset = OffsetInterval()
        self.seen_ns = 0
        self.attempts = attempts

    def deadline(self, message: Infer, now: int) -> int:
        """The deadline of a request that came now, on this node's clock, read optimistically: no true deadline is later."""
        sent = message.sent_ns
        return sent + message.budget_ns - self.offset.peer_sent(sent, now)

    def sort_links(self) -> None:
        """The connections have changed."""
        self.data = tuple(link for (kind, _), link in self.links.items() if kind == "data")


class Peers:
    """All peers, by name and by connection, bounded."""

    def __init__(self, limit: int, capacity: int, remember: int) -> None:
        """At most `limit` peers share `capacity` credits. Of each at least the last `remember` attempts are remembered, also
        of twice as many that have left: where all leave at once, of each process and of the one before it, since either may
        seem to greet again."""
        self._limit = limit
        self._remember = remember
        self._left: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._by_name: dict[str, Peer] = {}
        self._by_link: dict[str, Peer] = {}
        self._look_ns = 0
        self.credits = Credits(capacity)

    def of_link(self, link: str) -> Peer | None:
        """The peer that greeted on this connection."""
        return self._by_link.get(link)

    def refused(self, link: str, reason: str, now: int) -> Peer | None:
        """The peer that greeted on this connection, of which a request is refused."""
        peer = self._by_link.get(link)
        if peer is not None and reason in TOO_MUCH:
            self.credits.late(peer.account, now)
        return peer

    def all(self) -> Iterable[Peer]:
        """Every peer."""
        return self._by_name.values()

    def greet(self, link: str, message: Hello, now: int) -> tuple[Peer, list[Peer]]:
        """Take a greeting: the peer, and those that it replaces: its own former incarnation, and whoever greeted on this
        connection before under another name, so that there are never more peers than connections.

        A lower incarnation counts as an older one as long as the known one is heard of; after that it is a host whose clock
        was set back. Raises `PeerError` with reason `version` for another protocol, `replaced` for a greeting of an older
        incarnation, `hello` for one more peer than the node serves.
        """
        if message.protocol != PROTOCOL:
            raise PeerError("version", f"protocol {message.protocol}, expected {PROTOCOL}")
        if message.path >= MAX_PATHS:
            raise PeerError("hello", f"path {message.path}, expected fewer than {MAX_PATHS}")
        peer = self._by_name.get(message.peer)
        replaced: list[Peer] = []
        if peer is not None and message.incarnation < peer.incarnation and now - peer.seen_ns <= SILENT_NS:
            raise PeerError("replaced", f"{message.peer} has a newer incarnation here")
        if peer is not None and message.incarnation != peer.incarnation:
            replaced.append(peer)
            peer = None
        former = self._by_link.get(link)
        if former is not None and former.name != message.peer:
            replaced.append(former)
        for gone in replaced:
            self.remove(gone)
        if peer is None:
            self._make_room(now)
            kept = self._left.pop(_account(message.peer, message.incarnation), None)
            attempts = Seen(self._remember) if kept is None else Seen.of(self._remember, kept)
            peer = Peer(message.peer, message.incarnation, attempts)
            self._by_name[peer.name] = peer
            self.credits.join(peer.account)
        peer.seen_ns = now
        # Who greets anew may have been suspended, and its clock have stood still meanwhile.
        peer.offset.reset()
        self._forget_link(peer, link)
        key = (message.connection, message.path)
        self._by_link.pop(peer.links.get(key, ""), None)
        self._by_link[link] = peer
        peer.links[key] = link
        peer.sort_links()
        return peer, replaced

    def cut_off(self, peer: Peer, link: str) -> set[str]:
        """A peer is not reached on this connection: it and the other one of the same path are forgotten; both are
        returned."""
        paths = {path for (_, path), name in peer.links.items() if name == link}
        gone = {name for (_, path), name in peer.links.items() if path in paths}
        for name in gone:
            self._forget_link(peer, name)
        return gone

    def _forget_link(self, peer: Peer, link: str) -> None:
        for key in [key for key, name in peer.links.items() if name == link]:
            del peer.links[key]
        peer.sort_links()
        if self._by_link.get(link) is peer:
            del self._by_link[link]

    def remove(self, peer: Peer) -> None:
        """Forget a peer and its connections; its credit is free."""
        if self._by_name.get(peer.name) is peer:
            del self._by_name[peer.name]
            self.credits.leave(peer.account)
            self._left[peer.account] = peer.attempts.kept()
            if len(self._left) > 2 * self._limit:
                self._left.popitem(last=False)
        for link in peer.links.values():
            if self._by_link.get(link) is peer:
                del self._by_link[link]

    def forget_silent(self, now: int) -> None:
        """Remove those that were not heard of for `SILENT_NS` and have nothing here, and free the others' share of those that
        were not for `QUIET_NS`. Looks once in `LOOK_NS`."""
        if now >= self._look_ns:
            self._look_ns = now + LOOK_NS
            self._remove_silent(now)
            for peer in self._by_name.values():
                if now - peer.seen_ns > QUIET_NS:
                    self.credits.granted(peer.account)

    def _make_room(self, now: int) -> None:
        if len(self._by_name) >= self._limit:
            self._remove_silent(now)
        if len(self._by_name) >= self._limit:
            raise PeerError("hello", f"{self._limit} peers are served already")

    def _remove_silent(self, now: int) -> None:
        silent = [p for p in self._by_name.values() if now - p.seen_ns > SILENT_NS]
        for peer in [p for p in silent if not self.credits.out(p.account)]:
            self.remove(peer)


def _account(name: str, incarnation: int) -> str:
    return f"{name}:{incarnation}"
