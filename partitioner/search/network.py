"""A problem as arrays: what a minimum cut needs at hand, laid out once for all the conditions it is asked about.

The source is the device's side, the sink the cloud's. A group costs its cloud time when it is cut from the source, its device
time when it is cut from the sink. An edge without end leads from each group to those that it depends on, so that nothing
returns from the cloud to the device. A value's price lies on the edge from its producer to its consumer; a value with several
consumers has a node of its own between them, so that it is paid for once. An output is paid for whenever the
device makes it, as if the cloud's end used it. That overstates the cut that leaves nothing in the cloud, which is
therefore always weighed apart. The inputs' producer is the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partitioner.search.conditions import Conditions, Pins
from partitioner.search.flow import Bools, Ints, Pattern
from partitioner.search.problem import Problem, Value

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prices:
    """What everything costs, in one unit: groups on the device and in the cloud (floats, groups; they may be negative),
    values in each of their choices (floats, values x choices, infinite where it is not admissible), and the pins: groups
    that must run on the device or in the cloud (bools, groups), and whether no input may cross."""

    device: Floats
    cloud: Floats
    choices: Floats
    edge_pins: Bools
    cloud_pins: Bools
    private_input: bool


@dataclass(frozen=True, slots=True)
class Network:
    """The arrays of one problem. By group: `device_us`, `cloud_us`, `weight_bytes`, `work`. By value and choice, padded:
    `nbytes`, `encode_us`, `decode_us`, `agreement` (-1 where there is no such choice). By value: `is_input`, `is_output`,
    `producers` (0 for inputs), and `crossing`, the edge that bears the price (-1 where the value never crosses). By use of a
    value: `used_values`, `using_groups`. `from_source` and `to_sink` are the edges of each group, `endless` those of
    dependencies, `across` the one from source to sink, which every cut pays. The nodes are the groups, source, sink, and one
    for each value with several consumers."""

    problem: Problem
    device_us: Floats
    cloud_us: Floats
    weight_bytes: Floats
    work: Floats
    nbytes: Floats
    encode_us: Floats
    decode_us: Floats
    agreement: Floats
    is_input: Bools
    is_output: Bools
    producers: Ints
    crossing: Ints
    used_values: Ints
    using_groups: Ints
    pattern: Pattern
    from_source: Ints
    to_sink: Ints
    endless: Ints
    across: int

    @classmethod
    def of(cls, problem: Problem) -> Network:
        """Lay a problem out."""
        groups, values = problem.groups, problem.values
        source, sink = len(groups), len(groups) + 1
        prices, endless, nodes = _edges(problem, source, sink)
        from_source = [(source, group) for group in range(len(groups))]
        to_sink = [(group, sink) for group in range(len(groups))]
        paid = [edge for edge in prices if edge is not None]
        pattern = Pattern.of(nodes, [*from_source, *to_sink, *endless, *paid, (source, sink)])
        crossing = np.full(len(values), -1, dtype=np.int64)
        crossing[[edge is not None for edge in prices]] = pattern.find(paid)
        uses = [(index, group) for index, value in enumerate(values) for group in value.consumers]
        table = np.array(uses, dtype=np.int64).reshape(-1, 2)
        return cls(
            problem=problem,
            device_us=np.array([group.device_us for group in groups]),
            cloud_us=np.array([group.cloud_us for group in groups]),
            weight_bytes=np.array([group.weight_bytes for group in groups], dtype=np.float64),
            work=np.array([group.counts for group in groups]),
            nbytes=_padded([[choice.nbytes for choice in value.choices] for value in values]),
            encode_us=_padded([[choice.encode_us for choice in value.choices] for value in values]),
            decode_us=_padded([[choice.decode_us for choice in value.choices] for value in values]),
            agreement=_padded([[choice.agreement for choice in value.choices] for value in values], -1.0),
            is_input=np.array([value.producer is None for value in values], dtype=np.bool_),
            is_output=np.array([value.output for value in values], dtype=np.bool_),
            producers=np.array([value.producer or 0 for value in values], dtype=np.int64),
            crossing=crossing,
            used_values=table[:, 0],
            using_groups=table[:, 1],
            pattern=pattern,
            from_source=pattern.find(from_source),
            to_sink=pattern.find(to_sink),
            endless=pattern.find(endless),
            across=int(pattern.find([(source, sink)])[0]),
        )

    @property
    def source(self) -> int:
        """The node of the device's side."""
        return len(self.device_us)

    @property
    def sink(self) -> int:
        """The node of the cloud's side."""
        return len(self.device_us) + 1

    def prices(self, conditions: Conditions, pins: Pins) -> Prices:
        """What everything costs under these conditions, in microseconds; the constant is left out, since every cut that is
        compared here pays it."""
        inside = np.arange(len(self.device_us))
        choices = (
            conditions.slowdown * self.encode_us
            + conditions.us_per_byte * self.nbytes
            + conditions.cloud_factor * self.decode_us
        )
        return Prices(
            device=conditions.slowdown * self.device_us,
            cloud=conditions.cloud_factor * self.cloud_us,
            choices=np.where(self.admissible(conditions.least_agreement), choices, np.inf),
            edge_pins=np.isin(inside, list(pins.edge)),
            cloud_pins=np.isin(inside, list(pins.cloud)),
            private_input=pins.private_input,
        )

    def admissible(self, least_agreement: float) -> Bools:
        """Which choices exist and agree enough (bools, values x choices)."""
        return (self.agreement >= 0.0) & (self.agreement >= least_agreement)

    def crosses(self, inside: Bools) -> Bools:
        """Which values cross (bools, values) by a downward-closed cut (bools, groups), outputs even where it is the whole."""
        outside = np.zeros(len(self.is_input), dtype=np.bool_)
        outside[self.used_values[~inside[self.using_groups]]] = True
        return (self.is_input | inside[self.producers]) & (outside | self.is_output)

    def sides(self, inside: Bools) -> Bools:
        """The nodes on the source's side (bools, nodes) where a downward-closed cut (bools, groups) costs what it must."""
        side = np.ones(self.pattern.nodes, dtype=np.bool_)
        side[: self.source], side[self.sink] = inside, False
        joints = self.pattern.targets[self.crossing[self.used_values[~inside[self.using_groups]]]]
        side[joints[joints > self.sink]] = False
        return side

    def weigh(self, prices: Prices, inside: Bools) -> float:
        """What a downward-closed cut costs at these prices, outputs included even where it is the whole."""
        sent = cheapest(prices.choices)[self.crosses(inside)]
        return float(prices.device[inside].sum() + prices.cloud[~inside].sum() + sent.sum())


def cheapest(choices: Floats) -> Floats:
    """The price of each value in its cheapest choice (floats, values), infinite where it has none."""
    return np.asarray(np.min(choices, axis=1, initial=np.inf), dtype=np.float64)


def _edges(problem: Problem, source: int, sink: int) -> tuple[list[tuple[int, int] | None], list[tuple[int, int]], int]:
    """For each value the edge that bears its price, the edges without end, and the number of nodes."""
    nodes = sink + 1
    prices: list[tuple[int, int] | None] = []
    endless = [(group, needed) for group, all_needed in enumerate(problem.depends_on()) for needed in all_needed]
    for value in problem.values:
        producer = source if value.producer is None else value.producer
        target = _single_target(value, sink)
        if target is None and value.consumers:
            target = nodes
            endless += [(target, consumer) for consumer in value.consumers]
            nodes += 1
        prices.append(None if target is None else (producer, target))
    return prices, endless, nodes


def _single_target(value: Value, sink: int) -> int | None:
    """Where the edge of a value leads that needs no node of its own."""
    if value.output:
        return sink
    return value.consumers[0] if len(value.consumers) == 1 else None


def _padded(rows: Sequence[Sequence[float]], filler: float = 0.0) -> Floats:
    """The rows as one array, filled up to the longest."""
    table = np.full((len(rows), max(map(len, rows), default=0)), filler)
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return table
