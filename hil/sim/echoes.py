"""What a connection carried, kept to come once more on a later one: what a protocol must survive that trusts no network."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

from shared.request import Buffer

KEPT = 16
"""Messages that are kept of each kind: the first and the last of this incarnation of the dealer, and of the one before."""

SOON_NS = 20_000_000
LATER_NS = 400_000_000
TIMES = 4
"""How often a message of an earlier incarnation comes again: a new one counts its requests from 1 as well, so that the answer
to another's request 7 may come just while 7 is out."""


class Past:
    """One direction of one link between two hosts, over all of its connections."""

    def __init__(self) -> None:
        self._former: list[list[Buffer]] = []
        self._first: list[list[Buffer]] = []
        self._last: deque[list[Buffer]] = deque(maxlen=KEPT)

    def begin(self) -> None:
        """Another incarnation of the dealer begins."""
        if self._first:
            self._former = [*self._first, *self._last]
        self._first = []
        self._last.clear()

    def carry(self, frames: list[Buffer]) -> None:
        """A message is carried."""
        if len(self._first) < KEPT:
            self._first.append(frames)
        else:
            self._last.append(frames)

    def echoes(self, rng: random.Random) -> Iterator[tuple[int, list[Buffer]]]:
        """Messages that come once more, each with the time after which it does, in nanoseconds."""
        for frames in (*self._first, *self._last):
            if rng.random() < 0.4:
                yield rng.randrange(1, SOON_NS), frames
        for frames in self._former:
            for _ in range(TIMES):
                yield rng.randrange(1, LATER_NS), frames
