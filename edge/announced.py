"""Streams as a client announces them: what an agent is told of each, and what it promises in return.

An agent may be away when a stream is opened or closed, may come back with or without its memory, and may be one of two. So
nothing is sent when the application opens or closes a stream; what is kept is the difference between what should be open
at an agent and what it may believe to be open, and `news` says whatever makes the two alike. One rule then covers
opening, closing, restarts, lost connections and full queues. Rejected: sending at once and again at each attach, which
leaves the streams that were closed meanwhile open at an agent that never went away.

Streams are announced to the agent that requests go to and to no other: a promise of an agent that gets no frames would
only keep its executors from other work.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edge.door import MAX_DEADLINE_NS
from shared.errors import InputError
from shared.wire.messages import CloseStream, OpenStream

LEAST_PERIOD_NS = 100_000
"""The shortest period that may be announced: 10,000 requests a second."""

MAX_STREAMS = 1024
"""Streams that one client may have open."""


class StreamPromise(msgspec.Struct, frozen=True, gc=False):
    """What each request of a stream can count on: the local answer `rung`; None where nothing is promised, for `reason`
    (`overload`, `no-route`, `input`, `full`, `agent`, `contract`, `closed`), which is empty before the agent has spoken."""

    rung: str | None = None
    reason: str = ""


NOTHING_YET = StreamPromise()


def check_announcement(announced: OpenStream, levels: int, most_rows: int) -> None:
    """Raises `InputError` for what no stream may be: `levels` is how many priorities there are, `most_rows` the most rows of
    a request of its model."""
    if announced.stream < 1:
        raise InputError(f"stream: expected a number from 1, got {announced.stream}")
    if not 1 <= announced.rows <= most_rows:
        raise InputError(f"rows: expected 1 to {most_rows}, got {announced.rows}")
    if not LEAST_PERIOD_NS <= announced.period_ns <= MAX_DEADLINE_NS:
        raise InputError(f"period: expected 0.1 ms to an hour, got {announced.period_ns / 1e6} ms")
    if not 1 <= announced.deadline_ns <= MAX_DEADLINE_NS:
        raise InputError(f"deadline: expected up to an hour, got {announced.deadline_ns / 1e6} ms")
    if not 0 <= announced.priority < levels:
        raise InputError(f"priority: expected 0 to {levels - 1}, got {announced.priority}")


class _Agent:
    """What one agent was told: the streams that it may believe to be open, and those about which it is to be told anew."""

    __slots__ = ("due", "incarnation", "open", "there")

    def __init__(self) -> None:
        self.there = False
        self.incarnation: int | None = None
        self.open: set[int] = set()
        self.due: set[int] = set()


class Announced:
    """The streams of one client and its `agents` agents. An `OpenStream` here has the model's name, or nothing where the
    application left it to the agent, which then has one only. `promises` is replaced, never changed, so that any thread may
    read it."""

    def __init__(self, agents: int = 1) -> None:
        self._announced: dict[int, OpenStream] = {}
        self._agents = tuple(_Agent() for _ in range(agents))
        self._asking: int | None = None
        self._restless = False
        self.promises: Mapping[int, StreamPromise] = {}

    def __len__(self) -> int:
        return len(self._announced)

    # --- the application ----------------------------------------------------------------------------------------------

    def open(self, announced: OpenStream) -> bool:
        """A stream is open from now on; False, and nothing done, where `MAX_STREAMS` are already."""
        number = announced.stream
        if len(self._announced) >= MAX_STREAMS and number not in self._announced:
            return False
        self._announced[number] = announced
        self.promises = {**self.promises, number: NOTHING_YET}
        for agent in self._agents:
            if agent.there:
                agent.due.add(number)
        self._restless = True
        return True

    def close(self, number: int) -> None:
        """No more requests of this stream will come."""
        if self._announced.pop(number, None) is None:
            return
        self.promises = {known: promise for known, promise in self.promises.items() if known != number}
        for agent in self._agents:
            if number in agent.open:
                agent.due.add(number)
            else:
                agent.due.discard(number)
        self._restless = True

    # --- the agents ---------------------------------------------------------------------------------------------------

    def attached(self, number: int, incarnation: int) -> None:
        """Agent `number` has answered a greeting: told again is what it cannot know, or may have lost."""
        agent = self._agents[number]
        if agent.incarnation != incarnation:
            agent.incarnation = incarnation
            agent.open.clear()
        if not agent.there:
            agent.there = True
            agent.due |= agent.open | self._announced.keys()
            self._restless = True

    def lost(self, number: int) -> None:
        """Agent `number` is away."""
        self._agents[number].there = False

    def unsaid(self, number: int, stream: int) -> None:
        """What agent `number` was to be told of this stream did not leave; it is in `news` again."""
        agent = self._agents[number]
        agent.open.add(stream)
        agent.due.add(stream)
        self._restless = True

    def news(self, asking: int | None) -> list[tuple[int, OpenStream | CloseStream]]:
        """What is to be said now, requests being asked of agent `asking`: to which agent, and what."""
        if asking == self._asking and not self._restless:
            return []
        if asking != self._asking:
            self._asking = asking
            promise = NOTHING_YET if asking is not None else StreamPromise(None, "agent")
            self.promises = dict.fromkeys(self._announced, promise)
            for agent in self._agents:
                agent.due |= agent.open | self._announced.keys()
        self._restless = False
        return [said for number, agent in enumerate(self._agents) if agent.there for said in self._told(number, agent)]

    def _told(self, number: int, agent: _Agent) -> list[tuple[int, OpenStream | CloseStream]]:
        said: list[tuple[int, OpenStream | CloseStream]] = []
        for stream in sorted(agent.due):
            announced = self._announced.get(stream) if number == self._asking else None
            if announced is not None:
                agent.open.add(stream)
                said.append((number, announced))
            elif stream in agent.open:
                agent.open.discard(stream)
                said.append((number, CloseStream(stream)))
        agent.due.clear()
        return said

    def promised(self, number: int, stream: int, promise: StreamPromise) -> bool:
        """Agent `number` says what it promises; False where nobody asked it for that, and nothing is changed."""
        if number != self._asking or stream not in self._announced:
            return False
        self.promises = {**self.promises, stream: promise}
        return True

    def not_announced(self, number: int, stream: int, reason: str) -> None:
        """Agent `number` cannot be told of this stream after all, since it could not serve it, for `reason`."""
        self._agents[number].open.discard(stream)
        self.promised(number, stream, StreamPromise(None, reason))
