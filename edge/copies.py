"""Second copies of what is sent: whether, on which path, when, and what they may cost.

One lost packet can hold a connection up for a fifth of a second, while the packets of another pass. So where the chance that
one copy is answered in time is too low, the same attempt goes out on a second path to its node. The node runs it once and
answers on every path that it came on. A small message goes out twice at once: with it there is no time to see that the first
copy is late. A large one goes out again only when its answer is overdue, since two at once would be in each other's way.

Extra bytes are paid for: each first copy earns a share of its own bytes, which further copies spend.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.paths import Path
from shared.settings import Duplicates

SAVED_BYTES = 1 << 20
"""What may be saved up for copies, so that a quiet hour does not pay for a storm."""


class Copies:
    """The rules, and the bytes that copies may still take."""

    def __init__(self, settings: Duplicates) -> None:
        self._below = settings.below
        self._at_once = settings.at_once_kb << 10
        self._share = settings.extra_bytes
        self._saved = 0.0

    def first(self, nbytes: int) -> None:
        """A first copy of `nbytes` is sent, both directions together."""
        self._saved = min(self._saved + self._share * nbytes, float(max(SAVED_BYTES, nbytes)))

    def wanted_at(
        self, chance: float, nbytes: int, typical_ns: int, exchange_ns: int, due_ns: int, now: int
    ) -> int | None:
        """When a second copy of an attempt of `nbytes` is to be sent, where its chance to be back by `due_ns` is `chance`;
        None where none is to be. The first copy is typically back at `typical_ns`, an exchange of the second takes
        `exchange_ns`. A large message is sent again half way between when its answer should be back and when it is too late
        to ask."""
        if chance >= self._below:
            return None
        if nbytes <= self._at_once:
            return now
        latest = due_ns - exchange_ns
        return (
            latest if now < latest <= typical_ns else typical_ns + (latest - typical_ns) // 2 if latest > now else None
        )

    def pay(self, nbytes: int) -> bool:
        """Take the bytes of a further copy; False, and nothing taken, where there are too few."""
        if nbytes > self._saved:
            return False
        self._saved -= nbytes
        return True


def best_spare(first: Path, spare: Sequence[Path], nbytes: int) -> Path | None:
    """Of these paths the one for a copy of what went out on `first`: one over another link before a further connection over
    the same, since losses come in bursts, then the one that is predicted to be soonest. None where there is none."""
    return min(spare, key=lambda path: (path.way == first.way, path.estimate.network_ns(nbytes)), default=None)
