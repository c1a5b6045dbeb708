"""Which streams of a client are open, between the threads that open and close them, the collector, and the client's loop.

What the loop's machine knows is behind by all the calls that wait for the loop, so that it cannot say whether there is room
for one more. Here each stream counts from the moment it is opened to the moment at which its end is on its way to the loop;
since calls reach the loop in their order, the machine then never has more than `MAX_STREAMS` and refuses none.

The collector may end a stream at any moment, in the middle of anything and before the loop has come to the stream's opening:
it takes no lock, and an end that comes before its opening takes it out.
"""

from __future__ import annotations

import threading
from collections import deque

from edge.announced import MAX_STREAMS
from shared.errors import InputError
from shared.events import Event, StreamClosed, StreamOpened

_OF_STREAMS = (StreamOpened, StreamClosed)


class OpenStreams:
    """The open streams of `client`. Each number is used once."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._open: set[int] = set()
        self._counting = threading.Lock()
        self._abandoned: deque[int] = deque()
        self._told: set[int] = set()
        self._early: set[int] = set()

    def open(self, stream: int) -> None:
        """Count a stream that is about to be told to the loop. Raises `InputError` where `MAX_STREAMS` are open. From any
        thread."""
        with self._counting:
            if len(self._open) >= MAX_STREAMS:
                raise InputError(f"{MAX_STREAMS} streams are open already: close those that have ended")
            self._open.add(stream)

    def close(self, stream: int) -> None:
        """Count a stream no more: its end has been told to the loop, or its opening never will be. From any thread."""
        self._open.discard(stream)

    def abandon(self, stream: int) -> None:
        """A stream is over, and the loop is told when it next has anything to do. From any thread and from the collector."""
        self._abandoned.append(stream)
        self._open.discard(stream)

    @property
    def waiting(self) -> int:
        """How many ends the loop is still to be told."""
        return len(self._abandoned) + len(self._early)

    def concerns(self, event: Event) -> bool:
        """Whether the machine is to be given what `told` says, in place of this event. From the loop's thread."""
        return bool(self._abandoned) or isinstance(event, _OF_STREAMS)

    def told(self, event: Event) -> list[Event]:
        """What the machine is to be given now: the ends of what was abandoned, then `event`, unless it opens what is over
        already. From the loop's thread."""
        told: list[Event] = []
        while self._abandoned:
            stream = self._abandoned.popleft()
            if stream in self._told:
                self._told.discard(stream)
                told.append(StreamClosed(self._client, stream))
            else:
                self._early.add(stream)
        match event:
            case StreamOpened():
                if event.stream in self._early:
                    self._early.discard(event.stream)
                    return told
                self._told.add(event.stream)
            case StreamClosed():
                self._told.discard(event.stream)
            case _:
                pass
        return [*told, event]
