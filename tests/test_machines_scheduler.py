"""What the scheduler has promised it keeps, as long as no run takes longer than was planned for.

Work is promised where the scheduler says that it can be; other work of any length, class and deadline comes beside it. Runs
take up to their pessimistic time, and what was learned of times stays fixed, so that nothing excuses a broken promise.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from plans import make_plan

from shared.events import Row, Run
from shared.latency import Latency, WorkKey
from shared.memory import Arena
from shared.plan import RAW, SegmentRange
from shared.queue import Job
from shared.reserve import Promise
from shared.scheduler import Scheduler
from shared.slots import SlotClass
from shared.streams import Source

MS = 1_000_000
START = 1_000 * MS
CONTRACTS = ("long", "short")
PARTS = (SegmentRange(0, 0, 2), SegmentRange(0, 0, 1), SegmentRange(1, 0, 1))
LONG, SHORT = make_plan(edge_ms=(6.0, 4.0))[1], make_plan(edge_ms=(2.0, 1.0))[1]


class FixedLatency(Latency):
    """Times as profiled, whatever is seen."""

    def observe(self, key: WorkKey, rows: int, elapsed_ns: int) -> None:
        pass


@dataclass
class Out:
    """A run that is out, and when it will end."""

    run: Run
    jobs: list[int]
    ends_ns: int


class Device:
    """A scheduler, its executors and a clock."""

    def __init__(self, executors: int, batch: int) -> None:
        slots = [SlotClass(c, p.program, p.first, 2 * executors, batch, 0) for c in CONTRACTS for p in PARTS]
        latency = FixedLatency.of((("long", LONG), ("short", SHORT)), "edge")
        self.now = START
        self.scheduler = Scheduler(
            executors, latency, Arena(slots), dict.fromkeys(CONTRACTS, batch), 1_000, max_streams=4
        )
        self.jobs: dict[int, Job] = {}
        self.out: list[Out] = []
        self.ended: dict[int, int] = {}
        self.gone: set[int] = set()
        self.share = 1.0
        """How much of its pessimistic time each run takes that begins from now on."""

    def job(self, key: WorkKey, rows: int, wait: int, priority: int, promised: bool) -> Job:
        row = Row(len(self.jobs) + 1, rows, (), RAW)
        return Job(row.job, key.contract, key.range, row, self.now + wait, priority, promised, key)

    def times(self, key: WorkKey, rows: int, count: float) -> int:
        """So many times as long as the work takes at worst."""
        return int(self.scheduler.latency.pessimistic(key, rows) * count)

    def promise(self, key: WorkKey, rows: int, wait: int, priority: int) -> bool:
        """Ask for a promise of this work within `wait`, at the expense of less important ones where need be; submit it where
        it is given."""
        duration = self.scheduler.latency.pessimistic(key, rows)
        work = Promise(len(self.jobs) + 1, duration, self.now + wait, 0, priority)
        displaced = [] if self.scheduler.can_promise(self.now, work) else self.scheduler.displaced(self.now, work)
        if displaced is None:
            return False
        assert all(self.jobs[number].priority > priority for number in displaced), "a promise as important is displaced"
        for number in displaced:
            self.gone.add(number)
            assert self.scheduler.cancel(number) is None
        self.submit(self.job(key, rows, wait, priority, True))
        return True

    def submit(self, job: Job) -> None:
        self.jobs[job.id] = job
        assert self.scheduler.submit(job, self.now)
        self.step()

    def cancel(self, number: int, abort: bool) -> None:
        self.gone.add(number)
        run = self.scheduler.cancel(number)
        if run is not None and abort:
            self.end(next(o for o in self.out if o.run is run))
        self.step()

    def end(self, out: Out) -> None:
        self.out.remove(out)
        for number in out.jobs:
            self.ended[number] = self.now
        self.scheduler.ended(out.run.run, 0, 1)

    def step(self) -> None:
        decision = self.scheduler.schedule(self.now)
        assert decision.final, "what was promised is revoked though nothing took longer than planned"
        assert not any(job.promised for job in decision.expired), "a promise has expired"
        self.gone.update(job.id for job in decision.expired)
        for run in decision.runs:
            jobs = [row.job for row in run.rows]
            key = self.jobs[jobs[0]].key
            longest = self.scheduler.latency.pessimistic(key, sum(row.rows for row in run.rows))
            self.out.append(Out(run, jobs, self.now + max(1, int(longest * self.share))))
        self.scheduler.validate()

    def pass_time(self, ns: int) -> None:
        end = self.now + ns
        while True:
            wake = self.scheduler.next_wakeup(self.now)
            times = [o.ends_ns for o in self.out] + ([] if wake is None else [max(wake, self.now)])
            soonest = min(times, default=end + 1)
            if soonest > end:
                break
            stuck = soonest == self.now and not any(o.ends_ns <= self.now for o in self.out)
            self.now = soonest + stuck
            for out in [o for o in self.out if o.ends_ns <= self.now]:
                self.end(out)
            self.step()
        self.now = max(self.now, end)

    def check(self) -> None:
        """No promise is late."""
        for number, job in self.jobs.items():
            if job.promised and number not in self.gone:
                assert self.ended.get(number, self.now) <= job.deadline_ns, f"the promise of job {number} is broken"


keys = st.builds(WorkKey, st.sampled_from(CONTRACTS), st.sampled_from(PARTS))
waits = st.integers(1, 60).map(lambda ms: ms * MS)
tight = st.integers(20, 100).map(lambda n: n / 20)
"""How often the work would fit into what is left."""


class SchedulerMachine(RuleBasedStateMachine):
    """Promised and other work comes, runs, is cancelled; time passes."""

    @initialize(executors=st.integers(1, 2), batch=st.sampled_from([1, 4]))
    def start(self, executors: int, batch: int) -> None:
        self.device = Device(executors, batch)

    @rule(key=keys, rows=st.integers(1, 2), counts=st.lists(tight, min_size=1, max_size=3), priority=st.integers(0, 2))
    def promise(self, key: WorkKey, rows: int, counts: list[float], priority: int) -> None:
        rows = min(rows, self.device.scheduler.max_rows(key.contract))
        for count in counts:
            self.device.promise(key, rows, self.device.times(key, rows, count), priority)

    @rule(key=keys, wait=waits, priority=st.integers(0, 2))
    def try_without_promise(self, key: WorkKey, wait: int, priority: int) -> None:
        self.device.submit(self.device.job(key, 1, wait, priority, False))

    @precondition(lambda self: self.device.jobs)
    @rule(which=st.integers(0, 50), abort=st.booleans())
    def cancel(self, which: int, abort: bool) -> None:
        number = 1 + which % len(self.device.jobs)
        if number not in self.device.gone and number not in self.device.ended:
            self.device.cancel(number, abort)

    @rule(share=st.sampled_from([0.2, 0.9, 1.0]))
    def run_faster_or_slower(self, share: float) -> None:
        self.device.share = share

    @rule(us=st.sampled_from([100, 1_000, 4_000, 15_000]))
    def time_passes(self, us: int) -> None:
        self.device.pass_time(us * 1_000)

    @invariant()
    def no_promise_is_late(self) -> None:
        if hasattr(self, "device"):
            self.device.check()

    def teardown(self) -> None:
        if hasattr(self, "device"):
            self.device.pass_time(200 * MS)
            self.device.check()
            assert not self.device.out
            assert self.device.scheduler.queued == 0


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=100, stateful_step_count=30)


# --- streams ----------------------------------------------------------------------------------------------------------


@st.composite
def sources(draw: st.DrawFn) -> list[Source]:
    return [
        Source(
            ("client", number),
            1,
            draw(st.sampled_from([10, 15, 20, 33, 50])) * MS,
            draw(st.sampled_from([8, 10, 15, 20, 33, 50])) * MS,
            draw(st.integers(0, 2)),
            (WorkKey(draw(st.sampled_from(CONTRACTS)), PARTS[2]),),
        )
        for number in range(1, draw(st.integers(1, 3)) + 1)
    ]


@settings(max_examples=100)
@given(
    sources(),
    st.lists(st.integers(0, 50), min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 300), keys, waits), max_size=12),
)
def test_every_frame_of_a_stream_that_was_granted_is_promised_and_in_time(
    streams: list[Source], phases: list[int], others: list[tuple[int, WorkKey, int]]
) -> None:
    """Frames come as announced, for as long as we look, and beside them work of the least class, of any length, that nothing
    was promised of. Before the second frame of each stream has come nobody knows when its frames are due."""
    device = Device(1, 1)
    for source in streams:
        device.scheduler.streams.open(source)
    device.scheduler.streams.grant(device.scheduler.latency, 1)
    granted = {s.id for s in streams if device.scheduler.streams.granted(s.id) is not None}
    begins = [START + phase * MS for phase in phases]
    known = max(begin + source.period_ns for source, begin in zip(streams, begins, strict=False))
    coming: list[tuple[int, int, Source | tuple[WorkKey, int]]] = [
        (START + ms * MS, -1, (key, wait)) for ms, key, wait in others
    ]
    for source, begin in zip(streams, begins, strict=False):
        frames = range(begin, START + 300 * MS, source.period_ns)
        coming += [(at, source.id[1], source) for at in frames]
    for at, _, what in sorted(coming, key=lambda item: item[:2]):
        device.pass_time(at - device.now)
        if isinstance(what, tuple):
            device.submit(device.job(what[0], 1, what[1], 2, False))
            continue
        device.scheduler.streams.arrived(what.id, at, at)
        promised = device.promise(what.ways[0], 1, what.deadline_ns, what.priority)
        assert promised or what.id not in granted or at <= known, f"a frame of {what.id} is not promised"
    device.check()
