"""Times made to fit: groups to the whole that was measured, and a machine's profile to one that is slower or faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from partitioner.profiles.record import (
    BatchTimes,
    CodecSpeed,
    DeviceProfile,
    GroupTime,
    OperatorKind,
    Origin,
    Quantiles,
)
from shared.errors import UserError

MAX_FACTOR = 1000.0
LEAST_US = 1e-9
"""What is less than this is nothing, by which nothing can be divided."""


def to_whole(groups: Sequence[Quantiles], whole_us: float) -> tuple[Quantiles, ...]:
    """The groups scaled alike, so that their p50 add up to `whole_us`. Where all are nothing, each gets an equal part."""
    total_us = sum(group.p50_us for group in groups)
    if total_us < LEAST_US:
        part_us = whole_us / len(groups)
        return tuple(Quantiles(part_us, part_us, part_us) for _ in groups)
    return tuple(group.times(whole_us / total_us) for group in groups)


def scaled(
    profile: DeviceProfile, source: str, by: float, of_kind: Mapping[OperatorKind, float] | None = None
) -> DeviceProfile:
    """The profile of a machine on which everything takes `by` times as long, groups of some kinds `of_kind` times instead.

    `source` names the file that was scaled. The whole takes as long as its groups together, its p90 and p99 grow as its
    middle does, codings take `by` times as long. Clocks and power were those of the machine that measured, and are dropped.
    Raises `UserError` for a factor that is not above 0 and at most 1000.
    """
    factors: dict[OperatorKind, float] = {"conv": by, "matmul": by, "other": by, **(of_kind or {})}
    for factor in (by, *factors.values()):
        if not 0.0 < factor <= MAX_FACTOR:
            raise UserError(f"factor {factor:g}: expected more than 0 and at most {MAX_FACTOR:g}")
    told = f"{source} x {by:g}"
    told += "".join(f", {kind} x {factor:g}" for kind, factor in (of_kind or {}).items())
    if not profile.measured:
        told += f" ({profile.origin.kind}: {profile.origin.how})"
    replace = msgspec.structs.replace
    return replace(
        profile,
        origin=Origin("estimated" if profile.origin.kind == "estimated" else "scaled", told),
        machine=replace(profile.machine, clocks=(), power=()),
        buckets=tuple(
            replace(bucket, batches=tuple(_batch(times, factors) for times in bucket.batches))
            for bucket in profile.buckets
        ),
        codecs=tuple(_codec(codec, by) for codec in profile.codecs),
    )


def _batch(times: BatchTimes, factors: Mapping[OperatorKind, float]) -> BatchTimes:
    groups = tuple(GroupTime(g.name, g.kind, g.time.times(factors[g.kind])) for g in times.groups)
    middle_us = sum(group.time.p50_us for group in groups)
    factor = middle_us / times.whole.p50_us if times.whole.p50_us else 1.0
    return msgspec.structs.replace(times, groups=groups, whole=times.whole.times(factor))


def _codec(codec: CodecSpeed, by: float) -> CodecSpeed:
    return msgspec.structs.replace(
        codec, encode_us_per_byte=codec.encode_us_per_byte * by, decode_us_per_byte=codec.decode_us_per_byte * by
    )
