"""What the way to one node is like: round trip, time per byte, and how far predictions were off.

The prediction is end to end: a mean for the network by payload size, and an empirical quantile of what the whole attempt
took beyond its prediction (quantiles of parts do not add). Samples of the rate are medians of a few, so that one stall of
the machine or of the link does not spoil it, and a real change shows after three. An attempt that was given up before its
answer came is a censored sample: it took at least as long as it was waited for.

The margin tells routes that are surely on time from those that are only likely to be; it never rules one out. An attempt
is insured by local work, so that one that turns out late costs bytes and no answer.
"""

from __future__ import annotations

from collections import deque

from shared.settings import Link

RATE_SAMPLES = 5
PROBE_SAMPLES = 7
RESIDUALS = 64
MARGIN = 0.97
TEACHES_RATE = 4096
"""Below this many bytes an exchange tells nothing of the rate."""


class LinkEstimate:
    """Delay model of one node's data connection. Times in nanoseconds, sizes in bytes."""

    def __init__(self, prior: Link) -> None:
        self._prior_rtt = prior.rtt_ms * 1e6
        self._prior_byte = 8_000.0 / prior.rate_mbit
        self._rtts: deque[float] = deque(maxlen=PROBE_SAMPLES)
        self._per_byte: deque[float] = deque(maxlen=RATE_SAMPLES)
        self._residuals: deque[float] = deque(maxlen=RESIDUALS)

    @property
    def rtt_ns(self) -> float:
        """Median round trip of an empty message."""
        return _median(self._rtts, self._prior_rtt)

    @property
    def per_byte_ns(self) -> float:
        """Median time per byte, both directions together."""
        return _median(self._per_byte, self._prior_byte)

    def network_ns(self, nbytes: int) -> int:
        """Predicted time on the network of an exchange of `nbytes` (there and back together)."""
        return int(self.rtt_ns + nbytes * self.per_byte_ns)

    def margin_ns(self) -> int:
        """What to add to a typical finish so that it holds 97 times out of 100."""
        if not self._residuals:
            return 0
        ranked = sorted(self._residuals)
        return int(ranked[int(MARGIN * (len(ranked) - 1))])

    def probed(self, rtt_ns: int) -> None:
        """A probe came back after `rtt_ns`, the node's own part left out."""
        self._rtts.append(float(max(rtt_ns, 0)))

    def exchanged(self, nbytes: int, network_ns: int) -> None:
        """An exchange of `nbytes` spent `network_ns` on the network."""
        if nbytes >= TEACHES_RATE:
            self._per_byte.append(max(0.0, network_ns - self.rtt_ns) / nbytes)

    def gave_up(self, nbytes: int, waited_ns: int) -> None:
        """An exchange of `nbytes` was not over after `waited_ns` on the network: a censored sample, kept where it says
        that the link is slower than thought."""
        if nbytes >= TEACHES_RATE and waited_ns > self.network_ns(nbytes):
            self.exchanged(nbytes, waited_ns)

    def finished(self, late_by_ns: int) -> None:
        """An attempt ended this much after its typical finish (negative: before it)."""
        self._residuals.append(float(max(late_by_ns, 0)))


def _median(samples: deque[float], prior: float) -> float:
    if not samples:
        return prior
    return sorted(samples)[len(samples) // 2]
