"""What happens when in a scenario: the frames of both arms, the faults' beginnings and ends, as plain lists. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from hil.scenarios.scenario import AGENT, DEVICE, Fault, Scenario

Arm = Literal["test", "control"]
ARMS: tuple[Arm, Arm] = ("test", "control")

SECOND_NS = 1_000_000_000


class Frame(msgspec.Struct, frozen=True):
    """Frame `number` of an arm is due `at_ns` after the beginning."""

    at_ns: int
    arm: Arm
    number: int


class Step(msgspec.Struct, frozen=True):
    """At `at_ns` the fault number `fault` of the scenario `begins` for the `turn`-th time, or ends."""

    at_ns: int
    fault: int
    turn: int
    begins: bool


class Span(msgspec.Struct, frozen=True):
    """A fault's own time: from `begin_ns` to `end_ns`, which are the same where it does not last."""

    fault: int
    begin_ns: int
    end_ns: int


class Struck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault as it happened: its number in the scenario, when it began and ended (ms after the first frame's time; the end
    is None where it never ended), the processes that it struck."""

    fault: int
    begin_ms: float
    end_ms: float | None
    victims: tuple[str, ...]


def spans(scenario: Scenario) -> list[Span]:
    """When each turn of each fault is, in order of their beginnings. One that never ends lasts to the end of the run."""
    end_ns = round(scenario.stream.seconds * SECOND_NS)
    found: list[Span] = []
    for number, fault in enumerate(scenario.faults):
        for turn in range(fault.repeat):
            begin_ns = round((fault.at_s + turn * fault.every_s) * SECOND_NS)
            for_ns = round(fault.for_s * SECOND_NS)
            forever = fault.kind == "kill" and not for_ns
            found.append(Span(number, begin_ns, end_ns if forever else min(end_ns, begin_ns + for_ns)))
    return sorted(found, key=lambda span: (span.begin_ns, span.fault))


def steps(scenario: Scenario) -> list[Step]:
    """Beginnings and ends of all faults in order. What ends at a moment ends before what begins then."""
    found: list[Step] = []
    for number, fault in enumerate(scenario.faults):
        for turn in range(fault.repeat):
            begin_ns = round((fault.at_s + turn * fault.every_s) * SECOND_NS)
            found.append(Step(begin_ns, number, turn, True))
            if fault.for_s > 0:
                found.append(Step(begin_ns + round(fault.for_s * SECOND_NS), number, turn, False))
    return sorted(found, key=lambda step: (step.at_ns, step.begins, step.fault))


def frames(scenario: Scenario) -> list[Frame]:
    """The frames of both arms in order: the control's are due half a period after those that they repeat, or the arms take
    turns, the test first. While the device is suspended nothing is asked."""
    stream = scenario.stream
    count = round(stream.seconds * stream.rate_hz)
    found: list[Frame] = []
    for number in range(count):
        at_ns = round(number * SECOND_NS / stream.rate_hz)
        if stream.block_s:
            turn = at_ns // round(stream.block_s * SECOND_NS)
            found.append(Frame(at_ns, ARMS[turn % len(ARMS)], number))
            continue
        found.append(Frame(at_ns, "test", number))
        if number % stream.control_every == 0:
            found.append(Frame(at_ns + round(SECOND_NS / stream.rate_hz / 2), "control", number))
    away = asleep(scenario)
    return sorted(
        (frame for frame in found if not any(begin <= frame.at_ns < end for begin, end in away)),
        key=lambda frame: (frame.at_ns, frame.arm),
    )


def asleep(scenario: Scenario) -> list[tuple[int, int]]:
    """When the device is suspended, as pairs of nanoseconds."""
    return [
        (span.begin_ns, span.end_ns)
        for span in spans(scenario)
        if scenario.faults[span.fault].kind == "suspend" and scenario.faults[span.fault].on == DEVICE
    ]


def unreachable(scenario: Scenario, struck: Sequence[Struck]) -> list[tuple[int, int]]:
    """When no node could be asked at all, since all were gone or the agent was: pairs of nanoseconds after the first frame's
    time."""
    down = ("kill", "stop", "restart", "suspend")
    end_ms = scenario.stream.seconds * 1e3
    spans_ms = [
        (one.begin_ms, end_ms if one.end_ms is None else one.end_ms, set(one.victims))
        for one in struck
        if scenario.faults[one.fault].kind in down
    ]
    edges = sorted({ms for begin, end, _ in spans_ms for ms in (begin, end)})
    found: list[tuple[int, int]] = []
    for begin, end in pairwise(edges):
        gone = {node for first, last, nodes in spans_ms if first <= begin and end <= last for node in nodes}
        if AGENT in gone or set(scenario.nodes) <= gone:
            found.append((round(begin * 1e6), round(end * 1e6)))
    return found


def words(fault: Fault) -> str:
    """A fault in a few words, for a timeline."""
    lasts = f" for {fault.for_s:g} s" if fault.for_s else ""
    where = fault.on or fault.link
    told = {
        "kill": f"{where} killed{lasts}",
        "stop": f"{where} stopped{lasts}",
        "restart": f"{where} restarted",
        "suspend": f"{where} suspended{lasts}, wakes {fault.by_s:g} s later",
        "clock_step": f"{where}: clock +{fault.by_s:g} s",
        "heat": f"{where} {fault.times:g} times slower{lasts}",
        "meddle": f"{where}: {', '.join(fault.what)}{lasts}",
        "stall": f"{where or 'links'} stalled{lasts}",
        "dark": f"{where or 'links'} dark{lasts}",
        "shape": f"{where or 'links'} reshaped{lasts}",
        "readdress": f"{where}: new address",
        "cpu": f"{fault.count} busy processes{lasts}",
        "memory": f"{fault.count} MiB taken{lasts}",
        "disk": f"{fault.count} writers to disk{lasts}",
        "crowd": f"{fault.count} more edges{lasts}",
    }
    return told[fault.kind]
