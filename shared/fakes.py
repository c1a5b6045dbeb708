"""Scripted stand-ins for the ports, for tests and rigs: time that is moved by hand, messages and work that are given by hand.

They keep the ports' promises (a send is refused, not lost; a run ends exactly once), so that what passes with them is
not an accident of theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

from shared.driver import Mailbox
from shared.errors import InvariantBroken
from shared.events import Action, Event, Failed, Finished, LinkDown, LinkUp, Received, RowResult, Run, Send
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

    def drain(self, now: int) -> Iterable[Event]:
        """Everything that was put."""
        self.drains += 1
        return super().drain(now)


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

    def deliver(self, link: str, message: Message, frames: tuple[Buffer, ...] = (), nbytes: int = 0) -> None:
        """A message comes in on `link`."""
        self.put(Received(link, message, frames, nbytes))

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


class FakeExecutor:
    """An `Executor` whose runs end when a test says so, or at once by `script`.

    `put` receives the events (a `Mailbox.put`). Runs that were submitted and have not ended are in `waiting`, oldest first.
    """

    def __init__(
        self, put: Callable[[Event], None], script: Callable[[Run], tuple[RowResult, ...]] | None = None
    ) -> None:
        self._put = put
        self._script = script
        self.waiting: deque[Run] = deque()
        self.submitted: list[Run] = []
        self.closed = False

    def submit(self, run: Run) -> None:
        """Take a run; with a script it ends at once, at time 0 to 0."""
        if self.closed:
            raise InvariantBroken(f"run {run.run} was submitted to a closed executor")
        self.submitted.append(run)
        self.waiting.append(run)
        if self._script is not None:
            self.finish(self._script(run))

    def run_in_place(self, run: Run) -> Event:
        """Carry a run out at once, by the script."""
        if self._script is None:
            raise InvariantBroken(f"run {run.run} is to be carried out in place by an executor without a script")
        self.submitted.append(run)
        return Finished(run.run, self._script(run), 0, 0)

    def finish(self, results: tuple[RowResult, ...], began_ns: int = 0, ended_ns: int = 0, codec_ns: int = 0) -> None:
        """The oldest run ends well."""
        self._put(Finished(self.waiting.popleft().run, results, began_ns, ended_ns, codec_ns))

    def fail(self, reason: Literal["window", "aborted", "error"], detail: str = "") -> None:
        """The oldest run comes to nothing."""
        self._put(Failed(self.waiting.popleft().run, reason, detail))

    def abort(self, run: int) -> None:
        """End a run that waits as `aborted`; others are ignored."""
        for waiting in self.waiting:
            if waiting.run == run:
                self.waiting.remove(waiting)
                self._put(Failed(run, "aborted"))
                return

    def close(self) -> None:
        """Abort what waits."""
        while self.waiting:
            self.fail("aborted")
        self.closed = True


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
