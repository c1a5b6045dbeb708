"""Which way wins under given conditions, why, and what would have to change for another to win.

A pure function of the record: conditions in, a typed answer out. The order of ways is that by which the plan was chosen, and
the points at which it changes are exact (`partitioner.crossings`). Only ways that were measured can win. A way that was only
estimated and would win with the benefit of the doubt is named, since the plan was weighed for other conditions then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from partitioner.choose import acceptable, rank, without_dominated
from partitioner.costs.conditions import AXES, LIMITS, Axis, Conditions, Span
from partitioner.costs.cost import Candidate, Kind, predict
from partitioner.crossings import Contest, Interval
from partitioner.demands.objective import LATENCY, SURE, Objective, grade, margin
from partitioner.grids.regret import Lost
from partitioner.records.record import HERE, Record, Source

Reason = Literal["wins", "late", "amount", "margin", "agreement", "time", "label"]
"""Why a way stands where it stands, against the winner: it is late (or later, where all are), it takes
more of what the objective counts or has less margin, it agrees less, it takes
longer, or nothing but its label is greater."""

TRIED_RATES_MBIT = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0)
TRIED_SLOWDOWNS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
TRIED_RTT_MS = (0.0, 100.0)
"""Where it is asked whether a split ever wins: 13 rates from 1 to 10,000 Mbit/s, seven devices, and every round trip."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Where the time of one answer goes, in microseconds at the middle: on the device, on the link, in the cloud, and in what
    the request costs beside these."""

    head_us: float
    encode_us: float
    uplink_us: float
    decode_us: float
    tail_us: float
    downlink_us: float
    overhead_us: float

    def parts(self) -> tuple[float, ...]:
        """In the order in which they happen; last what happens all along the way."""
        on_the_way = (self.head_us, self.encode_us, self.uplink_us, self.decode_us, self.tail_us, self.downlink_us)
        return *on_the_way, self.overhead_us


STAGES = ("head", "encode", "uplink", "decode", "tail", "downlink", "overhead")
"""Names of the parts of `Stages`."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A way under the conditions: its prediction, and why it does not win. Times in microseconds. `amount` is what the
    objective adds up, 0 where it adds nothing. `kept` is whether the bundle can take it: a route of the plan or a rung of its
    ladder."""

    label: str
    kind: Kind
    p50_us: float
    p99_us: float
    in_time: bool
    agreement: float
    bytes_up: int
    bytes_down: int
    stages: Stages
    kept: bool
    reason: Reason
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """The nearest value of one condition, upwards or downwards, beyond which another way wins, all else as it is; or beyond
    which the same one comes to be in time, or late. `winner` is the label of the way that wins there, empty where none is of
    enough agreement; `in_time` whether it is within the deadline there."""

    axis: Axis
    direction: Literal["down", "up"]
    value: float
    winner: str
    in_time: bool


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """Whether a split pays: here, and anywhere in the grid that was tried at this deadline and least agreement. `best` is
    the label of the split that stands best here, empty where none was measured and of enough agreement. `example` are the
    conditions themselves where a split wins here, else the nearest of those tried under which one wins in time."""

    wins_here: bool
    wins_somewhere: bool
    best: str
    example: Conditions | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Who wins over a range of one condition, all else as it is."""

    axis: Axis
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer. `standings` are the ways that may win, best first; the winner is the first. `unmeasured` are the
    labels of ways that were only estimated and would win here with the benefit of the doubt. `edge` and `cloud` say where the
    times of the device and of the cloud come from. `regret` is what the bundle's routes lose over the grid of conditions
    that they were kept for, where they were."""

    name: str
    conditions: Conditions
    asked: bool
    standings: tuple[Standing, ...]
    changes: tuple[Change, ...]
    split: SplitAnswer
    unmeasured: tuple[str, ...]
    what_if: tuple[WhatIf, ...]
    edge: Source = HERE
    cloud: Source = HERE
    objective: Objective = LATENCY
    regret: Lost | None = None

    @property
    def winner(self) -> Standing | None:
        """The way that wins; None where no way is of enough agreement."""
        return self.standings[0] if self.standings else None


def explain(record: Record, conditions: Conditions, spans: Sequence[Span] = ()) -> Explanation:
    """Explain the record under these conditions, with a table of winners over each of the spans."""
    contest = Contest.of(record)
    standings = standings_of(contest, conditions, kept_labels(record))
    winner = (standings[0].label, standings[0].in_time) if standings else ("", False)
    return Explanation(
        name=record.name,
        conditions=conditions,
        asked=conditions == record.asked,
        standings=standings,
        changes=tuple(c for axis in AXES for c in changes_along(contest, conditions, axis, winner)),
        split=split_answer(contest, conditions, standings),
        unmeasured=unmeasured(record, conditions),
        what_if=tuple(WhatIf(span.axis, contest.along(conditions, span.axis, span.low, span.high)) for span in spans),
        edge=record.edge,
        cloud=record.cloud,
        objective=record.objective,
        regret=None if record.regret is None else record.regret.lost,
    )


def kept_labels(record: Record) -> frozenset[str]:
    """The labels of the ways that the bundle can take."""
    return frozenset(record.ways[place].on(1.0).label for place in (*record.routes, *record.rungs))


def standings_of(contest: Contest, conditions: Conditions, kept: frozenset[str]) -> tuple[Standing, ...]:
    """All that may win, best first."""
    ranked = contest.ranked(conditions)
    return tuple(
        _standing(candidate, ranked[0], conditions, candidate.label in kept, contest.objective) for candidate in ranked
    )


def stages_of(candidate: Candidate, conditions: Conditions) -> Stages:
    """The parts of a way's predicted time."""
    prediction = predict(candidate, conditions.link)
    return Stages(
        head_us=candidate.head.p50_us,
        encode_us=candidate.encode.p50_us,
        uplink_us=prediction.uplink_us,
        decode_us=candidate.decode.p50_us,
        tail_us=candidate.tail.p50_us,
        downlink_us=prediction.downlink_us,
        overhead_us=prediction.overhead_us,
    )


def changes_along(contest: Contest, conditions: Conditions, axis: Axis, winner: tuple[str, bool]) -> list[Change]:
    """The nearest changes of the winner below and above on one axis; none where it wins to the end. `winner` is its label,
    and whether it is in time here."""
    value = conditions.value(axis)
    least, most = LIMITS[axis]
    intervals = contest.along(conditions, axis, min(least, value), max(most, value))
    below = [(min(part.high, value), part) for part in intervals if part.low < value][::-1]
    above = [(max(part.low, value), part) for part in intervals if part.high > value]
    return _first("down", axis, below, winner) + _first("up", axis, above, winner)


def _first(
    direction: Literal["down", "up"], axis: Axis, parts: Sequence[tuple[float, Interval]], winner: tuple[str, bool]
) -> list[Change]:
    """The first part, going outwards, in which the winner is the same and its lateness is not, and the first of another
    winner."""
    other = next((n for n, (_, part) in enumerate(parts) if part.winner != winner[0]), len(parts))
    same = next((n for n, (_, part) in enumerate(parts[:other]) if part.in_time != winner[1]), other)
    places = dict.fromkeys(place for place in (same, other) if place < len(parts))
    return [Change(axis, direction, parts[n][0], parts[n][1].winner, parts[n][1].in_time) for n in places]


def split_answer(contest: Contest, conditions: Conditions, standings: Sequence[Standing]) -> SplitAnswer:
    """Whether a split wins here, or within the deadline anywhere in the tried grid."""
    splits = {way.on(1.0).label for way in contest.ways if way.kind == "split"}
    found: list[tuple[float, Conditions]] = []
    for slowdown in TRIED_SLOWDOWNS if splits else ():
        for rate in TRIED_RATES_MBIT:
            tried = conditions.at("edge-slowdown", slowdown).at("link.rate", rate)
            for part in contest.along(tried, "link.rtt", *TRIED_RTT_MS):
                if part.winner in splits and part.in_time:
                    inside = part.low <= conditions.link.rtt_ms <= part.high
                    there = tried if inside else tried.at("link.rtt", _round_between(part.low, part.high))
                    found.append((_distance(conditions, there), there))
    here = bool(standings) and standings[0].kind == "split"
    best = next((standing.label for standing in standings if standing.kind == "split"), "")
    nearest = min(found, key=lambda pair: pair[0])[1] if found else None
    return SplitAnswer(here, here or bool(found), best, conditions if here else nearest)


def _round_between(low: float, high: float) -> float:
    """About the middle, in two significant digits where that is still between."""
    middle = (low + high) / 2
    rounded = float(f"{middle:.2g}")
    return rounded if low <= rounded <= high else middle


def _distance(one: Conditions, other: Conditions) -> float:
    """How far apart two links and devices are, in factors; a millisecond is added to round trips, which may be nothing."""
    pairs = (
        (one.link.rate_mbit, other.link.rate_mbit),
        (one.link.rtt_ms + 1.0, other.link.rtt_ms + 1.0),
        (one.edge_slowdown, other.edge_slowdown),
    )
    return sum(abs(math.log(a / b)) for a, b in pairs)


def unmeasured(record: Record, conditions: Conditions) -> tuple[str, ...]:
    """The estimated ways that would win here if they agreed fully; in the order of their labels' rank."""
    if record.forced:
        return ()
    hopeful = [
        replace(c, agreement=1.0 if math.isnan(c.agreement) else c.agreement)
        for c in record.candidates(conditions.edge_slowdown)
    ]
    hopeful = [c for c in hopeful if acceptable(c, conditions.min_agreement)]
    ranked = rank(
        without_dominated(hopeful), conditions.link, conditions.deadline_ns, conditions.min_agreement, record.objective
    )
    found: list[str] = []
    for candidate in ranked:
        if candidate.measured:
            break
        found.append(candidate.label)
    return tuple(found)


def _standing(
    candidate: Candidate, best: Candidate, conditions: Conditions, kept: bool, objective: Objective
) -> Standing:
    total = predict(candidate, conditions.link).total
    return Standing(
        label=candidate.label,
        kind=candidate.kind,
        p50_us=total.p50_us,
        p99_us=total.p99_us,
        in_time=total.p99_us * 1000.0 <= conditions.deadline_ns,
        agreement=candidate.agreement,
        bytes_up=candidate.bytes_up,
        bytes_down=candidate.bytes_down,
        stages=stages_of(candidate, conditions),
        kept=kept,
        reason=_reason(candidate, best, conditions, objective),
        amount=objective.amount(candidate, conditions.link),
    )


def _reason(candidate: Candidate, best: Candidate, conditions: Conditions, objective: Objective) -> Reason:
    """Why the candidate comes after the best."""
    if candidate == best:
        return "wins"
    mine, theirs = predict(candidate, conditions.link).total, predict(best, conditions.link).total
    if mine.p99_us * 1000.0 > conditions.deadline_ns:
        return "late"
    if objective.amount(candidate, conditions.link) > objective.amount(best, conditions.link):
        return "amount"
    lead, gap = (min(margin(total, conditions.deadline_ns), SURE) for total in (theirs, mine))
    if objective.name == "on-time" and gap < lead:
        return "margin"
    if grade(candidate.agreement) < grade(best.agreement):
        return "agreement"
    return "time" if mine.p50_us > theirs.p50_us else "label"
