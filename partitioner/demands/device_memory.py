"""What of a plan fits into the device's memory.

What counts are the bytes of weights that the device's sessions hold: each rung its own, the whole model or, where that is not
among the rungs, the segments before the last cut of a route. A weight that two segments use is held twice. Activations, input
slots (`memory.preallocated_memory_mb`) and what the runtime adds are not counted.

Every request is to have an answer without the cloud, so that the insurance comes first: of the rungs that fit, the one that
is preferred on the device. Then the ways through the cloud get their heads as long as there is room, best first, and then
further rungs. Where the whole model is the insurance, heads are parts of it and take no room of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from partitioner.choose import WHOLE, acceptable
from partitioner.costs.cost import Candidate
from partitioner.graph.cuts import CutFinder
from partitioner.graph.model import Model, tensor_bytes
from partitioner.graph.walk import constant_nodes, node_inputs, producers
from shared.errors import Unsatisfiable


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one model: bytes by name, and the names that each operator uses, what is made of weights alone counted
    as the weights that it is made of."""

    sizes: Mapping[str, int]
    used: Mapping[int, frozenset[str]]

    @classmethod
    def of(cls, finder: CutFinder) -> Weights:
        """The weights of the model that was looked at."""
        graph = finder.model.proto.graph
        sizes = {tensor.name: tensor_bytes(tensor) for tensor in graph.initializer}
        made_by, constant = producers(graph), constant_nodes(graph)
        used: dict[int, frozenset[str]] = {}
        for node in finder.order:
            names: set[str] = set()
            waiting = list(node_inputs(graph.node[node]))
            while waiting:
                name = waiting.pop()
                if name not in names and made_by.get(name, -1) in constant:
                    waiting.extend(node_inputs(graph.node[made_by[name]]))
                names.add(name)
            used[node] = frozenset(names & sizes.keys())
        return cls(sizes, used)

    def of_nodes(self, nodes: Set[int]) -> int:
        """Bytes of what these operators use, each weight once."""
        names: set[str] = set()
        for node in nodes:
            names |= self.used[node]
        return sum(self.sizes[name] for name in names)

    def of_segments(self, borders: Sequence[Set[int]]) -> int:
        """Bytes of the segments that end where these operators have run, each with its own weights."""
        total, before = 0, frozenset[int]()
        for nodes in sorted(map(frozenset, borders), key=len):
            total += self.of_nodes(nodes - before)
            before = nodes
        return total


def model_bytes(model: Model) -> int:
    """Bytes of a model's weights."""
    return sum(tensor_bytes(tensor) for tensor in model.proto.graph.initializer)


def insured_by(ranked: Sequence[Candidate], nbytes: Mapping[str, int], limit: int, min_agreement: float) -> Candidate:
    """The first of the ways on the device, best first, whose rung (`nbytes` by name) fits and agrees enough.

    Raises `Unsatisfiable` where none does: by the memory, or by the least agreement where that is nearer.
    """
    good = [way for way in ranked if acceptable(way, min_agreement)]
    found = next((way for way in good if nbytes[way.rung] <= limit), None)
    if found is not None:
        return found
    least = min(good, key=lambda way: nbytes[way.rung])
    need = nbytes[least.rung]
    rest = [way for way in ranked if nbytes[way.rung] <= limit and acceptable(way, 0.0)]
    beside = ""
    if rest:
        best = max(rest, key=lambda way: way.agreement)
        beside = f"; or --min-agreement {int(best.agreement * 1000) / 1000:g}, with which {best.rung!r} does"
    raise Unsatisfiable(
        f"--device-memory: no rung that answers on the device fits into {limit} bytes of weights; the nearest that would do "
        f"is {need}B, for {least.rung!r}{beside}. A cheaper rung may fit (--rung, --rung-resolution)"
    )


def fitting(
    insurance: str,
    routes: Sequence[Candidate],
    rungs: Sequence[Candidate],
    borders: Mapping[str, Set[int]],
    weights: Weights,
    nbytes: Mapping[str, int],
    limit: int,
) -> tuple[list[Candidate], list[Candidate]]:
    """The routes and the rungs that fit beside the insurance, each in the order given. `borders` are the operators before
    each cut, `nbytes` the bytes of each rung, by name."""
    kept_routes: list[Candidate] = []
    kept = {insurance}

    def total(names: Set[str], ways: Sequence[Candidate]) -> int:
        cuts = {way.cut: borders[way.cut] for way in ways if way.kind == "split"}
        whole = [frozenset(weights.used)] if WHOLE in names else []
        own = sum(nbytes[name] for name in names if name != WHOLE)
        return own + weights.of_segments([*cuts.values(), *whole])

    for way in routes:
        if total(kept, [*kept_routes, way]) <= limit:
            kept_routes.append(way)
    for rung in rungs:
        if total(kept | {rung.rung}, kept_routes) <= limit:
            kept.add(rung.rung)
    return kept_routes, [rung for rung in rungs if rung.rung in kept]
