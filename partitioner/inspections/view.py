"""What a drawing of a model shows: its groups of operators with their costs, folded, and its cuts in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partitioner.charts.column import MarkWords
from partitioner.graph.cuts import CandidateCut
from partitioner.graph.groups import Groups, find_groups
from partitioner.inspections.folding import Border, Fold, Part, fold, reading_order
from partitioner.inspections.inspection import CutRow, Inspection, Look
from partitioner.profiles.lookup import times_for
from partitioner.profiles.record import DeviceProfile
from partitioner.words import milliseconds
from shared.errors import ModelError


@dataclass(frozen=True, slots=True)
class View:
    """A model to be drawn. `costs` are the words of each row's cost and `most` the largest cost; `costed` says in a sentence
    what the colours count."""

    found: Inspection
    groups: int
    fold: Fold
    costs: tuple[str, ...]
    marks: Mapping[int, MarkWords]
    most: float
    most_words: str
    costed: str


def view_of(look: Look, profile: DeviceProfile | None = None) -> View:
    """What is to be drawn of a model that was looked at, with the estimated compute or a profile's times as the cost.

    Raises:
        ModelError: the model could not be run, so that it has no groups.
        UserError: the profile is of another model, other shapes or other groups.
    """
    if look.finder is None:
        raise ModelError(f"it cannot be drawn: {look.found.problem}")
    groups = find_groups(look.finder)
    times = times_for(profile, groups) if profile is not None else None
    shares = [sum(look.finder.share_of(node) for node in nodes) for nodes in groups.nodes]
    costs = shares if times is None else [times[group] for group in range(len(groups.nodes))]
    order = reading_order([min(nodes) for nodes in groups.nodes], _users(groups))
    place = {group: index for index, group in enumerate(order)}
    folded = fold(
        [_part(groups, group, costs[group], place) for group in order],
        [[place[user] for user in value.consumers] for value in groups.values if _enters(value.producer, value.free)],
        sorted({place[v.producer] for v in groups.values if v.output and v.producer is not None}),
        _borders(look.cuts, look.found.cuts, [len(groups.nodes[group]) for group in order]),
    )
    most = max((row.cost for row in folded.rows), default=0.0)
    return View(
        found=look.found,
        groups=len(order),
        fold=folded,
        costs=tuple(_cost(row.cost, profile) for row in folded.rows),
        marks={row: mark_words(look.found.cuts[border.number]) for row, border in folded.marks.items()},
        most=most,
        most_words=_cost(most, profile),
        costed=_costed(profile),
    )


def _enters(producer: int | None, free: bool) -> bool:
    return producer is None and not free


def _users(groups: Groups) -> list[list[int]]:
    users: list[set[int]] = [set() for _ in groups.nodes]
    for value in groups.values:
        if value.producer is not None:
            users[value.producer].update(value.consumers)
    return [sorted(using) for using in users]


def _part(groups: Groups, group: int, cost: float, place: Mapping[int, int]) -> Part:
    graph = groups.finder.model.proto.graph
    operators = Counter(graph.node[node].op_type for node in sorted(groups.nodes[group]))
    users = {user for value in groups.values if value.producer == group and not value.free for user in value.consumers}
    return Part(groups.name_of(group), dict(operators), cost, tuple(sorted(place[user] for user in users)))


def _borders(cuts: Sequence[CandidateCut], rows: Sequence[CutRow], sizes: Sequence[int]) -> list[Border]:
    """The cuts but the last by how many groups run before them. All that runs before a cut of one tensor stands before all
    else in any order, so that the operators need only be counted."""
    before = {0: 0}
    count = 0
    for index, size in enumerate(sizes):
        count += size
        before[count] = index + 1
    return [
        Border(number, before[len(cut.nodes)], rows[number].cheapest_bytes)
        for number, cut in enumerate(cuts[:-1])
        if len(cut.nodes) in before
    ]


def _cost(cost: float, profile: DeviceProfile | None) -> str:
    if profile is not None:
        return milliseconds(cost)
    return percent(cost)


def _costed(profile: DeviceProfile | None) -> str:
    if profile is None:
        return (
            "the estimated share of the compute (multiplications and additions); times are measured by headtail profile"
        )
    how = {"measured": "measured", "scaled": "scaled from measured ones", "estimated": "estimated, not measured"}
    return f"times on {profile.machine.device}, {how[profile.origin.kind]}"


def mark_words(cut: CutRow) -> MarkWords:
    """What stands at a cut in the drawing."""
    tensors = "; ".join(f"{t.name} {t.dtype} {'x'.join(map(str, t.shape)) or 'scalar'}" for t in cut.tensors)
    return MarkWords(
        name=cut.name,
        sends=sends(cut),
        share=f"{percent(cut.share_before)} before",
        told=f"cut {cut.name}: {tensors}; {sends(cut)}; {percent(cut.share_before)} of the compute before it",
    )


def sends(cut: CutRow) -> str:
    """What a cut sends for one row: `16.4 KB, 2.0 KB as int4`."""
    raw = bytes_in_words(cut.raw_bytes)
    if cut.cheapest_bytes >= cut.raw_bytes:
        return f"{raw}, quantised by the model" if cut.quantised else raw
    return f"{raw}, {bytes_in_words(cut.cheapest_bytes)} as {cut.cheapest}"


def percent(share: float) -> str:
    """A share for a person: `3.4 %`, and nothing or all only where it is that."""
    if 0.0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1.0 - 1e-6:
        return "> 99.9 %"
    return f"{share * 100:.1f} %" if 0.0 < share < 1.0 - 1e-6 else f"{share * 100:.0f} %"


def bytes_in_words(count: int) -> str:
    """Bytes for a person: `589.8 KB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} KB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"
