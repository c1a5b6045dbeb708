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

from shared.errors import InvariantBroken, ModelError
from shared.events import Event, Failed, Finished, Row, RowResult, Run
from shared.executors.bell import Bell
from shared.executors.buffers import Buffers, Slot
from shared.executors.programs import Interrupt, Programs, entry_tensors, exit_tensors, known_range
from shared.executors.slowness import Slowness
from shared.executors.staging import pack, recode, split, stage
from shared.request import Array
from shared.slots import SLOTS_PER_EXECUTOR
from shared.thread_heap import grown_heap

Sink = Callable[[Event], object]
"""Where events go; called from the executor's thread (`Mailbox.put`)."""


class _Aborted(Exception):
    """Leaves the work of a run that nobody wants any more."""


class _Job:
    """A run that was submitted and has not ended."""

    __slots__ = ("aborted", "interrupt", "run", "running")

    def __init__(self, run: Run, interrupt: Interrupt | None) -> None:
        self.run = run
        self.interrupt = interrupt
        self.aborted = False
        self.running = False

    def check(self) -> None:
        if self.aborted:
            raise _Aborted


class _Times:
    """Nanoseconds that one run spent, and owes to a slow device."""

    __slots__ = ("codec_ns", "extra_ns")

    def __init__(self) -> None:
        self.codec_ns = 0
        self.extra_ns = 0

    def codec(self, measured_ns: int, extra_ns: int) -> None:
        self.codec_ns += measured_ns + extra_ns
        self.extra_ns += extra_ns


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
        self._never: dict[str, Interrupt] = {}
        """For runs that nobody stops, by contract: making one takes some microseconds."""
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
        never = self._never.get(run.contract)
        if never is None and run.contract in self._programs:
            never = self._never[run.contract] = self._programs[run.contract].interrupt()
        return self._ended(_Job(run, never))

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
        times = _Times()
        try:
            results = self._recode(job, times) if run.range.empty else self._execute(job, times)
            if times.extra_ns:
                self._rest(job, time.monotonic_ns() + times.extra_ns)
        except _Aborted:
            return Failed(run.run, "aborted")
        except ModelError as reason:
            return Failed(run.run, "error", str(reason))
        by_job = {result.job: result for result in results}
        ordered = tuple(by_job[row.job] for row in run.rows)
        return Finished(run.run, ordered, began_ns, time.monotonic_ns(), times.codec_ns)

    def _recode(self, job: _Job, times: _Times) -> list[RowResult]:
        run = job.run
        plan = self._known(run).plan
        specs = entry_tensors(plan, run.range)
        results: list[RowResult] = []
        for row in run.rows:
            job.check()
            before = time.monotonic_ns()
            results.append(recode(row, specs))
            spent = time.monotonic_ns() - before
            times.codec(spent, self._recode_extra(run, row, spent))
        return results

    def _recode_extra(self, run: Run, row: Row, spent_ns: int) -> int:
        extra = 0
        if _is_frames(row):
            extra += self._slowness.decode_ns(run.contract, run.range.first, row.decode.name, row.rows, spent_ns)
        if row.encode is not None:
            extra += self._slowness.encode_ns(run.contract, run.range.last, row.encode.name, row.rows, spent_ns)
        return extra

    def _execute(self, job: _Job, times: _Times) -> list[RowResult]:
        run = job.run
        programs = self._known(run)
        slot = self._buffers.slot(run.contract, run.range, run.slot)
        if slot is None:
            raise ModelError(f"run {run.run}: there is no slot {run.slot} at the entry of {run.range}")
        if sum(row.rows for row in run.rows) > slot.rows:
            raise ModelError(f"run {run.run}: more rows than the {slot.rows} of its slot")
        slot.enter(run.generation)
        try:
            return self._in_slot(job, programs, slot, times)
        finally:
            slot.leave()

    def _in_slot(self, job: _Job, programs: Programs, slot: Slot, times: _Times) -> list[RowResult]:
        rows = job.run.rows
        try:
            return self._attempt(job, programs, slot, rows, times)
        except ModelError as reason:
            job.check()
            if len(rows) == 1:
                return [RowResult(rows[0].job, (), str(reason))]
        return [self._alone(job, programs, slot, row, times) for row in rows]

    def _alone(self, job: _Job, programs: Programs, slot: Slot, row: Row, times: _Times) -> RowResult:
        """One row of a batch that failed, by itself."""
        try:
            return self._attempt(job, programs, slot, (row,), times)[0]
        except ModelError as reason:
            job.check()
            return RowResult(row.job, (), str(reason))

    def _attempt(
        self, job: _Job, programs: Programs, slot: Slot, rows: Sequence[Row], times: _Times
    ) -> list[RowResult]:
        """Stage, run and pack some rows of a run."""
        run, slow = job.run, self._slowness
        part, contract = run.range, run.contract
        started_ns = time.monotonic_ns()
        staged = stage(rows, entry_tensors(programs.plan, part), slot)
        staged_ns = time.monotonic_ns()
        extra_ns = 0
        if slow.factor > 1.0:
            each_ns = (staged_ns - started_ns) // len(rows)
            extra_ns = sum(slow.decode_ns(contract, part.first, _decoded_as(row), row.rows, each_ns) for row in rows)
        times.codec(staged_ns - started_ns, extra_ns)
        results = [RowResult(number, (), error) for number, error in staged.errors.items()]
        if not staged.placed:
            return results
        job.check()
        outputs = self._run(job, programs, slot, staged.rows)
        ran_ns = time.monotonic_ns()
        times.extra_ns += slow.run_ns(contract, part, staged.rows, ran_ns - staged_ns)
        job.check()
        for row, arrays in split(outputs, exit_tensors(programs.plan, part), staged.placed, slot):
            if row.encode is None:
                results.append(RowResult(row.job, arrays))
                continue
            before_ns = time.monotonic_ns()
            results.append(pack(row, arrays))
            spent_ns = time.monotonic_ns() - before_ns
            times.codec(spent_ns, slow.encode_ns(contract, part.last, row.encode.name, row.rows, spent_ns))
        return results

    def _run(self, job: _Job, programs: Programs, slot: Slot, rows: int) -> tuple[Array, ...]:
        if job.interrupt is None:
            raise InvariantBroken(f"run {job.run.run} of a contract that was not loaded has come to run")
        return programs.run(job.run.range, slot.feeds(rows), job.interrupt)

    def _known(self, run: Run) -> Programs:
        programs = self._programs.get(run.contract)
        if programs is None or not known_range(programs.plan, run.range):
            raise ModelError(f"run {run.run}: contract {run.contract[:12]} with {run.range} is not loaded here")
        return programs

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
