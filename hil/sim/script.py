"""What a run consists of, as plain data: who is there, what is asked when, and what goes wrong when.

A script is written up front from one seed (`hil.sim.author`) and then played (`hil.sim.play`). It is frozen and each of its
items stands for itself: a failing run is made smaller by leaving items out. Times are nanoseconds of true time.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hil.sim.plans import Model
from shared.settings import CloudSettings, EdgeSettings

START_NS = 1_000_000_000
"""True time at which every run begins."""

FaultKind = Literal[
    "cut", "cut-data", "stall", "loss", "duplicate", "disorder", "corrupt", "slow", "echo", "move",
    "kill", "stop", "late", "leave", "drain", "relist",
    "suspend", "drift",
    "fail", "bad-rows", "overrun", "hang", "throttle",
]  # fmt: skip
"""What can go wrong.

Of the way between an edge and a node (`EDGE>NODE`, `EDGE>NODE+1` to its second address): `cut` connections, the one for
requests alone (`cut-data`), `stall` (nothing passes, nothing is lost), messages lost, doubled, out of order or damaged with
the chance `amount`, `slow` by the factor `amount`, `echo` (connections are cut, and what they carried comes once more on
those after them), `move` (the edge's own address changes). Of a process: `kill` (started again after `lasts_ns`, with
another version of its models where `version` says so), `stop` as by SIGSTOP, `late` timers (by the factor `amount`),
`leave` (a client closes, and comes again), `relist` (an edge finds a directory without one of its nodes, and then one with
all), `drain` (a node is told to leave; it is started again). Of a host: `suspend`, `drift` (its clock's rate is `amount`
parts per million from now on). Of a process's executors: runs that `fail`, `bad-rows`, runs that take `amount` times longer
with the chance of a half, a run that hangs (until the process is killed for it, where `amount` is not 0), all runs slower
by the factor `amount` (`throttle`).
"""


PATH_FAULTS: tuple[FaultKind, ...] = (
    "cut",
    "cut-data",
    "stall",
    "loss",
    "duplicate",
    "disorder",
    "corrupt",
    "slow",
    "echo",
)
EXECUTOR_FAULTS: tuple[FaultKind, ...] = ("fail", "bad-rows", "overrun", "hang", "throttle")


class Ask(msgspec.Struct, frozen=True, gc=False):
    """The application asks. It was due `early_ns` before it asks, and wants its outcome `deadline_ns` after that. `value`
    fills its tensors. After `withdraw_ns` it gives up, if that is not 0."""

    at: int
    client: str
    model: str
    rows: int
    value: int
    deadline_ns: int
    priority: int = 1
    early_ns: int = 0
    stream: int = 0
    latest_wins: bool = False
    withdraw_ns: int = 0


class Source(msgspec.Struct, frozen=True, gc=False):
    """The application opens a stream at `at` and closes it at `until`. Its frames are items of their own (`Ask`)."""

    at: int
    until: int
    client: str
    stream: int
    model: str
    rows: int
    period_ns: int
    deadline_ns: int
    priority: int
    latest_wins: bool


class Fault(msgspec.Struct, frozen=True, gc=False):
    """Something goes wrong with `target` (a host, a process, or a way `EDGE>NODE`) for `lasts_ns`."""

    at: int
    kind: FaultKind
    target: str
    lasts_ns: int
    amount: float = 0.0
    version: int = -1


Item = Ask | Source | Fault


class Quartz(msgspec.Struct, frozen=True):
    """A host's clock: what it reads at the start, and its rate in parts per billion."""

    local_ns: int
    rate_ppb: int


class Device(msgspec.Struct, frozen=True):
    """A device: its agent and the clients beside it, or one client that carries its agent (`embedded`). With `standby` there
    is a second agent that holds the cheapest rungs. Its models run with the relative spread `sigma`, its timers come
    `late_us` late in the median."""

    name: str
    clock: Quartz
    settings: EdgeSettings
    models: tuple[str, ...]
    version: int
    clients: tuple[str, ...]
    embedded: bool
    standby: bool
    max_open: int
    sigma: float
    late_us: float

    @property
    def spare(self) -> str:
        """Name of the standby agent."""
        return f"{self.name}.standby"


class Place(msgspec.Struct, frozen=True):
    """A node."""

    name: str
    clock: Quartz
    settings: CloudSettings
    models: tuple[str, ...]
    version: int
    sigma: float
    late_us: float


class Road(msgspec.Struct, frozen=True):
    """The way between a device and a node: `times` names a distribution (`hil.sim.times`) or holds one-way times of a trace
    in nanoseconds; `one_way_ns` is the median of the former. A byte takes `per_byte_ns`."""

    edge: str
    node: str
    times: str | tuple[int, ...]
    one_way_ns: int
    per_byte_ns: float
    way: int = 0
    """Which of the node's addresses it leads to."""

    @property
    def name(self) -> str:
        """How faults name it."""
        return road_name(self.edge, self.node, self.way)


def road_name(edge: str, node: str, way: int) -> str:
    """The name of the way between a device and one of a node's addresses."""
    return f"{edge}>{node}+{way}" if way else f"{edge}>{node}"


class Script(msgspec.Struct, frozen=True):
    """A whole run. Traffic and faults end by `end`; the world goes on for `rest_ns` after that."""

    scenario: str
    models: tuple[Model, ...]
    devices: tuple[Device, ...]
    nodes: tuple[Place, ...]
    roads: tuple[Road, ...]
    items: tuple[Item, ...]
    end: int
    rest_ns: int

    def without(self, dropped: frozenset[int]) -> Script:
        """The same script with the items at these indices left out."""
        return msgspec.structs.replace(self, items=tuple(x for i, x in enumerate(self.items) if i not in dropped))
