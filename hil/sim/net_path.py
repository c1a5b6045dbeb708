"""What lies between two hosts, and what a message looks like that was damaged there."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hil.sim.echoes import Past
from shared.request import Buffer

if TYPE_CHECKING:
    from hil.sim.net import Delivery


class Path:
    """What lies between two hosts, with the troubles that it has just now."""

    __slots__ = (
        "address",
        "corrupt",
        "cut",
        "disorder",
        "draw",
        "duplicate",
        "echo",
        "held",
        "local",
        "loss",
        "name",
        "past",
        "per_byte_ns",
        "rng",
        "slow",
        "stalled",
        "stalls",
        "troubled",
    )

    def __init__(
        self, name: str, draw: Iterator[int], per_byte_ns: float, rng: random.Random, *, local: bool = False
    ) -> None:
        self.name = name
        self.draw = draw
        self.per_byte_ns = per_byte_ns
        self.rng = rng
        self.local = local
        """Whether it stays on one host."""
        self.address = 0
        """Counts the own addresses that the dealer had here, to tell one from the next."""
        self.cut = 0
        self.stalled = 0
        self.stalls = 0
        """Counts the stalls there were, to tell one from the next."""
        self.held: deque[Delivery] = deque()
        self.loss = 0.0
        self.duplicate = 0.0
        self.disorder = 0.0
        self.corrupt = 0.0
        self.slow = 1.0
        self.echo = 0
        self.past: dict[tuple[str, bool], Past] = {}
        """What was carried, by the dealer's link and whether towards the router."""
        self.troubled = False

    @property
    def own_address(self) -> str:
        """The dealer's own address here."""
        return f"{self.name}#{self.address}"

    def remember(self, link: str, upwards: bool) -> Past:
        """What a link carries this way, for a new incarnation of its dealer."""
        past = self.past.setdefault((link, upwards), Past())
        past.begin()
        return past

    def judge(self) -> None:
        """Find out whether messages need a closer look."""
        self.troubled = bool(self.loss or self.duplicate or self.disorder or self.corrupt or self.slow != 1.0)


def damaged(frames: Sequence[Buffer], rng: random.Random) -> list[Buffer]:
    """The frames of a message as no sound network would hand them over: a header that is cut off or is none, a tensor that is
    too short or too long, a frame too many or too few. No damage leaves a message that is valid and means something else:
    against that only a checksum would help, and TCP has one."""
    broken = list(frames)
    tensors = len(broken) - 1
    how = rng.randrange(6 if tensors else 3)
    index = rng.randint(1, tensors) if tensors else 0
    match how:
        case 0:
            broken[0] = bytes(broken[0])[: rng.randrange(len(broken[0]))]
        case 1:
            broken[0] = bytes([0xC1]) + rng.randbytes(rng.randrange(64))
        case 2:
            broken.append(rng.randbytes(8))
        case 3:
            broken[index] = bytes(broken[index])[:-1]
        case 4:
            broken[index] = bytes(broken[index]) + b"\0"
        case _:
            del broken[index]
    return broken
