"""Cuts a model wherever it may be cut, and holds head and tail against the whole.

Every cut that one tensor crosses is tried, and as many again as are asked for that several cross, drawn from a seed. Each is
split, both parts are loaded, and inputs such as the model is meant for go through head and tail and through the whole.
Without optimisation both do the same arithmetic in the same order, so that every answer must be the same bit for bit:
that proves the cutting. With optimisation the runtime joins other operators at a border than it does in the whole, and sums
are rounded elsewhere; that may move an answer by a bounded number of steps (`LIMITS_ULPS`). A cut that fails is excluded, and
listed with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from partitioner.graph.cuts import CandidateCut, CutFinder
from partitioner.graph.model import Model
from partitioner.graph.run import Tensors, run_session
from partitioner.graph.runtime import Optimisation, Session, open_session
from partitioner.graph.sampling import sample_cuts
from partitioner.graph.split import Splitter
from partitioner.graph.ulps import ulps_apart
from shared.errors import HeadtailError

Progress = Callable[[str], None]

LIMITS_ULPS: Mapping[str, float] = {"float32": 512.0, "float16": 8.0, "quantised": 0.0}
"""How far an optimised answer may be moved, by the type of the output, in steps of `ulps_apart`; `quantised` holds for all
outputs of a graph that quantises inside. The most that was seen of cuts that are right is 339 in 32 bits, which is less than
what optimising the whole moves the same kind of answers (848), 4 in 16 bits, and nothing in a quantised graph, where a moved
rounding would be a whole quantum."""

LEVELS: tuple[Optimisation, Optimisation] = ("none", "all")


class Excluded(msgspec.Struct, frozen=True):
    """A cut that must not be used: the values by which it was found, the tensors that would cross, and why."""

    name: str
    tensors: int
    reason: str


class Swept(msgspec.Struct, frozen=True):
    """What cutting one model everywhere came to.

    `single` and `many` are the cuts that were tried, `not_allowed` the draws that the finder itself refused. `bit_equal` of
    them gave the very same without optimisation, `bit_equal_optimised` with it. `worst_ulps` is the largest difference
    with it among the cuts that stand, `own_ulps` that between the whole with and without: what the runtime allows itself.
    """

    model: str
    nodes: int
    quantised: bool
    single: int
    many: int
    not_allowed: int
    bit_equal: int
    bit_equal_optimised: int
    worst_ulps: float
    own_ulps: float
    excluded: tuple[Excluded, ...]
    seconds: float


class Whole:
    """A model loaded with and without optimisation, and its answers to some inputs.

    Raises:
        ModelError: the model cannot be loaded or run.
    """

    def __init__(self, model: Model, inputs: Sequence[Tensors]) -> None:
        self.model = model
        self.inputs = tuple(inputs)
        self.quantised = any("Quant" in n.op_type or "Integer" in n.op_type for n in model.proto.graph.node)
        self.answers = {level: _answers(model, open_session(model, optimisation=level), inputs) for level in LEVELS}
        self._splitter = Splitter(model)

    def own_ulps(self) -> float:
        """How far optimising alone moves the answers."""
        return _worst(self.answers["none"], self.answers["all"])

    def apart(self, cut: CandidateCut) -> tuple[float, float, str]:
        """How far head and tail are from the whole, without and with optimisation, and the reason to exclude the cut, or
        nothing. An infinite distance where they cannot be run."""
        found = {level: float("inf") for level in LEVELS}
        for level in LEVELS:
            try:
                got = self._through(cut, level)
            except HeadtailError as error:
                return found["none"], found["all"], str(error)
            found[level] = _worst(self.answers[level], got)
            if not self._within(level, got):
                how = "unoptimised" if level == "none" else "optimised"
                return found["none"], found["all"], f"{how}, head and tail are {found[level]:.3g} steps from the whole"
        return found["none"], found["all"], ""

    def _through(self, cut: CandidateCut, level: Optimisation) -> list[Tensors]:
        parts = self._splitter.split([cut]).parts
        values = self.inputs
        for part in parts:
            session = open_session(part, optimisation=level)
            values = tuple(_answers(part, session, values))
        return list(values)

    def _within(self, level: Optimisation, got: Sequence[Tensors]) -> bool:
        return all(
            ulps_apart(array, answer[name]) <= (0.0 if level == "none" else self._limit(array.dtype.name))
            for wanted, answer in zip(self.answers[level], got, strict=True)
            for name, array in wanted.items()
        )

    def _limit(self, dtype: str) -> float:
        return LIMITS_ULPS["quantised"] if self.quantised else LIMITS_ULPS.get(dtype, 0.0)


def _answers(model: Model, session: Session, inputs: Sequence[Tensors]) -> list[Tensors]:
    names = [spec.name for spec in model.outputs]
    return [run_session(session, model.name, names, {s.name: row[s.name] for s in model.inputs}) for row in inputs]


def _worst(wanted: Sequence[Tensors], got: Sequence[Tensors]) -> float:
    return max(ulps_apart(a[name], b[name]) for a, b in zip(wanted, got, strict=True) for name in a)


def sweep(
    name: str, model: Model, inputs: Sequence[Tensors], many: int, seed: int, progress: Progress = lambda _: None
) -> Swept:
    """Try every single-tensor cut and up to `many` drawn ones of a model in its normal form.

    Raises:
        ModelError: the whole model cannot be loaded or run on these inputs.
    """
    began = time.monotonic()
    progress(f"{name}: finding cuts")
    finder = CutFinder(model)
    single = finder.single()[1:-1]
    drawn, not_allowed = sample_cuts(finder, np.random.default_rng(seed), many)
    whole = Whole(model, inputs)
    equal, equal_optimised, worst = 0, 0, 0.0
    excluded: list[Excluded] = []
    for number, cut in enumerate(_all(single, drawn), start=1):
        progress(f"{name}: cut {number} of {len(single) + len(drawn)}")
        plain, optimised, reason = whole.apart(cut)
        equal += plain == 0
        equal_optimised += optimised == 0
        if reason:
            excluded.append(Excluded(cut.name, len(cut.tensors), reason))
        else:
            worst = max(worst, optimised)
    return Swept(
        model=name,
        nodes=len(model.proto.graph.node),
        quantised=whole.quantised,
        single=len(single),
        many=len(drawn),
        not_allowed=len(not_allowed),
        bit_equal=equal,
        bit_equal_optimised=equal_optimised,
        worst_ulps=worst,
        own_ulps=whole.own_ulps(),
        excluded=tuple(excluded),
        seconds=time.monotonic() - began,
    )


def _all(*groups: Sequence[CandidateCut]) -> Iterator[CandidateCut]:
    for group in groups:
        yield from group
