"""The two kinds of machines that keep a journal, as far as recording and replaying must know them.

`edge.journal` and `cloud.journal` hold one each: what a machine is built from, which modules' classes its state is made of,
and what of it never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from shared.events import Action, Event
from shared.journal.state import Known, fixed_parts
from shared.plan import Plan
from shared.settings import CloudSettings, EdgeSettings

KindName = Literal["edge", "node"]


class Recorded(Protocol):
    """A machine that can be recorded: its one door, and the check of its own books."""

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event at time `now` and say what is to be done about it."""
        ...

    def validate(self) -> None:
        """Raises `InvariantBroken` where the machine's own books disagree."""
        ...


class Setup(msgspec.Struct, frozen=True):
    """What a machine is built from. `plans` by contract digest; `seed` is that of its random numbers, where it has any."""

    name: str
    incarnation: int
    seed: int | str
    settings: EdgeSettings | CloudSettings
    plans: dict[str, Plan]


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A kind of machine: `settings` is the class of its settings, `build` makes a new one, `fixed` are the paths of the
    attributes of a machine that never change after it was built."""

    name: KindName
    settings: type[EdgeSettings] | type[CloudSettings]
    machine: type
    known: Known
    fixed: tuple[str, ...]
    build: Callable[[Setup], Recorded]

    def normal(self, setup: Setup) -> Setup:
        """`setup` as a file would give it back. A machine that is recorded is built from this, so that what is one object
        in a replay is one object here, and the other way round."""
        settings = msgspec.msgpack.decode(msgspec.msgpack.encode(setup.settings), type=self.settings)
        plans = msgspec.msgpack.decode(msgspec.msgpack.encode(setup.plans), type=dict[str, Plan])
        return Setup(setup.name, setup.incarnation, setup.seed, settings, plans)

    def fixed_of(self, machine: Recorded, setup: Setup) -> list[object]:
        """The parts of `machine`, built from `setup`, that a snapshot refers to and does not hold."""
        return fixed_parts(machine, self.fixed, setup.settings, setup.plans)
