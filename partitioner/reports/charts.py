"""From a record to the drawings of its report: what each of them shows, by the same predictions as the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitioner.charts.chain import Crossing, draw_chain
from partitioner.charts.frame import Mark
from partitioner.charts.front import Dot, draw_front
from partitioner.charts.lines import Curve, draw_lines
from partitioner.charts.marks import marks_for
from partitioner.charts.regionmap import Titles, draw_map
from partitioner.charts.rows import Row, draw_rows
from partitioner.charts.scales import decades
from partitioner.choose import WHOLE
from partitioner.costs.cost import HEADER_BYTES, Candidate, predict
from partitioner.crossings import Contest
from partitioner.explanations.explanation import Explanation, Standing, explain
from partitioner.explanations.regions import Range, RegionMap, map_regions
from partitioner.options import MAX_SLOWDOWN, LinkGuess
from partitioner.records.record import Record
from partitioner.words import ms, share, size

MAX_LETTERS = 16
POINTS = 48
MAP_HEIGHT = 330.0


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that the drawings of one record share. `ways` are the measured ones on the asked device, those that may win
    first and best first; `maps` are over rate and round trip, and over rate and device ratio."""

    record: Record
    explanation: Explanation
    ways: tuple[Candidate, ...]
    maps: tuple[RegionMap, RegionMap]
    marks: dict[str, Mark]

    @classmethod
    def of(cls, record: Record) -> Picture:
        """The picture under the conditions that were asked for."""
        explanation = explain(record, record.asked)
        contest = Contest.of(record)
        maps = region_maps(record, contest)
        measured = {c.label: c for c in record.candidates(record.asked.edge_slowdown) if c.measured}
        order = [standing.label for standing in explanation.standings]
        order += [label for label in measured if label not in order]
        winners = {label for regions in maps for label in regions.winners}
        named = sorted(order, key=lambda label: (label not in winners, order.index(label)))[:MAX_LETTERS]
        kept = [label for label in order if label in named]
        coloured = [*[x for x in kept if x in winners], *[x for x in kept if x not in winners]]
        return cls(record, explanation, tuple(measured[x] for x in order), maps, dict(marks_for(kept, coloured)))


def region_maps(record: Record, contest: Contest) -> tuple[RegionMap, RegionMap]:
    """The maps over rate and round trip, and over rate and device ratio, around the asked conditions."""
    asked = record.asked
    rate, rtt = asked.link.rate_mbit, asked.link.rtt_ms
    across = Range("link.rate", *decades(min(1.0, rate / 4), max(1000.0, rate * 4)))
    up = Range("link.rtt", *decades(min(0.5, rtt / 3) if rtt > 0 else 0.5, max(100.0, rtt * 3)))
    most = 64.0
    while most < asked.edge_slowdown * 2:
        most *= 2
    ratio = Range("edge-slowdown", 1.0, min(most, MAX_SLOWDOWN))
    return map_regions(contest, asked, across, up), map_regions(contest, asked, across, ratio)


def rtt_map(picture: Picture, width: float) -> str:
    """Winners over rate and round trip."""
    titles = Titles("Winners by rate and round trip", "rate of the link, Mbit/s", "round trip, ms")
    return draw_map(picture.maps[0], picture.marks, titles, width, MAP_HEIGHT)


def ratio_map(picture: Picture, width: float) -> str:
    """Winners over rate and device ratio."""
    titles = Titles("Winners by rate and device ratio", "rate of the link, Mbit/s", "device, times slower")
    return draw_map(picture.maps[1], picture.marks, titles, width, MAP_HEIGHT)


def latency(picture: Picture, width: float) -> str:
    """p99 of every measured way against the rate, at the asked round trip."""
    asked = picture.record.asked
    across = picture.maps[0].across
    rates = [across.value(step / (POINTS - 1)) for step in range(POINTS)]
    curves = [
        Curve(
            way.label,
            way.kind,
            tuple(predict(way, LinkGuess(rate, asked.link.rtt_ms)).total.p99_us / 1000.0 for rate in rates),
        )
        for way in picture.ways
    ]
    title = "Latency of every way against the rate of the link"
    return draw_lines(curves, rates, picture.marks, asked.link.rate_mbit, asked.deadline_ms, title, width)


def front_dots(picture: Picture) -> list[Dot]:
    """The measured ways with a letter, the fastest first, and whether each is on the front of p50, agreement and bytes."""
    link = picture.record.asked.link
    told = [
        (way.label, predict(way, link).total.p50_us / 1000.0, way.agreement, way.bytes_up / 1000.0)
        for way in picture.ways
    ]

    def beaten(mine: tuple[str, float, float, float]) -> bool:
        return any(
            other[1] <= mine[1] and other[2] >= mine[2] and other[3] <= mine[3] and other[1:] != mine[1:]
            for other in told
        )

    dots = [Dot(*one, front=not beaten(one)) for one in told if one[0] in picture.marks]
    return sorted(dots, key=lambda dot: (dot.time_ms, dot.label))


def front(picture: Picture, width: float) -> str:
    """The front of latency, agreement and bytes."""
    return draw_front(front_dots(picture), picture.marks, "Front of latency, agreement and bytes sent", width)


def waterfall(winner: Standing, deadline_ms: float, width: float) -> str:
    """Where the time of the chosen way goes."""
    stages = winner.stages
    named = (
        ("on the device", stages.head_us, "device"),
        ("encode", stages.encode_us, "device"),
        (f"send {size(winner.bytes_up)}", stages.uplink_us, "link"),
        ("decode", stages.decode_us, "cloud"),
        ("in the cloud", stages.tail_us, "cloud"),
        (f"reply of {size(winner.bytes_down)}", stages.downlink_us, "link"),
        ("the request itself", stages.overhead_us, "overhead"),
    )
    rows: list[Row] = []
    at_us = 0.0
    for words, time_us, kind in named:
        if time_us > 0.0:
            rows.append(Row(words, at_us, at_us + time_us, at_us + time_us, f"{ms(time_us)}", kind))
            at_us += time_us
    ends = f"p50 {ms(winner.p50_us)}, p99 {ms(winner.p99_us)}"
    rows.append(Row("the answer", 0.0, winner.p50_us, winner.p99_us, ends, "total"))
    return draw_rows(rows, deadline_ms, f"Where the time goes: {winner.label}", width)


def ladder(record: Record, width: float) -> str:
    """The rungs on the asked device."""
    rungs = [record.ways[place].on(record.asked.edge_slowdown) for place in record.rungs]
    rows = [
        Row(r.rung, 0.0, r.head.p50_us, r.head.p99_us, f"{ms(r.head.p50_us)}, agrees {share(r.agreement)}", "device")
        for r in rungs
    ]
    return draw_rows(rows, record.asked.deadline_ms, "The ladder", width)


def crossings(record: Record, marks: Mapping[str, Mark]) -> list[Crossing]:
    """Every place where the model may be cut, from the input to the outputs; none where the whole model was not timed."""
    candidates = record.candidates(1.0)
    whole = next((c for c in candidates if c.kind == "device" and c.rung == WHOLE), None)
    if whole is None or whole.head.p50_us <= 0.0:
        return []
    kept = {record.ways[place].cut for place in record.routes}
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.kind != "device":
            groups.setdefault(candidate.cut, []).append(candidate)
    found: list[Crossing] = []
    for name, ways in groups.items():
        raw = next((way for way in ways if way.coding == "raw"), ways[0])
        part = min(1.0, raw.head.p50_us / whole.head.p50_us)
        sent = tuple((w.label, w.bytes_up / 1000.0) for w in ways if w.measured and w.label in marks)
        found.append(Crossing(name, part, (raw.bytes_up - HEADER_BYTES) / 1000.0, sent, name in kept))
    down = next((c.bytes_down for c in candidates if c.kind != "device"), 0)
    if down:
        found.append(Crossing("output", 1.0, max(0.001, (down - HEADER_BYTES) / 1000.0), (), False))
    return sorted(found, key=lambda crossing: crossing.share)


def chain(picture: Picture, width: float) -> str:
    """What crosses where, and the bundle's segments."""
    places = crossings(picture.record, picture.marks)
    return draw_chain(places, picture.marks, "What crosses at each place where the model may be cut", width)


def marked(labels: Sequence[str], marks: Mapping[str, Mark]) -> list[tuple[Mark, str]]:
    """The labels that have a mark, with it."""
    return [(marks[label], label) for label in labels if label in marks]
