"""Runs the inversion check on the routes of a bundle, and puts what was found into one that lies on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from partitioner.bundle_profile import LoadedBundle, load_segments
from partitioner.calibrating.calibration import divide, load_sources
from partitioner.inversions.decoders import Sight, look
from partitioner.inversions.inversion import Inversion, check_inversion
from partitioner.planned import Planned
from partitioner.records.record import RECORD_FILE, encode_record
from partitioner.records.revision import revise_bundle
from partitioner.reports.page import render
from partitioner.running import Tensors, decode_all, encode_all
from shared.errors import InvariantBroken, UserError
from shared.plan import REPORT_FILE, Coding, Route

FIT_ROWS, JUDGED_ROWS = 64, 32


def invert_routes(
    bundle: LoadedBundle, routes: Sequence[Route], fit: Sequence[Tensors], judged: Sequence[Tensors]
) -> tuple[Inversion, ...]:
    """The check of each route that sends something other than the input, in the order of the routes. Of several inputs the
    largest is the one to be rebuilt. Raises `UserError` with too few rows."""
    sizes = [spec.nbytes() for spec in bundle.plan.inputs]
    private = sizes.index(max(sizes))
    inputs = ([row[private] for row in fit], [row[private] for row in judged])
    found: list[Inversion] = []
    for route in routes:
        if route.cut == 0:
            continue
        cut = bundle.plan.cuts[route.cut]
        coding = cut.coding(route.coding)
        if coding is None:
            raise InvariantBroken(f"a route names coding {route.coding}, which cut {cut.name} lacks")
        seen = (_seen(bundle, route.cut, coding, fit), _seen(bundle, route.cut, coding, judged))
        found.append(check_inversion(cut.name, coding.name, inputs, seen))
    return tuple(found)


def invert_plan(planned: Planned, calibration: Path, seed: int) -> Planned:
    """Check the routes of a bundle by data of the user's, and write what was found into its record and its report.

    The old bundle stays until the new one is whole. Raises `UserError` for data that cannot be used, where nothing but the
    input is ever sent, and where the bundle cannot be written.
    """
    plan = planned.plan
    if not any(route.cut for route in plan.routes):
        raise UserError(
            f"{planned.path}: no route sends a tensor from inside the model, so that there is none to invert"
        )
    sources = load_sources(calibration, plan.inputs, seed)
    data = divide(sources, plan.inputs, [1.0] * len(sources), seed, fit=FIT_ROWS, held_out=JUDGED_ROWS)
    profile = plan.profile("cloud")
    bundle = load_segments(planned.path, plan, profile.threads if profile else 1)
    found = invert_routes(bundle, plan.routes, data.fit, data.held_out)
    record = msgspec.structs.replace(planned.record, inversions=found)
    page = render(record, plan)
    revise_bundle(planned.path, {RECORD_FILE: encode_record(record), REPORT_FILE: page.encode()})
    return Planned(planned.path, plan, record)


def _seen(bundle: LoadedBundle, cut: int, coding: Coding, rows: Sequence[Tensors]) -> list[Sight]:
    """What decoders see of what the cloud gets for each row. One row's tensors are held at a time."""
    specs = bundle.plan.cuts[cut].tensors
    return [look(decode_all(encode_all(bundle.crossing(row, cut), coding), coding, specs)) for row in rows]
