"""Scripted stand-ins for the ports, for tests: time that is moved by hand, messages that are given by hand.

They keep the ports' promises (a send is refused, not lost), so that what passes with them is not an accident of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shared.driver import Mailbox
from shared.errors import InvariantBroken
from shared.events import Action, Event, LinkDown, LinkUp, Received, Send
from shared.request import Buffer
from shared.wire.messages import Message


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ns: int = 1_000_000_000) -> None:
        self._now_ns = now_ns

    def now(self) -> int:
        """The time, nanoseconds."""
        return self._now_ns

    def advance(self, by_ns: int) -> int:
        """Move time forward; the new time."""
        if by_ns < 0:
            raise InvariantBroken(f"time does not run backwards ({by_ns} ns)")
        self._now_ns += by_ns
        return self._now_ns


class FakeSource(Mailbox):
    """A source whose events a test gives with `put`. `drains` counts how often the loop has looked."""

    def __init__(self) -> None:
        super().__init__()
        self.drains = 0

    def drain(self) -> Iterable[Event]:
        """Everything that was put."""
        self.drains += 1
        return super().drain()


class FakeTransport(FakeSource):
    """A `Transport` without a network. `sent` is what was handed over; links in `down` refuse, as do full ones.

    `room` bounds what each link takes until `taken` empties it (None: no bound).
    """

    def __init__(self, room: int | None = None) -> None:
        super().__init__()
        self.sent: list[Send] = []
        self.down: set[str] = set()
        self._room = room

    def send(self, send: Send) -> bool:
        """Take one message; False where its link is down or full."""
        if send.link in self.down:
            return False
        if self._room is not None and sum(s.link == send.link for s in self.sent) >= self._room:
            return False
        self.sent.append(send)
        return True

    def deliver(self, link: str, message: Message, frames: tuple[Buffer, ...] = ()) -> None:
        """A message comes in on `link`."""
        self.put(Received(link, message, frames))

    def connect(self, link: str) -> None:
        """The link comes up."""
        self.down.discard(link)
        self.put(LinkUp(link))

    def disconnect(self, link: str) -> None:
        """The link goes down."""
        self.down.add(link)
        self.put(LinkDown(link))

    def taken(self) -> list[Send]:
        """What was sent since the last call."""
        sent, self.sent = self.sent, []
        return sent


class FakeMachine:
    """A machine that records its events with their times and answers by `script`."""

    def __init__(self, script: Callable[[Event, int], list[Action]] | None = None) -> None:
        self._script = script
        self.handled: list[tuple[Event, int]] = []

    def handle(self, event: Event, now: int) -> list[Action]:
        """Record the event; the script's actions, or none."""
        self.handled.append((event, now))
        return [] if self._script is None else self._script(event, now)

    @property
    def events(self) -> list[Event]:
        """What was handled, in order."""
        return [event for event, _ in self.handled]
