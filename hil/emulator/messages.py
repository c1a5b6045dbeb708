"""What a rig says to its emulator: one JSON object a line on the emulator's standard input, one line back for each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from hil.emulator.direction import Counts
from hil.emulator.shape import Shape
from hil.emulator.sources import Step
from hil.emulator.trace_chunks import Load
from shared.errors import UserError
from shared.lateness import LatenessFigures

MOST_LINKS = 64

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link between two sites, each a network namespace of its own. `up` is from `near` to `far`."""

    name: str
    near: str = "edge"
    far: str = "cloud"


class Build(msgspec.Struct, frozen=True, tag="build", forbid_unknown_fields=True):
    """First line: make the sites and links. `seed` fixes the fate of every packet."""

    links: tuple[Link, ...]
    seed: int = 1


class Reshape(msgspec.Struct, frozen=True, tag="shape", forbid_unknown_fields=True):
    """Change the shape of one link or of all (None) from now on. A direction that is None stays as it is."""

    up: Shape | None = None
    down: Shape | None = None
    link: str | None = None


class Play(msgspec.Struct, frozen=True, tag="play", forbid_unknown_fields=True):
    """Play schedules from now on, on one link or on all. A direction without steps stays as it is."""

    up: tuple[Step, ...] = ()
    down: tuple[Step, ...] = ()
    repeat_ms: float = 0.0
    link: str | None = None


class PlayTrace(msgspec.Struct, frozen=True, tag="trace", forbid_unknown_fields=True):
    """Play the trace that was loaded from now on, again and again, on one link or on all; it is then loaded no longer."""

    step_us: int
    queue_bytes: int
    link: str | None = None


class Reseed(msgspec.Struct, frozen=True, tag="seed", forbid_unknown_fields=True):
    """Begin the fates of packets anew, on one link or on all."""

    seed: int
    link: str | None = None


class Report(msgspec.Struct, frozen=True, tag="report", forbid_unknown_fields=True):
    """Ask for the counts since the beginning, and for the lateness since the last report."""


Command = Build | Reshape | Play | Load | PlayTrace | Reseed | Report
"""A line to the emulator."""


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One end of a link: the site's name, its namespace, the device in it and its IPv4 address."""

    site: str
    namespace: str
    device: str
    address: str


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The two ends of a link."""

    near: Place
    far: Place


class WayCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One direction. `unread`: packets that the kernel dropped because the emulator did not read them in time; `refused`:
    packets that the receiving device did not take. Both are faults of the emulation, not of the emulated link."""

    packets: Counts = Counts()
    unread: int = 0
    refused: int = 0


class LinkCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both directions of a link."""

    up: WayCounts = WayCounts()
    down: WayCounts = WayCounts()


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line from the emulator. `error` is empty where the command was carried out; `lateness` is how much later than due
    packets left; `began_ns` is when a schedule or trace began to play, on CLOCK_MONOTONIC."""

    error: str = ""
    began_ns: int = 0
    places: dict[str, Places] = {}
    links: dict[str, LinkCounts] = {}
    lateness: LatenessFigures = LatenessFigures()


def check_links(links: Sequence[Link]) -> None:
    """Raise `UserError` where links or sites are named wrongly, twice, or there are too many."""
    if not 1 <= len(links) <= MOST_LINKS:
        raise UserError(f"{len(links)} links; expected 1 to {MOST_LINKS}")
    for link in links:
        for name in (link.name, link.near, link.far):
            if not _NAME.fullmatch(name):
                raise UserError(f"{name!r} is no name of a link or site; expected up to 16 of a-z, 0-9 and hyphens")
        if link.near == link.far:
            raise UserError(f"link {link.name!r} joins {link.near!r} with itself; expected two sites")
    names = [link.name for link in links]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"links are named twice: {', '.join(twice)}")
