"""A fit and what it is worth: fitted on one half of a trace, held against the other, and the other way round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hil.links.echoes import split
from hil.links.fit import fit
from hil.links.generator import generate
from hil.links.states import Thresholds
from hil.links.summary import Distance, distances
from hil.links.trace import Trace

CHECK_MS = 600_000.0
"""Length of the synthetic traces that are held against measured ones."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A fit on one half of a trace: what a synthetic trace of it is apart from the half it was fitted on, from the half held
    back, and what the halves are apart from each other, which no fit can better but by luck."""

    fitted: tuple[Distance, ...]
    held_back: tuple[Distance, ...]
    halves: tuple[Distance, ...]


def check(trace: Trace, thresholds: Thresholds, block_ms: float, seed: int) -> tuple[HeldBack, HeldBack]:
    """Fits on every other block of `block_ms` and, the second, on the rest.

    Raises `UserError` where the trace is too short, or nothing passes in a half.
    """
    first, second = split(trace, block_ms)
    return _held(first, second, thresholds, seed), _held(second, first, thresholds, seed)


def _held(fitted: Trace, held_back: Trace, thresholds: Thresholds, seed: int) -> HeldBack:
    made = generate(fit(fitted, "half", thresholds), CHECK_MS, np.random.default_rng(seed)).trace
    return HeldBack(distances(made, fitted), distances(made, held_back), distances(fitted, held_back))
