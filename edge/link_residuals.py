"""How far predictions were off: an empirical distribution of residuals, some of which are only known to be more than a value.

A residual is what an attempt took beyond its prediction, as a share of the predicted time on the network, end to end:
quantiles of parts do not add. An attempt that was cancelled, given up or lost is a *censored* sample: its residual is more
than what had passed. The distribution is the product-limit estimate of Kaplan and Meier (Nonparametric estimation from
incomplete observations, JASA 53, 1958). One more sample is counted that never comes, so that nothing is ever certain and the
quantile of n samples has the rank ceil((n + 1) q), as in split conformal prediction (Papadopoulos and others, ECML 2002).

Between two censored samples the product telescopes, so that a look takes one step for each censored sample and two
bisections, and none of the samples is walked through.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from math import ceil

WINDOW = 128
PARETO = 3
BEYOND = 2.0
"""What is told of a quantile that lies beyond all samples: so many times the largest, and so much more."""


class Residuals:
    """The last `WINDOW` residuals. `seeds` stand in before anything was seen; each sample takes the place of one of them."""

    __slots__ = ("_censored", "_events", "_order", "_quantiles", "_seeds")

    def __init__(self, seeds: Sequence[float] = ()) -> None:
        self._order: deque[tuple[float, bool]] = deque((seed, True) for seed in seeds)
        self._events = sorted(seeds)
        self._censored: list[float] = []
        self._seeds = len(seeds)
        self._quantiles: dict[float, float] = {}

    def __len__(self) -> int:
        """Samples that were seen, seeds left out."""
        return len(self._order) - self._seeds

    def add(self, value: float, *, censored: bool = False) -> None:
        """A residual, or, `censored`, what a residual is at least."""
        if self._seeds or len(self._order) >= WINDOW:
            if self._seeds:
                self._seeds -= 1
            oldest, was_event = self._order.popleft()
            samples = self._events if was_event else self._censored
            del samples[bisect_left(samples, oldest)]
        self._order.append((value, not censored))
        insort(self._censored if censored else self._events, value)
        self._quantiles.clear()

    def below(self, value: float) -> float:
        """The chance that a residual is at most `value`: 0 to less than 1."""
        events = self._events
        risk = len(self._order) + 1
        before = 0
        stays = 1.0
        for left in self._censored:
            if left >= value:
                break
            upto = bisect_right(events, left)
            stays *= (risk - (upto - before)) / risk
            risk -= upto - before + 1
            before = upto
        return 1.0 - stays * (risk - (bisect_right(events, value) - before)) / risk

    def between(self, after: float, until: float) -> float:
        """The chance that a residual that is known to be more than `after` (0 or more) is at most `until`. Few samples are as
        large, so that they are joined by as much as `PARETO` samples of a Pareto law of exponent 1: what took so long already
        will take as long again."""
        if until <= after:
            return 0.0
        larger = len(self._events) - bisect_right(self._events, after)
        past = self.below(after)
        seen = (self.below(until) - past) / (1.0 - past)
        lasting = (until - after) / (1.0 + until)
        return (larger * seen + PARETO * lasting) / (larger + PARETO)

    def quantile(self, share: float) -> float:
        """The least sample that residuals are at most with a chance of `share`; more than the largest where none is."""
        found = self._quantiles.get(share)
        if found is None:
            found = self._quantiles[share] = self._quantile(share)
        return found

    def _quantile(self, share: float) -> float:
        events = self._events
        place = self._rank(1.0 - share)
        if place < len(events):
            return events[max(place, 0)]
        largest = max((samples[-1] for samples in (events, self._censored) if samples), default=0.0)
        return BEYOND * (max(largest, 0.0) + 1.0)

    def _rank(self, beyond: float) -> int:
        """How many events lie below the one from which on residuals are larger with a chance of `beyond` at most."""
        events = self._events
        risk = len(self._order) + 1
        before = 0
        stays = 1.0
        for left in self._censored:
            upto = bisect_right(events, left)
            place = before + ceil(risk * (1.0 - beyond / stays) - 1e-9) - 1
            if place < upto:
                return place
            stays *= (risk - (upto - before)) / risk
            risk -= upto - before + 1
            before = upto
        return before + ceil(risk * (1.0 - beyond / stays) - 1e-9) - 1
