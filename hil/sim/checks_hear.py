"""How a check hears of what it looks at: by naming the events, messages and actions that concern it.

A run has ten thousands of steps a second and eighteen checks, each of which has to do with a few of them. So a step is not
shown to every check: it is looked up what it consists of, and only those are called that asked for it. In a step the event
comes first, then the actions in their order, then whoever wants to look at the end of each step. Of one thing those
hear first who asked first: the books, so that a check finds what it is about already looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from shared.events import Action, Event, Received, Send
from shared.wire.messages import Message

B = TypeVar("B")
E = TypeVar("E")
A = TypeVar("A")
M = TypeVar("M")

NOBODY: tuple[Callable[..., None], ...] = ()
Called = dict[type, tuple[Callable[..., None], ...]]


class Ears(Generic[B]):
    """Who listens to the steps of one kind of machine, whose book is a `B`."""

    def __init__(self) -> None:
        self._events: Called = {}
        self._received: Called = {}
        self._actions: Called = {}
        self._sent: Called = {}
        self._ends_of: Called = {}
        self._ends: tuple[Callable[[B, Event, int], None], ...] = ()

    def event(self, kind: type[E], call: Callable[[B, E, int], None]) -> None:
        """Call with each event of this kind: the book, the event, the local time."""
        self._events[kind] = (*self._events.get(kind, NOBODY), call)

    def received(self, kind: type[M], call: Callable[[B, M, Received, int], None]) -> None:
        """Call with each message of this kind that came in, and its event."""
        self._received[kind] = (*self._received.get(kind, NOBODY), call)

    def action(self, kind: type[A], call: Callable[[B, A, Event, int], None]) -> None:
        """Call with each action of this kind, and the event that led to it."""
        self._actions[kind] = (*self._actions.get(kind, NOBODY), call)

    def sent(self, kind: type[M], call: Callable[[B, M, Send, Event, int], None]) -> None:
        """Call with each message of this kind that is sent, its action, and the event that led to it."""
        self._sent[kind] = (*self._sent.get(kind, NOBODY), call)

    def end_of(self, kind: type[E], call: Callable[[B, E, int], None]) -> None:
        """Call at the end of each step with an event of this kind."""
        self._ends_of[kind] = (*self._ends_of.get(kind, NOBODY), call)

    def end(self, call: Callable[[B, Event, int], None]) -> None:
        """Call at the end of each step."""
        self._ends = (*self._ends, call)

    def hear(self, book: B, event: Event, actions: Sequence[Action], now: int) -> None:
        """A machine has taken one step."""
        kind = type(event)
        for call in self._events.get(kind, NOBODY):
            call(book, event, now)
        if type(event) is Received:
            message: Message = event.message
            for call in self._received.get(type(message), NOBODY):
                call(book, message, event, now)
        for action in actions:
            if type(action) is Send:
                for call in self._sent.get(type(action.message), NOBODY):
                    call(book, action.message, action, event, now)
            else:
                for call in self._actions.get(type(action), NOBODY):
                    call(book, action, event, now)
        for call in self._ends_of.get(kind, NOBODY):
            call(book, event, now)
        for end in self._ends:
            end(book, event, now)
