"""Virtual executors: what `shared.executors.thread` does with a run, on virtual time.

A run is refused when it would begin after its time, an abort that comes too late changes nothing, and at most one run waits
behind the one that runs. How long a run takes is the plan's typical time, times a draw, times what goes wrong just now.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from hil.sim.agenda import Agenda
from hil.sim.hosts import Process
from hil.sim.stamp import Stamps
from hil.sim.watch import Watch
from shared.errors import InvariantBroken
from shared.events import Failed, Finished, RowResult, Run
from shared.latency import Latency, WorkKey
from shared.slots import SLOTS_PER_EXECUTOR

US = 1_000
RARELY = 0x7F
"""One waking in 128 takes up to 4 ms longer."""


class Trouble:
    """What goes wrong with the executors of one process, over all of its incarnations."""

    def __init__(self) -> None:
        self.fail = 0.0
        self.bad_rows = 0.0
        self.overrun = 1.0
        self.hang_until = 0
        self.throttle = 1.0


class Phase:
    """The end of what an executor does just now: waking up, or a run. Void once the executor has gone on to another."""

    __slots__ = ("executor",)

    def __init__(self, executor: VirtualExecutor) -> None:
        self.executor = executor

    def happen(self, at: int) -> None:
        """It has ended, unless it is void."""
        if self.executor.phase is self:
            self.executor.advance(at)


class Times:
    """How long runs typically take in one process: its plans' profiles, each looked up once."""

    def __init__(self, latency: Latency) -> None:
        self._latency = latency
        self._known: dict[tuple[str, int, int, int, str, str, int], int] = {}

    def typical(self, run: Run) -> int:
        """Nanoseconds that a run typically takes."""
        first, part = run.rows[0], run.range
        decode = first.decode.name if first.decode.coded else ""
        encode = first.encode.name if first.encode is not None and first.encode.coded else ""
        rows = 0
        for row in run.rows:
            rows += row.rows
        key = (run.contract, part.program, part.first, part.last, decode, encode, rows)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._latency.typical(WorkKey(run.contract, part, decode, encode), rows)
        return found


class VirtualExecutor:
    """One executor of one process."""

    def __init__(
        self,
        process: Process,
        agenda: Agenda,
        times: Times,
        stamps: Stamps,
        trouble: Trouble,
        draw: Iterator[float],
        rng: random.Random,
        watch: Watch,
        done: Callable[[Process, Finished | Failed, int], None],
        counters: dict[str, int],
    ) -> None:
        """`draw` gives factors of a typical time. `done` takes how a run ended."""
        self._process = process
        self._agenda = agenda
        self._times = times
        self._stamps = stamps
        self._trouble = trouble
        self._draw = draw
        self._rng = rng
        self._watch = watch
        self._done = done
        self._counters = counters
        self._run: Run | None = None
        self._waiting: deque[Run] = deque()
        self._state: Literal["idle", "waking", "running", "stopping"] = "idle"
        self._began_local = 0
        self._placed: Run | Failed | None = None
        self._due = 0
        self._left = 0
        self._hangs = False
        self.phase: Phase | None = None

    def submit(self, run: Run, at: int) -> None:
        """Queue a run behind at most one other. Raises `InvariantBroken` where there are two already."""
        held = len(self._waiting) + (self._run is not None)
        if held >= SLOTS_PER_EXECUTOR:
            raise InvariantBroken(f"run {run.run} was given to executor {run.executor}, which holds {held}")
        if self._run is None:
            self._run = run
            late = 30 * US + self._rng.getrandbits(15)
            if not late & RARELY:
                late += self._rng.getrandbits(22)
            self._enter("waking", at + late)
        else:
            self._waiting.append(run)

    def abort(self, number: int, at: int) -> None:
        """Ask that a run stop early: at once where it has not begun, else before its next node, if that comes sooner than
        its end. One that hangs does not hear."""
        for run in self._waiting:
            if run.run == number:
                self._waiting.remove(run)
                self._agenda.put(at, Aborted(self, number))
                return
        if self._run is None or self._run.run != number:
            self._count("aborted-after-its-end")
            return
        if self._state == "waking":
            self._run = None
            self._agenda.put(at, Aborted(self, number))
            self._next(at)
        elif self._state == "running" and not self._hangs:
            stops = at + 20 * US + self._rng.getrandbits(18)
            if stops < self._due:
                self._count("aborted")
                self._enter("stopping", stops)
            else:
                self._count("aborted-too-late")

    def begin_in_place(self, run: Run, at: int) -> int:
        """Begin a run on the process's own loop: how long it takes. 0 where it is refused."""
        self._began_local = local = self._process.local(at)
        if local > run.latest_ns:
            self._placed = Failed(run.run, "window", "too late to begin")
            return 0
        self._watch.began(self._process, run, at)
        self._placed = self._failure(run) or run
        return max(1, self._lasting(run, at))

    def end_in_place(self, at: int) -> Finished | Failed:
        """How the run that was begun in place has ended."""
        placed = self._placed
        if placed is None:
            raise InvariantBroken("no run was begun in place, and one has ended")
        self._placed = None
        return self._finished(placed, at) if isinstance(placed, Run) else placed

    def freeze(self, at: int) -> None:
        """The process stands still, and this thread with it."""
        if self.phase is not None:
            self._left = max(0, self._due - at)
            self.phase = None

    def thaw(self, at: int) -> None:
        """It goes on where it was."""
        if self._state != "idle" and self.phase is None:
            self._enter(self._state, at + self._left)

    def die(self) -> None:
        """The process was killed: what it does here never ends."""
        self._run = None
        self._waiting.clear()
        self._state = "idle"
        self.phase = None

    def advance(self, at: int) -> None:
        """What it was doing is over."""
        run, state = self._run, self._state
        if run is None:
            raise InvariantBroken("an executor that has no run has come to the end of one")
        if state == "waking":
            self._begin(run, at)
            return
        self._run = None
        self.phase = None
        event: Finished | Failed | None = Failed(run.run, "aborted") if state == "stopping" else self._failure(run)
        if event is None:
            event = self._finished(run, at)
        self._next(at)
        self._done(self._process, event, at)

    def aborted(self, number: int, at: int) -> None:
        """A run that had not begun was aborted."""
        if self._process.alive:
            self._done(self._process, Failed(number, "aborted"), at)

    def _begin(self, run: Run, at: int) -> None:
        process = self._process
        local = process.local(at)
        if local > run.latest_ns:
            self._count("refused-window")
            self._run = None
            self._next(at)
            self._done(process, Failed(run.run, "window", f"{(local - run.latest_ns) / 1e6:.3f} ms too late"), at)
            return
        self._began_local = local
        self._watch.began(process, run, at)
        self._enter("running", at + self._lasting(run, at))

    def _next(self, at: int) -> None:
        self._state = "idle"
        self.phase = None
        if self._waiting:
            self._run = self._waiting.popleft()
            self._enter("waking", at)

    def _enter(self, state: Literal["idle", "waking", "running", "stopping"], due: int) -> None:
        self._state = state
        self._due = due
        self.phase = Phase(self)
        self._agenda.put(due, self.phase)

    def _lasting(self, run: Run, at: int) -> int:
        trouble = self._trouble
        lasts = int(self._times.typical(run) * next(self._draw) * trouble.throttle)
        self._hangs = False
        if trouble.overrun != 1.0 and self._rng.random() < 0.5:
            self._count("overran")
            lasts = int(lasts * trouble.overrun)
        if trouble.hang_until > at:
            self._count("hung")
            self._hangs = True
            lasts = max(lasts, trouble.hang_until - at)
            trouble.hang_until = 0
        return lasts

    def _failure(self, run: Run) -> Failed | None:
        fail = self._trouble.fail
        if fail and self._rng.random() < fail:
            self._count("run-failed")
            return Failed(run.run, "error", "the simulated runtime refused")
        return None

    def _finished(self, run: Run, at: int) -> Finished:
        return Finished(run.run, self._results(run), self._began_local, self._process.local(at))

    def _results(self, run: Run) -> tuple[RowResult, ...]:
        results = self._stamps.run(run)
        bad = self._trouble.bad_rows
        if not bad:
            return results
        kept: list[RowResult] = []
        for result in results:
            if self._rng.random() < bad:
                self._count("row-failed")
                kept.append(RowResult(result.job, (), "the simulated row is bad"))
            else:
                kept.append(result)
        return tuple(kept)

    def _count(self, what: str) -> None:
        self._counters[what] = self._counters.get(what, 0) + 1


class Aborted:
    """A run that was aborted before it began: its end reaches the loop in the loop's next turn."""

    __slots__ = ("executor", "run")

    def __init__(self, executor: VirtualExecutor, run: int) -> None:
        self.executor = executor
        self.run = run

    def happen(self, at: int) -> None:
        """It reaches it."""
        self.executor.aborted(self.run, at)
