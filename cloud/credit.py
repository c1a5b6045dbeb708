"""Credits: how many requests each edge may have at this node at once. All that is lent never exceeds the capacity.

Each edge gets an even share. When one more comes, the others' shares shrink as their requests end, and the newcomer gets
what is left meanwhile, so that a crowd can never overrun the node: what an edge has out beyond its share is not called
back, it is only not renewed.

Where there are more edges than credits, shares of one go round: an edge that let its credit lie from one probe to the next
gives it up until its probe after that, so that those get it who are told meanwhile; so does one that had it for `TURN`
probes, however busy it is. Otherwise the first to come would keep all credits for ever. Rejected: to lend more than there
is, since most lie idle, and refuse what is too much; a crowd that asks in one moment would then overrun the node.

A share is what may be asked, not what can be done: of an edge whose requests come to nothing since they waited too long, most
of them in the sockets, the share shrinks by a fifth, and grows again by one for as many answers as it allows at once. So a
node that is asked for more than it can do, for whatever reason it can do less than it could, goes on answering in time
what it lets in (additive increase and multiplicative decrease, D. Chiu and R. Jain, 1989; as `concurrency-limits` of Netflix
does it for servers). Without it a node that was held up for a while stayed behind for as long as it was asked: it refused
all that had waited, and that took its time.
"""

from __future__ import annotations

from shared.errors import InvariantBroken

LESS = 0.8
"""What is left of an edge's share where its requests wait too long,"""

PAUSE_NS = 20_000_000
"""at most once in so long, since what was asked before cannot tell,"""

LEAST = 4.0
"""and at least so many."""

TURN = 20
"""For so many probes an edge keeps a credit that others may wait for: two seconds by default."""


class Credits:
    """The credit book of one node."""

    def __init__(self, capacity: int, turn: int = TURN) -> None:
        """Of a crowd each keeps its credit for `turn` probes."""
        self._capacity = capacity
        self._turn = turn
        self._share = capacity
        """What each edge may have where all have asked as often."""
        self._granted: dict[str, int] = {}
        self._out: dict[str, int] = {}
        self._unused: set[str] = set()
        """Peers that were told of their credit by a probe's answer and have not asked since."""
        self._resting: set[str] = set()
        """Peers that have given up their credit until their next probe, but for what they have out."""
        self._turns: dict[str, int] = {}
        """For how many probes peers have had credit that others may wait for."""
        self._lent = 0
        self._limits: dict[str, float] = {}
        """How many those may have out whose requests waited too long of late,"""
        self._eased: dict[str, int] = {}
        """and when it was lowered last."""

    def join(self, peer: str) -> int:
        """A peer comes (again): its grant, which may be 0 for the moment."""
        self._granted.setdefault(peer, 0)
        self._out.setdefault(peer, 0)
        self._divide()
        return self.granted(peer)

    def leave(self, peer: str) -> None:
        """A peer is gone: what it had is free."""
        self._lent -= self._granted.pop(peer, 0)
        self._out.pop(peer, None)
        self._limits.pop(peer, None)
        self._eased.pop(peer, None)
        self._turns.pop(peer, None)
        self._unused.discard(peer)
        self._resting.discard(peer)
        self._divide()

    def _divide(self) -> None:
        self._share = max(1, self._capacity // max(1, len(self._granted)))

    def out(self, peer: str) -> int:
        """How many requests of `peer` are here."""
        return self._out.get(peer, 0)

    def granted(self, peer: str) -> int:
        """How many requests `peer` may have out now; 0 where it is not known. It is what its next reply should say."""
        before = self._granted.get(peer)
        if before is None:
            return 0
        share = 0 if peer in self._resting else self._share
        if self._limits:
            share = min(share, int(self._limits.get(peer, share)))
        if before == share:
            return before
        kept = min(before, max(share, self._out[peer]))
        granted = kept + max(0, min(share - kept, self._capacity - self._lent + before - kept))
        self._granted[peer] = granted
        self._lent += granted - before
        return granted

    def late(self, peer: str, now: int) -> None:
        """A request of `peer` came to nothing since it had waited too long."""
        granted = self._granted.get(peer)
        if granted is not None and now - self._eased.get(peer, now - PAUSE_NS) >= PAUSE_NS:
            self._eased[peer] = now
            self._limits[peer] = max(LEAST, LESS * min(granted, self._limits.get(peer, granted)))

    def timely(self, peer: str) -> None:
        """A request of `peer` is answered."""
        limit = self._limits.get(peer)
        if limit is None:
            return
        if limit >= self._capacity:
            del self._limits[peer], self._eased[peer]
        else:
            self._limits[peer] = limit + 1.0 / limit

    def rest(self, peer: str) -> None:
        """A probe of `peer` is about to be answered. Where there are more peers than credits, one that has not asked since
        its last probe, or whose turn is over, gives its credit up until its next."""
        self._resting.discard(peer)
        turn = self._turns.pop(peer, 0)
        if not self._granted.get(peer) or len(self._granted) <= self._capacity:
            self._unused.discard(peer)
        elif turn >= self._turn or (peer in self._unused and not self._out[peer]):
            self._unused.discard(peer)
            self._resting.add(peer)
        else:
            self._turns[peer] = turn + 1
            if self._out[peer]:
                self._unused.discard(peer)
            else:
                self._unused.add(peer)

    def take(self, peer: str) -> bool:
        """A request of `peer` comes in: False where it has no credit left."""
        out = self._out.get(peer, 0)
        if out >= self.granted(peer):
            return False
        self._out[peer] = out + 1
        self._unused.discard(peer)
        return True

    def give_back(self, peer: str) -> None:
        """A request of `peer` ended. A peer that left meanwhile is ignored."""
        out = self._out.get(peer)
        if out is None:
            return
        if out < 1:
            raise InvariantBroken(f"peer {peer} gives back a credit that it does not have")
        self._out[peer] = out - 1

    def validate(self) -> None:
        """Raises `InvariantBroken` where more is lent than there is, or more is out than was granted."""
        lent = sum(self._granted.values())
        if lent != self._lent or lent > self._capacity:
            raise InvariantBroken(f"{lent} credits are lent, {self._lent} are booked, the capacity is {self._capacity}")
        for peer, out in self._out.items():
            if not 0 <= out <= self._granted[peer]:
                raise InvariantBroken(f"peer {peer} has {out} out of {self._granted[peer]} credits")
