"""What looks on while a simulation runs: the interface between the world, which lets things happen, and the checks.

The world calls a `Watch` at each step and knows nothing of what is checked; the checks see each event and action, may
look into the machines, and change nothing. `at` is the world's true time in nanoseconds; every `*_ns` inside an event or an
action is of the clock of the host that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from shared.events import Action, Event, Run
from shared.ports import Machine
from shared.request import Outcome, Request

Kind = Literal["client", "agent", "node"]


class Seen(Protocol):
    """A simulated process as the checks see it: one incarnation of a client, an agent or a node."""

    @property
    def name(self) -> str:
        """Its name, the same over all of its incarnations."""
        ...

    @property
    def kind(self) -> Kind:
        """What it is."""
        ...

    @property
    def incarnation(self) -> int:
        """Which start of it this is."""
        ...

    @property
    def machine(self) -> Machine:
        """Its machine: for a client `Stub` or `Direct`, for an agent `Front`, for a node `Session`."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether nothing of it happens for the moment although it is alive: stopped, or its host suspended."""
        ...

    def local(self, at: int) -> int:
        """What its clock reads at true time `at`."""
        ...


class Watch(Protocol):
    """Called by the world. Whatever it raises ends the run; a broken check is `hil.sim.broken.Broken`."""

    def born(self, host: Seen, at: int) -> None:
        """A process has started."""
        ...

    def died(self, host: Seen, at: int) -> None:
        """A process was killed: nothing of it happens any more."""
        ...

    def asked(self, client: Seen, request: Request, at: int) -> None:
        """The application has handed a request to its client (times are of the client's clock)."""
        ...

    def stepped(self, host: Seen, event: Event, actions: Sequence[Action], at: int) -> None:
        """A machine has taken one event. Called before the actions are carried out."""
        ...

    def began(self, host: Seen, run: Run, at: int) -> None:
        """An executor has begun with a run, which it did not refuse."""
        ...

    def ended(self, client: Seen, sequence: int, outcome: Outcome, at: int) -> None:
        """The application has got an outcome."""
        ...

    def sweep(self, at: int) -> None:
        """Now and then: look at everything, not only at what changed."""
        ...

    def rest(self, at: int) -> None:
        """The run is over: all traffic has ended, all faults are mended, and time has passed since."""
        ...
