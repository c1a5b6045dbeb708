"""What chance does to each packet, drawn when it comes, from one seed.

Each packet takes the same number of draws from a generator of each kind, whatever the shape is. So which packets are lost
depends on the seed and on how many came before, never on timing, on the queue or on what else is switched on, and a rig can
say beforehand which packets will be missing.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hil.emulator.shape import Shape


class Fate(NamedTuple):
    """What happens to one packet: lost or not, nanoseconds added to its delay, held back for others to overtake or not."""

    lost: bool
    jitter_ns: int
    held: bool


class Fates:
    """Draws the fate of one packet after the other. All of them are fixed by `names`: the seed, and what else tells one
    direction from another, such as the link's name and `up` or `down`."""

    def __init__(self, *names: int | str) -> None:
        seed = " ".join(map(str, names))
        self._loss = random.Random(f"{seed} loss").random
        self._bursts = random.Random(f"{seed} bursts").random
        self._jitter = random.Random(f"{seed} jitter").random
        self._reorder = random.Random(f"{seed} reorder").random
        self._bad = False

    def draw(self, shape: Shape) -> Fate:
        """The fate of the next packet under this shape."""
        lost = self._loss() < shape.loss
        turn, burst = self._bursts(), self._bursts()
        model = shape.bursts
        if model is None:
            self._bad = False
        else:
            self._bad = turn >= model.leave if self._bad else turn < model.enter
            lost = lost or burst < (model.bad_loss if self._bad else model.good_loss)
        return Fate(lost, round(self._jitter() * shape.jitter_ms * 1e6), self._reorder() < shape.reorder)
