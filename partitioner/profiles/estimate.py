"""A profile of hardware that one does not have: the model is read and run here, its times are worked out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from partitioner.graph.cuts import CutFinder
from partitioner.graph.groups import find_groups
from partitioner.graph.recipe import Recipe, build
from partitioner.profiles.measure import batches_for
from partitioner.profiles.record import PROFILE_FORMAT, Bucket, DeviceProfile, Machine, Origin, Side
from partitioner.profiles.roofline import Roof, estimate
from partitioner.profiles.work import work_of


def estimate_profile(
    model: Path,
    side: Side,
    recipes: Sequence[Recipe],
    roof: Roof,
    device: str,
    batches: Sequence[int] | None,
) -> DeviceProfile:
    """The estimate for `device`, one bucket for each recipe. Raises `UserError` and `ModelError` as `measure` does."""
    buckets: list[Bucket] = []
    for recipe in recipes:
        made = build(recipe)
        sizes = batches_for(made, batches)
        work = work_of(find_groups(CutFinder(made)))
        buckets.append(Bucket(made.digest, made.inputs, tuple(estimate(work, roof, batch) for batch in sizes)))
    return DeviceProfile(
        format=PROFILE_FORMAT,
        side=side,
        model=model.name,
        preprocess=recipes[0].preprocess,
        postprocess=recipes[0].postprocess,
        origin=Origin("estimated", f"roofline: {roof}"),
        machine=Machine(device=device, provider="none", threads=0, cadence_hz=0.0, versions={}),
        buckets=tuple(buckets),
        codecs=(),
        disturbed_share=0.0,
        notes=("codings are not estimated",),
    )
