"""The few protocols through which decisions meet the world. Scripted fakes for tests live in `shared.fakes`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from shared.events import Action, Event, Run, Send


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        ...


class Machine(Protocol):
    """A pure machine: the only door through which its state changes."""

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event at time `now` and say what is to be done about it."""
        ...


class Executor(Protocol):
    """Runs segment ranges, one at a time, on a thread or device of its own.

    Each submitted run ends in exactly one `Finished` or `Failed`, put into the source that the executor was built with.
    """

    def submit(self, run: Run) -> None:
        """Queue a run (at most one behind the one that runs). Returns at once; safe from the loop's thread."""
        ...

    def run_in_place(self, run: Run) -> Event:
        """Carry a run out on the calling thread and return how it ended. For very short runs, while no other is out."""
        ...

    def abort(self, run: int) -> None:
        """Ask that this run stop early. Returns at once; a run that is unknown or over is ignored."""
        ...

    def close(self) -> None:
        """Finish or abort what runs and release the device. Returns when it is done."""
        ...


class Source(Protocol):
    """Something the loop waits on: a transport, finished work, calls of other threads."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when there may be something to drain."""
        ...

    def drain(self) -> Iterable[Event]:
        """Everything that is there, without ever blocking."""
        ...

    def pending(self) -> bool:
        """Whether something is there although the descriptor may not show it (ZeroMQ's is edge-triggered)."""
        ...


class Transport(Source, Protocol):
    """A source that can send as well."""

    def send(self, send: Send) -> bool:
        """Hand one message over without blocking; False where the peer is not connected or its queue is full."""
        ...

    def close(self) -> None:
        """Close without lingering."""
        ...
