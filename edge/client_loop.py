"""The client's loop: one driver, one machine, and the tickets of those who wait.

It has a thread of its own. A caller that is to wait for an outcome leads the loop meanwhile (`shared.leadership`), where
nobody else waits for one: tickets of others, which may call what the application likes, are ended on the loop's own thread.

The application's process is not ours: nothing here touches the thread switch interval or the collector, signals are but
put off for the moment of a turn (`edge.shield`), and the thread is a daemon, so that it never keeps an interpreter alive.
Every ticket ends, whatever happens to the loop: whoever puts a ticket in looks afterwards whether the loop has ended, and the
loop, when it ends, says so before it ends the tickets that are left. One of the two always sees the other, and a ticket
belongs to whoever takes it out of the table. What the application's own code raises here, in the callback of a future, is
logged: it would end the requests of all other callers.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from edge.announced import NOTHING_YET, StreamPromise
from edge.door import seconds
from edge.leading import Leading
from edge.open_streams import OpenStreams
from edge.owed import Counts
from edge.put_off import PutOff
from edge.shield import Shield
from edge.stack import has_stack
from edge.stub import Given
from edge.tickets import Ticket, WaitTicket, report
from shared.driver import Driver, JumpWatch, Mailbox
from shared.errors import HeadtailError, JournalError
from shared.events import Action, Arrived, Event, Resolve, StreamClosed, StreamOpened, Withdrawn
from shared.lateness import Lateness
from shared.polling import Polling
from shared.ports import Machine, Source
from shared.request import Outcome, Rejected, Request
from shared.thread_heap import grown_heap
from shared.wire.messages import ModelInfo

CLOSED = StreamPromise(None, "closed")

JOIN_S = 5.0
"""How long closing waits for the loop's thread."""


class ClientMachine(Machine, Protocol):
    """What the loop needs of its machine: `edge.stub.Stub` or `edge.direct.Direct`."""

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """The agent's models by name; empty before the first attach. May be read from any thread."""
        ...

    @property
    def attached(self) -> bool:
        """Whether the agent is there now. May be read from any thread."""
        ...

    @property
    def counts(self) -> Counts:
        """What came of the requests so far."""
        ...

    @property
    def asking(self) -> int | None:
        """The agent that is asked now, `PRIMARY` or `STANDBY`; None where none is there. May be read from any thread."""
        ...

    @property
    def lateness(self) -> Lateness:
        """How long after its deadline each outcome was decided."""
        ...

    @property
    def faults(self) -> Mapping[str, int]:
        """Messages of the agent that were refused, by reason."""
        ...

    @property
    def promises(self) -> Mapping[int, StreamPromise]:
        """What the open streams are promised; replaced where that changes. May be read from any thread."""
        ...

    def defer(self, sequence: int, model: str | None, given: Given) -> None:
        """Keep what the caller gave for a request that cannot be checked before the attach. From any thread."""
        ...

    def forget(self, sequence: int) -> None:
        """A request that was deferred will not arrive after all. From any thread."""
        ...

    def close(self, now: int) -> list[Action]:
        """End every open request."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What stands behind a client: its machine, who carries out the actions that leave the process, what the loop waits
    on besides the application's calls, and how all of it is released (on the loop's thread). `room` bounds the calls that
    wait for the loop, and with them the tensors that they hold. `idle` is called before the loop sleeps; `save_journal`
    writes the agent's journal, where the agent is part of this; `heap_bytes` is what the loop's thread has ready in its
    heap; `polling` and `expects` are the driver's; `jumps` finds that the host was suspended, by the system's clocks where
    None."""

    machine: ClientMachine
    perform: Callable[[Action], Event | None]
    release: Callable[[], None]
    completions: Sequence[Source] = ()
    transports: Sequence[Source] = ()
    room: int = 4096
    idle: Callable[[int], None] | None = None
    save_journal: Callable[[Path], int] | None = None
    heap_bytes: int = 0
    polling: Polling | None = None
    expects: Callable[[], str | None] | None = None
    jumps: JumpWatch | None = None


def room_for(max_open: int) -> int:
    """Calls that may wait for the loop of a client that has `max_open` requests open: as many again, twice, since a
    request and its withdrawal are two calls."""
    return 64 + 2 * max_open


@dataclass(slots=True)
class _State:
    """What callers and the loop share. `closing`: the loop is to end, or has; `ended`: it takes nothing any more."""

    tickets: dict[int, Ticket] = field(default_factory=dict[int, Ticket])
    closing: bool = False
    ended: bool = False
    why: str = "the client is closed"


class ClientLoop:
    """Runs a machine on a thread of its own. All methods but the thread's own may be called from any thread."""

    def __init__(self, name: str, parts: Parts) -> None:
        self._name = name
        self._parts = parts
        self._state = _State()
        self._mailbox = Mailbox(parts.room)
        self._let_go = weakref.finalize(self, _let_go, self._mailbox, os.getpid())
        self._let_go.atexit = False
        self._machine = parts.machine
        self._driver = Driver(
            self,
            self._perform,
            completions=parts.completions,
            transports=parts.transports,
            arrivals=(self._mailbox,),
            jumps=parts.jumps,
            polling=parts.polling,
            expects=parts.expects,
            idle=self._idle,
            back=self._pay,
            lent=True,
        )
        self._shield = Shield(self._driver.call)
        self._led: WaitTicket | None = None
        self._owed: deque[tuple[Ticket, Outcome]] = deque()
        self._put_off = PutOff()
        self._leading = Leading()
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._attached = parts.machine.attached
        self._promises = parts.machine.promises
        self._streams = OpenStreams(name)
        self._released = False
        self._thread = threading.Thread(target=self._run, name=f"headtail-{name}", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system has no thread left
            self._driver.close()
            self._let_go()
            raise

    @property
    def pid(self) -> int:
        """The process that this belongs to."""
        return self._pid

    @property
    def machine(self) -> ClientMachine:
        """The machine, for what may be read from any thread."""
        return self._machine

    @property
    def attached(self) -> bool:
        """Whether an agent is there, and this loop to ask it."""
        return self._machine.attached and not self._state.closing

    @property
    def asking(self) -> int | None:
        """The agent that is asked now; None where none is there, and once this is closed."""
        return None if self._state.closing else self._machine.asking

    def handle(self, event: Event, now: int) -> list[Action]:
        """The machine's own `handle`; tells those who wait for it when the agent comes or goes, or changes a promise. For
        the driver only."""
        machine = self._machine
        if self._streams.concerns(event):
            actions = [action for each in self._streams.told(event) for action in machine.handle(each, now)]
        else:
            actions = machine.handle(event, now)
        if self._attached is not machine.attached or self._promises is not machine.promises:
            with self._changed:
                self._attached = machine.attached
                self._promises = machine.promises
                self._changed.notify_all()
        return actions

    def post(self, request: Request, ticket: Ticket) -> None:
        """Hand a request to the machine; `ticket` gets its outcome."""
        state = self._state
        self._leading.asked(threading.get_ident(), time.monotonic_ns())
        state.tickets[request.sequence] = ticket
        if not state.ended:
            taken = self._mailbox.offer(Arrived(request))
            if not taken:
                self._end(request, Rejected("too-many-open", "the client's own queue is full"))
        if state.ended:
            self._end(request, Rejected("closed", state.why))

    def ask(self, request: Request, ticket: WaitTicket) -> Outcome:
        """Hand a request to the machine and wait for its outcome. What a signal's handler raises comes through."""
        may = self._leading.may(time.monotonic_ns())
        if may and not self._state.tickets and not self._owed and has_stack():
            try:
                with self._shield:
                    led = self._lead(request, ticket)
            except BaseException:
                self._shield.lower()  # what a trace function raises may come in the middle of its end
                raise
        else:
            led = False
        if not led:
            self.post(request, ticket)
        outcome = ticket.wait()
        self._leading.had(time.monotonic_ns())
        return outcome

    def _lead(self, request: Request, ticket: WaitTicket) -> bool:
        """Lead the loop for a request; False, and nothing done, where that cannot be."""
        driver = self._driver
        try:
            led = driver.take()
            if led:
                self._led = ticket
                self._mailbox.watch()
                self.post(request, ticket)
                driver.lead(partial(self._over, request.sequence))
        finally:
            try:
                driver.give_back()
            finally:  # what is raised may come in the middle of that, too
                driver.give_back()
        return led

    def _over(self, sequence: int) -> bool:
        """Whether the caller that leads the loop for a request is to leave it: it has its outcome, others wait for theirs, be
        they there already, or a signal has come."""
        tickets = self._state.tickets
        return sequence not in tickets or len(tickets) > 1 or bool(self._owed) or self._shield.held

    def withdraw(self, sequence: int) -> None:
        """Forget a request: its ticket is dropped and the agent told. Does nothing where it is over. Raises `HeadtailError`
        in a forked child."""
        self.check_process()
        ticket = self._state.tickets.pop(sequence, None)
        if ticket is not None:
            if not self._state.ended:
                self._mailbox.offer(Withdrawn(self._name, sequence))
            ticket.drop()

    def open_stream(self, opened: StreamOpened) -> None:
        """Announce a stream; one of a client that has ended is promised nothing. Raises `InputError` where `MAX_STREAMS` are
        open, and `HeadtailError` where too many calls wait for the loop already."""
        self._streams.open(opened.stream)
        if not self._state.ended and not self._mailbox.offer(opened):
            self._streams.close(opened.stream)
            raise HeadtailError("the client's own queue is full: too many calls are made at once")

    def close_stream(self, stream: int) -> None:
        """A stream is over. Does nothing in a forked child, where the parent's goes on."""
        if os.getpid() != self._pid:
            return
        if self._state.ended or self._mailbox.offer(StreamClosed(self._name, stream)):
            self._streams.close(stream)
        else:
            self._streams.abandon(stream)

    def abandon_stream(self, stream: int) -> None:
        """Nobody holds a stream any more: it is closed when the loop next has anything to do. The collector calls this, maybe
        in the middle of something else on this very thread, so that no lock may be taken."""
        self._streams.abandon(stream)

    def promise(self, stream: int) -> StreamPromise:
        """What a stream is promised now. Raises `HeadtailError` in a forked child."""
        self.check_process()
        if self._state.closing:
            return CLOSED
        return self._machine.promises.get(stream, NOTHING_YET)

    def wait_promise(self, stream: int, timeout_s: float) -> bool:
        """Block until the agent has said what it promises to a stream; False where it has not after `timeout_s`. Raises as
        `wait_attached`."""
        known = partial(self._promised, stream)
        return self._wait("wait_promise()", known, timeout_s) and not self._state.closing

    def wait_attached(self, timeout_s: float) -> bool:
        """Block until the agent is there; False where it is not after `timeout_s`. Raises `InputError` for what is no time,
        and `HeadtailError` in a forked child and on the loop's own thread."""
        known = self._wait("wait_attached()", lambda: self._attached or self._state.closing, timeout_s)
        return known and not self._state.closing

    def _promised(self, stream: int) -> bool:
        return self._state.closing or self._machine.promises.get(stream, NOTHING_YET) != NOTHING_YET

    def _wait(self, what: str, known: Callable[[], bool], timeout_s: float) -> bool:
        self.check_process()
        wait_s = seconds("timeout_s", timeout_s)
        with self._changed:
            if wait_s and not known():
                self.check_may_wait(what)
            return self._changed.wait_for(known, wait_s)

    def save_journal(self, path: Path) -> int:
        """Write the journal of an embedded agent; how many steps it holds. Raises `JournalError`."""
        self.check_process()
        if self._parts.save_journal is None:
            raise JournalError("the agent is a process of its own: the signal USR1 has it save its journal")
        return self._parts.save_journal(path)

    def on_loop(self) -> bool:
        """Whether the calling thread is the loop's own, or turns the loop in its place, or is about to."""
        if threading.current_thread() is self._thread or self._driver.leader == threading.get_ident():
            return True
        return self._shield.up()

    def check_may_wait(self, what: str) -> None:
        """Raise `HeadtailError` on the loop's own thread; `what` is the call that would wait."""
        if self.on_loop():
            raise HeadtailError(
                f"{what} would block the client's own loop: a future's callback may not wait for the client"
            )

    def check_process(self) -> None:
        """Raise `HeadtailError` where this process is a fork of the one that made the client."""
        if os.getpid() != self._pid:
            raise HeadtailError(
                f"this client was made in process {self._pid}; a forked child makes a Client of its own, after the fork"
            )

    def shutdown(self) -> None:
        """End the loop and every open request, then release everything, and wait until that is done, unless the loop's own
        thread calls. May be called more than once."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._state.closing = True
            self._changed.notify_all()
            if not self._released:
                self._driver.stop()
        if not self.on_loop():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            with grown_heap(self._parts.heap_bytes):
                self._driver.run()
            self._state.closing = self._state.ended = True
            self._close(time.monotonic_ns())
        except BaseException as error:
            self._state.why = f"the client's loop broke: {error!r}"
            raise
        finally:
            self._state.closing = self._state.ended = True
            self._finish()

    def _close(self, now: int) -> None:
        """End what is open, and what was asked and not looked at yet."""
        actions = self._machine.close(now)
        for event in self._mailbox.drain():
            if isinstance(event, Arrived):
                actions += self._machine.handle(event, now)
        for action in actions:
            self._perform(action)

    def _finish(self) -> None:
        self._pay()
        tickets = self._state.tickets
        outcome = Rejected("closed", self._state.why)
        while tickets:
            try:
                _, ticket = tickets.popitem()
            except KeyError:
                break
            _resolve(ticket, outcome)
        if self._led is not None and not self._led.over:  # the loop broke between taking the ticket and ending it
            _resolve(self._led, outcome)
        with self._changed:
            self._released = True
            self._driver.close()
            self._changed.notify_all()
        self._let_go()
        self._parts.release()

    def _end(self, request: Request, outcome: Rejected) -> None:
        self._machine.forget(request.sequence)
        ticket = self._state.tickets.pop(request.sequence, None)
        if ticket is not None:
            _resolve(ticket, outcome)

    def _perform(self, action: Action) -> Event | None:
        if type(action) is Resolve:
            ticket = self._state.tickets.pop(action.sequence, None)
            if ticket is not None:
                self._put_off.gave()
                self._give(ticket, action.outcome)
            return None
        return self._parts.perform(action)

    def _give(self, ticket: Ticket, outcome: Outcome) -> None:
        """End a ticket: on the loop's own thread, unless it is that of the caller who leads the loop."""
        if ticket is self._led:
            ticket.resolve(outcome)
            self._led = None  # a ticket keeps its outcome
        elif self._driver.leader is None:
            _resolve(ticket, outcome)
        else:
            self._owed.append((ticket, outcome))
            self._driver.call()

    def _idle(self, slack_ns: int) -> None:
        """The loop is about to sleep, for up to `slack_ns`."""
        if self._parts.idle is not None and self._put_off.due():
            self._parts.idle(slack_ns)

    def _pay(self) -> None:
        """End the tickets whose outcomes came while a caller led the loop. On the loop's own thread."""
        while self._owed:
            _resolve(*self._owed.popleft())


def _let_go(mailbox: Mailbox, pid: int) -> None:
    """Close a mailbox, at the latest when nobody holds its loop: in a forked child without its lock, which a thread of the
    parent may have held."""
    if os.getpid() == pid:
        mailbox.close()
    else:
        os.close(mailbox.fileno())


def _resolve(ticket: Ticket, outcome: Outcome) -> None:
    """End a ticket. A caller's may be of any make, and lead to anything, such as a callback that ends its thread."""
    try:
        ticket.resolve(outcome)
    except BaseException as error:
        report(f"a ticket, {type(ticket).__name__}, could not be given its outcome", error)
