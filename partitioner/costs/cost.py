"""What a request would take from end to end by each candidate way, under a stated link.

The time of a way through the cloud is

    overhead + head + encode + up_bytes / rate + rtt / 2 + decode + tail + down_bytes / rate + rtt / 2

with headers in the bytes. The overhead is what a request costs beside its work and the link, on the device as well
(`partitioner.costs.overhead`); it is nothing where it was not measured. The connection is taken as warm: its window is
open and nothing is lost; a cold TCP connection or one lost packet costs far more, which is the running edge's business
to notice. Quantiles of parts do not add: the parts' excesses of p99 over p50 are joined as independent ones, by the
root of their squares. Adding them was rejected (three parts' worst one in a hundred do not fall together), and so was
ignoring them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from partitioner.options import LinkGuess

Kind = Literal["device", "input", "split"]
HEADER_BYTES = 256
"""Bytes that one message adds to its frames: the header (about 150 for `Infer`, 200 for `Reply`), frame lengths, and TCP."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A measured or estimated time in microseconds: its middle and its 99th percentile."""

    p50_us: float
    p99_us: float

    def slowed(self, factor: float) -> Spread:
        """The same work on a device `factor` times slower. The noise is this machine's and is not multiplied: the
        stand-in waits (factor - 1) times the middle on top of what really ran."""
        extra_us = (factor - 1.0) * self.p50_us
        return Spread(self.p50_us + extra_us, self.p99_us + extra_us)

    def unslowed(self, factor: float) -> Spread:
        """What it was before it was `slowed` by this factor."""
        middle_us = self.p50_us / factor
        return Spread(middle_us, self.p99_us - (factor - 1.0) * middle_us)


NOTHING = Spread(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to answer. `cut` is the name of the cut that travels (empty on the device), `coding` that coding's name,
    `rung` the rung's name on the device. `head` and `encode` include the edge's slowdown. `measured` is whether its
    segments were cut, loaded and timed, rather than estimated from the whole. `agreement` is NaN where not measured.
    `overhead` is what the request itself costs, beside work and link."""

    kind: Kind
    cut: str
    coding: str
    rung: str
    head: Spread
    encode: Spread
    decode: Spread
    tail: Spread
    bytes_up: int
    bytes_down: int
    agreement: float
    measured: bool
    overhead: Spread = NOTHING

    @property
    def label(self) -> str:
        """A short name for a person, unlike every other candidate's."""
        return f"device: {self.rung}" if self.kind == "device" else f"{self.cut} as {self.coding}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The end-to-end time of a candidate under a link, and its parts, which add up to its middle."""

    total: Spread
    edge_us: float
    uplink_us: float
    cloud_us: float
    downlink_us: float
    overhead_us: float


def predict(candidate: Candidate, link: LinkGuess) -> Prediction:
    """End-to-end time of one row by this candidate under this link."""
    away = candidate.kind != "device"
    uplink_us = _transfer_us(candidate.bytes_up, link) if away else 0.0
    downlink_us = _transfer_us(candidate.bytes_down, link) if away else 0.0
    parts = (candidate.head, candidate.encode, candidate.decode, candidate.tail, candidate.overhead)
    middle_us = sum(part.p50_us for part in parts) + uplink_us + downlink_us
    excess_us = math.sqrt(sum((part.p99_us - part.p50_us) ** 2 for part in parts))
    return Prediction(
        total=Spread(middle_us, middle_us + excess_us),
        edge_us=candidate.head.p50_us + candidate.encode.p50_us,
        uplink_us=uplink_us,
        cloud_us=candidate.decode.p50_us + candidate.tail.p50_us,
        downlink_us=downlink_us,
        overhead_us=candidate.overhead.p50_us,
    )


def _transfer_us(nbytes: int, link: LinkGuess) -> float:
    """One way: the bytes at the rate, and half the round trip. Mbit/s are bits per microsecond."""
    return nbytes * 8.0 / link.rate_mbit + link.rtt_ms * 500.0
