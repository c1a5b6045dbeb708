"""What `headtail verify` proves, one line for each way of a plan.

For every cut and every coding the head runs here, the tail in a node, at one row and at more. The answer must be that of
the whole model where the coding is exact (the golden answers, from before it was cut, are among those), and that of the
very coding between the same two halves in one process where it is lossy. Rungs run on the executor that an edge uses, and
must be what a single process gives. Beside that a lossy coding and a cheaper rung must agree with the whole model as far as
the plan says, on rows of the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hil.references import SingleProcess
from hil.samples import Samples, golden_samples, named
from partitioner.agreement import agreement
from partitioner.extensions import open_metric
from partitioner.graph.run import difference as apart
from shared.bundle import Bundle
from shared.codecs import encode
from shared.executors.ort import load_programs
from shared.plan import Coding, Plan, SegmentRange
from shared.request import Array, Buffer
from shared.settings import Execution

__all__ = ["BATCHES", "SLACK", "TOLERANCE", "Proof", "Tails", "difference", "named", "prove_cuts", "prove_rungs"]

TOLERANCE = 1e-5
"""Largest difference that still counts as equal, relative to max(1, |value|): a few units in the last place of float32."""

SLACK = 0.02
"""Most by which an agreement may be below the plan's: other rows than those that it was measured on."""

BATCHES = (1, 2, 4)
"""Rows of the requests, as far as the plan lets them be joined."""

FEW = 4
"""Up to so many inputs, each is tried at each place of a request of several rows."""

Pair = tuple[Mapping[str, Array], Mapping[str, Array]]
"""What goes in, and the answer that ought to come out."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One way that was tried with `rows` rows a request: the largest relative difference over all `requests`.

    `cut` is the cut whose tail a node ran, None for a rung. `agreement` is that with the whole model where it was judged,
    beside which `stated` is the plan's and `slack` how far it may be below."""

    way: str
    coding: str
    rows: int
    requests: int
    difference: float
    cut: int | None = None
    agreement: float | None = None
    stated: float | None = None
    slack: float = SLACK

    @property
    def equal(self) -> bool:
        """Whether the answers are those of a single process."""
        return self.difference <= TOLERANCE

    @property
    def agrees(self) -> bool:
        """Whether it agrees with the whole model as far as the plan says, where that was judged."""
        if self.agreement is None or self.stated is None:
            return True
        return self.agreement >= self.stated - self.slack

    @property
    def holds(self) -> bool:
        """Whether the answers were what they ought to be."""
        return self.equal and self.agrees


class Tails(Protocol):
    """Whoever runs tails: `hil.asker.Asker`, or a liar in a test."""

    def ask(self, plan: Plan, cut: int, coding: str, frames: Sequence[Buffer], rows: int) -> dict[str, Array]:
        """The plan's outputs from a cut's tensors, as in `Asker.ask`."""
        ...


def prove_cuts(
    bundle: Bundle, runner: SingleProcess, tails: Tails, samples: Samples | None = None, slack: float = SLACK
) -> Iterator[Proof]:
    """Every cut in every coding, the tail in the node, on the golden vectors where no others are given. Raises
    `HeadtailError` where the node does not answer, `UserError` where the plan's metric cannot judge."""
    plan = bundle.plan
    samples = samples or golden_samples(bundle)
    for index, cut in enumerate(plan.cuts[:-1]):
        crossing = [runner.run(plan.programs[0], tensors, last=index) for tensors in samples.inputs]
        for coding in cut.codings:
            wanted = list(samples.wanted)
            if coding.lossy:
                wanted = [runner.lossy(index, coding, tensors) for tensors in samples.inputs]
            agreed, stated = None, _stated(plan, index, coding)
            if coding.lossy and stated is not None:
                agreed = _agreement(plan, samples, wanted)
            for rows in sizes(plan, len(samples.inputs)):
                proof = _prove(tails, bundle, index, coding, list(zip(crossing, wanted, strict=True)), rows)
                if rows == 1 and agreed is not None:
                    # what came back is what one process gives, or the way has failed already
                    yield Proof(
                        proof.way, coding.name, rows, proof.requests, proof.difference, index, agreed, stated, slack
                    )
                else:
                    yield proof


def prove_rungs(
    bundle: Bundle, runner: SingleProcess, threads: int, samples: Samples | None = None, slack: float = SLACK
) -> Iterator[Proof]:
    """Every rung on the edge's own executor of segments. Raises `BundleError` where it cannot be loaded, `UserError` where
    the plan's metric cannot judge."""
    plan = bundle.plan
    samples = samples or golden_samples(bundle)
    programs = load_programs(bundle, Execution(threads=threads), "edge", plan.max_batch)
    for rung in plan.ladder:
        program = plan.programs[rung.program]
        part = SegmentRange(rung.program, 0, len(program.segments))
        wanted = [runner.whole(program, tensors) for tensors in samples.inputs]
        agreed = _agreement(plan, samples, wanted) if rung.program else None
        for rows in sizes(plan, len(samples.inputs)):
            worst = 0.0
            groups = _groups(list(zip(samples.inputs, wanted, strict=True)), rows)
            for group in groups:
                inputs = {spec.name: _join([tensors[spec.name] for tensors, _ in group]) for spec in plan.inputs}
                got = named(plan.cuts[-1], programs.run(part, inputs, programs.interrupt()))
                worst = max(worst, difference(_joined(plan, group), got))
            judged = agreed if rows == 1 else None
            stated = rung.agreement if judged is not None else None
            yield Proof(f"rung {rung.name}", "", rows, len(groups), worst, None, judged, stated, slack)


def sizes(plan: Plan, known: int) -> tuple[int, ...]:
    """Rows of the requests that are tried: one row, and several different ones joined."""
    return tuple(rows for rows in BATCHES if rows == 1 or (rows <= plan.max_batch and known > 1))


def _stated(plan: Plan, index: int, coding: Coding) -> float | None:
    """What the plan says of a coding's agreement; None where no route of it has the coding."""
    return next((r.agreement for r in plan.routes if (r.cut, r.coding) == (index, coding.name)), None)


def _agreement(plan: Plan, samples: Samples, answers: Sequence[Mapping[str, Array]]) -> float | None:
    """Agreement of answers with the whole model's on the user's rows, by the plan's metric; None without enough of them."""
    if not samples.judged:
        return None
    first = len(samples.inputs) - samples.given
    return agreement(open_metric(plan.metric), list(samples.wanted[first:]), list(answers[first:]))


def difference(wanted: Mapping[str, Array], got: Mapping[str, Array]) -> float:
    """The largest |wanted - got| relative to max(1, |wanted|) over all outputs; infinite where names, shapes or types
    differ. NaN equals NaN."""
    if wanted.keys() != got.keys():
        return float("inf")
    return max((apart(wanted[name], got[name]) for name in wanted), default=0.0)


def _prove(
    tails: Tails,
    bundle: Bundle,
    index: int,
    coding: Coding,
    pairs: Sequence[Pair],
    rows: int,
) -> Proof:
    plan = bundle.plan
    cut = plan.cuts[index]
    worst = 0.0
    groups = _groups(pairs, rows)
    for group in groups:
        joined = [_join([crossing[spec.name] for crossing, _ in group]) for spec in cut.tensors]
        frames = [encode(array, coding, number) for number, array in enumerate(joined)]
        got = tails.ask(plan, index, coding.name, frames, rows)
        worst = max(worst, difference(_joined(plan, group), got))
    return Proof(f"cut {index} {cut.name}", coding.name, rows, len(groups), worst, index)


def _groups(pairs: Sequence[Pair], rows: int) -> list[list[Pair]]:
    """Requests of so many rows: each pair at each place of one where they are few, else each pair once."""
    starts = range(0, len(pairs), 1 if len(pairs) <= FEW else rows)
    return [[pairs[(start + i) % len(pairs)] for i in range(rows)] for start in starts]


def _joined(plan: Plan, group: Sequence[Pair]) -> dict[str, Array]:
    return {spec.name: _join([answer[spec.name] for _, answer in group]) for spec in plan.outputs}


def _join(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
