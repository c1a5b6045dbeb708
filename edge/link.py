"""What one connection to a node is like: how long an exchange takes by its size, and how far that was off.

The prediction of a typical exchange is a round trip, so much a byte, what this connection still has to send, and the start of
TCP where it is cold (`edge.link_startup`). Round trip and time per byte are medians of a few, so that a stall of the machine
or of the link, and the losses that come in a row while it lasts, do not spoil them: a real change shows after four probes or
five exchanges. What an exchange took beyond that is divided: as far as its bytes make up its time it says something of the
rate, as far as the round trip does, of a cost that every exchange has. Charged to the bytes alone, a millisecond of a small
exchange would make a large one look hopeless, and as nobody would try it, nothing would ever show otherwise.

How sure that is, is learned end to end (`edge.link_residuals`), as a share of the predicted time on the network, for each
octave of sizes by itself once there are enough samples, else for all together. Before anything was seen stands a pessimistic
prior. What was promised to hold 95 times in 100 is held to that: where it was exceeded more often of late, a higher quantile
is told, where less often, a lower one (adaptive conformal inference, Gibbs and Candes, NeurIPS 2021), so that the share is
right in the long run whatever the link does.

Trust is lost at once: an answer that is overdue makes the next one on the same connection unlikely, since TCP keeps the order
(`still`). It returns slowly after a stall (`recovered`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from edge.link_residuals import Residuals
from edge.link_startup import FIRST_BYTES, Startup
from shared.settings import Link

RATE_SAMPLES = 9
PROBE_SAMPLES = 7
TOGETHER = 0.25
"""Answers to probes come together where less than this share of the time lies between them that lay between the probes."""

FORGET = 1 / 64
"""The shortest way back goes so much of the way to each that is longer: it may be another link by now."""

LEAST_KNOWN = 0.25
"""What is known of the rate never says that bytes take less than this share of what the settings say."""

COLD = 0.25
"""An exchange is cold where the start of TCP costs it more than this share of what its bytes take."""

FLOOR_NS = 1_000_000
"""Residuals are shares of the predicted time on the network, and of no less than this."""

PRIOR = (4.0, 0.0, 1.0, 0.5, 2.0, 0.25, 3.0, 0.75)
"""Residuals before any was seen, in the order in which samples take their places."""

ENOUGH = 16
"""From so many samples of its own on a class of sizes is judged by them alone."""

STALE_NS = 2_000_000_000
"""A class of sizes in which nothing was seen for so long is judged with all others: the link may have changed since."""

LEAST_TRUST = 0.3
"""What is left of trust at the end of a stall: others are preferred, but where there are none it is worth a try."""

SURE = 0.95
STEP = 0.01
"""How fast the quantile that is told follows how often it was exceeded."""

MOST_NS = 1 << 55
"""A year: no prediction is longer."""


class _Sizes:
    """Residuals of exchanges of one octave of sizes (or of all), how many were seen and when the last. `level` is the
    quantile that holds `SURE` of them."""

    __slots__ = ("level", "residuals", "seen", "seen_ns")

    def __init__(self, seeds: tuple[float, ...] = ()) -> None:
        self.residuals = Residuals(seeds)
        self.level = SURE
        self.seen = 0
        self.seen_ns = 0


class LinkEstimate:
    """Delay model of one data connection. Times in nanoseconds, sizes in bytes."""

    def __init__(self, prior: Link) -> None:
        self._prior_rtt = prior.rtt_ms * 1e6
        self._prior_byte = 8_000.0 / prior.rate_mbit
        self.reset()

    def reset(self) -> None:
        """Forget all that was measured: the address has changed, or the host was suspended."""
        self._rtts: deque[float] = deque(maxlen=PROBE_SAMPLES)
        self._beyond: deque[tuple[int, float]] = deque(maxlen=RATE_SAMPLES)
        self._probe: tuple[int, int] = (0, 0)
        self._startup = Startup()
        self._all = _Sizes(PRIOR)
        self._sizes: dict[int, _Sizes] = {}
        self._rtt = self._prior_rtt
        self._least_back: int | None = None
        self._per_byte = self._known_byte = self._prior_byte
        self._fixed = 0.0
        self._cold = 0
        self._free_ns = 0
        self._sent_bytes = 0
        self._passed_ns = 0
        self._back_ns = 0
        self._slow_ns = 0

    # --- a typical exchange -------------------------------------------------------------------------------------------

    @property
    def rtt_ns(self) -> float:
        """Median round trip of an empty message."""
        return self._rtt

    @property
    def per_byte_ns(self) -> float:
        """Median time per byte, both directions together."""
        return self._per_byte

    def network_ns(self, nbytes: int) -> int:
        """Predicted time on the network of an exchange of `nbytes` (there and back together) on a warm, idle connection."""
        return int(max(0.0, self._rtt + self._fixed + nbytes * self._per_byte))

    def least_ns(self, nbytes_back: int, high_ns: int | None) -> int:
        """What of a deadline's rest an answer of `nbytes_back` needs at least, by what was seen of late, at a node whose
        clock is at most `high_ns` ahead. A node takes what it was sent to have left as late as that allows: so much, and the
        shortest way back by the same clock, which is a round trip where the ways stay as they are; and half of what the
        bytes take typically, since both directions are known together only. What was not seen counts for nothing."""
        if high_ns is None or self._least_back is None:
            return 0
        taken = nbytes_back * self._per_byte / 2 if self._beyond else 0.0
        return max(0, high_ns + self._least_back + int(taken))

    def extra_ns(self, nbytes: int, now: int) -> int:
        """What an exchange that begins to send `nbytes` now takes beyond `network_ns`: what is still to be sent before it,
        and the start of TCP."""
        wait = self._free_ns - now if self._free_ns > now else 0
        if nbytes <= FIRST_BYTES or nbytes <= self._startup.window(now, self._rtt):
            return wait
        return int(wait + self._startup.share * self._startup.wait_ns(nbytes, now, self._rtt, self._per_byte))

    # --- how sure that is ---------------------------------------------------------------------------------------------

    def judge(self, nbytes: int, network_ns: int, slack_ns: int, now: int) -> tuple[float, int]:
        """The chance that an exchange of `nbytes`, predicted to spend `network_ns` on the network, ends no more than
        `slack_ns` (may be negative) after its predicted end, and what to add to that so that it holds 95 times in 100."""
        sizes = self._of(nbytes, now)
        scale = network_ns if network_ns > FLOOR_NS else FLOOR_NS
        chance = sizes.residuals.below(slack_ns / scale)
        if now < self._back_ns:
            chance *= self.trust(now)
        margin = sizes.residuals.quantile(sizes.level) * scale
        return chance, int(margin) if margin < MOST_NS else MOST_NS

    def chance(self, nbytes: int, network_ns: int, slack_ns: int, now: int) -> float:
        """The first of what `judge` says."""
        return self.judge(nbytes, network_ns, slack_ns, now)[0]

    def still(self, nbytes: int, network_ns: int, over_ns: int, slack_ns: int, now: int) -> float:
        """The chance that an exchange that is out, and was to be over `over_ns` before `now`, is over no more than `slack_ns`
        after its predicted end."""
        scale = max(network_ns, FLOOR_NS)
        return self._of(nbytes, now).residuals.between(over_ns / scale, slack_ns / scale)

    def margin_ns(self, nbytes: int, network_ns: int, now: int) -> int:
        """The second of what `judge` says."""
        return self.judge(nbytes, network_ns, 0, now)[1]

    def trust(self, now: int) -> float:
        """1, or after a stall a share that grows from `LEAST_TRUST` to 1."""
        if now >= self._back_ns:
            return 1.0
        return max(LEAST_TRUST, 1.0 - (self._back_ns - now) / self._slow_ns)

    def recovered(self, now: int, pause_ns: int) -> None:
        """A stall is over: trust grows back over `pause_ns`."""
        self._slow_ns = max(1, pause_ns)
        self._back_ns = now + pause_ns

    # --- what teaches -------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """The connection is a new one: cold, with nothing of ours on its way."""
        self._startup.connected()
        self._free_ns = 0
        self._passed_ns = 0

    def sent(self, nbytes: int, now: int) -> tuple[int, int]:
        """So much was handed to the connection. Returns how long its start was to wait by the model of TCP, and how many
        bytes have been handed over so far."""
        startup = 0.0
        if nbytes > FIRST_BYTES:
            startup = self._startup.wait_ns(nbytes, now, self._rtt, self._per_byte)
        self._startup.sent(nbytes, now, self._rtt)
        self._free_ns = max(now, self._free_ns) + int(nbytes * self._per_byte)
        self._sent_bytes += nbytes
        return int(startup), self._sent_bytes

    def passed(self, upto_bytes: int, sent_ns: int, node_ns: int, now: int) -> int:
        """Something came back for what had been handed over as byte `upto_bytes` at `sent_ns`, of which the node took
        `node_ns`: TCP keeps the order, so that all before it has left. Returns how long it had waited for what was before
        it."""
        waited = self._passed_ns - sent_ns
        self._passed_ns = max(self._passed_ns, min(now, int(now - node_ns - self._rtt / 2)))
        left = self._sent_bytes - upto_bytes
        free_ns = now + int(left * self._per_byte) if left > 0 else now
        self._free_ns = min(self._free_ns, free_ns)
        return waited if waited > 0 else 0

    def probed(self, rtt_ns: int, sent_ns: int = 0, now: int = 0) -> None:
        """A probe that was sent at `sent_ns` came back after `rtt_ns`, the node's own part left out. Of probes that come back
        together, though they were sent one after the other, the last one counts alone: they were held up by a gap, and say
        how long that was, not what the link is like after it."""
        last_sent_ns, last_ns = self._probe
        if self._rtts and now - last_ns < TOGETHER * (sent_ns - last_sent_ns):
            self._rtts.pop()
        self._probe = (sent_ns, now)
        rtt = float(max(rtt_ns, 0))
        self._rtts.append(rtt)
        self._rtt = _median(self._rtts)

    def came_back(self, back_ns: int) -> None:
        """A probe's answer came `back_ns` after it had left, by the node's clock then and by ours now: the way back, less
        what the node's clock is ahead."""
        least = self._least_back
        longer = 0 if least is None else int((back_ns - least) * FORGET)
        self._least_back = back_ns if least is None else min(back_ns, least + longer)

    def exchanged(self, nbytes: int, network_ns: int, waited_ns: int = 0, startup_ns: int = 0) -> None:
        """An exchange of `nbytes` spent `network_ns` on the network, of which it waited `waited_ns` for others; the start of
        TCP was to cost it `startup_ns` by the model. Of a few cold ones after a warm one is learned what the start costs, of
        all others rate and fixed cost."""
        beyond = network_ns - waited_ns - self._rtt
        self._cold = self._cold + 1 if startup_ns > COLD * nbytes * self._per_byte else 0
        if 0 < self._cold <= RATE_SAMPLES and len(self._beyond) == RATE_SAMPLES:
            self._startup.learn(beyond - self._fixed - nbytes * self._per_byte, startup_ns)
            return
        self._beyond.append((max(1, nbytes), beyond - self._startup.share * startup_ns))
        self._per_byte, self._fixed = self._divided()
        if nbytes * self._per_byte > self._rtt or self._per_byte < self._known_byte:
            self._known_byte = self._per_byte

    def gave_up(self, nbytes: int, network_ns: int, waited_ns: int = 0, startup_ns: int = 0) -> None:
        """An exchange of `nbytes` was not over after `network_ns` on the network: a censored sample, kept where it says that
        the link is slower than thought."""
        if network_ns > self.network_ns(nbytes) + waited_ns + self._startup.share * startup_ns:
            self.exchanged(nbytes, network_ns, waited_ns, startup_ns)

    def finished(self, nbytes: int, network_ns: int, late_by_ns: int, sure_by_ns: int, now: int) -> None:
        """An exchange predicted to spend `network_ns` on the network ended `late_by_ns` after its predicted end (negative:
        before it); 95 times in 100 it was to be no more than `sure_by_ns`."""
        self._learn(nbytes, network_ns, late_by_ns, late_by_ns > sure_by_ns, now)

    def censored(self, nbytes: int, network_ns: int, late_by_ns: int, sure_by_ns: int, now: int) -> None:
        """An exchange was not over `late_by_ns` after its predicted end, and will not be."""
        missed = True if late_by_ns > sure_by_ns else None
        self._learn(nbytes, network_ns, late_by_ns, missed, now, censored=True)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _divided(self) -> tuple[float, float]:
        """Time per byte and fixed cost, by what the last exchanges took beyond the round trip."""
        known, rtt = max(self._known_byte, LEAST_KNOWN * self._prior_byte), self._rtt
        exchanges = sorted(self._beyond)
        if exchanges[0][0] == exchanges[-1][0]:
            # Of one size all orders are that of what they took, and all weights are alike.
            n, b = exchanges[len(exchanges) // 2]
            per_byte = known + (b - n * known) / n * (n * known) / (n * known + rtt + 1.0)
            per_byte = max(0.0, min(per_byte, b / n))
            return per_byte, b - n * per_byte
        divided = [(known + (b - n * known) / n * (n * known) / (n * known + rtt + 1.0), n) for n, b in exchanges]
        # Whatever of an exchange its bytes may have taken, it was no more than all.
        most = [(b / n, n) for n, b in exchanges]
        per_byte = max(0.0, min(_weighted(divided), _weighted(most)))
        return per_byte, _median([b - n * per_byte for n, b in exchanges])

    def _of(self, nbytes: int, now: int) -> _Sizes:
        """What exchanges of so many bytes are judged by."""
        own = self._sizes.get(nbytes.bit_length())
        return self._all if own is None or now - own.seen_ns > STALE_NS or own.seen < ENOUGH else own

    def _learn(
        self, nbytes: int, network_ns: int, late_by_ns: int, missed: bool | None, now: int, *, censored: bool = False
    ) -> None:
        residual = late_by_ns / (network_ns if network_ns > FLOOR_NS else FLOOR_NS)
        if missed is not None:
            told = self._of(nbytes, now)
            told.level = min(0.999, max(0.5, told.level + STEP * (missed - (1.0 - SURE))))
        octave = nbytes.bit_length()
        own = self._sizes.get(octave)
        if own is None:
            own = self._sizes[octave] = _Sizes()
        own.residuals.add(residual, censored=censored)
        own.seen += 1
        own.seen_ns = now
        self._all.residuals.add(residual, censored=censored)


def _median(samples: Iterable[float]) -> float:
    ranked = sorted(samples)
    return ranked[len(ranked) // 2]


def _weighted(values: list[tuple[float, int]]) -> float:
    """The median of values by their weights."""
    ranked = sorted(values)
    half = sum([weight for _, weight in ranked]) / 2
    for value, weight in ranked:
        half -= weight
        if half < 0:
            return value
    return ranked[-1][0]
