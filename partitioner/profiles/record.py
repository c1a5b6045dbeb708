"""What a profile file holds, as data, and its bytes.

A file is of one machine and one model, at one or several shapes (*buckets*). A bucket carries the digest of the model's
normal form at its shapes, so that times are never applied to another model. Where the times come from is stated in `origin`
and must be shown wherever they are: measured ones, measured ones that were scaled, and estimates are three different things.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from shared.bundle import UNREADABLE
from shared.errors import UserError
from shared.plan import CodingKind
from shared.request import TensorSpec

PROFILE_FORMAT = 1
SUFFIX = ".profile"

Side = Literal["edge", "cloud"]
OperatorKind = Literal["conv", "matmul", "other"]
Time = Annotated[float, msgspec.Meta(ge=0.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class Quantiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Microseconds: the middle, and what 90 and 99 of a hundred runs did not exceed. With fewer than a hundred runs the last
    is about the slowest."""

    p50_us: Time
    p90_us: Time
    p99_us: Time

    def times(self, factor: float) -> Quantiles:
        """Each of them `factor` times as long."""
        return Quantiles(self.p50_us * factor, self.p90_us * factor, self.p99_us * factor)


class GroupTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group of operators, by the name of `Groups.name_of`; `kind` is that of the operators that compute most in it."""

    name: str
    kind: OperatorKind
    time: Quantiles


class BatchTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole model at `batch` rows and its groups, whose p50 add up to the whole's.

    `runs` is how often the whole ran (0 in an estimate) and `stable` whether both halves of these had the same middle.
    `guessed_share` is the part of the kernels' time that belongs to no group as far as is known and was charged to all in
    proportion; `kernels_share` is the kernels' time as a part of the whole's, as it was before it was scaled to that (0 in an
    estimate).
    """

    batch: AtLeastOne
    whole: Quantiles
    groups: tuple[GroupTime, ...]
    runs: Count
    stable: bool
    guessed_share: Share
    kernels_share: Time


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times at one set of shapes. `inputs` are at one row; `digest` names the model's normal form at these shapes."""

    digest: str
    inputs: tuple[TensorSpec, ...]
    batches: tuple[BatchTimes, ...]

    def at(self, batch: int) -> BatchTimes | None:
        """The times at this batch size, None where there are none."""
        return next((times for times in self.batches if times.batch == batch), None)


class CodecSpeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Microseconds a byte of the raw tensor that one coding takes, measured on a tensor of `nbytes` raw bytes."""

    name: str
    kind: CodingKind
    encode_us_per_byte: Time
    decode_us_per_byte: Time
    nbytes: AtLeastOne


class Clock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cores of one kind and their frequencies in MHz; None is what the system does not tell."""

    cores: AtLeastOne
    governor: str
    highest_mhz: Count
    limit_mhz: Count
    now_mhz: Count | None


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mean power of one source while the profile was measured, pauses included, in watts."""

    source: str
    watts: Time


class Machine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured on, or is meant. `versions` by name. In an estimate there are neither versions, clocks nor power."""

    device: str
    provider: str
    threads: Count
    cadence_hz: Time
    versions: dict[str, str]
    clocks: tuple[Clock, ...] = ()
    power: tuple[Power, ...] = ()


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the times come from; `how` says it in words, with the figures that were used."""

    kind: Literal["measured", "scaled", "estimated"]
    how: str


class DeviceProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a profile file. `model` is the name of the model's file, `preprocess` and `postprocess` are as in
    `partitioner.graph.recipe`. `disturbed_share` is the part of the runs in which another process took the processor."""

    format: int
    side: Side
    model: str
    preprocess: str
    postprocess: str
    origin: Origin
    machine: Machine
    buckets: tuple[Bucket, ...]
    codecs: tuple[CodecSpeed, ...]
    disturbed_share: Share
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the times are measurements of the machine that it names."""
        return self.origin.kind == "measured"


class _FormatOnly(msgspec.Struct, frozen=True):
    format: int


def encode_profile(profile: DeviceProfile) -> bytes:
    """The bytes of a profile file: JSON."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"


def decode_profile(text: bytes, where: str) -> DeviceProfile:
    """The profile of these bytes. Raises `UserError` that begins with `where` for one of another format or a damaged one."""
    try:
        stated = msgspec.json.decode(text, type=_FormatOnly).format
    except UNREADABLE as reason:
        raise UserError(f"{where}: not a profile, or a damaged one: {reason}") from None
    if stated != PROFILE_FORMAT:
        raise UserError(
            f"{where}: a profile of format {stated}, this version reads format {PROFILE_FORMAT}: measure it again"
        )
    try:
        profile = msgspec.json.decode(text, type=DeviceProfile)
    except UNREADABLE as reason:
        raise UserError(f"{where}: a damaged profile: {reason}") from None
    fault = _fault(profile)
    if fault:
        raise UserError(f"{where}: a damaged profile: {fault}")
    return profile


def _fault(profile: DeviceProfile) -> str:
    """What the types do not say; empty where nothing is wrong."""
    if not profile.buckets:
        return "it holds no times"
    digests = [bucket.digest for bucket in profile.buckets]
    if len(set(digests)) < len(digests):
        return "two buckets are of one model"
    for bucket in profile.buckets:
        batches = [times.batch for times in bucket.batches]
        if not batches or len(set(batches)) < len(batches):
            return "a bucket has no batch size, or one twice"
        for times in bucket.batches:
            names = [group.name for group in times.groups]
            if not names or len(set(names)) < len(names):
                return f"at batch {times.batch} it has no group, or one twice"
            spread = (times.whole, *(group.time for group in times.groups))
            if any(not q.p50_us <= q.p90_us <= q.p99_us < math.inf for q in spread):
                return f"at batch {times.batch} quantiles fall, or are no numbers"
            if not math.isclose(
                sum(g.time.p50_us for g in times.groups), times.whole.p50_us, rel_tol=1e-3, abs_tol=0.5
            ):
                return f"at batch {times.batch} the groups do not add up to the whole"
    return ""
