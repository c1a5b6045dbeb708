"""Who wins under each condition of the study: a pure function of what was measured.

Under a condition, of the ways that agree enough the quickest wins, by the middles that `partitioner.costs.cost.predict`
gives. (`headtail plan` is given a deadline and first asks which ways meet it; a table without a deadline has only time.)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hil.splits.findings import Finding, Road, Way
from partitioner.costs.cost import predict
from partitioner.options import LinkGuess

RATIOS = (4.0, 8.0)
RATES_MBIT = (20.0, 50.0, 200.0, 1000.0)
ROUND_TRIPS_MS = (2.0, 5.0, 20.0)
ROADS: tuple[Road, ...] = ("device", "raw", "coded", "split")
LEAST_WORK = 0.05
"""The share of the model's operations that lies before a cut which may be taken where the input is private."""
CLOSE = 1.05
"""A winner that is ahead by less than this factor is called close: parts are measured no better than that."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer is asked for: how many times slower than the cloud the device is, and the link."""

    ratio: float
    rate_mbit: float
    rtt_ms: float


@dataclass(frozen=True, slots=True)
class Rule:
    """What an answer must keep to: the least agreement, and whether the input must stay on the device."""

    floor: float
    private: bool = False

    def allows(self, way: Way) -> bool:
        """Whether a way may be taken."""
        return way.agreement >= self.floor and not (self.private and way.exposes)


PLACES = tuple(itertools.starmap(Place, itertools.product(RATIOS, RATES_MBIT, ROUND_TRIPS_MS)))
MAIN = Rule(0.95)
PRIVATE = Rule(0.95, private=True)
RULES = (Rule(0.90), MAIN, Rule(0.99), PRIVATE)


@dataclass(frozen=True, slots=True)
class Entry:
    """The quickest way of one road, and its time in microseconds."""

    way: Way
    time_us: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One condition: the best of each road that is allowed, and the road that wins. `lead` is by what factor the best of the
    other roads takes longer (infinite where there is no other)."""

    place: Place
    rule: Rule
    entries: dict[Road, Entry]
    winner: Road
    lead: float

    @property
    def close(self) -> bool:
        """Whether another road is nearly as quick."""
        return self.lead < CLOSE


def time_us(way: Way, place: Place) -> float:
    """The predicted middle of a way's time."""
    return predict(way.on(place.ratio), LinkGuess(place.rate_mbit, place.rtt_ms)).total.p50_us


def answer_at(ways: Sequence[Way], place: Place, rule: Rule) -> Answer:
    """Who wins. There must be a way on the device, which is always allowed."""
    entries: dict[Road, Entry] = {}
    for way in ways:
        if rule.allows(way):
            entry = Entry(way, time_us(way, place))
            best = entries.get(way.road)
            if best is None or entry.time_us < best.time_us:
                entries[way.road] = entry
    order = sorted(entries, key=lambda road: (entries[road].time_us, ROADS.index(road)))
    first = entries[order[0]].time_us
    lead = entries[order[1]].time_us / first if len(order) > 1 and first > 0.0 else float("inf")
    return Answer(place, rule, entries, order[0], lead)


def answers_to(finding: Finding, rule: Rule) -> tuple[Answer, ...]:
    """The answers of one model at all places, in the order of `PLACES`."""
    return tuple(answer_at(finding.ways, place, rule) for place in PLACES)


def wins(answers: Sequence[Answer]) -> dict[Road, int]:
    """How often each road wins."""
    counted = Counter(answer.winner for answer in answers)
    return {road: counted[road] for road in ROADS}


@dataclass(frozen=True, slots=True)
class Change:
    """Places at which another rule has another winner than the main one."""

    before: Road
    after: Road
    places: tuple[Place, ...]


def changes(main: Sequence[Answer], other: Sequence[Answer]) -> tuple[Change, ...]:
    """Where the winner differs, by what it was and what it is; in the order of first appearance."""
    found: dict[tuple[Road, Road], list[Place]] = {}
    for one, two in zip(main, other, strict=True):
        if one.winner != two.winner:
            found.setdefault((one.winner, two.winner), []).append(one.place)
    return tuple(Change(before, after, tuple(places)) for (before, after), places in found.items())
