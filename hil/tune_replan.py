"""A plan made again from its record with what was measured of the deployed pair. Pure.

Nothing is cut or judged anew: times are multiplied by the ratios of what drifted, the link is the one that was seen, and the
ways that the bundle can take are put in order by the rule that chose them (`partitioner.choose`). Files, cuts, codings,
rungs and agreements stay, and so does the contract: agents and nodes with the old plan and with the new one understand each
other. Where a way wins that the bundle has no files for, that is said, and it takes `headtail plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hil.tune_drift import Drift, Part, Seen, conditions_seen, drift_of, link_of, told_apart
from partitioner.choose import explain as sentence_of
from partitioner.choose import ordered
from partitioner.costs.cost import Spread
from partitioner.explanations.explanation import Explanation, explain
from partitioner.records.record import Record, Way
from shared.plan import Plan, Profile

LEAST_RATIO = 1e-6


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was seen and what follows: `before` is the plan's prediction under the conditions that it was made for, `after`
    the one with what was measured; `plan` and `record` are those of the new bundle. `fitted` is whether the link's rate and
    round trip were told apart."""

    seen: tuple[Seen, ...]
    drift: tuple[Drift, ...]
    before: Explanation
    after: Explanation
    plan: Plan
    record: Record
    fitted: bool

    @property
    def drifted(self) -> bool:
        """Whether anything has."""
        return any(drift.drifted for drift in self.drift)

    @property
    def unheard(self) -> str:
        """The label of the way that wins now where it goes through the cloud and none of those that were seen does: of link
        and cloud nothing was compared then. Empty where there is none."""
        winner = self.after.winner
        if winner is None or winner.kind == "device":
            return ""
        away = {standing.label for standing in self.after.standings if standing.kind != "device"}
        return "" if any(way.label in away for way in self.seen) else winner.label

    @property
    def beyond(self) -> str:
        """The label of the way that wins now and that the bundle has no files for; empty where there is none."""
        winner = self.after.winner
        return "" if winner is None or winner.kept else winner.label


def tune(plan: Plan, record: Record, seen: Sequence[Seen], bound: float) -> Tuning:
    """Hold what was seen against the plan and make it again. `bound` as in `drift_of`."""
    drift = drift_of(record, seen, bound)
    ratios: dict[Part, float] = {d.part: max(LEAST_RATIO, d.ratio) for d in drift if d.drifted}
    conditions = conditions_seen(record, link_of(record, seen, drift))
    fresh = msgspec.structs.replace(retimed(record, ratios), asked=conditions)
    after = explain(fresh, conditions)
    fresh = _reordered(fresh, after)
    return Tuning(
        seen=tuple(seen),
        drift=drift,
        before=explain(record, record.asked),
        after=after,
        plan=_replanned(plan, fresh, ratios),
        record=fresh,
        fitted=told_apart(record, seen),
    )


def retimed(record: Record, ratios: Mapping[Part, float]) -> Record:
    """The record with the times of each part so many times as long."""
    device, cloud, codec, extra = (ratios.get(part, 1.0) for part in ("device", "cloud", "codec", "overhead"))

    def again(way: Way) -> Way:
        return msgspec.structs.replace(
            way,
            head=_times(way.head, device),
            encode=_times(way.encode, codec),
            decode=_times(way.decode, codec),
            tail=_times(way.tail, cloud),
            overhead=_times(way.overhead, extra),
            weighed_head=None if way.weighed_head is None else _times(way.weighed_head, device),
            weighed_tail=None if way.weighed_tail is None else _times(way.weighed_tail, cloud),
        )

    told = ", ".join(f"{part} {ratio:.3g} times" for part, ratio in ratios.items())
    notes = (*record.notes, f"tuned by what was measured of the deployed pair: {told or 'the link alone'}")
    return msgspec.structs.replace(record, ways=tuple(again(way) for way in record.ways), notes=notes, regret=None)


def _times(spread: Spread, factor: float) -> Spread:
    return Spread(spread.p50_us * factor, spread.p99_us * factor)


def _reordered(record: Record, after: Explanation) -> Record:
    """Its best way and the order of its routes by the new standings. Ways that stand nowhere keep their order at the end."""
    labels = [way.on(1.0).label for way in record.ways]
    measured = {
        label: place for place, (label, way) in enumerate(zip(labels, record.ways, strict=True)) if way.measured
    }
    rank = {standing.label: number for number, standing in enumerate(after.standings)}
    routes = sorted(record.routes, key=lambda place: (rank.get(labels[place], len(rank)), record.routes.index(place)))
    best = None if after.winner is None else measured[after.winner.label]
    return msgspec.structs.replace(record, routes=tuple(routes), best=best)


def _replanned(plan: Plan, record: Record, ratios: Mapping[Part, float]) -> Plan:
    slowdown, asked = record.asked.edge_slowdown, record.asked
    candidates = record.candidates(slowdown)
    names = {cut.name: index for index, cut in enumerate(plan.cuts)}
    rank = {(names.get(record.ways[p].cut), record.ways[p].coding): n for n, p in enumerate(record.routes)}
    routes = sorted(plan.routes, key=lambda route: rank.get((route.cut, route.coding), len(rank)))
    best = None if record.best is None else candidates[record.best]
    profiles = tuple(_reprofiled(profile, ratios) for profile in plan.profiles)
    chosen = sentence_of(best, ordered(candidates, asked.link, asked.deadline_ns), asked.link, asked.deadline_ns)
    return msgspec.structs.replace(plan, routes=tuple(routes), profiles=profiles, chosen=chosen)


def _reprofiled(profile: Profile, ratios: Mapping[Part, float]) -> Profile:
    factor = ratios.get("device" if profile.side == "edge" else "cloud", 1.0)
    codec = ratios.get("codec", 1.0)
    return msgspec.structs.replace(
        profile,
        ranges=tuple(
            msgspec.structs.replace(t, p50_us=t.p50_us * factor, p99_us=t.p99_us * factor) for t in profile.ranges
        ),
        codecs=tuple(
            msgspec.structs.replace(t, encode_us=t.encode_us * codec, decode_us=t.decode_us * codec)
            for t in profile.codecs
        ),
    )
