"""How a process takes events: the turn of `shared.driver`, on virtual time, for all processes of the world.

An event is handled, its actions are carried out in their order, what fails at once follows, and then the timer is looked at.
A run that is carried out in place keeps the loop busy: the rest of the step waits for it, and so does all that comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from hil.sim.agenda import Agenda
from hil.sim.hosts import NEVER, Process
from hil.sim.net import Way
from hil.sim.trace import Trace
from hil.sim.watch import Watch
from shared.errors import InvariantBroken
from shared.events import (
    Abort,
    Action,
    Arrived,
    ClockJumped,
    Event,
    Failed,
    Finished,
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

    def decoded(self, receiver: Process, way: Way, frames: list[Buffer]) -> Received | None:
        """The message in these frames as an event; None where it is none."""
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


class Blocked:
    """The rest of a step: actions that are still to be carried out, and events that follow."""

    __slots__ = ("actions", "followers", "loops", "process")

    def __init__(self, loops: Loops, process: Process, actions: Sequence[Action], followers: deque[Event]) -> None:
        self.loops = loops
        self.process = process
        self.actions = actions
        self.followers = followers

    def happen(self, at: int) -> None:
        """The run in place is over."""
        process = self.process
        if not process.alive:
            return
        if process.frozen:
            process.blocked = self
            return
        process.busy = False
        if self.loops.carry_out(process, self.actions, self.followers, at):
            self.loops.catch_up(process, at)


class Loops:
    """The loops of all processes. `sent` and the others are set once by the world, which is built around this."""

    def __init__(self, agenda: Agenda, watch: Watch, trace: Trace, counters: dict[str, int]) -> None:
        self._agenda = agenda
        self._stepped = watch.stepped
        self._note = trace.add
        self._counters = counters
        self._sweep = Sweep(watch, trace)
        self.wire: Wire | None = None
        self.ended: Callable[[Process, Resolve, int], None] = _nobody
        """Takes each outcome that reaches an application."""
        self.asked: Callable[[Process, int], None] = _nothing
        """Lets an application ask what it would have asked while it stood still."""
        self.steps = 0

    # --- a turn -----------------------------------------------------------------------------------------------------

    def turn(self, process: Process, event: Event, at: int) -> None:
        """Take one event, then look at the timer."""
        if process.jumped:
            self._jump(process, at)
        if self.feed(process, event, at) and process.wake_true <= at:
            self._fire(process, at)

    def deliver(self, process: Process, event: Finished | Failed | Arrived, at: int) -> None:
        """Take how a run ended, or what the application asks: now, or when the loop comes to it."""
        if process.frozen or process.busy:
            if isinstance(event, Arrived):
                process.arrivals.append(event)
            else:
                process.completions.append(event)
        else:
            self.turn(process, event, at)

    def feed(self, process: Process, event: Event, at: int) -> bool:
        """Take one event and carry out what comes of it; False where the loop is busy with a run since then."""
        return self.carry_out(process, self._handle(process, event, at), deque(), at)

    def carry_out(self, process: Process, actions: Sequence[Action], followers: deque[Event], at: int) -> bool:
        """Carry actions out, then take the events that follow; False where the loop is busy with a run since then."""
        count = 0
        while True:
            for index, action in enumerate(actions):
                lasts = self._perform(process, action, followers, at)
                if lasts:
                    process.busy = True
                    self._agenda.put(at + lasts, Blocked(self, process, actions[index + 1 :], followers))
                    return False
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

    def _perform(self, process: Process, action: Action, followers: deque[Event], at: int) -> int:
        """Carry out one action; how long it keeps the loop busy."""
        if isinstance(action, Send):
            if self.wire is None or not self.wire.send(process, action, at):
                followers.append(SendFailed(action.link, action.message))
        elif isinstance(action, WakeAt):
            self._note((action.at_ns,))
            process.wake_local = action.at_ns
            process.wake_true = process.clock.true(action.at_ns)
            self._arm(process, at)
        elif isinstance(action, Resolve):
            self.ended(process, action, at)
        elif isinstance(action, Run):
            self._note((action.run, action.executor, action.slot, action.latest_ns))
            executor = process.executors[action.executor]
            if action.in_place:
                event, lasts = executor.in_place(action, at)
                followers.append(event)
                return lasts
            executor.submit(action, at)
        elif isinstance(action, Abort):
            self._note((action.run,))
            process.executors[action.executor].abort(action.run, at)
        return 0

    # --- time -------------------------------------------------------------------------------------------------------

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
            for executor in process.executors:
                executor.freeze(at)

    def thaw(self, process: Process, at: int) -> None:
        """It goes on."""
        process.frozen -= 1
        if process.frozen or not process.alive:
            return
        for executor in process.executors:
            executor.thaw(at)
        self.asked(process, at)
        blocked, process.blocked = process.blocked, None
        if blocked is not None:
            blocked.happen(at)
        else:
            self.catch_up(process, at)

    def catch_up(self, process: Process, at: int) -> None:
        """Take all that has come meanwhile, source by source, then look at the timer."""
        if process.busy or process.frozen:
            return
        waits = process.completions or process.links or process.messages or process.arrivals
        if process.jumped and (waits or process.wake_true <= at):
            self._jump(process, at)
        free = True
        while free and process.completions:
            free = self.feed(process, process.completions.popleft(), at)
        while free and process.links:
            free = self.feed(process, process.links.popleft(), at)
        while free and process.messages:
            way, generation, frames = process.messages.popleft()
            if generation == way.generation:
                way.waiting -= 1
            event = self.wire.decoded(process, way, frames) if self.wire is not None else None
            if event is not None:
                free = self.feed(process, event, at)
        while free and process.arrivals:
            free = self.feed(process, process.arrivals.popleft(), at)
        if free and process.wake_true <= at:
            self._fire(process, at)
        if process.wake_true != NEVER:
            self._arm(process, at)


def _nobody(process: Process, resolve: Resolve, at: int) -> None:
    raise InvariantBroken(f"{process.name} resolves {resolve.sequence} at {at} before there is a world")


def _nothing(process: Process, at: int) -> None:
    raise InvariantBroken(f"{process.name} goes on at {at} before there is a world")
