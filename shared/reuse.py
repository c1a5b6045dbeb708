"""Private copies of large arrays, in memory that is used again once nobody holds it.

C's heap gives back what is free at its end, and fetches it again page by page for the next array of the size: where an
application asked with 147 KB each time, its own copies took 26 page faults a request. How the heap of an application's
process behaves is not ours to say, so that the few large arrays that are needed again and again are kept here.

Who holds a copy, or any view of it, is known by its references, so that nobody has to give anything back: requests end in
many ways, and a journal keeps their tensors for a while after that. Several threads may copy at once, and a signal's
handler in the middle of it: memory that somebody looks at is in nobody else's reach, and there is no lock.
"""

from __future__ import annotations

from collections import deque
from sys import getrefcount

import numpy as np

from shared.request import Array

LEAST_BYTES = 32 << 10
"""Smaller arrays are left to the heap, which keeps room for them."""

MOST_BYTES = 16 << 20
"""What is kept in all, used or not; beyond that the heap serves."""

MOST_KEPT = 32
"""How many arrays are kept, since each of them may be looked at."""


class Reuse:
    """Arrays of bytes, each with room for one copy."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: deque[Array] = deque()
        self._most_bytes = most_bytes

    @property
    def kept_bytes(self) -> int:
        """How much is kept now, held or not."""
        # `deque.copy` makes nothing between its first step and its last. `tuple` does, so that the collector may come and run
        # somebody's finalizer, during which others copy.
        return sum([room.nbytes for room in self._kept.copy()])

    def copy(self, array: Array, dtype: np.dtype[np.generic]) -> Array:
        """A C-contiguous copy of `array` with the element type `dtype`, which may differ in byte order only."""
        nbytes = array.nbytes
        if nbytes < LEAST_BYTES:
            return np.array(array, dtype=dtype, order="C", copy=True, subok=False)
        room = self._free(nbytes)
        keep = room is not None or self._makes_room(nbytes)
        if room is None:
            room = np.empty(nbytes, np.uint8)
        made: Array = room.view(dtype).reshape(array.shape)
        np.copyto(made, array, casting="equiv")
        if keep:
            self._kept.append(room)
        return made

    def _free(self, nbytes: int) -> Array | None:
        """Kept memory of this size that nobody holds, out of the others' reach; None where there is none."""
        kept = self._kept
        for _ in range(len(kept)):
            try:
                room = kept.popleft()
            except IndexError:  # other threads look at the rest
                return None
            if room.nbytes == nbytes and getrefcount(room) == UNHELD:
                return room
            kept.append(room)
        return None

    def _makes_room(self, nbytes: int) -> bool:
        """Whether so much more may be kept; where there is too much, what nobody holds goes first, if that helps."""
        if nbytes > self._most_bytes:
            return False
        for _ in range(len(self._kept)):
            if self._fits(nbytes):
                return True
            try:
                room = self._kept.popleft()
            except IndexError:
                break
            if getrefcount(room) != UNHELD:
                self._kept.append(room)
        return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        return len(self._kept) < MOST_KEPT and self.kept_bytes + nbytes <= self._most_bytes


def _references() -> int:
    """How many references the interpreter counts of an array that only the looking function holds."""
    kept: deque[Array] = deque((np.empty(1, np.uint8),))
    room = kept.popleft()
    return getrefcount(room)


UNHELD = _references()
