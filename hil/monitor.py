"""Watches how late the machine itself wakes a process: `python -m hil.monitor`.

A process of its own with a 1 ms timer and nothing else to do. What it sees late, every other process may have seen as
late, so a phase in which the machine stood still can be told from one in which headtail failed. A thread inside the
rig was rejected: it would measure the interpreter's lock.

Each line on its standard input is answered by one line of what it saw since the line before, and the end of the input ends
the process.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from typing import Annotated

import msgspec
from msgspec import Meta

from hil.child import LineChild
from hil.stalls import Seen, Stall
from hil.weight import add_weight
from shared.lateness import Lateness, LatenessFigures
from shared.timer import make_timer

PERIOD_NS = 1_000_000

MOST_STALLS = 10_000
"""Late wake-ups that are remembered one by one."""


class Noise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the machine counts as having stalled: more than `share` of the wake-ups came later than `late_ms`, or one of them
    later than `worst_ms` (a single such stall takes the deadline of several frames)."""

    late_ms: Annotated[float, Meta(gt=0.0, le=1000.0)] = 2.0
    share: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.01
    worst_ms: Annotated[float, Meta(gt=0.0, le=60_000.0)] = 10.0

    def stalled(self, figures: LatenessFigures) -> bool:
        """Whether these figures, taken with the same `late_ms`, show a stall of the machine."""
        return figures.late_share > self.share or figures.max_ms > self.worst_ms


class Monitor(LineChild):
    """The monitor's process, and what it saw. Use it as a context manager, or `close` it.

    Raises `HeadtailError` where the process has died.
    """

    def __init__(self, late_ms: float, core: int | None = None) -> None:
        """`core`: watch this core alone; else whichever the scheduler chooses."""
        super().__init__("hil.monitor", (str(late_ms), *(() if core is None else (str(core),))))
        self.take()

    def take(self) -> LatenessFigures:
        """Figures since the last call."""
        return self.take_all().figures

    def take_all(self) -> Seen:
        """Figures and late wake-ups since the last call."""
        return msgspec.json.decode(self.ask(b""), type=Seen)


def watch(commands: int, replies: int, late_ms: float) -> None:
    """Measure until the descriptor `commands` ends; answer each of its lines on `replies`."""
    limit_ns = round(late_ms * 1e6)
    lateness = Lateness(limit_ns)
    stalls: list[Stall] = []
    poll = select.poll()
    poll.register(commands, select.POLLIN)
    timer = make_timer()
    poll.register(timer.fileno(), select.POLLIN)
    due = time.monotonic_ns() + PERIOD_NS
    timer.set(due)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        now = time.monotonic_ns()
        if now >= due:
            timer.ack()
            lateness.add_period(now - due, PERIOD_NS)
            if now - due >= limit_ns and len(stalls) < MOST_STALLS:
                stalls.append(Stall(due, now - due))
            due += ((now - due) // PERIOD_NS + 1) * PERIOD_NS
            timer.set(due)
        if commands in ready:
            asked = os.read(commands, 4096)
            if not asked:
                return
            for _ in range(asked.count(b"\n")):
                seen = msgspec.json.encode(Seen(lateness.figures(), tuple(stalls))) + b"\n"
                while seen:
                    seen = seen[os.write(replies, seen) :]
                lateness.clear()
                stalls.clear()


def main() -> None:
    """Run the monitor on standard input and output. The arguments are what counts as late, in milliseconds, and the core to
    be watched where it is one alone."""
    for core in sys.argv[2:]:
        os.sched_setaffinity(0, {int(core)})
    add_weight()
    gc.freeze()
    watch(sys.stdin.fileno(), sys.stdout.fileno(), float(sys.argv[1]))


if __name__ == "__main__":
    main()
