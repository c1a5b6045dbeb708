"""The two sides of a plan from what its options name: profile files, or a stated factor."""

from __future__ import annotations

from pathlib import Path

from partitioner.costs.sides import Known, Side, Sides
from partitioner.graph.groups import Groups
from partitioner.options import PlanOptions
from partitioner.profiles.file import load_profile
from partitioner.records.record import Source
from shared.errors import UserError


def open_sides(options: PlanOptions, groups: Groups) -> Sides:
    """Both sides of a plan for the model with these groups. Raises `UserError` that names the file for one that cannot be
    read, is of another model or of other shapes, or has no times at one row."""
    return Sides(
        Side(slowdown=options.edge_slowdown) if options.edge is None else _open(options.edge, groups),
        Side() if options.cloud is None else _open(options.cloud, groups),
    )


def doubts_of(options: PlanOptions, sides: Sides) -> list[str]:
    """What a reader should know of the profiles, in plain words."""
    found: list[str] = []
    for name, side in (("device", sides.edge), ("cloud", sides.cloud)):
        known, source = side.known, side.source
        if known is None:
            continue
        if source.kind != "measured":
            found.append(
                f"the times of the {name} were not measured there: {source.file} is {source.kind} ({source.how})"
            )
        elif known.cadence_hz != options.cadence_hz or known.threads != options.threads:
            found.append(
                f"{source.file} was measured at {known.cadence_hz:g} requests a second with threads: {known.threads}; the "
                f"plan is for {options.cadence_hz:g} with threads: {options.threads}"
            )
    return found


def _open(path: Path, groups: Groups) -> Side:
    profile = load_profile(path)
    try:
        known = Known.of(profile, groups)
    except UserError as reason:
        raise UserError(f"{path}: {reason}") from None
    if known.whole_us <= 0.0:
        raise UserError(f"{path}: the whole model takes no time in it: measure the profile again")
    return Side(Source(profile.origin.kind, path.name, profile.machine.device, profile.origin.how), 1.0, known)
