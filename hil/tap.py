"""A client whose every delivery is seen, apart from the futures that it resolves.

The tap sits where outcomes leave the client's machine. A future can be resolved once only and would hide a second
delivery; here it is seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from edge.announced import StreamPromise
from edge.client import MAX_OPEN, Client
from edge.client_link import agent_link
from edge.client_loop import ClientMachine
from edge.owed import Counts
from edge.stub import Given
from shared.driver import JumpWatch
from shared.events import Action, Event, Resolve
from shared.lateness import Lateness
from shared.request import Outcome
from shared.wire.messages import ModelInfo

Deliver = Callable[[int, Outcome, int], None]
"""What takes a delivery: the request's sequence, its outcome, the time. Called on the client's own thread."""


class TappedMachine:
    """A client's machine, whose outcomes are shown to `deliver` as well."""

    def __init__(self, machine: ClientMachine, deliver: Deliver) -> None:
        self._machine = machine
        self._deliver = deliver

    def handle(self, event: Event, now: int) -> list[Action]:
        """As the machine does."""
        return self._shown(self._machine.handle(event, now))

    def close(self, now: int) -> list[Action]:
        """As the machine does."""
        return self._shown(self._machine.close(now))

    def defer(self, sequence: int, model: str | None, given: Given) -> None:
        """As the machine does."""
        self._machine.defer(sequence, model, given)

    def forget(self, sequence: int) -> None:
        """As the machine does."""
        self._machine.forget(sequence)

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """As the machine's."""
        return self._machine.models

    @property
    def attached(self) -> bool:
        """As the machine's."""
        return self._machine.attached

    @property
    def counts(self) -> Counts:
        """As the machine's."""
        return self._machine.counts

    @property
    def faults(self) -> Mapping[str, int]:
        """As the machine's."""
        return self._machine.faults

    @property
    def asking(self) -> int | None:
        """As the machine's."""
        return self._machine.asking

    @property
    def lateness(self) -> Lateness:
        """As the machine's."""
        return self._machine.lateness

    @property
    def promises(self) -> Mapping[int, StreamPromise]:
        """As the machine's."""
        return self._machine.promises

    def _shown(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if type(action) is Resolve:
                self._deliver(action.sequence, action.outcome, time.monotonic_ns())
        return actions


def tapped_client(
    endpoint: str, name: str, deliver: Deliver, standby: str | None = None, jumps: JumpWatch | None = None
) -> Client:
    """A client of the agent at `endpoint`, and of the one at `standby`, whose deliveries `deliver` sees. `jumps` says whether
    its host was suspended, in place of the system's clocks. Raises `UserError` for a malformed endpoint."""
    parts = agent_link(endpoint, name, time.time_ns(), MAX_OPEN, standby)
    return Client(endpoint, name=name, parts=replace(parts, machine=TappedMachine(parts.machine, deliver), jumps=jumps))
