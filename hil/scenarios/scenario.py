"""A scenario as its file says it: who is there, over which links, what goes wrong when, and by what it is judged.

`configs/scenarios/*.toml` are examples; `docs/hil.md` has a table of the keys. Rules that span keys are in `check`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hil.emulator.shape import Shape
from shared.settings import Group, Name, Text

DEVICE = "device"
"""In a fault's `on`: all processes of the vehicle, those of the control as well."""

IN_USE = "in-use"
"""In a fault's `on`: the node that gave the latest answer, or the first node where none has."""

AGENT, STANDBY, CONTROL = "edge", "standby", "control"
"""Processes of the vehicle: the agent that is tried, its standby where there is one, and the agent without nodes."""

Site = Literal["vehicle", "cloud", "crowd"]
"""Where a process is."""

State = Literal["open", "stalled", "dark"]
"""Whether a link passes packets, holds them, or loses them."""

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, Meta(ge=0.0, le=3600.0)]
Milliseconds = Annotated[float, Meta(gt=0.0, le=60_000.0)]

Kind = Literal[
    "kill",
    "stop",
    "restart",
    "suspend",
    "clock_step",
    "heat",
    "meddle",
    "stall",
    "dark",
    "shape",
    "readdress",
    "cpu",
    "memory",
    "disk",
    "crowd",
]
What = Literal["corrupt", "truncate", "identity", "shape", "cut", "mute"]


class Stream(Group, frozen=True):
    """The camera: `rate_hz` frames a second for `seconds`, each due `deadline_ms` after its time. The control gets every
    `control_every`-th frame's image half a period later; or, with `block_s`, the arms take turns of that length, so that each
    has the whole rate and the machine no more than it."""

    rate_hz: Annotated[float, Meta(ge=1.0, le=1000.0)] = 30.0
    seconds: Annotated[float, Meta(gt=0.0, le=3600.0)] = 20.0
    deadline_ms: Milliseconds = 20.0
    control_every: Annotated[int, Meta(ge=1, le=100)] = 1
    block_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 0.0


class Model(Group, frozen=True):
    """The small model: images of `side` x `side` x 3 bytes, answered by the cheap rung of the device in `rung_ms`, by a
    node in `cloud_ms`. `routes` are ways of `hil.small_plans.ROUTES`."""

    side: Literal[16, 32, 64] = 64
    rung_ms: Annotated[float, Meta(ge=0.2, le=1000.0)] = 6.0
    cloud_ms: Annotated[float, Meta(ge=0.1, le=1000.0)] = 1.0
    routes: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=4)] = ("raw",)


class Fleet(Group, frozen=True):
    """The processes: so many nodes (`node-a`, `node-b`, ...), each reached over so many `connections` on each link, and a
    standby agent beside the agent or none. `route` is the agent's setting of that name."""

    nodes: Annotated[int, Meta(ge=1, le=8)] = 2
    connections: Annotated[int, Meta(ge=1, le=4)] = 1
    standby: bool = False
    route: Text = "best"


class LinkPart(Group, frozen=True):
    """A link between vehicle and cloud. Either the shapes `up` and `down`, or a `trace` (a file of a trace or of a log of
    round trips), or a `model` (a parameter set, made into a trace by `seed`). Paths are relative to the scenario's file.
    `queue_kb` is what waits in each direction of a trace."""

    name: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,15}$")] = "air"
    up: Shape = Shape()
    down: Shape = Shape()
    trace: str = ""
    model: str = ""
    seed: Annotated[int, Meta(ge=0)] = 1
    queue_kb: Annotated[int, Meta(ge=2, le=1 << 20)] = 256


class Fault(Group, frozen=True):
    """Something that goes wrong at `at_s`, for `for_s` where it lasts, `repeat` times, every `every_s`.

    `on` names a process, `device` or `in-use`; `link` a link (empty: all). `kill` (SIGKILL; started again after `for_s`,
    never where that is 0), `stop` (SIGSTOP, SIGCONT), `restart` (SIGTERM, started again when it has ended), `suspend`
    (stopped, and its boot time is `by_s` further when it goes on; on `device` the application asks nothing meanwhile),
    `clock_step` (of a node: all its clocks jump by `by_s`; of an agent: its wall clock), `heat` (`times` slower), `meddle`
    (`share` of its messages is sent as `what` says), `stall` and `dark` (of links), `shape` (a link becomes `up` and
    `down`), `readdress` (the vehicle's end of a link gets another address), `cpu` (`count` busy processes), `memory`
    (`count` MiB taken and touched), `disk` (`count` writers that sync), `crowd` (`count` edges that each ask `rate_hz`
    times a second).
    """

    at_s: Seconds
    kind: Kind
    on: str = ""
    link: str = ""
    for_s: Seconds = 0.0
    repeat: Annotated[int, Meta(ge=1, le=1000)] = 1
    every_s: Seconds = 0.0
    by_s: Annotated[float, Meta(ge=0.0, le=1e6)] = 3600.0
    times: Annotated[float, Meta(ge=1.0, le=100.0)] = 1.0
    what: tuple[What, ...] = ()
    share: Share = 1.0
    up: Shape = Shape()
    down: Shape = Shape()
    count: Annotated[int, Meta(ge=1, le=4096)] = 1
    rate_hz: Annotated[float, Meta(gt=0.0, le=1000.0)] = 10.0


class Budgets(Group, frozen=True):
    """What a run is judged by, beside what holds for every run (nothing lost, hung, doubled or wrong, nothing late called on
    time). `below_control`: by how much the on-time share may be below the control's. The others count where they are there.
    `cloud_share`: least share of all frames that the cloud answered on time. `cloud_below_oracle`: by how much that may be
    below what an oracle gets that knows the links. `back_s`: how long after the end of each fault the first frame may be due
    that was on time, `cloud_back_s` the first that the cloud answered on time, `over_s` the first that another node than the
    struck one answered on time, from the fault's beginning. `late_at_faults`: how many frames due within a second of a
    fault's beginning may be late or without an answer."""

    below_control: Annotated[float, Meta(ge=0.0, le=0.05)] = 0.01
    cloud_share: Share | None = None
    cloud_below_oracle: Share | None = None
    back_s: Seconds | None = None
    cloud_back_s: Seconds | None = None
    over_s: Seconds | None = None
    late_at_faults: Annotated[int, Meta(ge=0)] | None = None


class Noise(Group, frozen=True):
    """When the machine, and not headtail, was late. A frame is *marked* where the monitor saw a wake-up `stall_ms` late or
    later between the frame's time and its deadline, or up to `after_ms` before: at a high rate a stall leaves more work
    behind than is done at once. Shares are of the others. A run says nothing where more than `most_marked` of its frames
    are marked, or where the control was on time in less than `least_control`; it is then played again, `tries` times in
    all."""

    stall_ms: Annotated[float, Meta(ge=2.0, le=60_000.0)] = 2.0
    after_ms: Annotated[float, Meta(ge=0.0, le=1000.0)] = 0.0
    most_marked: Share = 0.25
    least_control: Share = 0.98
    tries: Annotated[int, Meta(ge=1, le=10)] = 3


class Scenario(Group, frozen=True):
    """All of a scenario's file."""

    name: Name
    about: Text
    seed: Annotated[int, Meta(ge=0)] = 1
    stream: Stream = Stream()
    model: Model = Model()
    fleet: Fleet = Fleet()
    links: Annotated[tuple[LinkPart, ...], Meta(min_length=1, max_length=4)] = (LinkPart(),)
    faults: Annotated[tuple[Fault, ...], Meta(max_length=256)] = ()
    budgets: Budgets = Budgets()
    noise: Noise = Noise()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(f"node-{chr(ord('a') + number)}" for number in range(self.fleet.nodes))

    @property
    def vehicle(self) -> tuple[str, ...]:
        """Names of the processes of the vehicle."""
        return (AGENT, *((STANDBY,) if self.fleet.standby else ()), CONTROL)


def shortened(scenario: Scenario, seconds: float) -> Scenario:
    """The same scenario, `seconds` long: faults keep their share of the time, and how long they last is shortened alike."""
    by = seconds / scenario.stream.seconds
    faults = tuple(
        msgspec.structs.replace(fault, at_s=fault.at_s * by, for_s=fault.for_s * by, every_s=fault.every_s * by)
        for fault in scenario.faults
    )
    stream = msgspec.structs.replace(scenario.stream, seconds=seconds)
    return msgspec.structs.replace(scenario, stream=stream, faults=faults)
