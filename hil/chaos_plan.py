"""What a chaos run does, drawn from its seed: which process is struck when, and what is asked meanwhile.

Every victim is struck in every way about equally often, in a random order, so that twenty cycles leave nothing out; a
second strike often falls into the first, since faults do not wait for each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

import msgspec

VICTIMS = ("agent", "node-a", "node-b")
"""The processes that are struck: the agent and both nodes."""

Kind = Literal["kill", "stop"]

SECOND = 0.4
"""The share of cycles with a second strike."""

LATEST_S = 0.4
"""A cycle's first strike falls somewhere into this time."""

STOPPED_S = (0.05, 0.6)
DEAD_S = (0.0, 0.3)
"""How long a stopped process stays stopped, and a killed one dead before it is started again."""

DEADLINES_MS = ((10.0, 3), (20.0, 4), (50.0, 4), (200.0, 3), (1000.0, 1), (3000.0, 1))
"""Deadlines, and how often each is asked for: a request of seconds outlives the agent that took it."""

STREAMED = 0.25
"""The share of requests that are frames of a stream in which the latest wins. They come in pairs."""


class Strike(msgspec.Struct, frozen=True):
    """SIGKILL (`kill`) or SIGSTOP (`stop`) of `victim`, `after_s` after its cycle began; `lasts_s` later it is started again,
    or continued."""

    after_s: float
    victim: str
    kind: Kind
    lasts_s: float

    def __str__(self) -> str:
        word = "killed, dead" if self.kind == "kill" else "stopped"
        return f"{self.victim} {word} for {self.lasts_s * 1e3:.0f} ms"


class Asking(msgspec.Struct, frozen=True):
    """One request: which of the models and images by number, its deadline, and whether it is a stream's frame."""

    model: int
    image: int
    deadline_ms: float
    streamed: bool


def draw_cycles(seed: int, count: int) -> list[tuple[Strike, ...]]:
    """The strikes of `count` cycles, each cycle's in the order of time."""
    rng = random.Random(f"cycles {seed}")
    cycles: list[tuple[Strike, ...]] = []
    waiting: list[tuple[str, Kind]] = []
    for _ in range(count):
        if not waiting:
            kinds: tuple[Kind, ...] = ("kill", "stop")
            waiting = [(victim, kind) for victim in VICTIMS for kind in kinds]
            rng.shuffle(waiting)
        first = _strike(rng, *waiting.pop(), (0.0, LATEST_S))
        cycle = [first]
        if rng.random() < SECOND:
            other = rng.choice([victim for victim in VICTIMS if victim != first.victim])
            into = (max(0.0, first.after_s - 0.05), first.after_s + first.lasts_s)
            cycle.append(_strike(rng, other, rng.choice(("kill", "stop")), into))
        cycles.append(tuple(sorted(cycle, key=lambda strike: strike.after_s)))
    return cycles


def draw_askings(seed: int, models: int, images: int) -> Iterator[Asking]:
    """Requests without end, any of `models` models with any of `images` images. Frames of the stream ask for model 0."""
    rng = random.Random(f"askings {seed}")
    choices, weights = zip(*DEADLINES_MS, strict=True)
    while True:
        if rng.random() < STREAMED / (2 - STREAMED):
            yield Asking(0, rng.randrange(images), choices[1], streamed=True)
            yield Asking(0, rng.randrange(images), choices[1], streamed=True)
        else:
            (deadline_ms,) = rng.choices(choices, weights)
            yield Asking(rng.randrange(models), rng.randrange(images), deadline_ms, streamed=False)


def _strike(rng: random.Random, victim: str, kind: Kind, within_s: tuple[float, float]) -> Strike:
    lasts_s = rng.uniform(*(DEAD_S if kind == "kill" else STOPPED_S))
    return Strike(rng.uniform(*within_s), victim, kind, lasts_s)
