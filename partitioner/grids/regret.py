"""What a bundle's routes lose over a grid of conditions, against the best plan under each.

The regret under some conditions is the time of the best that the bundle can take, a route or the whole model on the device,
over that of the best of all plans, less one: 0 where nothing is lost. Both are the search's own times: those of the
operators on either side, what crosses at the rate, and the round trip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from partitioner.grids.grid import GridPoint

Times = tuple[Annotated[float, msgspec.Meta(ge=0.0)], ...]
Method = Literal["exact", "greedy"]
CLOSE = 1e-9
"""Regrets that differ by less are the same."""


class Regret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A grid, and under each of its combinations, in microseconds, the least time of all plans and the least of those that
    were kept. `max_regret` is what was asked for. `method`: whether the kept plans are the fewest of all choices of them
    (`exact`), or were added and exchanged one by one (`greedy`)."""

    max_regret: Annotated[float, msgspec.Meta(ge=0.0)]
    method: Method
    points: Annotated[tuple[GridPoint, ...], msgspec.Meta(min_length=1)]
    least_us: Times
    kept_us: Times

    def __post_init__(self) -> None:
        if not len(self.points) == len(self.least_us) == len(self.kept_us):
            raise ValueError("a grid has a least time and a kept time for each of its combinations")

    @property
    def regrets(self) -> tuple[float, ...]:
        """The regret under each combination: 0 where nothing is lost."""
        return tuple(ratio(kept, least) - 1.0 for kept, least in zip(self.kept_us, self.least_us, strict=True))

    @property
    def worst(self) -> float:
        """The largest regret."""
        return max(self.regrets)

    @property
    def worst_at(self) -> GridPoint:
        """The first combination of the largest regret."""
        regrets = self.regrets
        return self.points[regrets.index(max(regrets))]

    @property
    def mean(self) -> float:
        """The mean regret by the combinations' weights."""
        total = sum(point.weight for point in self.points)
        return sum(p.weight * regret for p, regret in zip(self.points, self.regrets, strict=True)) / total

    @property
    def lost(self) -> Lost:
        """What it comes to."""
        return Lost(
            len(self.points),
            self.worst,
            self.mean,
            self.worst_at,
            self.max_regret,
            self.worst <= self.max_regret + CLOSE,
            self.method,
        )


@dataclass(frozen=True, slots=True)
class Lost:
    """What a regret comes to: over how many conditions, the worst and the mean, where it is worst, what was asked for,
    whether that is kept, and how the routes were chosen."""

    conditions: int
    worst: float
    mean: float
    worst_at: GridPoint
    max_regret: float
    within: bool
    method: Method


def ratio(time_us: float, least_us: float) -> float:
    """A time over the least one: 1 where both are nothing, infinite where only the least is."""
    if least_us > 0.0:
        return time_us / least_us
    return 1.0 if time_us == 0.0 else float("inf")


def words(lost: Lost) -> str:
    """In some sentences: what is lost, where, whether that was asked for, and by which times."""
    over = f"Over {lost.conditions} {'condition' if lost.conditions == 1 else 'conditions'} the routes of this bundle"
    against = "against the best of all plans under each"
    asked = f"asked for was at most {percent(lost.max_regret)}"
    if lost.worst <= CLOSE:
        told = f"{over} and its device lose nothing {against}; {asked}."
    else:
        told = (
            f"{over} and its device lose at most {percent(lost.worst)} {against}, {percent(lost.mean)} in the mean; most at "
            f"{lost.worst_at}; {asked}{'' if lost.within else ', which no few routes keep whose cuts lie in a line'}."
        )
    how = "" if lost.method == "exact" else " The routes were chosen one by one: fewer may do."
    return f"{told}{how} These are the times of the search: work on either side, what crosses, and the round trip."


def percent(share: float) -> str:
    """A share of one as a person writes it: `1.3 %`."""
    return f"{100.0 * share:.2g} %" if share < 0.1 else f"{100.0 * share:,.0f} %"
