"""A link's shape as commands of `tc` for a real network device: the kernel's netem, for the nodes' ports alone.

The device keeps its other traffic as it is: a `prio` queue at the root sends only packets to or from the nodes' ports into
the band that netem shapes, so that the ssh connection by which all of this is told goes on. Pure: words are made here and run
elsewhere. See tc-netem(8) and tc-u32(8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hil.emulator.shape import MTU, Shape
from hil.scenarios.scenario import State
from shared.errors import UserError

Command = list[str]
End = Literal["dport", "sport"]

PRIOMAP = ("1", "2", "2", "2", "1", "2", "0", "0", "1", "1", "1", "1", "1", "1", "1", "1")
"""The kernel's own: the three first bands are as without us."""

BAND = "1:4"
LEAST_LIMIT = 8


def begin(device: str, end: End, ports: Sequence[int]) -> list[Command]:
    """Make the queues of a device: packets whose `end` is one of `ports` go into netem's band, which does nothing yet."""
    commands = [
        ["tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "prio", "bands", "4", "priomap", *PRIOMAP],
        ["tc", "qdisc", "replace", "dev", device, "parent", BAND, "handle", "40:", "netem"],
    ]
    for port in ports:
        match = ["u32", "match", "ip", "protocol", "6", "0xff", "match", "ip", end, str(port), "0xffff"]
        commands.append(
            [
                "tc",
                "filter",
                "add",
                "dev",
                device,
                "parent",
                "1:",
                "protocol",
                "ip",
                "prio",
                "1",
                *match,
                "flowid",
                BAND,
            ]
        )
    return commands


def shape(device: str, shape: Shape, state: State) -> Command:
    """The device sends so from now on. A stalled link is a dark one here: netem cannot hold packets and let them go at once.

    Raises `UserError` for what netem does otherwise than the emulator: packets that are held and overtaken, a burst that is
    let through.
    """
    command = ["tc", "qdisc", "change", "dev", device, "parent", BAND, "handle", "40:", "netem"]
    if state != "open":
        return [*command, "limit", str(LEAST_LIMIT), "loss", "100%"]
    if shape.reorder or shape.burst_bytes:
        raise UserError(
            "real hosts are shaped by netem, which has no reorder and no burst_bytes as the emulator has them"
        )
    command += ["limit", str(_limit(shape))]
    if shape.delay_ms or shape.jitter_ms:
        command += ["delay", f"{shape.delay_ms + shape.jitter_ms / 2:g}ms"]
        command += [f"{shape.jitter_ms / 2:g}ms"] if shape.jitter_ms else []
    if shape.bursts is not None and shape.loss:
        raise UserError("netem has one kind of loss at a time; expected loss or bursts")
    if shape.loss:
        command += ["loss", f"{shape.loss * 100:g}%"]
    if shape.bursts is not None:
        chain = shape.bursts
        shares = (chain.enter, chain.leave, chain.bad_loss, chain.good_loss)
        command += ["loss", "gemodel", *(f"{share * 100:g}%" for share in shares)]
    if shape.rate_mbit:
        command += ["rate", f"{round(shape.rate_mbit * 1e6)}bit"]
    return command


def end(device: str) -> Command:
    """Give the device its own queue back."""
    return ["tc", "qdisc", "del", "dev", device, "root"]


def _limit(shape: Shape) -> int:
    """netem's limit, in packets, counts what is under way as well as what waits."""
    rate = shape.rate_mbit or 1000.0
    under_way = rate * 1e6 / 8 * (shape.delay_ms + shape.jitter_ms) / 1e3
    return max(LEAST_LIMIT, round((shape.queue_bytes + under_way) / MTU))
