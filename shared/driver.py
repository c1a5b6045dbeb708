"""The only loop: sources in, one pure machine, actions out.

Each turn handles completions, then messages, then arrivals, then the timer, and before the timer fires it looks once more
whether something came in meanwhile: a loop that was stalled never fires a guard whose answer waits in a socket. Between
turns it blocks on one epoll descriptor, after it has looked for a while for what usually comes soon (`shared.polling`);
the timer is a timerfd, since epoll's own timeout rounds to milliseconds.

The loop is measured (three times a raw echo at most), so that a turn with nothing to do makes no objects: sources are a
flat tuple, threads that put events write to a descriptor only while the loop sleeps, and the timer (setting it takes up to
30 µs on a virtual machine) is set only for a wake-up earlier than the one it is set for, so that it may come once for
nothing. Rejected: asyncio (rounds timers, and costs 50 to 100 µs a round trip), a thread for each socket (a switch of
threads for each message).

Whatever the machine raises leaves `run()` with a note of the event at fault: the process stops and tells its story.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from shared.doctor.tree import Tree
from shared.errors import InvariantBroken
from shared.events import Action, ClockJumped, Event, Tick, WakeAt
from shared.lateness import Lateness
from shared.leadership import Leadership
from shared.polling import CROWDED_NS, Polling
from shared.ports import Clock, Machine, Source
from shared.process import OwnProcess
from shared.timer import make_timer

MAX_FOLLOWERS = 10_000
"""Events that one event may cause inside a turn by actions that fail at once. More is a machine that goes in circles."""

MAX_READY = 16
"""Descriptors asked of epoll at a time; the loop looks at all sources anyway."""

BOOT_NS = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
"""Reads CLOCK_BOOTTIME, without a Python frame: it is read at every wake-up."""

_YIELD: Callable[[], int] = ctypes.CDLL(None).sched_yield
"""Lets other threads have the core. Called like this the interpreter's lock is free meanwhile, as it is not by Python 3.11's
`os.sched_yield`: a thread of this process that waits for the lock would have to wait for the core's other work."""

_ONE = struct.pack("=Q", 1)
"""What is written to an eventfd to make it readable."""

SHARING = frozenset((os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_IDLE))
"""Policies under which a thread that yields lets every other have the core."""

NEVER_NS = 1 << 62
"""When a timer that is not set fires, and the slack of a loop that waits for none."""


class SystemClock:
    """CLOCK_MONOTONIC in nanoseconds."""

    now = staticmethod(time.monotonic_ns)


class JumpWatch:
    """Finds time that passed while CLOCK_MONOTONIC stood still (suspend): CLOCK_BOOTTIME runs on.

    The difference of the two clocks is known to lie between two readings, so that a thread that is interrupted between them
    sees no jump that was not there. Where the kernel has no CLOCK_BOOTTIME, or a sandbox forbids it, nothing is ever seen and
    `able` is False. CLOCK_REALTIME in its place was rejected: whoever sets the wall clock would expire every request.
    """

    def __init__(
        self,
        monotonic: Callable[[], int] = time.monotonic_ns,
        boot: Callable[[], int] = BOOT_NS,
        least_ns: int = 50_000_000,
    ) -> None:
        """Jumps below `least_ns` are none: to the loop they are late wake-ups like any other."""
        self._monotonic = monotonic
        self._boot = boot
        self._least_ns = least_ns
        self.able = True
        before = monotonic()
        try:
            self._looked_ns = boot()
        except OSError:
            self.able = False
            self._looked_ns = before
            self._boot = lambda: before
        self._most_ns = self._looked_ns - before

    def jumped(self) -> int:
        """Nanoseconds of suspension since the last call, 0 where there was none."""
        if self._boot() - self._looked_ns < self._least_ns:
            return 0
        before = self._monotonic()
        self._looked_ns = boot = self._boot()
        after = self._monotonic()
        least, most = boot - after, boot - before
        jump = least - self._most_ns
        if jump >= self._least_ns:
            self._most_ns = most
            return jump
        self._most_ns = min(self._most_ns, most)
        return 0


class Mailbox:
    """A `Source` that other threads put events into.

    The loop's thread drains it. A put writes to the descriptor only where the loop has said, by `pending()` finding
    nothing, that it is about to sleep; else the loop will look by itself.
    """

    def __init__(self, limit: int = 1 << 16) -> None:
        self._limit = limit
        self._events: deque[Event] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = False
        self._written = False
        # Not a plain lock: a signal's handler may put something as well, on the very thread that wakes the loop.
        self._waking = threading.RLock()

    def offer(self, event: Event) -> bool:
        """Put an event; False, and nothing done, where `limit` events wait already. Safe from every thread."""
        if len(self._events) >= self._limit:
            return False
        self._events.append(event)
        if self._asleep:
            self._wake()
        return True

    def put(self, event: Event) -> None:
        """Put an event that must not be lost. Raises `InvariantBroken` where `limit` events wait already."""
        if not self.offer(event):
            raise InvariantBroken(f"a mailbox holds {self._limit} events that nobody takes: {event!r:.200}")

    def fileno(self) -> int:
        """Readable when the loop slept and something was put."""
        return self._fd

    def drain(self) -> Iterable[Event]:
        """Everything that was put, in order."""
        self._asleep = False
        if self._written:
            self._written = False
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                # The loop did not sleep after all, and the thread that wakes it has not come to its write yet.
                self._written = True
        if not self._events:
            return ()
        events = self._events
        return [events.popleft() for _ in range(len(events))]

    def watch(self) -> None:
        """Whoever calls this will drain soon: until then a put needs not wake the loop. For the thread that leads it."""
        self._asleep = False

    def pending(self) -> bool:
        """Whether something waits. Where nothing does, the next put wakes the loop."""
        self._asleep = True
        if self._events:
            self._asleep = False
            return True
        return False

    def close(self) -> None:
        """Release the descriptor, which may be another file's from now on: who puts something all the same wakes nobody."""
        with self._waking:
            self._asleep = False
            os.close(self._fd)

    def _wake(self) -> None:
        with self._waking:
            if self._asleep:
                self._asleep = False
                # Before the write, which lets go of the interpreter: the loop must know that there is something to read.
                self._written = True
                os.eventfd_write(self._fd, 1)


def polling_of(poll_us: float, *, realtime: bool = False, tree: Tree | None = None) -> Polling | None:
    """What a loop of this process polls by; None where it never does: told so; with less than two cores, by number or by a
    control group's quota, since what it waits for needs one itself; and where it is to have real-time priority, or the
    calling thread has it, which the loop's then has as well, and which would not let others have the core.

    `tree` is where the system says what the quota is. With one of half a core, of which polling took most, a node was in
    time with 75 to 84 % of 800 requests a second, without with all."""
    if not poll_us or realtime or os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK not in SHARING:
        return None
    quota = (tree or Tree()).quota()
    cores = len(os.sched_getaffinity(0))
    return Polling(int(poll_us * 1000)) if cores > 1 and (quota is None or quota.cores >= 2) else None


class Driver:
    """Feeds one machine from its sources and carries its actions out.

    `perform` carries out every action but `WakeAt`, which the driver keeps itself, and may return an event that is handled
    at once (`SendFailed`, or the end of a run that was carried out in place). `own_process` tunes interpreter and allocator
    for the loop while it runs; never set it inside an application's process. Sources are drained in the order given; the
    driver closes none of them. `idle` is called before the loop sleeps, with the nanoseconds until its next timer, for work
    that can wait. `lateness` counts how late each wake-up was handled, from when it was due or, for one that was due before
    it was asked for, from the asking: that is what a `Tick` tells as well. `stalls` counts for how long the loop did not look
    at its sources: each turn, with what was done before it slept. `polling` has it look for what comes before it sleeps:
    `expects` names the kind of thing that is waited for, None where there is no use in looking. With `lent` other threads may
    lead the loop while its own sleeps (`take`, then `lead`); `back` is called on its own whenever that leads again.
    """

    def __init__(
        self,
        machine: Machine,
        perform: Callable[[Action], Event | None],
        *,
        completions: Sequence[Source] = (),
        transports: Sequence[Source] = (),
        arrivals: Sequence[Source] = (),
        clock: Clock | None = None,
        jumps: JumpWatch | None = None,
        own_process: OwnProcess | None = None,
        idle: Callable[[int], None] | None = None,
        polling: Polling | None = None,
        expects: Callable[[], str | None] | None = None,
        lent: bool = False,
        back: Callable[[], None] | None = None,
    ) -> None:
        self._machine = machine.handle
        self._perform = perform
        self._sources: tuple[Source, ...] = (*completions, *transports, *arrivals)
        self._now = (clock or SystemClock()).now
        self._jumps = jumps or JumpWatch()
        self._own_process = own_process
        self._idle = idle
        self._polling = polling
        self._expects = expects
        self.lateness = Lateness()
        self.stalls = Lateness()
        self._looked_ns = 0
        self._wake_ns: int | None = None
        self._due_ns = 0
        self._armed_ns = NEVER_NS
        self._followers: deque[Event] = deque()
        self._handled = 0
        self._stopped = False
        self._timer = make_timer()
        # A file and not its number: who writes to a file that was closed is told so, and never writes to another.
        self._stop_file = open(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "wb", buffering=0)  # noqa: PTH123, SIM115
        self._epoll = select.epoll()
        self._epoll.register(self._stop_file.fileno(), select.EPOLLIN)
        # Edge-triggered: setting the timer again clears it, so that it is never read.
        self._epoll.register(self._timer.fileno(), select.EPOLLIN | select.EPOLLET)
        for source in self._sources:
            self._epoll.register(source.fileno(), select.EPOLLIN)
        self._leadership = Leadership(self._epoll) if lent else None
        self._back = back
        self.leader: int | None = None
        """The thread that leads in place of the loop's own."""
        self._broke: BaseException | None = None

    @property
    def polled_s(self) -> float:
        """For how many seconds in all the loop has looked for what was to come."""
        return 0.0 if self._polling is None else self._polling.polled_ns / 1e9

    def run(self) -> None:
        """Turn until `stop()`. Raises whatever the machine, an action or a source raises."""
        if self._own_process is None:
            self._loop()
            return
        with self._own_process:
            self._loop()

    def stop(self) -> None:
        """End `run()` after the turn under way. Safe from every thread and from a signal handler, which may come once more
        while the process is ending."""
        # No lock, and no `threading.Event`, which has one: a handler may come in the middle of another, on the same thread.
        self._stopped = True
        with suppress(ValueError):  # it was closed
            self._stop_file.write(_ONE)

    def step(self) -> int:
        """One turn without blocking; how many events it handled."""
        before = self._handled
        self._drain()
        wake_ns = self._wake_ns
        if wake_ns is not None and self._now() >= wake_ns:
            self._fire()
        return self._handled - before

    def take(self) -> bool:
        """Have the calling thread lead the loop in place of its own, which sleeps: it must `lead` next. False where that one
        does not sleep, another thread leads, or the loop is not lent."""
        if self._leadership is None or not self._leadership.take():
            return False
        self.leader = threading.get_ident()
        self._looked_ns = now = self._now()
        if now >= self._armed_ns:
            self._armed_ns = NEVER_NS
        return True

    def lead(self, done: Callable[[], bool]) -> None:
        """Turn until `done()` or `stop()`, at least once, and give the loop back to its own thread. What the machine, an
        action or a source raises is raised by `run()`."""
        assert self._leadership is not None  # noqa: S101
        try:
            self._look_for_jump()
            while not self._stopped:
                self.step()
                if done():
                    self._leave(self._leadership)
                    break
                self._wait()
        except BaseException as error:
            self._broke = error
            self.stop()
        self.leader = None
        self._leadership.give_back()

    def give_back(self) -> None:
        """Where the calling thread leads still, give the loop back: something was raised from `take` to the end of `lead`,
        by a trace function or by another thread (`PyThreadState_SetAsyncExc`)."""
        leadership = self._leadership
        if leadership is not None and leadership.mine():
            self.leader = None
            leadership.call()
            leadership.give_back()

    def call(self) -> None:
        """Where the calling thread leads the loop, have it look at `done()` before it sleeps. For signal handlers."""
        if self._leadership is not None and self.leader == threading.get_ident():
            self._leadership.call()

    def close(self) -> None:
        """Release the driver's own descriptors and what it drove, after `run()` has returned. The machine's owner holds the
        driver: kept, each would keep the other until the collector comes."""
        if self._leadership is not None:
            self._leadership.close()
        self._epoll.close()
        self._timer.close()
        self._stop_file.close()
        del self._machine, self._perform, self._idle, self._expects, self._back, self._sources

    def _loop(self) -> None:
        if self._leadership is not None:
            self._leadership.begin()
        self._looked_ns = self._now()
        while not self._stopped:
            self.step()
            self._wait()
        if self._broke is not None:
            raise self._broke

    def _drain(self) -> None:
        for source in self._sources:
            for event in source.drain():
                self._handle(event)

    def _fire(self) -> None:
        self._drain()
        wake_ns = self._wake_ns
        if wake_ns is None:
            return
        now = self._now()
        if now >= wake_ns:
            self._wake_ns = None
            late_ns = now - self._due_ns
            self.lateness.add(late_ns)
            self._one(Tick(late_ns), now)
            self._follow()

    def _wait(self) -> None:
        if self._pending():
            self._looked_ns = self._turned()
        else:
            self._sleep()
        self._look_for_jump()

    def _leave(self, leadership: Leadership) -> None:
        """Leave the loop, after a turn, to its own thread, which sleeps."""
        if self._pending():
            self._turned()
            leadership.call()
        else:
            self._settle()

    def _pending(self) -> bool:
        for source in self._sources:  # noqa: SIM110 -- a generator would be made at every turn
            if source.pending():
                return True
        return False

    def _look_for_jump(self) -> None:
        jump_ns = self._jumps.jumped()
        if jump_ns:
            self._handle(ClockJumped(jump_ns))

    def _settle(self) -> None:
        """Do what is to be done before the loop sleeps."""
        wake_ns = self._wake_ns
        if wake_ns is not None and wake_ns < self._armed_ns:
            self._timer.set(wake_ns)
            self._armed_ns = wake_ns
        if self._idle is not None:
            self._idle(NEVER_NS if wake_ns is None else wake_ns - self._now())
        if self._own_process is not None:
            self._own_process.idle(NEVER_NS if wake_ns is None else wake_ns - self._now())
        self._turned()

    def _sleep(self) -> None:
        self._settle()
        polling = self._polling
        kind = None if self._expects is None else self._expects()
        if polling is None or kind is None:
            self._block()
        else:
            self._await(polling, kind, self._wake_ns)
        if self._leadership is not None:
            self._leadership.heard()
        self._looked_ns = woke = self._now()
        if woke >= self._armed_ns:
            self._armed_ns = NEVER_NS

    def _block(self) -> list[tuple[int, int]]:
        """Sleep until something has come; the descriptors that show it."""
        leadership = self._leadership
        if leadership is None:
            return self._epoll.poll(-1, MAX_READY)
        if self.leader is not None:
            return self._epoll.poll(-1, MAX_READY)
        leadership.follow()
        if self._back is not None:
            self._back()
        return self._epoll.poll(0, MAX_READY)

    def _await(self, polling: Polling, kind: str, wake_ns: int | None) -> None:
        """Wait until something has come or the timer is due: look for it first, as long as that is worth it."""
        came: list[tuple[int, int]] = []
        crowded = False
        began = now = self._now()
        until = began + polling.window(kind, now)
        if wake_ns is not None and wake_ns < until:
            until = wake_ns
        while now < until and not came and not crowded:
            before = now
            _YIELD()
            came = self._epoll.poll(0, MAX_READY)
            now = self._now()
            crowded = now - before > CROWDED_NS
        if now > began:
            polling.polled(now - began, now, crowded=crowded)
        if not came and (wake_ns is None or now < wake_ns):
            came = self._block()
            now = self._now()
        timer = self._timer.fileno()
        polling.waited(kind, now - began, came=any(fd != timer for fd, _ in came))

    def _turned(self) -> int:
        """A turn is over, in which no source was looked at; the time."""
        now = self._now()
        self.stalls.add(now - self._looked_ns)
        return now

    def _handle(self, event: Event) -> None:
        self._one(event, self._now())
        if self._followers:
            self._follow()

    def _one(self, event: Event, now: int) -> None:
        self._handled += 1
        try:
            for action in self._machine(event, now):
                if type(action) is WakeAt:
                    if action.at_ns != self._wake_ns:
                        self._wake_ns = action.at_ns
                        self._due_ns = max(action.at_ns, now)
                    continue
                follower = self._perform(action)
                if follower is not None:
                    self._followers.append(follower)
        except Exception as error:
            error.add_note(f"while handling {event!r:.400}")
            raise

    def _follow(self) -> None:
        followers = self._followers
        count = 0
        while followers:
            count += 1
            if count > MAX_FOLLOWERS:
                raise InvariantBroken(f"actions keep failing at once and being tried again: {followers[0]!r:.200}")
            self._one(followers.popleft(), self._now())
