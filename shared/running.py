"""What is out on the executors of one process, and how long it may still take.

A run that takes far longer than even the pessimistic prediction is *overdue*, and its executor *suspect* until the run ends:
nothing is promised on it, since nobody knows when it will be free. For work that is only tried it is taken to need as long
again as it has taken already.
"""

from __future__ import annotations

import msgspec

from shared.errors import InvariantBroken
from shared.events import Run
from shared.latency import WorkKey
from shared.memory import Lease
from shared.queue import Job

OVERDUE = 2
"""A run is overdue after so many times its pessimistic time,"""

OVERDUE_LEAST_NS = 2_000_000
"""and this much beyond that time at least: a stall of the host is not the executor's fault."""

NO_JOBS: frozenset[int] = frozenset()

NEVER_NS = 1 << 62
"""When an executor is free that nobody can tell of."""


class Launch(msgspec.Struct, frozen=True, gc=False):
    """A run that is out on an executor: its jobs, the rows of all of them, its slot, when it began, is to end typically, and
    at the latest. `key` is what it is timed by. `partial`: it is a first part of its jobs' work (`shared.pieces`)."""

    run: Run
    jobs: tuple[Job, ...]
    rows: int
    lease: Lease | None
    began_ns: int
    typical_ns: int
    pessimistic_ns: int
    key: WorkKey
    partial: bool


class Running:
    """The launches of a process, at most one on each of its executors."""

    def __init__(self, executors: int) -> None:
        self.spare = executors
        """Executors on which nothing runs."""
        self._launches: dict[int, Launch] = {}
        self._busy: list[int | None] = [None] * executors
        self._likely = [0] * executors
        """When what runs on each executor typically ends, 0 where nothing does,"""
        self._surely = [0] * executors
        """and at the latest; `NEVER_NS` where it is suspect."""
        self.overdue_ns = NEVER_NS
        """When the next launch will be overdue; `NEVER_NS` where none will."""
        self._overdue: dict[int, int] = {}
        """When each run that is not suspect yet will be."""
        self._suspect: set[int] = set()
        self._dead: set[int] = set()
        self.to_go_on = 0
        """Jobs of which only a first part is out: what is left of them will wait again."""

    def __len__(self) -> int:
        return len(self._launches)

    @property
    def executors(self) -> int:
        """How many executors there are."""
        return len(self._busy)

    def idle(self) -> int:
        """The first executor on which nothing runs. Raises ValueError where all are busy."""
        return self._busy.index(None)

    def begin(self, launch: Launch) -> None:
        """A launch is out. Raises `InvariantBroken` where its executor is busy."""
        run, executor = launch.run.run, launch.run.executor
        if self._busy[executor] is not None:
            raise InvariantBroken(f"executor {executor} is busy and gets run {run}")
        began, surely = launch.began_ns, launch.pessimistic_ns
        at = max(surely + OVERDUE_LEAST_NS, OVERDUE * surely - began)
        self._overdue[run] = at
        self.overdue_ns = min(self.overdue_ns, at)
        self._launches[run] = launch
        self.spare -= 1
        self._busy[executor] = run
        self._likely[executor] = launch.typical_ns
        self._surely[executor] = surely
        if launch.partial:
            self.to_go_on += len(launch.jobs)

    def end(self, run: int) -> tuple[Launch, frozenset[int]]:
        """A run is over: its launch, and the jobs of it that nobody wanted any more."""
        launch = self._launches.pop(run, None)
        if launch is None:
            raise InvariantBroken(f"run {run} ended, but none such is out")
        executor = launch.run.executor
        self.spare += 1
        self._busy[executor] = None
        self._likely[executor] = self._surely[executor] = 0
        if launch.partial:
            self.to_go_on -= len(launch.jobs)
        at = self._overdue.pop(run, None)
        if at is None:
            self._suspect.discard(run)
        elif at == self.overdue_ns:
            self.overdue_ns = min(self._overdue.values(), default=NEVER_NS)
        if not self._dead:
            return launch, NO_JOBS
        unwanted = frozenset(j.id for j in launch.jobs if j.id in self._dead)
        self._dead -= unwanted
        return launch, unwanted

    def drop(self, job: int) -> Run | None:
        """Nobody wants this job any more; the run, where all of its jobs are unwanted and aborting it would reclaim the
        executor."""
        for launch in self._launches.values():
            if any(j.id == job for j in launch.jobs):
                self._dead.add(job)
                return launch.run if all(j.id in self._dead for j in launch.jobs) else None
        return None

    def overdue(self, now: int) -> tuple[Launch, ...]:
        """Launches that are overdue since the last call: their executors are suspect from now on."""
        if now < self.overdue_ns:
            return ()
        late = [run for run, at in self._overdue.items() if now >= at]
        for run in late:
            del self._overdue[run]
            self._surely[self._launches[run].run.executor] = NEVER_NS
        self.overdue_ns = min(self._overdue.values(), default=NEVER_NS)
        self._suspect.update(late)
        return tuple(self._launches[run] for run in late)

    def suspect(self, executor: int) -> bool:
        """Whether nobody can tell when this executor will be free."""
        return self._busy[executor] in self._suspect

    def free_at(self, now: int) -> list[int]:
        """When each executor is free at the latest; `NEVER_NS` where it is suspect."""
        return [at if at > now else now for at in self._surely]

    def soonest_free(self, now: int) -> int:
        """When the first executor is free at the latest; `NEVER_NS` where all are suspect."""
        at = min(self._surely)
        return at if at > now else now

    def likely_free_at(self, now: int) -> list[int]:
        """When each executor is typically free."""
        likely = [at if at > now else now for at in self._likely]
        for run in self._suspect:
            launch = self._launches[run]
            likely[launch.run.executor] = 2 * now - launch.began_ns
        return likely

    def leases(self) -> int:
        """Slots that the launches hold."""
        return sum(launch.lease is not None for launch in self._launches.values())

    def jobs(self) -> list[int]:
        """Every job that is out."""
        return [job.id for launch in self._launches.values() for job in launch.jobs]

    def validate(self) -> None:
        """Raises `InvariantBroken` where executors, launches and rows disagree."""
        out = {run for run in self._busy if run is not None}
        if (
            out != set(self._launches)
            or out != self._suspect | set(self._overdue)
            or self._suspect & set(self._overdue)
            or self.spare != self._busy.count(None)
        ):
            raise InvariantBroken(f"executors run {sorted(out)}, launches are {sorted(self._launches)}")
        jobs = self.jobs()
        if len(set(jobs)) != len(jobs):
            raise InvariantBroken(f"a job is in two launches: {sorted(jobs)}")
        if not self._dead <= set(jobs):
            raise InvariantBroken(f"jobs {sorted(self._dead - set(jobs))} are unwanted but not out")
