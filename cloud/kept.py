"""Answers that are kept for a while: a copy of a request may come on another connection after it was answered.

The answer may be held up on the connection that it went out on, which is why there is a copy; the work is not done again.
Kept is only what a peer of several connections asked, until its deadline, and no more than fits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy as np

from shared.request import Array, Buffer
from shared.wire.messages import Infer, Reply

MOST = 256
MOST_BYTES = 32 << 20

Identity = tuple[str, int, int, int]
"""Peer, incarnation, sequence, attempt."""


class KeptReply(msgspec.Struct, frozen=True, gc=False):
    """An answer, the request that it answers, the connections that it went out on, and how long anybody wants it."""

    asked: Infer
    reply: Reply
    outputs: tuple[Array | Buffer, ...]
    nbytes: int
    links: tuple[str, ...]
    deadline_ns: int


class Kept:
    """Answers by identity, the oldest first."""

    def __init__(self) -> None:
        self.replies: OrderedDict[Identity, KeptReply] = OrderedDict()
        """To be looked at only."""
        self._nbytes = 0

    def keep(self, identity: Identity, kept: KeptReply, now: int) -> None:
        """Keep an answer, in place of those that nobody wants any more and of the oldest where there are too many."""
        self.replies[identity] = kept
        self._nbytes += kept.nbytes
        while self.replies:
            oldest, reply = next(iter(self.replies.items()))
            full = len(self.replies) > MOST or self._nbytes > MOST_BYTES
            if not full and reply.deadline_ns > now:
                return
            self.drop(oldest)

    def find(self, identity: Identity, link: str, asked: Infer, now: int) -> KeptReply | None:
        """The answer to this very request, where it is kept, still wanted, and has not gone out on this connection; from
        now on it has."""
        kept = self.replies.get(identity)
        if kept is None or kept.deadline_ns <= now or link in kept.links or not same_request(kept.asked, asked):
            return None
        self.replies[identity] = msgspec.structs.replace(kept, links=(*kept.links, link))
        return kept

    def drop(self, identity: Identity) -> None:
        """This answer is wanted by nobody any more."""
        kept = self.replies.pop(identity, None)
        if kept is not None:
            self._nbytes -= kept.nbytes

    def drop_peer(self, name: str, incarnation: int) -> None:
        """Nor are any to this incarnation of a peer."""
        for identity in [i for i in self.replies if i[:2] == (name, incarnation)]:
            self.drop(identity)


def same_request(one: Infer, other: Infer) -> bool:
    """Whether two messages of one identity ask for the same."""
    return (one.contract, one.cut, one.coding, one.rows) == (other.contract, other.cut, other.coding, other.rows)


def size_of(outputs: Sequence[Array | Buffer]) -> int:
    """Bytes of an answer's tensors."""
    return sum(o.nbytes if isinstance(o, np.ndarray) else memoryview(o).nbytes for o in outputs)
