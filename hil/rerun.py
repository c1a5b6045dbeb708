"""A journal as a test: what does the machine of today do with what happened then?

As long as its actions are those of then, it is a replay. Where they part, as they do at the latest where a fault was mended,
what the world did next was an answer to other actions. From there on the machine's clients, links and messages are still
those of then, while its timers come when it asks, and its executors take the times of the plan; so they do when the journal
is at its end, until every request is over. A reply to what was never asked is what such replies are in the field.

Whatever it decides, it must not raise, its books must agree after every step, and each request must have one outcome, by its
deadline where timers come in time. What does not hold is a fault. How many are answered on time is told and not judged: a
machine that asks another node than then waits for an answer that nobody gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

import msgspec

from hil.rerun_books import RerunBooks
from shared.codecs import frame_bounds
from shared.events import Abort, Action, Event, Failed, Finished, Row, RowResult, Run, Tick, WakeAt
from shared.journal.file import Journal
from shared.journal.marks import Blanks, Mark
from shared.journal.records import Step, decode_step
from shared.journal.replay import Difference, Replay, Replayed
from shared.latency import Latency, WorkKey
from shared.plan import Coding
from shared.request import Array, Buffer

START_NS = 50_000
"""From a launch to its beginning."""

REST_NS = 1_000_000_000
"""For how long a machine is watched after its journal's end, at least."""

CODED_SHARE = 8
"""How many times smaller than its tensor a frame is taken to be whose size depends on what is in it."""


class Rerun(msgspec.Struct, frozen=True):
    """What came of it. `parted` is where the machine first did something else than then, None where it never did; `steps`
    how many it took as then, `on_time` how many requests were answered on time up to the journal's end (on a node: attempts
    that were answered)."""

    faults: tuple[str, ...]
    parted: Difference | None
    steps: int
    on_time: int


def rerun(journal: Journal) -> Rerun:
    """Give a journal's events to the machine of today. Raises `JournalError` where it cannot be read here."""
    replay = Replay(journal, states=False)
    books = RerunBooks(late_start=journal.first > 0)
    world = _World(replay, books)
    steps = 0
    for step in replay.steps():
        steps += 1
        world.saw(step)
        if world.broken:
            break
    if replay.parted is not None:
        world.part(replay.parted)
        world.go_on(_steps(journal, replay.parted.number + 1))
    on_time = books.on_time
    world.rest()
    return Rerun(tuple(books.faults), replay.difference, steps, on_time)


class _World:
    """The executors and the timer of a machine, from where the journal does not help any more."""

    def __init__(self, replay: Replay, books: RerunBooks) -> None:
        setup = replay.journal.setup
        side = "edge" if replay.journal.kind.name == "edge" else "cloud"
        self._machine = replay.machine
        self._books = books
        self._plans = setup.plans
        self._latency = Latency.of(setup.plans.items(), side, setup.settings.execution.slowdown)
        self._blanks = Blanks()
        self._now = 0
        self._number = 0
        self._wake_ns: int | None = None
        self._then: dict[int, Run] = {}
        """Runs whose end is in the journal."""
        self._mine: set[int] = set()
        """Runs whose end is in the heap."""
        self._heap: list[tuple[int, int, Event]] = []
        self._order = count()
        self.broken = False
        """Whether the machine can go no further."""

    # --- as then ----------------------------------------------------------------------------------------------------

    def saw(self, step: Replayed) -> None:
        """The machine has taken a step as then."""
        for action in self._taken(step):
            if isinstance(action, Run):
                self._then[action.run] = action
            elif isinstance(action, WakeAt):
                self._wake_ns = action.at_ns

    def part(self, step: Replayed) -> None:
        """The machine has taken a step otherwise than then: what it launches from now on is not in the journal."""
        self._books.strict_from_ns = step.now_ns
        for action in self._taken(step):
            self._perform(action)

    def _taken(self, step: Replayed) -> tuple[Action, ...]:
        self._now, self._number = step.now_ns, step.number
        if isinstance(step.event, Finished | Failed):
            self._then.pop(step.event.run, None)
        if isinstance(step.event, Tick):
            self._wake_ns = None
        if step.raised:
            self._break(step.raised)
            return ()
        try:
            self._machine.validate()
        except Exception as error:  # whatever a machine does wrong is what is looked for here
            self._break(f"{type(error).__name__}: {error}")
            return ()
        self._books.took(step)
        return step.actions

    def _break(self, why: str) -> None:
        self.broken = True
        self._books.fault(f"step {self._number}: {why}")

    # --- from here on ------------------------------------------------------------------------------------------------

    def go_on(self, steps: Iterator[Step]) -> None:
        """Give the machine what happened then, as far as it can have happened now."""
        for step in steps:
            self._until(step.now_ns)
            event = step.event
            ended = isinstance(event, Finished | Failed) and event.run not in self._then
            if not ended and not isinstance(event, Tick):
                self._feed(event, step.now_ns)

    def rest(self) -> None:
        """The journal is at its end: let what is open come to an end."""
        if self._books.strict_from_ns is None:
            self._books.strict_from_ns = self._now
        for run in list(self._then.values()):
            self._launch(run)
        end_ns = max(self._books.last_due_ns, self._now + REST_NS)
        self._until(end_ns)
        if not self.broken:
            self._books.close(end_ns)

    def _until(self, end_ns: int) -> None:
        """Let everything happen that is due by `end_ns`."""
        while not self.broken:
            wake_ns = self._wake_ns
            at_ns = self._heap[0][0] if self._heap else None
            if wake_ns is not None and wake_ns <= end_ns and (at_ns is None or wake_ns < at_ns):
                self._feed(Tick(), wake_ns)
            elif at_ns is not None and at_ns <= end_ns:
                at_ns, _, event = heappop(self._heap)
                if isinstance(event, Finished | Failed) and event.run in self._mine:
                    self._mine.discard(event.run)
                    self._feed(event, at_ns)
            else:
                return

    def _feed(self, event: Event, at_ns: int) -> None:
        if self.broken:
            return
        now = max(self._now, at_ns)
        actions: list[Action] = []
        raised = ""
        try:
            actions = self._machine.handle(event, now)
        except Exception as error:  # as above
            raised = f"{type(error).__name__}: {error}"
        for action in self._taken(Replayed(self._number + 1, now, event, tuple(actions), raised)):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Run():
                self._launch(action)
            case Abort() if action.run in self._mine:
                self._mine.discard(action.run)
                self._ends(Failed(action.run, "aborted"), self._now)
            case WakeAt():
                self._wake_ns = action.at_ns
            case _:
                pass

    # --- executors ---------------------------------------------------------------------------------------------------

    def _launch(self, run: Run) -> None:
        self._then.pop(run.run, None)
        began_ns = self._now + (0 if run.in_place else START_NS)
        if began_ns > run.latest_ns:
            self._ends(Failed(run.run, "window"), began_ns)
            return
        first = run.rows[0]
        encode = "" if first.encode is None else _coded(first.encode)
        key = WorkKey(run.contract, run.range, _coded(first.decode), encode)
        ended_ns = began_ns + self._latency.typical(key, sum(row.rows for row in run.rows))
        results = tuple([RowResult(row.job, self._outputs(run, row)) for row in run.rows])
        self._ends(Finished(run.run, results, began_ns, ended_ns), ended_ns)

    def _ends(self, event: Finished | Failed, at_ns: int) -> None:
        self._mine.add(event.run)
        heappush(self._heap, (at_ns, next(self._order), event))

    def _outputs(self, run: Run, row: Row) -> tuple[Array | Buffer, ...]:
        plan = self._plans[run.contract]
        whole = run.range.program != 0 or run.range.last == len(plan.cuts) - 1
        leaving = plan.outputs if whole else plan.cuts[run.range.last].tensors
        marks: list[Mark] = []
        for spec in leaving:
            if row.encode is None:
                marks.append((spec.dtype, spec.at(row.rows)))
            else:
                low, high = frame_bounds(row.encode, spec, row.rows)
                marks.append(min(high, max(low, spec.nbytes(row.rows) // CODED_SHARE)))
        return self._blanks.tensors(marks)


def _coded(coding: Coding) -> str:
    return coding.name if coding.coded else ""


def _steps(journal: Journal, first: int) -> Iterator[Step]:
    """The steps of a journal from number `first` on."""
    blanks = Blanks()
    for number, record in enumerate(journal.records, journal.first):
        if number >= first:
            yield decode_step(number, record, blanks)
