"""What `headtail verify` proves, one line for each way of a plan.

For every cut and every coding the head runs here, the tail in a node, and the answer must be that of a single process: the
golden answers of the model as it was before it was cut where the coding is exact, and the very coding between the same
two halves where it is lossy. Rungs run on the executor that an edge uses, and must be what a single process gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hil.references import SingleProcess
from partitioner.graph.run import difference as apart
from shared.bundle import Bundle
from shared.codecs import encode
from shared.executors.ort import load_programs
from shared.plan import Coding, Cut, Plan, SegmentRange
from shared.request import Array, Buffer
from shared.settings import Execution

TOLERANCE = 1e-5
"""Largest difference that still counts as equal, relative to max(1, |value|): a few units in the last place of float32."""

BATCH = 2
"""Rows of the joined requests, where rows may be joined."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One way that was tried with `rows` rows a request: the largest relative difference over all `requests`.

    `cut` is the cut whose tail a node ran, None for a rung."""

    way: str
    coding: str
    rows: int
    requests: int
    difference: float
    cut: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the answers were equal."""
        return self.difference <= TOLERANCE


class Tails(Protocol):
    """Whoever runs tails: `hil.asker.Asker`, or a liar in a test."""

    def ask(self, plan: Plan, cut: int, coding: str, frames: Sequence[Buffer], rows: int) -> dict[str, Array]:
        """The plan's outputs from a cut's tensors, as in `Asker.ask`."""
        ...


def prove_cuts(bundle: Bundle, runner: SingleProcess, tails: Tails) -> Iterator[Proof]:
    """Every cut in every coding, the tail in the node. Raises `HeadtailError` where the node does not answer."""
    plan = bundle.plan
    golden = bundle.golden()
    inputs = [named(plan.cuts[0], one.inputs) for one in golden]
    for index, cut in enumerate(plan.cuts[:-1]):
        crossing = [runner.run(plan.programs[0], tensors, last=index) for tensors in inputs]
        for coding in cut.codings:
            if coding.lossy:
                wanted = [runner.lossy(index, coding, tensors) for tensors in inputs]
            else:
                wanted = [named(plan.cuts[-1], one.outputs) for one in golden]
            for rows in (1, BATCH) if plan.max_batch >= BATCH and len(golden) >= BATCH else (1,):
                yield _prove(tails, bundle, index, coding, list(zip(crossing, wanted, strict=True)), rows)


def prove_rungs(bundle: Bundle, runner: SingleProcess, threads: int) -> Iterator[Proof]:
    """Every rung on the edge's own executor of segments. Raises `BundleError` where it cannot be loaded."""
    plan = bundle.plan
    programs = load_programs(bundle, Execution(threads=threads), "edge", plan.max_batch)
    inputs = [named(plan.cuts[0], one.inputs) for one in bundle.golden()]
    for rung in plan.ladder:
        program = plan.programs[rung.program]
        part = SegmentRange(rung.program, 0, len(program.segments))
        worst = 0.0
        for tensors in inputs:
            got = named(plan.cuts[-1], programs.run(part, tensors, programs.interrupt()))
            worst = max(worst, difference(runner.whole(program, tensors), got))
        yield Proof(f"rung {rung.name}", "", 1, len(inputs), worst)


def difference(wanted: Mapping[str, Array], got: Mapping[str, Array]) -> float:
    """The largest |wanted - got| relative to max(1, |wanted|) over all outputs; infinite where names, shapes or types
    differ. NaN equals NaN."""
    if wanted.keys() != got.keys():
        return float("inf")
    return max((apart(wanted[name], got[name]) for name in wanted), default=0.0)


def named(cut: Cut, arrays: Sequence[Array]) -> dict[str, Array]:
    """A cut's tensors by name."""
    return {spec.name: array for spec, array in zip(cut.tensors, arrays, strict=True)}


def _prove(
    tails: Tails,
    bundle: Bundle,
    index: int,
    coding: Coding,
    pairs: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    rows: int,
) -> Proof:
    plan = bundle.plan
    cut = plan.cuts[index]
    worst = 0.0
    groups = [[pairs[(start + i) % len(pairs)] for i in range(rows)] for start in range(len(pairs))]
    for group in groups:
        joined = [_join([crossing[spec.name] for crossing, _ in group]) for spec in cut.tensors]
        frames = [encode(array, coding, number) for number, array in enumerate(joined)]
        got = tails.ask(plan, index, coding.name, frames, rows)
        wanted = {spec.name: _join([answer[spec.name] for _, answer in group]) for spec in plan.outputs}
        worst = max(worst, difference(wanted, got))
    return Proof(f"cut {index} {cut.name}", coding.name, rows, len(groups), worst, index)


def _join(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
