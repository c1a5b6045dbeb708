"""The proof that a written bundle gives the whole model's answers, before it is published.

For every cut and every coding, on real inputs, at one row and more: head, coding and tail of the bundle's own files
against the model as it was before it was cut. Exact codings must give the same numbers up to rounding; lossy ones must
have the agreement on held-out data that the plan states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from partitioner.bundle_profile import LoadedBundle
from partitioner.graph.run import difference
from partitioner.running import Tensors, decode_all, encode_all, join_rows, run_chain
from partitioner.study import Study
from shared.errors import ModelError
from shared.plan import Coding

TOLERANCE = 1e-5
"""Largest difference of an exact way's answers, relative to max(1, |value|)."""
AGREEMENT_TOLERANCE = 0.02
"""Most by which a lossy way of the bundle may agree less than was measured when it was weighed."""
ROWS = 8
BATCH = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was proven. `value` is the largest relative difference, or the agreement of a lossy coding."""

    cut: str
    coding: str
    rows: int
    value: float


def verify_local(study: Study, bundle: LoadedBundle) -> list[Check]:
    """Prove every cut, coding and rung. Raises `ModelError` that names the first that does not hold."""
    plan = bundle.plan
    rows = study.data.held_out[:ROWS]
    checks: list[Check] = []
    for index, cut in enumerate(plan.cuts[:-1]):
        for coding in cut.codings:
            if coding.lossy:
                checks.append(_lossy(study, bundle, index, coding))
                continue
            checks.append(
                Check(cut.name, coding.name, 1, _exact(study, bundle, index, coding, [[row] for row in rows]))
            )
            if plan.max_batch > 1:
                groups = [[rows[(start + i) % len(rows)] for i in range(BATCH)] for start in range(2)]
                checks.append(Check(cut.name, coding.name, BATCH, _exact(study, bundle, index, coding, groups)))
    for number, program in enumerate(plan.programs[1:], start=1):
        checks.append(_rung(study, bundle, number, program.name))
    return checks


def _exact(
    study: Study, bundle: LoadedBundle, index: int, coding: Coding, groups: Sequence[Sequence[Tensors]]
) -> float:
    worst = 0.0
    for group in groups:
        joined = join_rows(group) if len(group) > 1 else group[0]
        got = _through(bundle, index, coding, joined, len(group))
        wanted = join_rows([study.whole(row) for row in group]) if len(group) > 1 else study.whole(group[0])
        worst = max(worst, _largest(wanted, got))
    if worst > TOLERANCE:
        name = bundle.plan.cuts[index].name
        raise ModelError(
            f"cut {name!r} as {coding.name}: head and tail differ from the whole model by {worst:.2e} at {len(groups[0])} "
            f"rows, more than {TOLERANCE:g}"
        )
    return worst


def _lossy(study: Study, bundle: LoadedBundle, index: int, coding: Coding) -> Check:
    cut = bundle.plan.cuts[index]
    stated = next((r.agreement for r in bundle.plan.routes if r.cut == index and r.coding == coding.name), 0.0)
    answers = [_through(bundle, index, coding, row, 1) for row in study.data.held_out]
    agreement = study.agreement_of(answers)
    if agreement < stated - AGREEMENT_TOLERANCE:
        raise ModelError(
            f"cut {cut.name!r} as {coding.name}: agreement {agreement:.3f}, {stated:.3f} was measured before"
        )
    return Check(cut.name, coding.name, 1, agreement)


def _rung(study: Study, bundle: LoadedBundle, number: int, name: str) -> Check:
    rung = bundle.plan.rung_of(number)
    stated = rung.agreement if rung else 0.0
    agreement = study.agreement_of([run_chain(bundle.programs[number], row) for row in study.data.held_out])
    if agreement < stated - AGREEMENT_TOLERANCE:
        raise ModelError(f"rung {name!r}: agreement {agreement:.3f}, {stated:.3f} was measured before")
    return Check(f"rung {name}", "", 1, agreement)


def _through(bundle: LoadedBundle, index: int, coding: Coding, tensors: Tensors, rows: int) -> Tensors:
    """Head, coding and tail of the bundle's own files."""
    frames = encode_all(bundle.crossing(tensors, index), coding)
    decoded = decode_all(frames, coding, bundle.plan.cuts[index].tensors, rows)
    return run_chain(bundle.programs[0][index:], decoded)


def _largest(wanted: Tensors, got: Tensors) -> float:
    return max(difference(a, b) for a, b in zip(wanted, got, strict=True))
