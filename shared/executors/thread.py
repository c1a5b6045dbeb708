"""One executor on a thread of its own: takes runs, stages, runs, splits, encodes, and tells how it ended.

Each submitted run ends in exactly one `Finished` or `Failed`, whatever happens: a late one is refused at the last moment
before it would begin, one bad row fails alone, a batch that fails as a whole is tried again row by row once (so that one
bad item does not take the others with it), and a bug fails the run that met it, is told as an exception that ends a thread
is (`threading.excepthook`), and ends nothing else: a process with a dead executor would refuse everything and look alive.
That a run began is not told: nobody decides anything by it, and it would wake the loop at the very moment when the run
wants the core.

Rejected: a process for each executor (a second copy of every tensor); asyncio's pool (no abort, no bound); emitting
results row by row (the loop would be woken once for each).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import msgspec

from shared.errors import InvariantBroken, ModelError
from shared.events import Event, Failed, Finished, Row, RowResult, Run
from shared.executors.bell import Bell
from shared.executors.buffers import Buffers, Slot
from shared.executors.programs import Interrupt, Programs, entry_tensors, exit_tensors, known_range
from shared.executors.slowness import Slowness
from shared.executors.staging import pack, recode, split, stage
from shared.plan import SegmentRange
from shared.request import Array, TensorSpec
from shared.slots import SLOTS_PER_EXECUTOR
from shared.thread_heap import grown_heap

ROWS = attrgetter("rows")

Sink = Callable[[Event], object]
"""Where events go; called from the executor's thread (`Mailbox.put`)."""


class _Aborted(Exception):
    """Leaves the work of a run that nobody wants any more."""


class _Job(msgspec.Struct, eq=False, gc=False):
    """A run that was submitted and has not ended. `interrupt` is None where nobody stops it. `codec_ns` was spent on coding
    so far, what a slow device would take more included, and `extra_ns` is all that a slow device would take more."""

    run: Run
    interrupt: Interrupt | None
    aborted: bool = False
    running: bool = False
    codec_ns: int = 0
    extra_ns: int = 0

    def check(self) -> None:
        if self.aborted:
            raise _Aborted

    def coded(self, measured_ns: int, extra_ns: int) -> None:
        self.codec_ns += measured_ns + extra_ns
        self.extra_ns += extra_ns


class _Known(msgspec.Struct, frozen=True):
    """What does not change of a contract's range: found once, since making an interrupt alone takes some microseconds.
    `never` is for runs that nobody stops, `slots` are those of its entry."""

    programs: Programs
    never: Interrupt
    entry: tuple[TensorSpec, ...]
    exit: tuple[TensorSpec, ...]
    slots: tuple[Slot, ...]


class ThreadExecutor:
    """`shared.ports.Executor` on a thread. `start` it once, `close` it at the end.

    `programs` are the loaded plans by contract; `buffers` and `programs` may be shared with other executors.
    """

    def __init__(
        self, name: str, programs: Mapping[str, Programs], buffers: Buffers, slowness: Slowness, sink: Sink
    ) -> None:
        self._programs = programs
        self._buffers = buffers
        self._slowness = slowness
        self._sink = sink
        self._ranges: dict[tuple[str, SegmentRange], _Known] = {}
        """Those that were run, of the few that the plans have."""
        self._bell = Bell()
        self._lock = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._jobs: dict[int, _Job] = {}
        self._closing = False
        self._over = False
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Begin to take runs."""
        self._thread.start()

    def submit(self, run: Run) -> None:
        """Queue a run behind at most one other. Raises `InvariantBroken` where there are two already."""
        programs = self._programs.get(run.contract)
        job = _Job(run, None if programs is None else programs.interrupt())
        with self._lock:
            over = self._over or self._closing
            if not over:
                if len(self._jobs) >= SLOTS_PER_EXECUTOR or run.run in self._jobs:
                    raise InvariantBroken(f"run {run.run} was given to an executor that holds {sorted(self._jobs)}")
                self._jobs[run.run] = job
                self._waiting.append(job)
                self._bell.ring()
        if over:
            self._sink(Failed(run.run, "error", "the executor is closed"))

    def run_in_place(self, run: Run) -> Finished | Failed:
        """Carry a run out on the calling thread. The executor's own thread must be idle; such a run cannot be aborted."""
        if self._over or self._closing:
            return Failed(run.run, "error", "the executor is closed")
        return self._ended(_Job(run, None))

    def abort(self, run: int) -> None:
        """Ask that a run stop early: at once where it waits, else before the next node of its model."""
        with self._lock:
            job = self._jobs.get(run)
            if job is None:
                return
            job.aborted = True
            if job.running:
                if job.interrupt is not None:
                    job.interrupt.stop()
                self._bell.ring()
                return
            self._waiting.remove(job)
            del self._jobs[run]
        self._sink(Failed(run, "aborted"))

    def close(self) -> None:
        """Abort what is there and wait for the thread to end. The sessions live until the last run has returned."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            jobs = list(self._jobs)
        for run in jobs:
            self.abort(run)
        self._bell.ring()
        if self._thread.ident is not None:
            self._thread.join()
        self._bell.close()

    # --- on the thread ----------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            with grown_heap():
                self._serve()
        finally:
            with self._lock:
                self._over = True
                left = list(self._jobs)
                self._jobs.clear()
                self._waiting.clear()
            for run in left:
                self._sink(Failed(run, "error", "the executor stopped"))

    def _serve(self) -> None:
        while (job := self._take()) is not None:
            event = self._ended(job)
            with self._lock:
                del self._jobs[job.run.run]
            self._sink(event)

    def _take(self) -> _Job | None:
        while True:
            with self._lock:
                if self._waiting:
                    job = self._waiting.popleft()
                    job.running = True
                    return job
                if self._closing:
                    return None
            self._bell.wait()

    def _ended(self, job: _Job) -> Finished | Failed:
        """The end of a run, a bug's as well."""
        try:
            return self._carry_out(job)
        except Exception as error:
            hook = threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            threading.excepthook(hook)
            return Failed(job.run.run, "error", f"a bug of the executor: {type(error).__name__}")

    def _carry_out(self, job: _Job) -> Finished | Failed:
        run = job.run
        began_ns = time.monotonic_ns()
        if began_ns > run.latest_ns:
            return Failed(run.run, "window", f"{(began_ns - run.latest_ns) / 1e6:.3f} ms too late to begin")
        try:
            results = self._recode(job) if run.range.empty else self._execute(job)
            if job.extra_ns:
                self._rest(job, time.monotonic_ns() + job.extra_ns)
        except _Aborted:
            return Failed(run.run, "aborted")
        except ModelError as reason:
            return Failed(run.run, "error", str(reason))
        if len(results) > 1:
            by_job = {result.job: result for result in results}
            results = [by_job[row.job] for row in run.rows]
        return Finished(run.run, tuple(results), began_ns, time.monotonic_ns(), job.codec_ns)

    def _recode(self, job: _Job) -> list[RowResult]:
        run = job.run
        specs = self._known(run).entry
        results: list[RowResult] = []
        for row in run.rows:
            job.check()
            before = time.monotonic_ns()
            results.append(recode(row, specs))
            spent = time.monotonic_ns() - before
            job.coded(spent, self._recode_extra(run, row, spent))
        return results

    def _recode_extra(self, run: Run, row: Row, spent_ns: int) -> int:
        extra = 0
        if _is_frames(row):
            extra += self._slowness.decode_ns(run.contract, run.range.first, row.decode.name, row.rows, spent_ns)
        if row.encode is not None:
            extra += self._slowness.encode_ns(run.contract, run.range.last, row.encode.name, row.rows, spent_ns)
        return extra

    def _execute(self, job: _Job) -> list[RowResult]:
        run = job.run
        known = self._known(run)
        if not 0 <= run.slot < len(known.slots):
            raise ModelError(f"run {run.run}: there is no slot {run.slot} at the entry of {run.range}")
        slot = known.slots[run.slot]
        if sum(map(ROWS, run.rows)) > slot.rows:
            raise ModelError(f"run {run.run}: more rows than the {slot.rows} of its slot")
        slot.enter(run.generation)
        try:
            return self._in_slot(job, known, slot)
        finally:
            slot.leave()

    def _in_slot(self, job: _Job, known: _Known, slot: Slot) -> list[RowResult]:
        rows = job.run.rows
        try:
            return self._attempt(job, known, slot, rows)
        except ModelError as reason:
            job.check()
            if len(rows) == 1:
                return [RowResult(rows[0].job, (), str(reason))]
        return [self._alone(job, known, slot, row) for row in rows]

    def _alone(self, job: _Job, known: _Known, slot: Slot, row: Row) -> RowResult:
        """One row of a batch that failed, by itself."""
        try:
            return self._attempt(job, known, slot, (row,))[0]
        except ModelError as reason:
            job.check()
            return RowResult(row.job, (), str(reason))

    def _attempt(self, job: _Job, known: _Known, slot: Slot, rows: Sequence[Row]) -> list[RowResult]:
        """Stage, run and pack some rows of a run."""
        run, slow = job.run, self._slowness
        part, contract = run.range, run.contract
        started_ns = time.monotonic_ns()
        staged = stage(rows, known.entry, slot)
        staged_ns = time.monotonic_ns()
        extra_ns, slowed = 0, slow.factor > 1.0
        if slowed:
            each_ns = (staged_ns - started_ns) // len(rows)
            extra_ns = sum(slow.decode_ns(contract, part.first, _decoded_as(row), row.rows, each_ns) for row in rows)
        job.coded(staged_ns - started_ns, extra_ns)
        results: list[RowResult] = []
        if staged.errors:
            results = [RowResult(number, (), error) for number, error in staged.errors.items()]
            if not staged.placed:
                return results
        job.check()
        outputs = self._run(job, known, slot, staged.rows)
        if slowed:
            job.extra_ns += slow.run_ns(contract, part, staged.rows, time.monotonic_ns() - staged_ns)
        job.check()
        for row, arrays in split(outputs, known.exit, staged.placed, slot):
            if row.encode is None:
                results.append(RowResult(row.job, arrays))
                continue
            before_ns = time.monotonic_ns()
            results.append(pack(row, arrays))
            spent_ns = time.monotonic_ns() - before_ns
            job.coded(spent_ns, slow.encode_ns(contract, part.last, row.encode.name, row.rows, spent_ns))
        return results

    def _run(self, job: _Job, known: _Known, slot: Slot, rows: int) -> tuple[Array, ...]:
        return known.programs.run(job.run.range, slot.feeds(rows), job.interrupt or known.never)

    def _known(self, run: Run) -> _Known:
        contract, part = run.contract, run.range
        known = self._ranges.get((contract, part))
        if known is None:
            programs = self._programs.get(contract)
            if programs is None or not known_range(programs.plan, part):
                raise ModelError(f"run {run.run}: contract {contract[:12]} with {part} is not loaded here")
            entry, exit_ = entry_tensors(programs.plan, part), exit_tensors(programs.plan, part)
            known = _Known(programs, programs.interrupt(), entry, exit_, self._buffers.slots(contract, part))
            self._ranges[contract, part] = known
        return known

    def _rest(self, job: _Job, until_ns: int) -> None:
        """Stand for a slower device until then, or until aborted."""
        while time.monotonic_ns() < until_ns:
            self._bell.wait(until_ns)
            job.check()


def _is_frames(row: Row) -> bool:
    return any(isinstance(value, bytes | bytearray | memoryview) for value in row.inputs)


def _decoded_as(row: Row) -> str:
    """The coding a row came in; no name of a coding where it came as arrays."""
    return row.decode.name if _is_frames(row) else ""
