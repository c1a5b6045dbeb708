"""What one direction of an emulated link does to packets: one value, from a constant, a schedule or a trace."""

from __future__ import annotations

import enum
import math
from typing import Protocol, Self

import msgspec

from shared.errors import UserError

MTU = 1500
"""Bytes of the largest IP packet that the emulated devices carry."""

MAX_DELAY_MS, MAX_RATE_MBIT = 60_000.0, 1e5
"""Most that a shape may have of either."""


class Passing(enum.Enum):
    """Whether packets pass. `STALLED`: none does, and what the queue holds waits, as on a radio link that has lost its cell
    for a while. `DARK`: what comes, what is queued and what is under way is dropped."""

    OPEN = "open"
    STALLED = "stalled"
    DARK = "dark"


class GilbertElliott(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Loss by a chain of two states, one step a packet: before each packet a good link turns bad with the probability
    `enter`, a bad one good with the probability `leave`; then the packet is lost with the probability of its state.

    Gilbert, "Capacity of a burst-noise channel" (1960), for `bad_loss` 1 and `good_loss` 0; Elliott (1963) for others.
    Raises `UserError` for what is no probability, and for a state that is never left.
    """

    enter: float
    leave: float
    bad_loss: float = 1.0
    good_loss: float = 0.0

    def __post_init__(self) -> None:
        for name in ("enter", "leave", "bad_loss", "good_loss"):
            _within(name, getattr(self, name), 1.0)
        if self.leave <= 0.0:
            raise UserError("leave is 0: a link that turned bad would never be good again; expected more than 0")

    @classmethod
    def of(cls, share: float, packets: float) -> Self:
        """The chain that loses `share` of all packets, in bursts of `packets` on average.

        Raises `UserError` where there is none: bursts have 1 packet or more, and a share of 1 or a share too large for bursts
        so short leaves no room between them.
        """
        _within("share", share, 1.0)
        if not 1.0 <= packets < math.inf:
            raise UserError(f"packets is {packets:g}; expected a mean burst of 1 packet or more")
        leave = 1.0 / packets
        if share * leave > 1.0 - share:
            raise UserError(f"a share of {share:g} cannot be lost in bursts of {packets:g} packets on average")
        return cls(share * leave / (1.0 - share), leave)

    @property
    def share(self) -> float:
        """Share of all packets that is lost in the long run."""
        bad = self.enter / (self.enter + self.leave)
        return bad * self.bad_loss + (1.0 - bad) * self.good_loss

    @property
    def mean_burst(self) -> float:
        """Packets for which the link stays bad, on average."""
        return 1.0 / self.leave


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a direction does. Sizes are those of whole IP packets, in bytes. Raises `UserError` for what no link has.

    `delay_ms`: one way. `jitter_ms`: to each packet's delay is added a share of it, drawn evenly from 0 to all; packets keep
    their order nevertheless, as on a radio link, so that in dense traffic the mean grows. `rate_mbit`: 10^6 bits a second, 0
    is unlimited. `burst_bytes`: what an idle link saves up and lets through at once; 0 is a wire, where each packet takes
    its time. `queue_bytes`: what may wait, the packet on the wire included; more is dropped as it comes (tail drop). `loss`:
    share of packets lost one by one, beside those of `bursts`; a lost packet has used its time on the link. `reorder`: share
    of packets that are held `reorder_ms` longer, and overtaken by those that come meanwhile.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    rate_mbit: float = 0.0
    burst_bytes: int = 0
    queue_bytes: int = 256 * 1024
    loss: float = 0.0
    bursts: GilbertElliott | None = None
    reorder: float = 0.0
    reorder_ms: float = 0.0
    passing: Passing = Passing.OPEN

    def __post_init__(self) -> None:
        for name in ("delay_ms", "jitter_ms", "reorder_ms"):
            _within(name, getattr(self, name), MAX_DELAY_MS)
        for name in ("loss", "reorder"):
            _within(name, getattr(self, name), 1.0)
        _within("rate_mbit", self.rate_mbit, MAX_RATE_MBIT)
        _within("burst_bytes", self.burst_bytes, 1 << 30)
        _within("queue_bytes", self.queue_bytes, 1 << 30, MTU)

    @property
    def delay_ns(self) -> int:
        """One-way delay in nanoseconds."""
        return round(self.delay_ms * 1e6)

    @property
    def rate_bps(self) -> int:
        """Bits a second; 0 is unlimited."""
        return max(1, round(self.rate_mbit * 1e6)) if self.rate_mbit else 0


class ShapeSource(Protocol):
    """Tells the shape at a time: a schedule, a trace. Times are nanoseconds since it began to play, and never go back."""

    def at(self, elapsed_ns: int) -> Shape:
        """The shape that holds at this time."""
        ...

    def next_ns(self, elapsed_ns: int) -> int | None:
        """The first time after this one at which the shape changes, None where it never does."""
        ...


def _within(name: str, value: float, most: float, least: float = 0.0) -> None:
    if not least <= value <= most:
        raise UserError(f"{name} is {value:g}; expected {least:g} to {most:g}")
