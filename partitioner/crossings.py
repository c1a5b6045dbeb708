"""Where along one condition the winner changes: exact, from the closed form of the prediction.

With all else as it is, a way's time is a straight line in the round trip, in the device's slowness, and in what a bit takes
on the link (the reciprocal of the rate); its p99 is another, parallel one. Which way wins can change only where two lines
meet, where a p99 meets the deadline, or where the least agreement passes a way's own. So the winner is found once in each
gap between these points and is known everywhere. A search by steps would miss what lies between two steps.

Lines are drawn through two predictions (`partitioner.costs.cost.predict`), and compared by the rule that chose the plan
(`partitioner.choose.preference`), so that both can change in one place alone. Ways that are nowhere ahead of some other are
left out first: they cost time and win nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from partitioner.choose import contenders, rank
from partitioner.costs.conditions import Axis, Conditions
from partitioner.costs.cost import Candidate, Spread, predict
from partitioner.demands.objective import LATENCY, SURE, Objective, grade
from partitioner.records.record import Record, Way


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of an axis, in its unit, over which one way wins. `winner` is its label, empty where no way is of enough
    agreement; `in_time` is whether its p99 is within the deadline."""

    low: float
    high: float
    winner: str
    in_time: bool


@dataclass(frozen=True, slots=True)
class Contest:
    """Those of a record that can win: the measured ways, and the cuts that were forced."""

    ways: tuple[Way, ...]
    forced: tuple[str, ...]
    objective: Objective = LATENCY

    @classmethod
    def of(cls, record: Record) -> Contest:
        """The contest of a record."""
        able = [way for way in record.ways if way.kind != "device" or not record.insured_only]
        return cls(tuple(way for way in able if way.measured), record.forced, record.objective)

    def entrants(self, conditions: Conditions) -> list[Candidate]:
        """Those that may win by their agreement, on the device of these conditions."""
        candidates = [way.on(conditions.edge_slowdown) for way in self.ways]
        return contenders(candidates, conditions.min_agreement, self.forced)

    def ranked(self, conditions: Conditions) -> list[Candidate]:
        """The entrants, best first."""
        entrants = self.entrants(conditions)
        return rank(entrants, conditions.link, conditions.deadline_ns, conditions.min_agreement, self.objective)

    def along(self, conditions: Conditions, axis: Axis, low: float, high: float) -> tuple[Interval, ...]:
        """Who wins from `low` to `high` on an axis, in its unit, all else as in `conditions`; neighbours differ."""
        if axis == "min-agreement":
            return self._along_agreement(conditions, low, high)
        lines = list(self._lines(conditions, axis))
        lines = _leading(lines) if self.objective.name == "latency" else lines
        points = _meetings(lines, conditions.deadline_ns / 1000.0, axis, self.objective)

        def winner(value: float) -> tuple[str, bool]:
            deadline_ns = value * 1e6 if axis == "deadline" else float(conditions.deadline_ns)
            where = 1.0 / value if axis == "link.rate" else value
            best = min(
                (
                    self.objective.preference(
                        line.at(where), line.agreement, line.label, deadline_ns, line.amount_at(where)
                    )
                    for line in lines
                ),
                default=(True, 0.0, 0.0, 0.0, ""),
            )
            return best[4], not best[0]

        return _joined((a, b, *winner((a + b) / 2)) for a, b in _gaps(points, low, high))

    def _along_agreement(self, conditions: Conditions, low: float, high: float) -> tuple[Interval, ...]:
        def winner(value: float) -> tuple[str, bool]:
            asked = conditions.at("min-agreement", value)
            best = next(iter(self.ranked(asked)), None)
            if best is None:
                return "", False
            return best.label, predict(best, asked.link).total.p99_us * 1000.0 <= asked.deadline_ns

        points = [way.agreement for way in self.ways if way.agreement is not None]
        return _joined((a, b, *winner((a + b) / 2)) for a, b in _gaps(points, low, high))

    def _lines(self, conditions: Conditions, axis: Axis) -> Iterator[_Line]:
        """A line for each entrant, through what is predicted at 0 and at 1 of what is varied."""
        entrants = self.entrants(conditions)
        if axis == "edge-slowdown":
            labels = {candidate.label for candidate in entrants}
            unit = [c for way in self.ways if (c := way.on(1.0)).label in labels]
            zero = [c for way in self.ways if (c := way.on(0.0)).label in labels]
            pairs = [
                (predict(a, conditions.link), predict(b, conditions.link)) for a, b in zip(zero, unit, strict=True)
            ]
            ends, entrants, others = [conditions.link] * 2, unit, zero
        else:
            none_at = math.inf if axis == "link.rate" else 0.0
            ends = (
                [conditions.link] * 2 if axis == "deadline" else [conditions.at(axis, v).link for v in (none_at, 1.0)]
            )
            pairs = [(predict(c, ends[0]), predict(c, ends[1])) for c in entrants]
            others = entrants
        for candidate, other, (none, one) in zip(entrants, others, pairs, strict=True):
            amount = self.objective.amount(other, ends[0])
            yield _Line(
                label=candidate.label,
                agreement=candidate.agreement,
                base=none.total,
                slope_us=one.total.p50_us - none.total.p50_us,
                amount=amount,
                amount_slope=self.objective.amount(candidate, ends[1]) - amount,
            )


@dataclass(frozen=True, slots=True)
class _Line:
    """A way's time along an axis: `base` where the varied number is 0, and `slope_us` for each 1 of it; and what the
    objective adds up, alike."""

    label: str
    agreement: float
    base: Spread
    slope_us: float
    amount: float = 0.0
    amount_slope: float = 0.0

    def amount_at(self, value: float) -> float:
        return self.amount + self.amount_slope * value

    def at(self, value: float) -> Spread:
        extra_us = self.slope_us * value
        return Spread(self.base.p50_us + extra_us, self.base.p99_us + extra_us)

    @property
    def spread_us(self) -> float:
        return self.base.p99_us - self.base.p50_us

    def leads(self, other: _Line) -> bool:
        """Whether it is preferred to the other everywhere: in nothing worse, and by the label where they can be equal."""
        mine = (self.base.p50_us, self.base.p99_us, self.slope_us, -grade(self.agreement))
        theirs = (other.base.p50_us, other.base.p99_us, other.slope_us, -grade(other.agreement))
        equal = mine[2] == theirs[2] and (mine[0] == theirs[0] or mine[1] == theirs[1])
        if equal and self.label >= other.label:
            return False
        return all(a <= b for a, b in zip(mine, theirs, strict=True))


def _leading(lines: Sequence[_Line]) -> list[_Line]:
    return [line for line in lines if not any(other.leads(line) for other in lines)]


def _meetings(lines: Sequence[_Line], deadline_us: float, axis: Axis, objective: Objective) -> list[float]:
    """All points of the axis, in its unit, at which the order of two lines or the lateness of one may change."""
    margins = objective.name == "on-time"
    if axis == "deadline":
        late = [line.base.p99_us / 1000.0 for line in lines]
        return [*late, *(_margin_deadlines(lines) if margins else ())]
    found = [(deadline_us - line.base.p99_us) / line.slope_us for line in lines if line.slope_us > 0.0]
    for one, other in itertools.combinations(lines, 2):
        apart = one.slope_us - other.slope_us
        if apart != 0.0:
            found.append((other.base.p50_us - one.base.p50_us) / apart)
            found.append((other.base.p99_us - one.base.p99_us) / apart)
        slopes = one.amount_slope - other.amount_slope
        if slopes != 0.0:
            found.append((other.amount - one.amount) / slopes)
    found += _margin_meetings(lines, deadline_us) if margins else []
    if axis == "link.rate":
        return [1.0 / value for value in found if value > 0.0]
    return found


def _margin_meetings(lines: Sequence[_Line], deadline_us: float) -> list[float]:
    """Where two lines have one margin before the deadline, or one has as much as counts."""
    found = [
        (deadline_us - SURE * line.spread_us - line.base.p50_us) / line.slope_us
        for line in lines
        if line.slope_us != 0.0
    ]
    for one, other in itertools.combinations(lines, 2):
        rise = one.slope_us * other.spread_us - other.slope_us * one.spread_us
        if rise != 0.0:
            one_us, other_us = (deadline_us - line.base.p50_us for line in (one, other))
            found.append((one_us * other.spread_us - other_us * one.spread_us) / rise)
    return found


def _margin_deadlines(lines: Sequence[_Line]) -> list[float]:
    """The same along the deadline, in milliseconds."""
    found = [line.base.p50_us + SURE * line.spread_us for line in lines]
    for one, other in itertools.combinations(lines, 2):
        apart_us = other.spread_us - one.spread_us
        if apart_us != 0.0:
            found.append((one.base.p50_us * other.spread_us - other.base.p50_us * one.spread_us) / apart_us)
    return [deadline_us / 1000.0 for deadline_us in found]


def _gaps(points: Iterable[float], low: float, high: float) -> Iterator[tuple[float, float]]:
    inside = sorted({point for point in points if low < point < high})
    return itertools.pairwise([low, *inside, high])


def _joined(pieces: Iterable[tuple[float, float, str, bool]]) -> tuple[Interval, ...]:
    intervals: list[Interval] = []
    for low, high, winner, in_time in pieces:
        last = intervals[-1] if intervals else None
        if last is not None and (last.winner, last.in_time) == (winner, in_time):
            intervals[-1] = Interval(last.low, high, winner, in_time)
        else:
            intervals.append(Interval(low, high, winner, in_time))
    return tuple(intervals)
