"""How long a loop looks for what comes before it sleeps.

A thread that slept is slow for a while: on a virtual machine its core was given away meanwhile, and came back with cold
caches. A request of 147 KB took a node 417 µs where its loop had slept for 0.3 ms before, 240 µs where it had looked
all the time. So a loop that waits for something that usually comes soon goes on looking for it for up to `loop.poll_us`.

What "usually" means is learnt for each kind of thing that is waited for (an answer that is out, the next request), and
whether the loop slept or not: waits that ended within the limit against those that did not, the older ones counting less
(`MEMORY`). Where at least half of them did, looking takes at most twice as long as what it helps. This is what hypervisors
and guests do before they halt a processor (KVM's halt polling), but for its growing windows, which would never open where
short and long waits take turns, as the answer and the next frame of a camera do.
"""

from __future__ import annotations

MEMORY = 1 / 8
"""The weight of the newest wait."""

LIKELY = 0.5
"""Polled from this share of short waits on."""


class Polling:
    """The shares of short waits by kind. `most_ns` is how long to look at most; 0 is never."""

    __slots__ = ("_short", "most_ns", "polled_ns")

    def __init__(self, most_ns: int) -> None:
        self.most_ns = most_ns
        self.polled_ns = 0
        """How long was looked in all."""
        self._short: dict[str, float] = {}

    def window(self, kind: str) -> int:
        """How many nanoseconds to look for what is waited for now."""
        return self.most_ns if self._short.get(kind, 0.0) >= LIKELY else 0

    def waited(self, kind: str, waited_ns: int, polled_ns: int, *, came: bool) -> None:
        """A wait is over, of which so much was spent looking. `came`: by what was waited for, and not by a timer, of which a
        short wait says nothing."""
        self.polled_ns += polled_ns
        short = waited_ns <= self.most_ns
        if came or not short:
            before = self._short.get(kind, 0.0)
            self._short[kind] = before + MEMORY * (short - before)
