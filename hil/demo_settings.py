"""The settings of the demo, `configs/demo.toml`: what is played, on what device, over which links.

What is judged is not here: the shares of the verdict are constants of `hil.verdict`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hil.monitor import Noise
from hil.phases import LinkShape
from shared.settings import Group

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Milliseconds = Annotated[float, Meta(gt=0.0, le=60_000.0)]
Side = Annotated[int, Meta(ge=32, le=4096)]


class StreamGroup(Group, frozen=True):
    """The camera. `images` distinct frames of `height` x `width` pixels, cut from natural images by the generator `seed`, are
    asked for in turn, `rate_hz` a second, `frames` in each phase."""

    frames: Annotated[int, Meta(ge=20, le=100_000)] = 300
    rate_hz: Annotated[float, Meta(ge=1.0, le=1000.0)] = 30.0
    images: Annotated[int, Meta(ge=2, le=512)] = 48
    height: Side = 192
    width: Side = 192
    seed: int = 7


class DeadlineGroup(Group, frozen=True):
    """How long an answer may take. The first of `choices_ms` is used that an agent without a cloud holds for `hold_share` of
    `trial_frames` frames, with `headroom` times their spread (from p50 to p99) to spare, and in which the cloud answers that
    share over the good link, with the share `cloud_spare` of it to spare; the last where none is. The room is there because
    so few frames cannot show that a share as high as that holds, and since a machine's speed moves. The forced split gets
    what its head takes in addition."""

    choices_ms: Annotated[tuple[Milliseconds, ...], Meta(min_length=1)] = (10.0, 15.0, 20.0, 30.0)
    hold_share: Share = 0.99
    headroom: Annotated[float, Meta(ge=0.0, le=100.0)] = 3.0
    cloud_spare: Annotated[float, Meta(ge=0.0, le=0.9)] = 0.1
    trial_frames: Annotated[int, Meta(ge=20, le=100_000)] = 100


class DeviceGroup(Group, frozen=True):
    """The small device that this machine stands for: `slowdown` times slower, with cheaper rungs at
    `rung_resolutions`: the largest is what deadlines are chosen for, a smaller one is for when the device is hot."""

    slowdown: Annotated[float, Meta(ge=1.0, le=1000.0)] = 4.0
    rung_resolutions: Annotated[tuple[Side, ...], Meta(min_length=1)] = (128, 96)


class PlanGroup(Group, frozen=True):
    """What is asked of the partitioner. `force_cut` is the tensor at which the second plan cuts the model."""

    force_cut: Annotated[str, Meta(min_length=1)] = "377"


class LinksGroup(Group, frozen=True):
    """The two links that are played; plans are made for `good`."""

    good: LinkShape = LinkShape(200.0, 2.0)
    slow: LinkShape = LinkShape(20.0, 6.0)


class TimeGroup(Group, frozen=True):
    """`budget_s`: how long the demo may take in all, plans included. A phase in which the machine stalled is repeated only
    as far as it allows."""

    budget_s: Annotated[float, Meta(ge=1.0, le=86_400.0)] = 175.0


class DemoSettings(Group, frozen=True):
    """All of the demo's file."""

    stream: StreamGroup = StreamGroup()
    deadline: DeadlineGroup = DeadlineGroup()
    device: DeviceGroup = DeviceGroup()
    plan: PlanGroup = PlanGroup()
    links: LinksGroup = LinksGroup()
    noise: Noise = Noise()
    time: TimeGroup = TimeGroup()
