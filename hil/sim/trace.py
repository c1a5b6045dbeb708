"""One number that stands for all that happened in a run: the same seed gives the same one, in every process.

Every step, action and message leaves a few whole numbers, which are hashed in bulk: nothing in it depends on a hash seed, on
the order of a set, or on the wall clock.
"""

from __future__ import annotations

import hashlib
from array import array

FLUSH = 4096
MASK = (1 << 63) - 1


class Trace:
    """Takes whole numbers below 2^63 and gives their digest."""

    __slots__ = ("_hash", "_numbers", "add")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._numbers: list[int] = []
        self.add = self._numbers.extend
        """Take some numbers, in their order."""

    def settle(self) -> None:
        """Called now and then: hashes what has come together."""
        if len(self._numbers) >= FLUSH:
            self._flush()

    def digest(self) -> str:
        """Hexadecimal digest of all that was added."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(array("q", self._numbers).tobytes())
        self._numbers.clear()
