"""How a process takes events: the turn of `shared.driver`, on virtual time, for all processes of the world.

An event is handled, its actions are carried out in their order, what fails at once follows, and then the timer is looked at.
A run that is carried out in place keeps the loop busy: the rest of the step waits for it, and so does all that comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from msgspec.structs import replace

from hil.sim.agenda import Agenda
from hil.sim.device import VirtualExecutor
from hil.sim.hosts import NEVER, Process
from hil.sim.net import Way
from hil.sim.trace import Trace
from hil.sim.watch import Watch
from shared.errors import InvariantBroken
from shared.events import (
    TOGETHER,
    Abort,
    Action,
    Arrived,
    ClockJumped,
    Dial,
    DirectorySeen,
    Draining,
    Event,
    Failed,
    Finished,
    HangUp,
    Leave,
    Received,
    Resolve,
    Run,
    Send,
    SendFailed,
    Tick,
    WakeAt,
)
from shared.request import Buffer

MAX_FOLLOWERS = 10_000
"""Events that one event may cause by actions that fail at once, as in `shared.driver`."""

SWEEP_STEPS = 512
"""Steps between two looks at everything."""

LEAST_JUMP_NS = 50_000_000
"""A shorter suspension is not noticed, as in `shared.driver`."""


class Wire(Protocol):
    """What the loop needs of the network."""

    def send(self, sender: Process, send: Send, at: int) -> bool:
        """Hand a message over; False where it is refused."""
        ...

    def redial(self, dealer: Process, link: str, at: int) -> None:
        """Make a connection anew."""
        ...

    def hang_up(self, dealer: Process, link: str, at: int) -> None:
        """End a connection for good."""
        ...

    def decoded(self, receiver: Process, way: Way, frames: list[Buffer]) -> Received | None:
        """The message in these frames as an event; None where it is none."""
        ...


class Users(Protocol):
    """What the loop needs of the applications."""

    def ended(self, process: Process, resolve: Resolve, at: int) -> None:
        """An outcome has reached its application."""
        ...

    def left(self, process: Process, at: int) -> None:
        """A process has nothing left to do, and ends."""
        ...

    def ask_late(self, process: Process, at: int) -> None:
        """What an application would have asked while it stood still, it asks now."""
        ...


class Timer:
    """One setting of a process's timer."""

    __slots__ = ("loops", "process", "set_for")

    def __init__(self, loops: Loops, process: Process, set_for: int) -> None:
        self.loops = loops
        self.process = process
        self.set_for = set_for

    def happen(self, at: int) -> None:
        """It rings."""
        self.loops.rang(self.process, self.set_for, at)


class Sweep:
    """A look at everything, when all that happens at this time has happened."""

    __slots__ = ("trace", "watch")

    def __init__(self, watch: Watch, trace: Trace) -> None:
        self.watch = watch
        self.trace = trace

    def happen(self, at: int) -> None:
        """It is taken."""
        self.trace.settle()
        self.watch.sweep(at)


class Busy:
    """A run that a loop carries out in place, until `due`, and what is left of the step that it came up in."""

    __slots__ = ("actions", "due", "executor", "followers", "left", "loops", "process")

    def __init__(
        self,
        loops: Loops,
        process: Process,
        executor: VirtualExecutor,
        due: int,
        actions: Sequence[Action],
        followers: deque[Event],
    ) -> None:
        self.loops = loops
        self.process = process
        self.executor = executor
        self.due = due
        self.left = 0
        self.actions = actions
        self.followers = followers

    def happen(self, at: int) -> None:
        """The run is over, unless the process has stood still meanwhile."""
        process = self.process
        if process.alive and process.busy is self and not process.frozen and at >= self.due:
            process.busy = None
            self.followers.append(self.executor.end_in_place(at))
            if self.loops.carry_out(process, self.actions, self.followers, at):
                self.loops.catch_up(process, at)


class Loops:
    """The loops of all processes. `join` comes before the first event."""

    def __init__(self, agenda: Agenda, watch: Watch, trace: Trace, counters: dict[str, int]) -> None:
        self._agenda = agenda
        self._stepped = watch.stepped
        self._note = trace.add
        self._counters = counters
        self._sweep = Sweep(watch, trace)
        self._send: Callable[[Process, Send, int], bool] = _unjoined
        self._decoded: Callable[[Process, Way, list[Buffer]], Received | None] = _unjoined
        self._ended: Callable[[Process, Resolve, int], None] = _unjoined
        self._ask_late: Callable[[Process, int], None] = _unjoined
        self._redial: Callable[[Process, str, int], None] = _unjoined
        self._hang_up: Callable[[Process, str, int], None] = _unjoined
        self._left: Callable[[Process, int], None] = _unjoined
        self.steps = 0

    def join(self, wire: Wire, users: Users) -> None:
        """Know the network and the applications, which in turn know the loops."""
        self._send, self._decoded = wire.send, wire.decoded
        self._redial, self._hang_up = wire.redial, wire.hang_up
        self._ended, self._ask_late, self._left = users.ended, users.ask_late, users.left

    # --- a turn -----------------------------------------------------------------------------------------------------

    def turn(self, process: Process, event: Event, at: int) -> None:
        """Take one event, then look at the timer."""
        if process.jumped:
            self._jump(process, at)
        if self.feed(process, event, at) and process.wake_true <= at:
            self._fire(process, at)

    def deliver(self, process: Process, event: Finished | Failed | Arrived | Draining | DirectorySeen, at: int) -> None:
        """Take how a run ended, or what the application asks: now, or when the loop comes to it."""
        if process.frozen or process.busy:
            if isinstance(event, Arrived | Draining | DirectorySeen):
                process.arrivals.append(event)
            else:
                process.completions.append(event)
        else:
            self.turn(process, event, at)

    def feed(self, process: Process, event: Event, at: int) -> bool:
        """Take one event and carry out what comes of it; False where the loop is busy with a run since then."""
        return self.carry_out(process, self._handle(process, event, at), None, at)

    def carry_out(self, process: Process, actions: Sequence[Action], followers: deque[Event] | None, at: int) -> bool:
        """Carry actions out, then take the events that follow; False where the loop is busy with a run since then."""
        count = 0
        while True:
            index = 0
            for action in actions:
                index += 1
                if isinstance(action, Send):
                    if self._send(process, action, at):
                        continue
                    follows: Event = SendFailed(action.link, action.message)
                elif isinstance(action, WakeAt):
                    self._wake(process, action.at_ns, at)
                    continue
                elif isinstance(action, Run):
                    executor = process.executors[action.executor]
                    self._note((action.run, action.executor, action.slot, action.latest_ns))
                    if not action.in_place:
                        executor.submit(action, at)
                        continue
                    lasts = executor.begin_in_place(action, at)
                    if lasts:
                        rest = actions[index:]
                        busy = Busy(self, process, executor, at + lasts, rest, followers or deque())
                        process.busy = busy
                        self._agenda.put(busy.due, busy)
                        return False
                    follows = executor.end_in_place(at)
                elif isinstance(action, Resolve):
                    self._ended(process, action, at)
                    continue
                elif isinstance(action, Dial):
                    self._redial(process, action.link, at)
                    continue
                elif isinstance(action, HangUp):
                    self._hang_up(process, action.link, at)
                    continue
                elif isinstance(action, Leave):
                    self._left(process, at)
                    continue
                else:
                    if isinstance(action, Abort):
                        self._note((action.run,))
                        process.executors[action.executor].abort(action.run, at)
                    continue
                if followers is None:
                    followers = deque()
                followers.append(follows)
            if not followers:
                return True
            count += 1
            if count > MAX_FOLLOWERS:
                raise InvariantBroken(f"actions keep failing at once and being tried again: {followers[0]!r:.200}")
            actions = self._handle(process, followers.popleft(), at)

    def _handle(self, process: Process, event: Event, at: int) -> list[Action]:
        now = process.clock.local(at)
        try:
            actions = process.handle(event, now)
        except Exception as error:
            error.add_note(f"at {at} ns, {process.name} (incarnation {process.incarnation}) handling {event!r:.400}")
            raise
        self.steps += 1
        self._note((at, process.number, now, len(actions)))
        self._stepped(process, event, actions, at)
        if not self.steps % SWEEP_STEPS:
            self._agenda.put_last(at, self._sweep)
        return actions

    # --- time -------------------------------------------------------------------------------------------------------

    def _wake(self, process: Process, at_ns: int, at: int) -> None:
        self._note((at_ns,))
        process.wake_local = at_ns
        process.wake_true = due = process.clock.true(at_ns)
        if due < process.armed:
            self._arm(process, at)

    def _arm(self, process: Process, at: int) -> None:
        due = process.wake_true
        if due < process.armed:
            process.armed = due
            late = next(process.lateness) * process.late
            self._agenda.put_last((at if due < at else due) + late, Timer(self, process, due))

    def rang(self, process: Process, set_for: int, at: int) -> None:
        """A timer rings, perhaps for nothing."""
        if process.armed == set_for:
            process.armed = NEVER
        if process.alive and not process.frozen and not process.busy:
            if process.wake_true <= at:
                if process.jumped:
                    self._jump(process, at)
                self._fire(process, at)
            elif process.wake_true != NEVER:
                self._arm(process, at)

    def _fire(self, process: Process, at: int) -> None:
        if process.wake_true <= at and not process.busy:
            late = process.clock.local(at) - process.wake_local
            process.wake_true = NEVER
            self.feed(process, Tick(late), at)

    def _jump(self, process: Process, at: int) -> None:
        """The loop wakes up and sees that its host was suspended, before it looks at anything else."""
        jumped, process.jumped = process.jumped, 0
        if jumped >= LEAST_JUMP_NS:
            self._counters["clock-jumped"] = self._counters.get("clock-jumped", 0) + 1
            self.feed(process, ClockJumped(jumped), at)

    def set_again(self, process: Process, at: int) -> None:
        """The host's clock has changed: so has the time at which the timer is due."""
        if process.wake_true != NEVER:
            process.wake_true = process.clock.true(process.wake_local)
            process.armed = NEVER
            self._arm(process, at)

    # --- standing still ---------------------------------------------------------------------------------------------

    def freeze(self, process: Process, at: int) -> None:
        """The process stops running, with its executors."""
        process.frozen += 1
        if process.frozen == 1:
            if process.busy is not None:
                process.busy.left = max(0, process.busy.due - at)
            for executor in process.executors:
                executor.freeze(at)

    def thaw(self, process: Process, at: int) -> None:
        """It goes on."""
        process.frozen -= 1
        if process.frozen or not process.alive:
            return
        for executor in process.executors:
            executor.thaw(at)
        self._ask_late(process, at)
        if process.busy is not None:
            process.busy.due = at + process.busy.left
            self._agenda.put(process.busy.due, process.busy)
            return
        waits = process.completions or process.links or process.messages or process.arrivals
        if process.jumped and (waits or process.wake_true <= at):
            self._jump(process, at)
        self.catch_up(process, at)

    def catch_up(self, process: Process, at: int) -> None:
        """Take all that has come meanwhile, source by source, then look at the timer."""
        free = process.busy is None
        while free and process.completions:
            free = self.feed(process, process.completions.popleft(), at)
        while free and process.links:
            free = self.feed(process, process.links.popleft(), at)
        while free and process.messages:
            together = self._taken(process, TOGETHER if process.kind == "node" else 1)
            # A node begins nothing before the last of them.
            for event in together[:-1]:
                self.feed(process, replace(event, more=True), at)
            free = not together or self.feed(process, together[-1], at)
        while free and process.arrivals:
            free = self.feed(process, process.arrivals.popleft(), at)
        if free and process.wake_true <= at:
            self._fire(process, at)
        if process.wake_true != NEVER:
            self._arm(process, at)

    def _taken(self, process: Process, most: int) -> list[Received]:
        """The next messages that wait."""
        taken: list[Received] = []
        while process.messages and len(taken) < most:
            way, generation, frames = process.messages.popleft()
            if generation == way.generation:
                way.waiting -= 1
            event = self._decoded(process, way, frames)
            if event is not None:
                taken.append(event)
        return taken


def _unjoined(*what: object) -> NoReturn:
    raise InvariantBroken(f"a loop turns before there is a world: {what!r:.200}")
