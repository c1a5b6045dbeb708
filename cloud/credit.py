"""Credits: how many requests each edge may have at this node at once. All that is lent never exceeds the capacity.

Each edge gets an even share. When one more comes, the others' shares shrink as their requests end, and the newcomer gets
what is left meanwhile, so that a crowd can never overrun the node: what an edge has out beyond its share is not called
back, it is only not renewed.

Where there are more edges than credits, shares of one go round: an edge that let its credit lie from one probe to the next
gives it up until its probe after that, so that those get it who are told meanwhile. Otherwise the first to come would keep
all credits for ever, used or not. Rejected: to lend more than there is, since most lie idle, and refuse what is too much; a
crowd that asks in one moment would then overrun the node.
"""

from __future__ import annotations

from shared.errors import InvariantBroken


class Credits:
    """The credit book of one node."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._granted: dict[str, int] = {}
        self._out: dict[str, int] = {}
        self._unused: set[str] = set()
        """Peers that were told of their credit by a probe's answer and have not asked since."""
        self._resting: set[str] = set()
        """Peers that have given up their credit until their next probe."""
        self._lent = 0

    def join(self, peer: str) -> int:
        """A peer comes (again): its grant, which may be 0 for the moment."""
        self._granted.setdefault(peer, 0)
        self._out.setdefault(peer, 0)
        return self.granted(peer)

    def leave(self, peer: str) -> None:
        """A peer is gone: what it had is free."""
        self._lent -= self._granted.pop(peer, 0)
        self._out.pop(peer, None)
        self._unused.discard(peer)
        self._resting.discard(peer)

    def out(self, peer: str) -> int:
        """How many requests of `peer` are here."""
        return self._out.get(peer, 0)

    def granted(self, peer: str) -> int:
        """How many requests `peer` may have out now; 0 where it is not known. It is what its next reply should say."""
        before = self._granted.get(peer)
        if before is None or peer in self._resting:
            return 0
        share = max(1, self._capacity // len(self._granted))
        kept = min(before, max(share, self._out[peer]))
        granted = kept + max(0, min(share - kept, self._capacity - self._lent + before - kept))
        self._granted[peer] = granted
        self._lent += granted - before
        return granted

    def rest(self, peer: str) -> None:
        """A probe of `peer` is about to be answered. Where there are more peers than credits, one that has nothing here and
        has not asked since its last probe gives its credit up until its next."""
        self._resting.discard(peer)
        granted = self._granted.get(peer, 0)
        if not granted or self._out[peer] or len(self._granted) <= self._capacity:
            self._unused.discard(peer)
        elif peer not in self._unused:
            self._unused.add(peer)
        else:
            self._unused.discard(peer)
            self._resting.add(peer)
            self._lent -= granted
            self._granted[peer] = 0

    def take(self, peer: str) -> bool:
        """A request of `peer` comes in: False where it has no credit left."""
        if self._out.get(peer, 0) >= self.granted(peer):
            return False
        self._out[peer] += 1
        self._unused.discard(peer)
        return True

    def give_back(self, peer: str) -> None:
        """A request of `peer` ended. A peer that left meanwhile is ignored."""
        if peer not in self._out:
            return
        if self._out[peer] < 1:
            raise InvariantBroken(f"peer {peer} gives back a credit that it does not have")
        self._out[peer] -= 1

    def validate(self) -> None:
        """Raises `InvariantBroken` where more is lent than there is, or more is out than was granted."""
        lent = sum(self._granted.values())
        if lent != self._lent or lent > self._capacity:
            raise InvariantBroken(f"{lent} credits are lent, {self._lent} are booked, the capacity is {self._capacity}")
        for peer, out in self._out.items():
            if not 0 <= out <= self._granted[peer]:
                raise InvariantBroken(f"peer {peer} has {out} out of {self._granted[peer]} credits")
