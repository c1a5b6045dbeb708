"""Which attempts of an edge were here before, so that none is ever executed twice.

A connection may bring a message again, long after it was answered: after its edge has greeted anew, or after this host or
the edge's was suspended and no clock tells any more whether it is too late. So nothing is forgotten by time. The last
attempts are remembered, as many as fit, and of what had to be forgotten the highest sequence: sequences of an edge rise, and
what is not above it and not remembered counts as seen. An edge whose try comes after so many later ones has long given it up.
"""

from __future__ import annotations

from collections import deque

REMEMBERED = 1024
"""Attempts of one edge that are remembered at least."""


class Seen:
    """Attempts of one incarnation of an edge."""

    __slots__ = ("_floor", "_known", "_limit", "_order")

    def __init__(self, limit: int) -> None:
        self._limit = max(limit, REMEMBERED)
        self._known: set[tuple[int, int]] = set()
        self._order: deque[tuple[int, int]] = deque()
        self._floor = -1

    def first_time(self, sequence: int, attempt: int) -> bool:
        """Whether this attempt was certainly never here; from now on it was."""
        key = (sequence, attempt)
        if sequence <= self._floor or key in self._known:
            return False
        if len(self._order) >= self._limit:
            oldest = self._order.popleft()
            self._known.discard(oldest)
            self._floor = max(self._floor, oldest[0])
        self._known.add(key)
        self._order.append(key)
        return True
