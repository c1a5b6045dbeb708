"""Inputs by which a plan is proven: the golden vectors of its bundle, and rows of the user's where they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hil.references import SingleProcess
from partitioner.calibrating.calibration import load_sources, probe_rows
from shared.bundle import Bundle
from shared.plan import Cut
from shared.request import Array

MOST_ROWS = 48
"""Rows of the user's that are used: each runs once for every cut and coding."""
LEAST_JUDGED = 8
"""With fewer rows of the user's an agreement says too little to hold it against the plan's."""

Tensors = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Samples:
    """Rows with the whole model's answers to them, the golden ones first. `label` says what they are; `given` counts those of
    the user's, and `judged` is whether they are enough to judge an agreement by."""

    inputs: tuple[Tensors, ...]
    wanted: tuple[Tensors, ...]
    given: int
    label: str

    @property
    def judged(self) -> bool:
        """Whether an agreement is held against the plan's."""
        return self.given >= LEAST_JUDGED


def golden_samples(bundle: Bundle) -> Samples:
    """The golden vectors alone. Raises `BundleError` where they do not fit the plan."""
    plan, golden = bundle.plan, bundle.golden()
    inputs = tuple(named(plan.cuts[0], one.inputs) for one in golden)
    return Samples(
        inputs, tuple(named(plan.cuts[-1], one.outputs) for one in golden), 0, f"{len(golden)} golden vectors"
    )


def samples_of(bundle: Bundle, runner: SingleProcess, calibration: Path | None, seed: int = 0) -> Samples:
    """The golden vectors and, where a source of rows is named (`partitioner.calibrating.calibration.load_sources`), up to
    `MOST_ROWS` of them, with the answers of the whole model in one process. Raises `UserError` for a source that does not
    fit the plan."""
    golden = golden_samples(bundle)
    if calibration is None:
        return golden
    plan = bundle.plan
    sources = load_sources(calibration, plan.inputs, seed)
    crops = max(1, -(-LEAST_JUDGED * 2 // max(1, len(sources))))
    rows = [row for probes in probe_rows(sources, plan.inputs, seed, crops) for row in probes][:MOST_ROWS]
    inputs = tuple(named(plan.cuts[0], row) for row in rows)
    wanted = tuple(runner.whole(plan.programs[0], tensors) for tensors in inputs)
    label = f"{golden.label} and {len(rows)} rows of {sources.label}"
    return Samples((*golden.inputs, *inputs), (*golden.wanted, *wanted), len(rows), label)


def named(cut: Cut, arrays: Sequence[Array]) -> dict[str, Array]:
    """A cut's tensors by name."""
    return {spec.name: array for spec, array in zip(cut.tensors, arrays, strict=True)}
