"""When what can wait is done: not before a sleep that follows upon outcomes which were just handed over.

Who was given one needs the interpreter, which the loop's thread holds until it sleeps; to write the journal first would
add a tenth to a request on the device. So that nothing is put off for ever, it is done after a few such sleeps all the same.
"""

from __future__ import annotations

MOST = 8
"""How often in a row it is put off: as many requests' tensors the journal holds meanwhile."""


class PutOff:
    """What one loop puts off."""

    __slots__ = ("_gave", "_times")

    def __init__(self) -> None:
        self._gave = False
        self._times = 0

    def gave(self) -> None:
        """An outcome was handed over."""
        self._gave = True

    def due(self) -> bool:
        """The loop is about to sleep; whether it does first what can wait."""
        if self._gave and self._times < MOST:
            self._times += 1
            self._gave = False
            return False
        self._gave = False
        self._times = 0
        return True
