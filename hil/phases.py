"""What the demo plays, as data: which agent answers, over what link, and which faults happen when.

A phase is a stretch of the stream at one deadline. Control phases are answered by an agent that has no cloud configured,
on the same machine at nearly the same time: they tell what the device alone achieves, so that a phase is held against
the machine as it was and not as it should be.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hil.shaping import Shape

Kind = Literal[
    "control", "good", "slow", "stalled", "one-killed", "both-killed", "hot", "nodes-back", "split", "beside"
]
"""What a phase is for; the verdict has a rule for some of them. `beside`: another stream runs beside the one that is
judged (`hil.two_streams`)."""

NODES = ("cloud-a", "cloud-b")
"""The two nodes, which are the proxy's routes as well."""


class LinkShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link in the user's words: `rate_mbit` in 10^6 bits a second each way, `rtt_ms` the round trip, half each way."""

    rate_mbit: Annotated[float, Meta(ge=0.001, le=1_000_000.0)]
    rtt_ms: Annotated[float, Meta(ge=0.0, le=60_000.0)]

    def shape(self) -> Shape:
        """What one direction does."""
        return Shape(rate_mbit=self.rate_mbit, delay_ms=self.rtt_ms / 2)

    def __str__(self) -> str:
        return f"{self.rate_mbit:g} Mbit/s, {self.rtt_ms:g} ms round trip"


class Fault(msgspec.Struct, frozen=True):
    """Something that happens just before frame `frame` is due. `kill`, `start`: node `node`. `stall`, `pass`: both links.
    `heat`: the device becomes `times` times slower than it is."""

    frame: int
    kind: Literal["kill", "start", "stall", "pass", "heat"]
    node: str = ""
    times: float = 1.0

    def __str__(self) -> str:
        if self.kind == "heat":
            return "device cool again" if self.times == 1.0 else f"device {self.times:.2g} times slower"
        words = {"kill": "killed", "start": "started again", "stall": "link stalled", "pass": "link passes again"}
        return f"{self.node} {words[self.kind]}".strip()


class Heat(msgspec.Struct, frozen=True):
    """What makes the device's usual rung too slow: how many `times` slower it becomes, and the names of the rungs that are
    `cheaper` than the usual one."""

    times: float
    cheaper: tuple[str, ...]


class Phase(msgspec.Struct, frozen=True):
    """One stretch of the stream. `forced` asks for the plan with the forced split. `link` None leaves the link alone.
    `cheaper` are the rungs that are expected to answer where the device is hot."""

    name: str
    kind: Kind
    title: str
    frames: int
    agent: Literal["edge", "control"] = "edge"
    forced: bool = False
    link: LinkShape | None = None
    faults: tuple[Fault, ...] = ()
    cheaper: tuple[str, ...] = ()


def demo_phases(frames: int, good: LinkShape, slow: LinkShape, heat: Heat | None) -> tuple[Phase, ...]:
    """The phases of the demo, in order, of `frames` frames each. Without `heat` no phase is hot."""
    early, later, late = (round(share * frames) for share in (0.1, 0.25, 0.9))
    first, second = NODES
    hot = Phase("hot-device", "hot", "hot device, no node", frames, link=good)
    if heat is not None:
        faults = (Fault(early, "heat", times=heat.times), Fault(late, "heat"))
        hot = msgspec.structs.replace(hot, faults=faults, cheaper=heat.cheaper)
    return (
        Phase("control-before", "control", "control, no cloud", frames, agent="control"),
        Phase("good-link", "good", f"good link: {good}", frames, link=good),
        Phase("slow-link", "slow", f"slow link: {slow}", frames, link=slow),
        Phase(
            "stalled-link",
            "stalled",
            "stalled link: nothing passes for most of it",
            frames,
            link=good,
            faults=(Fault(early, "stall"), Fault(late, "pass")),
        ),
        Phase("control-between", "control", "control, no cloud", frames, agent="control"),
        Phase(
            "one-node-killed",
            "one-killed",
            "one node killed",
            frames,
            link=good,
            faults=(Fault(round(0.3 * frames), "kill", first),),
        ),
        Phase(
            "both-killed",
            "both-killed",
            "both nodes killed",
            frames,
            link=good,
            faults=(Fault(0, "kill", first), Fault(0, "kill", second)),
        ),
        *((hot,) if heat is not None else ()),
        Phase(
            "nodes-back",
            "nodes-back",
            "nodes back",
            frames,
            link=good,
            faults=(Fault(0, "start", first), Fault(later, "start", second)),
        ),
        Phase("forced-split", "split", "forced split", frames, forced=True, link=good),
        Phase("control-after", "control", "control, no cloud", frames, agent="control"),
    )


def why_not_repeated(spare_phases: int, kept_phases: int) -> str:
    """Why a phase in which the machine stalled is not played once more; empty where it is.

    `spare_phases` is how many repeats the time still allows, `kept_phases` how many of them are left to later phases.
    """
    if spare_phases < 1:
        return "no time was left for it"
    return (
        "" if spare_phases > kept_phases else "the time that is left is kept for later phases, which may need it more"
    )


def repeats_to_keep(held: bool, control: bool, later_phases: int) -> int:
    """How many repeats a phase leaves to the later ones: none where it did not hold its rules, one for each of them where
    it did. A control has no rules; one that the machine shook leaves one to those that have."""
    if held:
        return later_phases
    return min(1, later_phases) if control else 0
