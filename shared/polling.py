"""How long a loop looks for what comes before it sleeps.

A thread that slept is slow for a while: on a virtual machine its core was given away meanwhile, and came back with cold
caches. A request of 147 KB took a node 417 µs where its loop had slept before, and 256 µs where it had looked all the time;
a client that asks one request after another had its answers after 0.36 instead of 0.61 ms.
So a loop that waits for something that usually comes soon goes on looking for it for up to `loop.poll_us`.

What "usually" means is learnt for each kind of thing that is waited for (an answer that is out, the next request), and
whether the loop slept or not: waits that ended within the limit against those that did not, the older ones counting less
(`MEMORY`). Where at least half of them did, looking takes at most twice as long as what it helps. Hypervisors and guests do
the like before they halt a processor (KVM's halt polling), but for windows that grow and shrink: those would never open
where short and long waits take turns, as the answer and the next frame of a camera do.

A loop that looks lets others have its core each time. One that sleeps gets the core at once when it is woken, by its short
slice; one that has let another have it waits until that one's slice ends, up to 3 ms. So where looks often take
as long as only another's work makes them (`CROWDED_NS`), the loop does without for a while (`PAUSE_NS`).
"""

from __future__ import annotations

MEMORY = 1 / 8
"""The weight of the newest wait."""

LIKELY = 0.5
"""Polled from this share of short waits on."""


CROWDED_NS = 200_000
"""A look that takes longer is crowded: ZeroMQ's threads, for which the core is meant, are done sooner with a megabyte."""

CROWDED = 0.25
"""Others want the core where this share of the looks end like that: a machine that is shared holds one up now and then."""

PAUSE_NS = 2_000_000_000


class Polling:
    """The shares of short waits by kind. `most_ns` is how long to look at most; 0 is never."""

    __slots__ = ("_again_ns", "_crowded", "_short", "most_ns", "polled_ns")

    def __init__(self, most_ns: int) -> None:
        self.most_ns = most_ns
        self.polled_ns = 0
        """How long was looked in all."""
        self._short: dict[str, float] = {}
        self._crowded = 0.0
        self._again_ns = 0

    def window(self, kind: str, now: int) -> int:
        """How many nanoseconds to look for what is waited for now."""
        return self.most_ns if self._short.get(kind, 0.0) >= LIKELY and now >= self._again_ns else 0

    def polled(self, polled_ns: int, now: int, *, crowded: bool) -> None:
        """It was looked for so long, and `crowded` is how that ended."""
        self.polled_ns += polled_ns
        self._crowded += MEMORY * (crowded - self._crowded)
        if self._crowded >= CROWDED:
            self._crowded = 0.0
            self._again_ns = now + PAUSE_NS

    def waited(self, kind: str, waited_ns: int, *, came: bool) -> None:
        """A wait is over, looked or slept. `came`: by what was waited for, and not by a timer, of which a short wait says
        nothing."""
        short = waited_ns <= self.most_ns
        if came or not short:
            before = self._short.get(kind, 0.0)
            self._short[kind] = before + MEMORY * (short - before)
