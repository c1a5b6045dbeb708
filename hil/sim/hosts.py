"""Hosts and the processes on them: a loop that takes one event at a time, as `shared.driver` does, on virtual time.

A process that is stopped, suspended with its host, or busy with a run that its own loop carries out takes nothing: what comes
meanwhile lies in its sources and is taken afterwards in the driver's order, completions, connections, messages, arrivals and
at last the timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hil.sim.clock import HostClock
from hil.sim.watch import Kind
from shared.events import AddressesChanged, Event, LinkDown, LinkUp
from shared.plan import Plan
from shared.ports import Machine
from shared.request import Buffer

if TYPE_CHECKING:
    from hil.sim.device import VirtualExecutor
    from hil.sim.loop import Busy
    from hil.sim.net import Connection, Way
    from hil.sim.script import Ask

NEVER = 1 << 62
"""A time that does not come."""


class Host:
    """A machine with a clock of its own, and the processes that live on it."""

    def __init__(self, name: str, clock: HostClock) -> None:
        self.name = name
        self.clock = clock
        self.processes: list[Process] = []


class Process:
    """One incarnation of a client, an agent or a node. `hil.sim.watch.Seen` to those who look on."""

    __slots__ = (
        "alive",
        "armed",
        "arrivals",
        "asks",
        "busy",
        "client",
        "clock",
        "completions",
        "dealers",
        "executors",
        "frozen",
        "handle",
        "host",
        "incarnation",
        "jumped",
        "kind",
        "late",
        "lateness",
        "links",
        "machine",
        "messages",
        "name",
        "number",
        "out",
        "peers",
        "plans",
        "sequence",
        "tickets",
        "wake_local",
        "wake_true",
        "wire",
        "withdrawn",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        incarnation: int,
        number: int,
        host: Host,
        machine: Machine,
        plans: Mapping[str, Plan],
        lateness: Iterator[int],
    ) -> None:
        """`lateness` is how late its timers come, one after the other, in nanoseconds."""
        self.name = name
        self.kind: Kind = kind
        self.incarnation = incarnation
        self.number = number
        """Its place in the trace."""
        self.host = host
        self.clock = host.clock
        self.machine = machine
        self.handle = machine.handle
        self.plans = plans
        """The plans that it serves by contract digest; of a client with an agent of its own none."""
        self.client = name
        """What a client is called to its agent."""
        self.alive = True
        self.frozen = 0
        """For how many reasons it does not run (stopped, suspended)."""
        self.busy: Busy | None = None
        """The run that its own loop carries out right now."""
        self.jumped = 0
        """How long its host was suspended, in nanoseconds, which it has not noticed yet."""
        self.executors: tuple[VirtualExecutor, ...] = ()
        self.dealers: dict[str, Connection] = {}
        self.peers: dict[str, Connection] = {}
        self.out: dict[str, Way] = {}
        """Ways to send on, by link."""
        self.completions: deque[Event] = deque()
        self.links: deque[LinkUp | LinkDown | AddressesChanged] = deque()
        self.messages: deque[tuple[Way, int, list[Buffer]]] = deque()
        self.arrivals: deque[Event] = deque()
        self.asks: deque[Ask] = deque()
        """What the application would have asked while it stood still."""
        self.wake_local = 0
        self.wake_true = NEVER
        self.armed = NEVER
        self.late = 1
        """Factor by which its timers are later than usual."""
        self.lateness = lateness
        self.wire: dict[str, int] = {}
        """Messages that were refused, by the reason of `PeerError`."""
        self.sequence = 0
        self.tickets: dict[int, None] = {}
        """Requests whose outcome the application waits for."""
        self.withdrawn: dict[int, None] = {}

    def local(self, at: int) -> int:
        """What its clock reads at true time `at`."""
        return self.clock.local(at)

    @property
    def stopped(self) -> bool:
        """Whether it does not run just now: stopped, suspended, or its loop is in the middle of a run."""
        return self.frozen > 0 or self.busy is not None
