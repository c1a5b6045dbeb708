"""Makes the record of a plan from what was found while it was made."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from partitioner.agreement import describe
from partitioner.costs.conditions import Conditions
from partitioner.costs.machine import device_name, library_version
from partitioner.inversions.inversion import Inversion
from partitioner.records.record import RECORD_FORMAT, Data, Machine, Proven, Record, Way
from partitioner.study import Study
from partitioner.verify_local import Check
from partitioner.weigh import Weighing
from shared.plan import Plan

PACKAGES = ("headtail", "onnx", "onnxruntime", "numpy", "simplejpeg", "zstandard", "qoi")


def record_of(
    study: Study,
    weighing: Weighing,
    plan: Plan,
    checks: Sequence[Check],
    inversions: tuple[Inversion, ...],
    seconds: float,
) -> Record:
    """Everything that the plan's choice rests on. `seconds` is how long it took so far."""
    options = study.options
    candidates = weighing.candidates
    return Record(
        format=RECORD_FORMAT,
        name=plan.name,
        asked=Conditions(options.link, options.edge_slowdown, options.deadline_ns, options.min_agreement),
        cadence_hz=options.cadence_hz,
        forced=tuple(dict.fromkeys(cut.name for cut in study.forced)),
        metric=study.metric,
        metric_means=describe(study.metric),
        data=Data(
            label=study.data.label,
            real=study.data.real,
            rows_fitted=len(study.data.fit),
            rows_judged=len(study.data.held_out),
            findings=study.found,
        ),
        ways=tuple(
            Way.of(way, options.edge_slowdown, None if (way.head, way.tail) == (before.head, before.tail) else before)
            for way, before in zip(candidates, weighing.weighed or candidates, strict=True)
        ),
        best=None if weighing.best is None else candidates.index(weighing.best),
        routes=tuple(candidates.index(route) for route in weighing.routes),
        rungs=tuple(candidates.index(rung) for rung in weighing.rungs),
        notes=weighing.notes,
        proofs=tuple(_proven(plan, check) for check in checks),
        machine=Machine(
            processor=device_name(),
            system=platform.platform(),
            python=platform.python_version(),
            packages={name: library_version(name) for name in PACKAGES},
        ),
        threads=options.threads,
        seed=options.seed,
        quick=options.quick,
        seconds=round(seconds, 1),
        edge=study.sides.edge.source,
        cloud=study.sides.cloud.source,
        insured_only=bool(study.pins.cloud),
        objective=study.objective,
        regret=weighing.regret,
        inversions=inversions,
    )


def _proven(plan: Plan, check: Check) -> Proven:
    """A check is exact where its cut and its coding are: what a rung answers never is."""
    cut = next((cut for cut in plan.cuts if cut.name == check.cut), None)
    coding = cut.coding(check.coding) if cut else None
    return Proven(check.cut, check.coding, check.rows, coding is not None and not coding.lossy, check.value)
