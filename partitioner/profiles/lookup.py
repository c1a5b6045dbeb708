"""What a planner asks of a profile: is it of this model, how long does the whole take, and each group?"""

from __future__ import annotations

from collections.abc import Mapping

from partitioner.graph.groups import Groups
from partitioner.profiles.record import BatchTimes, Bucket, DeviceProfile
from shared.errors import UserError


def check_same_model(profile: DeviceProfile, digest: str) -> Bucket:
    """The bucket of the model of this digest (`Model.digest` of its normal form, pre- and post-processing included).

    Raises `UserError` where the profile is of another model, or of other shapes or processing of the same one.
    """
    for bucket in profile.buckets:
        if bucket.digest == digest:
            return bucket
    made = "; ".join(_shapes(bucket) for bucket in profile.buckets)
    raise UserError(
        f"the profile is of another model: it was made of {profile.model} at {made} with --preprocess {profile.preprocess} "
        f"and --postprocess {profile.postprocess} ({_short(profile.buckets[0].digest)}), this model is {_short(digest)}; "
        f"another onnxruntime may also give one model another normal form: the profile's was {_runtime(profile)}"
    )


def whole_us(profile: DeviceProfile, batch: int = 1, digest: str | None = None) -> float:
    """The middle time of the whole model in microseconds at this batch size. `digest` picks the bucket where there are
    several. Raises `UserError` where the profile has no such time."""
    if digest is None:
        if len(profile.buckets) != 1:
            raise UserError(
                f"the profile of {profile.model} has {len(profile.buckets)} sets of shapes: say which is meant"
            )
        digest = profile.buckets[0].digest
    return _at(profile, check_same_model(profile, digest), batch).whole.p50_us


def times_for(profile: DeviceProfile, groups: Groups, batch: int = 1) -> dict[int, float]:
    """The middle time of each group of a model in microseconds, by its index; they add up to the whole's.

    Raises `UserError` where the profile is of another model, has no times at this batch size, or divides the model into other
    groups, as another version of the runtime may.
    """
    times = _at(profile, check_same_model(profile, groups.finder.model.digest), batch)
    names = {groups.name_of(index): index for index in range(len(groups.nodes))}
    return {names[name]: time_us for name, time_us in by_name(profile, times, names).items()}


def by_name(profile: DeviceProfile, times: BatchTimes, names: Mapping[str, int]) -> dict[str, float]:
    """Microseconds of the groups of these names. Raises `UserError` where the profile has others."""
    found = {group.name: group.time.p50_us for group in times.groups}
    if found.keys() != names.keys():
        odd = sorted(found.keys() ^ names.keys())
        raise UserError(
            f"the profile of {profile.model} divides it into other groups than are found here, {odd[0]!r} among them: it was "
            f"made with onnxruntime {_runtime(profile)}; measure it again with the version in use here"
        )
    return found


def _at(profile: DeviceProfile, bucket: Bucket, batch: int) -> BatchTimes:
    times = bucket.at(batch)
    if times is None:
        known = ", ".join(str(t.batch) for t in bucket.batches)
        raise UserError(f"the profile of {profile.model} has no times at batch {batch}, only at {known}")
    return times


def _shapes(bucket: Bucket) -> str:
    return ", ".join(f"{spec.name}={','.join(map(str, spec.shape))}" for spec in bucket.inputs)


def _runtime(profile: DeviceProfile) -> str:
    return profile.machine.versions.get("onnxruntime", "not told")


def _short(digest: str) -> str:
    return f"digest {digest[:12]}"
