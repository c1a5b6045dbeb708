"""Whether, and when, a running process has its own device measured for somebody who plans with it. Pure.

Whoever plans asks by `Measure`. A child process (`shared.measurer`) then runs the very segments that are served, with the
same provider and threads, and is stopped by a signal the moment that there is work, and let go on when there is none:

    Measure --> refused
            `-> Begin --> waiting <-> running --> done, or refused
                              Hold     Go

A child, and not a run of the process's own executor: what has been begun there can be stopped between two kernels at best,
and whoever loads a second copy of a model holds the interpreter; a process can be stopped anywhere and at once, and takes
its memory with it. Its memory is the price.

It ends when it is done, when whoever asked says nothing for `SILENT_NS`, and when it takes far longer than it was asked for
because there is always work. One at a time is measured: two would measure each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.plan import Plan
from shared.wire.messages import PROTOCOL, Measure, Measured

SILENT_NS = 5_000_000_000
"""Whoever asked is gone after so long without a word."""

LOADING_NS = 120_000_000_000
"""Time for loading, on top of the time for measuring,"""

HELD_FACTOR = 10
"""and how many times as long as that it may take, work in between included."""

MOST_S = 600.0
MOST_BATCH = 1024
MOST_BATCHES = 8
BATCHES = (1, 2, 4)

QUIET_NS = 1_000_000_000
"""How long a device that is not the processor must have had no work: what it has begun is not stopped with the process."""


class Begin(msgspec.Struct, frozen=True):
    """Start the child: measure this plan at these batch sizes."""

    contract: str
    batches: tuple[int, ...]
    cadence_hz: float
    seconds: float


class Hold(msgspec.Struct, frozen=True):
    """Stop the child where it is."""


class Go(msgspec.Struct, frozen=True):
    """Let it go on."""


class End(msgspec.Struct, frozen=True):
    """Kill it."""


class Say(msgspec.Struct, frozen=True):
    """Tell whoever asked. `result` goes along as a frame where it is done."""

    link: str
    message: Measured
    result: bytes = b""


Step = Begin | Hold | Go | End | Say


class Started(msgspec.Struct, frozen=True):
    """The child is there, and runs."""


class Progress(msgspec.Struct, frozen=True):
    """So much of it is done, 0 to 1."""

    share: float


class Result(msgspec.Struct, frozen=True):
    """It is over, and this came of it."""

    content: bytes


class Broke(msgspec.Struct, frozen=True):
    """It is over, and nothing came of it, for this reason."""

    reason: str


Told = Started | Progress | Result | Broke


class _Task(msgspec.Struct):
    """What is being measured, for whom. `held` is whether the child is stopped, `there` whether it has been started."""

    link: str
    number: int
    heard_ns: int
    end_ns: int
    share: float = 0.0
    there: bool = False
    held: bool = False


class Measuring:
    """The one measurement of a process at a time. `forbidden` says why nothing may be measured, where nothing may."""

    def __init__(self, plans: Mapping[str, Plan], provider: str, most_bytes: int, forbidden: str = "") -> None:
        """`plans` by contract digest; `most_bytes` of a message."""
        self._plans = plans
        self._quiet_ns = 0 if provider == "CPUExecutionProvider" else QUIET_NS
        self._most_bytes = most_bytes
        self._forbidden = forbidden
        self._task: _Task | None = None
        self._last = ("", -1)
        self._quiet_from_ns = 0

    @property
    def active(self) -> bool:
        """Whether something is being measured."""
        return self._task is not None

    def asked(self, link: str, message: Measure, now: int) -> list[Step]:
        """Somebody asks, or says again that the answer is wanted."""
        task = self._task
        if task is not None and (task.link, task.number) == (link, message.number):
            task.heard_ns = now
            runs = task.there and not task.held
            return [Say(link, Measured(message.number, "running" if runs else "waiting", task.share))]
        if (link, message.number) == self._last:
            return []  # its last word and the answer to it have crossed
        try:
            begin = self._checked(message)
        except ValueError as refusal:
            return [Say(link, Measured(message.number, "refused", detail=str(refusal)))]
        span_ns = LOADING_NS + HELD_FACTOR * round(message.seconds * 1e9)
        self._task = _Task(link, message.number, now, now + span_ns)
        return [begin, Say(link, Measured(message.number, "waiting"))]

    def left(self, link: str) -> list[Step]:
        """Somebody said goodbye."""
        return self._over(None) if self._task is not None and self._task.link == link else []

    def look(self, busy: bool, now: int) -> list[Step]:
        """Look whether it may run: to be called whenever work came or went, and now and then."""
        if busy:
            self._quiet_from_ns = now + self._quiet_ns
        task = self._task
        if task is None:
            return []
        if now - task.heard_ns > SILENT_NS:
            return self._over(None)
        if now > task.end_ns:
            words = f"it was not done in time: {task.share:.0%} of it in {HELD_FACTOR} times as long as was asked for"
            return self._over(Measured(task.number, "refused", detail=f"{words}; the process has too much to do"))
        hold = busy or now < self._quiet_from_ns
        if not task.there or hold == task.held:
            return []
        task.held = hold
        return [Hold() if hold else Go()]

    def told(self, told: Told, busy: bool, now: int) -> list[Step]:
        """The child said something, or is over."""
        task = self._task
        if task is None:
            return []
        match told:
            case Started():
                task.there = True
            case Progress(share=share):
                task.share = min(1.0, max(0.0, share))
            case Result(content=content) if len(content) <= self._most_bytes:
                return self._over(Measured(task.number, "done", 1.0), content)
            case Result(content=content):
                words = (
                    f"what was measured takes {len(content):,} bytes; limits.max_message_mb allows {self._most_bytes:,}"
                )
                return self._over(Measured(task.number, "refused", detail=words))
            case Broke(reason=reason):
                return self._over(Measured(task.number, "refused", detail=reason))
        return self.look(busy, now)

    def _over(self, last: Measured | None, result: bytes = b"") -> list[Step]:
        task = self._task
        self._task = None
        if task is None or last is None:
            return [End()]
        self._last = (task.link, task.number)
        return [End(), Say(task.link, last, result)]

    def _checked(self, message: Measure) -> Begin:
        """What is to be begun. Raises `ValueError` with the words of the refusal."""
        if message.protocol != PROTOCOL:
            raise ValueError(f"protocol {message.protocol} was asked for, this speaks {PROTOCOL}")
        if self._forbidden:
            raise ValueError(self._forbidden)
        if self._task is not None:
            raise ValueError("it is being measured for somebody else: try again later")
        known = [contract for contract, plan in self._plans.items() if plan.model == message.model]
        if not known:
            served = ", ".join(f"{plan.name} (digest {plan.model[:12]})" for plan in self._plans.values())
            raise ValueError(f"no plan of this model is served, digest {message.model[:12]:.80}, only {served}")
        plan = self._plans[known[0]]
        batches = message.batches or tuple(b for b in BATCHES if b <= plan.max_batch or b == 1)
        for batch in batches:
            if not 1 <= batch <= MOST_BATCH or batches.count(batch) > 1 or len(batches) > MOST_BATCHES:
                raise ValueError(f"batch {batch}: expected at most {MOST_BATCHES} of 1 to {MOST_BATCH}, each once")
            if batch > 1 and not plan.batchable:
                raise ValueError(
                    f"batch {batch}: the rows of {plan.name} cannot be joined into a batch, only 1 is possible"
                )
        if not 0.1 <= message.cadence_hz <= 1000.0:
            raise ValueError(f"cadence {message.cadence_hz:g} Hz: expected 0.1 to 1000")
        if not 0.0 <= message.seconds <= MOST_S:
            raise ValueError(f"seconds {message.seconds:g}: expected 0 to {MOST_S:g}")
        return Begin(known[0], batches, message.cadence_hz, message.seconds)
