"""Where a graph may be cut.

A cut is a downward-closed set of operators (with each operator everything it depends on), run on the device; what those
make and others use crosses, as do inputs that are needed later and outputs that are finished early. Anything less
closed, such as "one tensor of a residual block", needs upstream operators again in the tail.

A value alone in crossing lies on every path from the inputs to the outputs. In any order in which operators can run, all
operators then stand either before it or after it, so one sweep that counts what is alive finds all such values in time
linear in the graph. (Asking for each value which others cross takes an hour on a large model.)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from partitioner.graph.compute import operations
from partitioner.graph.copies import copies_of_inputs
from partitioner.graph.fusion import borders, remade_from
from partitioner.graph.model import Model
from partitioner.graph.observe import Fact, observe
from partitioner.graph.walk import constant_nodes, consumers, node_inputs, node_outputs, producers
from shared.errors import ModelError
from shared.request import TensorSpec

Element = TypeVar("Element")

INPUT = "input"
OUTPUT = "output"

LONGEST_NAME = 40
"""Characters of the names of several tensors, joined, that are still one name for a person."""


class Prefix(Set[int]):
    """The first `count` nodes of an order, which all cuts of a sweep share: a set of its own for each cut would make them
    quadratic in the graph."""

    def __init__(self, order: Sequence[int], rank: Mapping[int, int], count: int) -> None:
        self._order, self._rank, self._count = order, rank, count

    @classmethod
    def _from_iterable(cls, it: Iterable[Element]) -> Set[Element]:  # what `&`, `|` and `-` make
        return frozenset(it)

    def __contains__(self, item: object) -> bool:
        return isinstance(item, int) and self._rank.get(item, self._count) < self._count

    def __iter__(self) -> Iterator[int]:
        return iter(self._order[: self._count])

    def __len__(self) -> int:
        return self._count

    def __hash__(self) -> int:
        return self._hash()


@dataclass(frozen=True, slots=True)
class CandidateCut:
    """A border: the `nodes` (indices into the graph, without those that depend on weights alone) run before it, `tensors`
    cross it.

    `name` is `input` for cut 0, `output` for the last, else the tensors by which it was found, or, where those are too long
    a word for a person, the first of them and how many more; one finder gives no two cuts the same. `producer` is the
    operator type that makes them. `share` estimates the part of the compute that lies before it (0 to 1).
    """

    name: str
    tensors: tuple[TensorSpec, ...]
    producer: str
    nodes: Set[int]
    share: float

    @property
    def raw_bytes(self) -> int:
        """Bytes of one row, raw."""
        return sum(t.nbytes() for t in self.tensors)

    @property
    def int8_bytes(self) -> int:
        """Bytes of one row with every float tensor at one byte an element."""
        return sum(t.nbytes() // np.dtype(t.dtype).itemsize if "float" in t.dtype else t.nbytes() for t in self.tensors)


class CutFinder:
    """A model run and looked at once, to be asked for cuts often.

    Raises:
        ModelError: the model cannot be run on sample inputs.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._graph = model.proto.graph
        self._facts = observe(model)
        self._borders = borders(model, self._facts)
        self._remade = remade_from(model, self._facts)
        self._copies = copies_of_inputs(model)
        self._made_by = producers(self._graph)
        self._users = consumers(self._graph)
        self._outputs = {value.name for value in self._graph.output}
        constant = constant_nodes(self._graph)
        self._constants = {name for index in constant for name in node_outputs(self._graph.node[index])}
        self._order = [index for index in range(len(self._graph.node)) if index not in constant]
        self._rank = {index: rank for rank, index in enumerate(self._order)}
        work = [0.0 if i in constant else w for i, w in enumerate(operations(model.proto, self._facts))]
        total = sum(work) or 1.0
        self._shares = [operations_ / total for operations_ in work]
        self._named: dict[frozenset[int], str] = {}

    def single(self) -> list[CandidateCut]:
        """`input`, every cut at a border that one tensor crosses, in order, `output`."""
        found = [self._first()]
        alive = {spec.name: self._uses(spec.name) for spec in self._model.inputs}
        alive = {name: uses for name, uses in alive.items() if uses}
        share = 0.0
        for rank, index in enumerate(self._order):
            node = self._graph.node[index]
            share += self._shares[index]
            for name in node_inputs(node):
                if name in alive:
                    alive[name] -= 1
                    if alive[name] == 0:
                        del alive[name]
            alive.update({name: self._uses(name) for name in node_outputs(node) if self._uses(name)})
            if len(alive) == 1 and rank + 1 < len(self._order):
                name = next(iter(alive))
                if name in self._borders and self._may_cross(name):
                    spec = self._facts[name].spec
                    found.append(CandidateCut(name, (spec,), node.op_type, self._prefix(rank + 1), share))
        found.append(self._last())
        return found

    def at(self, *names: str) -> CandidateCut:
        """The smallest closed cut that makes these tensors, with all tensors that then cross.

        Raises:
            ModelError: no such tensor (near names are listed); inside a fused group (the next border is named); a tensor
                that would cross has a size that depends on data or no row axis; nothing or everything would run before it.
        """
        for name in names:
            self._check_name(name)
        nodes = self._closure(names)
        if len(nodes) == len(self._order):
            raise ModelError(f"{self._model.name}: a cut at '{','.join(names)}' leaves nothing for the other side")
        crossing = self._crossing(nodes)
        for name in crossing:
            self._check_crossing(name, names)
        producer = "+".join(self._graph.node[self._made_by[name]].op_type for name in names)
        share = sum(self._shares[index] for index in nodes)
        specs = tuple(self._facts[name].spec for name in crossing)
        return CandidateCut(self._name_of(names, nodes), specs, producer, nodes, share)

    def of_nodes(self, nodes: Set[int]) -> CandidateCut:
        """The cut before which exactly these nodes run, with all tensors that cross it. They must be downward closed, some
        and not all of those that do not depend on weights alone.

        Raises:
            ModelError: a tensor that would cross has a size that depends on data or no row axis.
        """
        crossing = self._crossing(frozenset(nodes))
        inputs = {spec.name for spec in self._model.inputs}
        made = [name for name in crossing if name not in inputs]
        names = tuple(made or crossing)
        for name in crossing:
            self._check_crossing(name, names)
        producer = "+".join(dict.fromkeys(self._graph.node[self._made_by[name]].op_type for name in made))
        share = sum(self._shares[index] for index in nodes)
        specs = tuple(self._facts[name].spec for name in crossing)
        return CandidateCut(self._name_of(names, frozenset(nodes)), specs, producer, frozenset(nodes), share)

    @property
    def model(self) -> Model:
        """The model that was looked at."""
        return self._model

    @property
    def order(self) -> Sequence[int]:
        """The nodes that do not depend on weights alone, in an order in which they can run."""
        return self._order

    @property
    def copies(self) -> frozenset[str]:
        """The inputs and the values that hold the same, element by element (`partitioner.graph.copies`)."""
        return self._copies

    def share_of(self, node: int) -> float:
        """A node's estimated share of all compute (0 to 1)."""
        return self._shares[node]

    def spec_of(self, name: str) -> TensorSpec:
        """A value at one row."""
        return self._facts[name].spec

    def can_cross(self, name: str) -> bool:
        """Whether a value may cross a cut by itself: an input, or at a border and of a size that no data changes."""
        return name not in self._made_by or (name in self._borders and self._may_cross(name))

    def sized_by_data(self) -> int:
        """How many values have a size that depends on the data: no cut may fall at them."""
        return sum(bool(fact.spec.dtype) and not fact.steady for fact in self._facts.values())

    def sent_for(self, name: str) -> str:
        """What crosses where a value is needed on the other side: itself, or what it is made again from."""
        return self._sent_for(name)

    def places(self) -> list[str]:
        """Every value at which a cut may be asked for, in the order in which they are made."""
        return [
            name for index in self._order for name in node_outputs(self._graph.node[index]) if name in self._borders
        ]

    def _prefix(self, count: int) -> Prefix:
        return Prefix(self._order, self._rank, count)

    def _first(self) -> CandidateCut:
        return CandidateCut(INPUT, self._model.inputs, "", frozenset(), 0.0)

    def _last(self) -> CandidateCut:
        producer = "+".join(
            dict.fromkeys(
                self._graph.node[self._made_by[v.name]].op_type for v in self._graph.output if v.name in self._made_by
            )
        )
        return CandidateCut(OUTPUT, self._model.outputs, producer, self._prefix(len(self._order)), 1.0)

    def _name_of(self, names: tuple[str, ...], nodes: frozenset[int]) -> str:
        joined = ",".join(names)
        if len(names) == 1 or len(joined) <= LONGEST_NAME:
            return joined
        if nodes not in self._named:
            short = name = f"{names[0]} and {len(names) - 1} more"
            number = 1
            while name in self._named.values():
                number += 1
                name = f"{short} ({number})"
            self._named[nodes] = name
        return self._named[nodes]

    def _uses(self, name: str) -> int:
        return len(self._users.get(name, ())) + (name in self._outputs)

    def _may_cross(self, name: str) -> bool:
        fact = self._facts[name]
        return fact.rowwise if self._model.batchable else fact.steady

    def _closure(self, names: Iterable[str]) -> frozenset[int]:
        nodes: set[int] = set()
        waiting = list(names)
        while waiting:
            index = self._made_by.get(waiting.pop(), -1)
            if index in self._rank and index not in nodes:
                nodes.add(index)
                waiting.extend(node_inputs(self._graph.node[index]))
        return frozenset(nodes)

    def _crossing(self, nodes: frozenset[int]) -> list[str]:
        made = [spec.name for spec in self._model.inputs]
        made += [name for index in sorted(nodes) for name in node_outputs(self._graph.node[index])]
        needed = [n for n in made if n in self._outputs or any(user not in nodes for user in self._users.get(n, ()))]
        sent = {self._sent_for(name) for name in needed}
        return [name for name in made if name in sent]

    def _sent_for(self, name: str) -> str:
        while name in self._remade:
            name = self._remade[name]
        return name

    def _check_name(self, name: str) -> None:
        if name in {spec.name for spec in self._model.inputs}:
            raise ModelError(f"{self._model.name}: '{name}' is an input; the cut '{INPUT}' is always there")
        if name == OUTPUT and name not in self._made_by:
            raise ModelError(f"{self._model.name}: a cut at '{OUTPUT}' leaves nothing for the other side")
        if name not in self._made_by:
            near = difflib.get_close_matches(name, [cut.name for cut in self.single()[1:-1]] or self._borders, 5, 0.0)
            raise ModelError(f"{self._model.name}: no operator makes '{name}'; cuts are for instance {', '.join(near)}")
        if name in self._constants:
            raise ModelError(f"{self._model.name}: '{name}' depends on weights alone and never crosses a cut")
        if name not in self._borders:
            raise ModelError(
                f"{self._model.name}: '{name}' lies inside operators that run as one; the next border is "
                f"'{self._next_border(name)}'"
            )

    def _next_border(self, name: str) -> str:
        seen, waiting = {name}, [name]
        while waiting:
            here = waiting.pop(0)
            if here in self._borders and here != name:
                return here
            for user in self._users.get(here, ()):
                fresh = [made for made in node_outputs(self._graph.node[user]) if made not in seen]
                seen.update(fresh)
                waiting.extend(fresh)
        return OUTPUT

    def _check_crossing(self, name: str, names: tuple[str, ...]) -> None:
        if self._may_cross(name):
            return
        fact: Fact = self._facts[name]
        if not fact.spec.dtype:
            why = "is no tensor of numbers"
        elif not fact.steady:
            why = "has a size that depends on data"
        else:
            why = "has no row axis in front"
        raise ModelError(f"{self._model.name}: at '{','.join(names)}' the tensor '{name}' would cross, which {why}")


def find_cuts(model: Model) -> list[CandidateCut]:
    """`input`, every single-tensor cut at a fusion border in order, `output`. Linear in the graph.

    Raises:
        ModelError: the model cannot be run on sample inputs.
    """
    return CutFinder(model).single()


def cut_at(model: Model, *names: str) -> CandidateCut:
    """The smallest downward-closed cut that produces these tensors, with all tensors that then cross.

    Raises:
        ModelError: no such tensor (near names are listed); inside a fused group (the next border is named); a tensor that
            would cross has a size that depends on data or no row axis.
    """
    return CutFinder(model).at(*names)
