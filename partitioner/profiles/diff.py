"""How two profiles of one model differ: first on what they were made, then in the times, those that matter most first.

Two middles differ beyond their spreads where they are further apart than both spreads joined as independent ones, by the
root of their squares; a spread is what lies between p50 and p90. A group's verdict takes its own spreads. An estimate has
none, so that any difference to it is beyond them: that is why it is always said what either file is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from partitioner.profiles.record import BatchTimes, Bucket, DeviceProfile, Quantiles
from shared.errors import UserError


class Condition(msgspec.Struct, frozen=True):
    """One condition that is another in the two files, in words."""

    what: str
    a: str
    b: str


class Ratio(msgspec.Struct, frozen=True):
    """One time in both files: p50 in microseconds, b as a multiple of a (None where a is 0), and the verdict."""

    what: str
    a_us: float
    b_us: float
    ratio: float | None
    beyond: bool

    @property
    def apart_us(self) -> float:
        """By how much b takes longer."""
        return self.b_us - self.a_us


class Wholes(msgspec.Struct, frozen=True):
    """One bucket at one batch size: the whole, and its groups, the largest difference first."""

    shapes: str
    batch: int
    whole: Ratio
    groups: tuple[Ratio, ...]


class Difference(msgspec.Struct, frozen=True):
    """Everything in which two profiles differ. `only` names what but one of them has. `codecs` are in nanoseconds a byte."""

    conditions: tuple[Condition, ...]
    wholes: tuple[Wholes, ...]
    codecs: tuple[Ratio, ...]
    only: tuple[str, ...]


def compare(a: DeviceProfile, b: DeviceProfile) -> Difference:
    """What differs from `a` to `b`. Raises `UserError` where they have no model in common."""
    theirs = {bucket.digest: bucket for bucket in b.buckets}
    both = [(bucket, theirs[bucket.digest]) for bucket in a.buckets if bucket.digest in theirs]
    if not both:
        raise UserError(
            f"these are profiles of different models: {a.model} ({_digests(a)}) and {b.model} ({_digests(b)}); only profiles "
            "of the same model at the same shapes can be compared"
        )
    wholes = [
        _wholes(shapes_of(mine), times, other)
        for mine, their in both
        for times in mine.batches
        if (other := their.at(times.batch)) is not None
    ]
    wholes.sort(key=lambda of: -abs(of.whole.apart_us))
    named = {codec.name: codec for codec in b.codecs}
    speeds = [
        _ratio(f"{codec.name} {what}", _exactly(mine), _exactly(their), certain=False)
        for codec in a.codecs
        if (same := named.get(codec.name)) is not None
        for what, mine, their in (
            ("encode", codec.encode_us_per_byte * 1e3, same.encode_us_per_byte * 1e3),
            ("decode", codec.decode_us_per_byte * 1e3, same.decode_us_per_byte * 1e3),
        )
    ]
    speeds.sort(key=lambda of: -abs(of.apart_us))
    return Difference(_conditions(a, b), tuple(wholes), tuple(speeds), tuple(_only(a, b)))


def shapes_of(bucket: Bucket) -> str:
    """The inputs' shapes in one line."""
    return ", ".join(f"{spec.name} {'x'.join(map(str, spec.shape)) or 'scalar'}" for spec in bucket.inputs)


def beyond_spreads(a: Quantiles, b: Quantiles) -> bool:
    """Whether two times differ by more than their spreads together."""
    return abs(b.p50_us - a.p50_us) > math.hypot(a.p90_us - a.p50_us, b.p90_us - b.p50_us)


def _wholes(shapes: str, a: BatchTimes, b: BatchTimes) -> Wholes:
    theirs = {group.name: group.time for group in b.groups}
    groups = [_ratio(g.name, g.time, theirs[g.name]) for g in a.groups if g.name in theirs]
    groups.sort(key=lambda of: -abs(of.apart_us))
    return Wholes(shapes, a.batch, _ratio("whole", a.whole, b.whole), tuple(groups))


def _ratio(what: str, a: Quantiles, b: Quantiles, *, certain: bool = True) -> Ratio:
    ratio = b.p50_us / a.p50_us if a.p50_us else None
    return Ratio(what, a.p50_us, b.p50_us, ratio, certain and beyond_spreads(a, b))


def _exactly(value: float) -> Quantiles:
    return Quantiles(value, value, value)


def _conditions(a: DeviceProfile, b: DeviceProfile) -> tuple[Condition, ...]:
    """In the order in which they matter. What the two have alike is left out."""
    mine, theirs = _stated(a), _stated(b)
    names = list(dict.fromkeys([*mine, *theirs]))
    return tuple(
        Condition(name, mine.get(name, "-"), theirs.get(name, "-"))
        for name in names
        if mine.get(name) != theirs.get(name)
    )


def _stated(profile: DeviceProfile) -> Mapping[str, str]:
    machine = profile.machine
    stated = {
        "times": f"{profile.origin.kind}: {profile.origin.how}",
        "side": profile.side,
        "device": machine.device,
        "provider": machine.provider,
        "threads": str(machine.threads),
        "pace": f"{machine.cadence_hz:g} Hz",
    }
    stated |= {name: machine.versions[name] for name in sorted(machine.versions)}
    if machine.clocks:
        stated["clocks"] = "; ".join(
            f"{c.cores} cores, {c.governor}, up to {min(c.highest_mhz, c.limit_mhz)} MHz" for c in machine.clocks
        )
    if machine.power:
        stated["power"] = ", ".join(f"{p.source} {p.watts:.1f} W" for p in machine.power)
    if profile.disturbed_share >= 0.005:
        stated["disturbed runs"] = f"{profile.disturbed_share:.0%}"
    return stated


def _only(a: DeviceProfile, b: DeviceProfile) -> list[str]:
    """What one file has and the other has not."""
    found: list[str] = []
    for name, one, other in (("A", a, b), ("B", b, a)):
        known = {bucket.digest: bucket for bucket in other.buckets}
        for bucket in one.buckets:
            shared = known.get(bucket.digest)
            if shared is None:
                found.append(f"only {name} has {shapes_of(bucket)}")
                continue
            for times in bucket.batches:
                their = shared.at(times.batch)
                if their is None:
                    found.append(f"only {name} has batch {times.batch} at {shapes_of(bucket)}")
                    continue
                extra = {g.name for g in times.groups} - {g.name for g in their.groups}
                if extra:
                    found.append(f"only {name} has {len(extra)} groups at batch {times.batch}, such as {min(extra)}")
        codecs = {codec.name for codec in one.codecs} - {codec.name for codec in other.codecs}
        if codecs:
            found.append(f"only {name} has the codings {', '.join(sorted(codecs))}")
    return found


def _digests(profile: DeviceProfile) -> str:
    return ", ".join(f"digest {bucket.digest[:12]} at {shapes_of(bucket)}" for bucket in profile.buckets)
