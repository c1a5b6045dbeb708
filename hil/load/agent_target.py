"""An agent, asked as an application asks it: through the client, whose own thread and timer are part of what is loaded."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from edge.client import Client
from hil.load.rows import MISSED, REJECTED, SUPERSEDED, Recorder
from shared.errors import HeadtailError, UserError
from shared.request import Answer, Array, Missed, Outcome, Rejected

Inputs = Mapping[str, Array]

MOST_OPEN = 1 << 16


class _Ticket:
    """Takes one outcome, on the client's thread, with the time at which it came."""

    __slots__ = ("_place", "_target")

    def __init__(self, target: AgentTarget, place: int) -> None:
        self._target = target
        self._place = place

    def resolve(self, outcome: Outcome) -> None:
        """Note when it came, and wake the sender."""
        self._target.came(self._place, outcome, time.monotonic_ns())

    def drop(self) -> None:
        """Nobody withdraws."""


class AgentTarget:
    """Implements `hil.load.target.Target`, and closes its client in the end. `inputs`: what requests ask with,
    in turn."""

    def __init__(self, client: Client, model: str | None, inputs: Sequence[Inputs], priority: int) -> None:
        self._client = client
        self._model = model
        self._inputs = inputs
        self._priority = priority
        self._came: deque[tuple[int, Outcome, int, Recorder]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._recorder = Recorder()
        self.unsent = 0

    def fileno(self) -> int:
        """Readable when outcomes have come."""
        return self._bell

    def pending(self) -> bool:
        """Whether outcomes have come."""
        return bool(self._came)

    def room(self) -> int:
        """As many as the client may have open."""
        return MOST_OPEN

    def send(self, place: int, scheduled_ns: int, due_ns: int, now: int) -> None:
        """Hand it to the client, due from its scheduled time on."""
        self._client.start(
            _Ticket(self, place),
            self._inputs[place % len(self._inputs)],
            (due_ns - scheduled_ns) / 1e6,
            scheduled_ns=scheduled_ns,
            model=self._model,
            priority=self._priority,
        )

    def came(self, place: int, outcome: Outcome, now: int) -> None:
        """An outcome. From the client's thread."""
        self._came.append((place, outcome, now, self._recorder))
        os.eventfd_write(self._bell, 1)

    def take(self) -> list[int]:
        """Note the outcomes that have come. Raises `UserError` where the agent takes no such requests."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        ended: list[int] = []
        while self._came:
            place, outcome, at_ns, recorder = self._came.popleft()
            if recorder is self._recorder:
                self._note(place, outcome, at_ns)
                ended.append(place)
        return ended

    def lead_to(self, recorder: Recorder) -> None:
        """Note in this one from now on."""
        self._recorder = recorder

    def close(self) -> None:
        """Close the client."""
        self._client.close()
        os.close(self._bell)

    def _note(self, place: int, outcome: Outcome, at_ns: int) -> None:
        match outcome:
            case Answer(stages=stages):
                self._recorder.answered(place, dict[str, int](stages.items()), at_ns)
            case Missed(stage=stage):
                self._recorder.refused(place, MISSED, stage, at_ns)
            case Rejected(reason="input", detail=detail):
                raise UserError(f"the agent takes none of these requests: {detail}")
            case Rejected(reason=reason):
                self._recorder.refused(place, REJECTED, reason, at_ns)
            case _:
                self._recorder.refused(place, SUPERSEDED, "", at_ns)


def attach(endpoint: str, patience_s: float) -> Client:
    """A client of the agent there, attached. Raises `HeadtailError` where there is none, `UserError` for a bad endpoint."""
    client = Client(endpoint, name="load", max_open=MOST_OPEN)
    if not client.wait_attached(patience_s):
        client.close()
        raise HeadtailError(f"{endpoint}: no agent has answered within {patience_s:g} s")
    return client
