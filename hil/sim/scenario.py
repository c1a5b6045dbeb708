"""What kinds of runs there are: how much of everything a script is drawn from. Which of it a seed gets is the seed's own."""

from __future__ import annotations

import msgspec

from hil.sim.script import EXECUTOR_FAULTS, PATH_FAULTS, FaultKind

Span = tuple[int, int]
"""The least and the most of something."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges that a script is drawn from.

    `devices`, `clients` (of each device), `nodes`; `embedded` is the share of devices whose application carries its agent,
    `standby` of those with a standby agent, `weak` of models that a device can hardly run. `load` is how busy the devices
    are kept by their own answers alone. `streams` and `bursts` are shares of the clients, `late` and `withdrawn` of the
    requests. Each kind in `faults` comes at a seed with the chance `chance`, up to `often` times. `calm`: no clock, timer or
    execution time is far from the usual, deadlines are long, and nobody asks before the world has come up. `credits` is what
    a node lends. `paths` is the share of devices that have several paths to their nodes.
    """

    name: str
    devices: Span = (1, 4)
    clients: Span = (1, 4)
    nodes: Span = (1, 3)
    embedded: float = 0.25
    standby: float = 0.2
    weak: float = 0.4
    load: tuple[float, float] = (0.1, 0.8)
    streams: float = 0.4
    bursts: float = 0.2
    late: float = 0.01
    withdrawn: float = 0.02
    faults: tuple[FaultKind, ...] = ()
    chance: float = 0.6
    often: int = 3
    calm: bool = False
    credits: Span = (1, 16)
    paths: float = 0.3
    rest_ms: int = 6_000


CRASH: tuple[FaultKind, ...] = ("kill", "stop", "leave")
CLOCK: tuple[FaultKind, ...] = ("suspend", "drift", "late")

SCENARIOS = {
    s.name: s
    for s in (
        Scenario(
            name="mixed",
            weak=0.6,
            load=(0.1, 1.3),
            faults=(*PATH_FAULTS, *CRASH, *CLOCK, *EXECUTOR_FAULTS, "move", "drain", "relist"),
            chance=0.35,
        ),
        Scenario(
            name="calm",
            load=(0.05, 0.2),
            bursts=0.0,
            late=0.0,
            withdrawn=0.0,
            calm=True,
            nodes=(1, 2),
            credits=(8, 16),
            paths=0.0,
        ),
        Scenario(name="network", weak=0.6, faults=(*PATH_FAULTS, "move"), nodes=(1, 3), paths=0.0),
        Scenario(
            name="paths",
            weak=0.6,
            faults=(*PATH_FAULTS, "move", "kill", "stop", "drain", "relist"),
            paths=1.0,
            credits=(1, 8),
        ),
        Scenario(name="crash", weak=0.6, faults=(*CRASH, "drain"), often=4),
        Scenario(name="clock", faults=CLOCK),
        Scenario(
            name="crowd",
            devices=(6, 16),
            clients=(2, 6),
            nodes=(1, 2),
            embedded=0.0,
            load=(0.3, 1.5),
            bursts=0.5,
            credits=(1, 4),
            faults=("kill", "cut"),
            chance=0.3,
            often=1,
        ),
        Scenario(name="executor", faults=EXECUTOR_FAULTS, often=4, nodes=(0, 2)),
        Scenario(
            name="weak",
            devices=(3, 6),
            clients=(1, 3),
            nodes=(1, 3),
            credits=(8, 32),
            weak=1.0,
            load=(0.2, 0.7),
            faults=("stall", "cut", "echo", "kill", "stop", "slow", "loss", "fail", "overrun", "hang"),
            often=2,
        ),
        Scenario(name="streams", streams=1.0, bursts=0.0, load=(0.3, 1.1), devices=(1, 3), faults=("throttle",)),
    )
}
"""The scenarios by name. `mixed` has everything."""
