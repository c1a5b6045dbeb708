"""The loop of the load generator: sends when it is time to, notes what comes, on one thread.

It sleeps on a timer of the system's, which wakes it some tens of microseconds late, and never spins: on a machine that the
target shares, that would take a core from it. What it sends late is told (`hil.load.sender`).
"""

from __future__ import annotations

import gc
import select
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from hil.load.rows import Recorder, Rows
from hil.load.source import MOST_REQUESTS, Source, schedule
from hil.load.target import Target
from shared.timer import make_timer

LEAD_NS = 50_000_000
"""From the decision to begin until the first request may be due."""

AT_ONCE = 16
"""Requests that are sent before the loop looks for answers again."""

SWITCH_S = 0.0005
"""How long a thread of this process keeps the interpreter while another waits: a client has one of its own."""

GRACE_NS = 1_000_000_000
"""How long after its deadline a request may still be answered before it counts as silent."""

CHECK_NS = 50_000_000
"""How often it is looked for requests that nobody has said a word of."""


@dataclass(frozen=True, slots=True)
class Played:
    """What was sent from `began_ns` (CLOCK_MONOTONIC) on for `seconds`. `thread_busy`, `process_busy` as in
    `hil.load.sender.Sender`. `unsent`: of each source, the requests that its connection did not take."""

    rows: Rows
    began_ns: int
    seconds: float
    thread_busy: float
    process_busy: float
    unsent: tuple[int, ...]


def play(targets: Sequence[Target], sources: Sequence[Source], seconds: float, seed: int) -> Played:
    """Send each source's requests to its target for so long, and wait for what becomes of them. Raises `HeadtailError` where
    a target is lost, `UserError` for more requests than can be remembered."""
    run = _Run(targets, sources, seconds, seed)
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.disable()
    try:
        return run.play()
    finally:
        gc.enable()
        sys.setswitchinterval(switch_s)
        run.close()


class _Run:
    def __init__(self, targets: Sequence[Target], sources: Sequence[Source], seconds: float, seed: int) -> None:
        self._targets = targets
        self._sources = sources
        self._seconds = seconds
        self._schedule = schedule(sources, seconds, seed)
        self._sent = 0
        self._recorder = Recorder()
        self._open: list[deque[int]] = [deque() for _ in sources]
        self._flying = [0] * len(sources)
        self._silent: set[int] = set()
        self._timer = make_timer()
        self._poll = select.poll()
        self._poll.register(self._timer.fileno(), select.POLLIN)
        for target in targets:
            target.lead_to(self._recorder)
            self._poll.register(target.fileno(), select.POLLIN)

    def play(self) -> Played:
        began = time.monotonic_ns() + LEAD_NS
        end = began + round(self._seconds * 1e9)
        check = began + CHECK_NS
        at_work = _Work()
        while True:
            self._send_due(began)
            for source, target in enumerate(self._targets):
                self._flying[source] -= sum(place not in self._silent for place in target.take())
            now = time.monotonic_ns()
            if now >= min(check, end):
                self._give_up(now)
                check = now + CHECK_NS
            if began <= now < end:
                self._refill(now)
            if now >= end:
                at_work.stop()
                if self._next_ns(began) is None and not any(self._open):
                    break
            self._sleep(began, next((at for at in (began, min(check, end)) if at > now), check))
        unsent = tuple(target.unsent for target in self._targets)
        return Played(self._recorder.rows(), began, self._seconds, at_work.thread, at_work.process, unsent)

    def close(self) -> None:
        self._timer.close()

    def _next_ns(self, began: int) -> int | None:
        """When the next request of an open loop is due; None where all were sent."""
        at_ns = self._schedule.at_ns
        return began + at_ns[self._sent] if self._sent < len(at_ns) else None

    def _send_due(self, began: int) -> None:
        for _ in range(AT_ONCE):
            due = self._next_ns(began)
            now = time.monotonic_ns()
            if due is None or due > now:
                return
            self._send(self._schedule.source[self._sent], due, now)
            self._sent += 1

    def _refill(self, now: int) -> None:
        for number, source in enumerate(self._sources):
            if source.open_loop:
                continue
            missing = min(source.in_flight - self._flying[number], self._targets[number].room())
            for _ in range(min(missing, AT_ONCE, MOST_REQUESTS - len(self._recorder))):
                self._send(number, now, now)
                now = time.monotonic_ns()

    def _send(self, source: int, scheduled_ns: int, now: int) -> None:
        due_ns = scheduled_ns + self._sources[source].deadline_ns
        place = self._recorder.asked(source, scheduled_ns, due_ns, now)
        self._open[source].append(place)
        self._flying[source] += 1
        self._targets[source].send(place, scheduled_ns, due_ns, now)

    def _give_up(self, now: int) -> None:
        """Forget what has ended, and what nobody has said a word of for long."""
        for source, waiting in enumerate(self._open):
            while waiting and (
                not self._recorder.open(waiting[0]) or now > self._recorder.due_ns(waiting[0]) + GRACE_NS
            ):
                place = waiting.popleft()
                if self._recorder.open(place):
                    self._silent.add(place)
                    self._flying[source] -= 1

    def _sleep(self, began: int, until_ns: int) -> None:
        due = self._next_ns(began)
        if due is not None:
            until_ns = min(until_ns, due)
        if until_ns <= time.monotonic_ns() or any(target.pending() for target in self._targets):
            return
        self._timer.set(until_ns)
        self._poll.poll()
        self._timer.ack()


class _Work:
    """How much of the processor this thread and this process use, a second, until `stop`."""

    def __init__(self) -> None:
        self._began = time.monotonic_ns(), time.thread_time_ns(), time.process_time_ns()
        self.thread = self.process = 0.0
        self._stopped = False

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            wall, thread, process = self._began
            took = time.monotonic_ns() - wall
            self.thread = (time.thread_time_ns() - thread) / took
            self.process = (time.process_time_ns() - process) / took
