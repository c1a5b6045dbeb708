"""A graph as groups of operators that no cut divides, and the values between them.

Operators are one group where a value between them cannot cross a cut: inside a kernel of the runtime, of a size that
depends on data, without a row axis. What then depends on itself through others is one group too, so that the groups have
an order. Values that both sides make for themselves (`CutFinder.sent_for`) travel for nothing, and their users count
as users of what they are made from.
"""

# scipy has no type information
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from partitioner.graph.cuts import CandidateCut, CutFinder
from partitioner.graph.walk import consumers, node_outputs
from shared.request import TensorSpec


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A value between groups: the group that makes it (None for an input of the model), those that use it, and whether the
    model returns it. `free`: both sides make it for themselves, so that it never crosses."""

    spec: TensorSpec
    producer: int | None
    consumers: tuple[int, ...]
    output: bool
    free: bool


@dataclass(frozen=True, slots=True)
class Groups:
    """`nodes` are the operators of each group, as indices into the graph, the groups in an order in which they can run."""

    finder: CutFinder
    nodes: tuple[frozenset[int], ...]
    values: tuple[GroupValue, ...]

    def name_of(self, group: int) -> str:
        """A group's name: that of the last value that it makes."""
        node = self.finder.model.proto.graph.node[max(self.nodes[group])]
        return node_outputs(node)[0]

    def cut_of(self, groups: Set[int]) -> CandidateCut:
        """The cut before which these groups run: downward closed, neither none nor all. Raises `ModelError` where a tensor
        would cross that cannot."""
        return self.finder.of_nodes(frozenset(node for group in groups for node in self.nodes[group]))


def find_groups(finder: CutFinder) -> Groups:
    """The groups of a model. Linear in the graph, but for the order."""
    graph = finder.model.proto.graph
    users = consumers(graph)
    outputs = {value.name for value in graph.output}
    made = {name: index for index in finder.order for name in node_outputs(graph.node[index])}
    uses = {name: list(users.get(name, ())) for name in [*(s.name for s in finder.model.inputs), *made]}
    returned = {name for name in uses if name in outputs}
    for name in list(uses):
        source = finder.sent_for(name)
        if source != name and source in uses:
            uses[source] = list(dict.fromkeys([*uses[source], *uses[name]]))
            returned |= {source} if name in outputs else set()
    joined = _Joined(finder.order)
    for name, index in made.items():
        if finder.sent_for(name) == name and not finder.can_cross(name):
            joined.join([index, *uses[name]])
    group_of = _ordered(finder.order, joined, ((index, user) for name, index in made.items() for user in uses[name]))
    members: list[set[int]] = [set() for _ in range(max(group_of.values()) + 1)]
    for index, group in group_of.items():
        members[group].add(index)
    values: list[GroupValue] = []
    for name, using in uses.items():
        producer = group_of[made[name]] if name in made else None
        away = tuple(sorted({group_of[user] for user in using} - {producer}))
        if away or name in returned:
            free = finder.sent_for(name) != name
            values.append(GroupValue(finder.spec_of(name), producer, away, name in returned and not free, free))
    return Groups(finder, tuple(frozenset(nodes) for nodes in members), tuple(values))


class _Joined:
    """Disjoint sets of nodes (Galler and Fischer 1964)."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._parent = {node: node for node in nodes}

    def of(self, node: int) -> int:
        while self._parent[node] != node:
            self._parent[node] = node = self._parent[self._parent[node]]
        return node

    def join(self, nodes: Iterable[int]) -> None:
        first, *others = [self.of(node) for node in nodes]
        for other in others:
            self._parent[other] = first


def _ordered(order: Iterable[int], joined: _Joined, edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The group of each node: joined nodes together, cycles of groups as one, numbered so that they can run in order."""
    nodes = list(order)
    roots = {root: place for place, root in enumerate(dict.fromkeys(joined.of(node) for node in nodes))}
    place = {node: roots[joined.of(node)] for node in nodes}
    pairs = np.array([(place[a], place[b]) for a, b in edges], np.int64).reshape(-1, 2)
    matrix = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(roots), len(roots)))
    strong: list[int] = connected_components(matrix.tocsr(), connection="strong")[1].tolist()
    component = {node: strong[place[node]] for node in nodes}
    after: dict[int, set[int]] = {c: set() for c in component.values()}
    waits = dict.fromkeys(after, 0)
    for a, b in pairs.tolist():
        before, behind = strong[a], strong[b]
        if before != behind and behind not in after[before]:
            after[before].add(behind)
            waits[behind] += 1
    ready = [c for c in dict.fromkeys(component[node] for node in nodes) if not waits[c]]
    number: dict[int, int] = {}
    for c in ready:  # it grows while it is walked
        number[c] = len(number)
        for behind in after[c]:
            waits[behind] -= 1
            if not waits[behind]:
                ready.append(behind)
    return {node: number[component[node]] for node in nodes}
