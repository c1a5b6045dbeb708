"""The simulator's virtual executors do with a run what the real ones do."""

from __future__ import annotations

import random
from itertools import repeat

import pytest

from hil.sim.agenda import Agenda
from hil.sim.clock import HostClock
from hil.sim.device import Times, Trouble, VirtualExecutor
from hil.sim.hosts import Host, Process
from hil.sim.plans import make_model
from hil.sim.play import Blind
from hil.sim.stamp import Stamps, request_inputs
from shared.errors import InvariantBroken
from shared.events import Action, Event, Failed, Finished, Row, Run
from shared.latency import Latency, WorkKey
from shared.plan import RAW, SegmentRange

MS = 1_000_000
NEVER = 1 << 60


class Nothing:
    def handle(self, event: Event, now: int) -> list[Action]:
        return []


class Rig:
    """One executor on a host whose clock is true time, and what it has told so far."""

    def __init__(self) -> None:
        model = make_model(random.Random(3), "m", 1)
        self.contract, self.plan = model.contracts[0], model.plans[0]
        plans = {self.contract: self.plan}
        latency = Latency.of(plans.items(), "edge")
        self.part = SegmentRange(0, 0, len(self.plan.programs[0].segments))
        self.lasts = latency.typical(WorkKey(self.contract, self.part))
        self.agenda = Agenda(0)
        self.trouble = Trouble()
        self.told: list[tuple[int, Event]] = []
        self.process = Process("p", "agent", 1, 1, Host("h", HostClock(0, 0, 0)), Nothing(), plans, repeat(0))
        self.executor = VirtualExecutor(
            self.process,
            self.agenda,
            Times(latency),
            Stamps(plans),
            self.trouble,
            repeat(1.0),
            random.Random(1),
            Blind(),
            lambda process, event, at: self.told.append((at, event)),
            {},
        )

    def run(self, number: int = 1, latest_ns: int = NEVER) -> Run:
        row = Row(number, 1, request_inputs(self.plan.inputs, 1, number), RAW)
        return Run(number, 0, self.contract, self.part, (row,), 0, latest_ns)

    @property
    def ends(self) -> list[str]:
        return [e.reason if isinstance(e, Failed) else "finished" for _, e in self.told]


def test_a_run_takes_its_time_and_gives_the_stamp_of_its_inputs() -> None:
    rig = Rig()
    rig.executor.submit(rig.run(), 0)
    rig.agenda.play(1_000 * MS)
    (at, event), *more = rig.told

    assert not more
    assert isinstance(event, Finished)
    assert event.ended_ns - event.began_ns == rig.lasts
    assert event.ended_ns == at
    right = Stamps({rig.contract: rig.plan}).outputs(rig.contract, rig.run().rows[0].inputs, 1, 0, None, "raw")  # type: ignore[arg-type]
    assert [o.tobytes() for o in event.results[0].outputs] == [a.tobytes() for a in right.values()]


def test_a_run_that_comes_too_late_is_refused_and_the_next_one_begins() -> None:
    rig = Rig()
    rig.executor.submit(rig.run(1, latest_ns=10), 0)
    rig.executor.submit(rig.run(2), 0)
    rig.agenda.play(1_000 * MS)

    assert rig.ends == ["window", "finished"]


def test_a_third_run_is_a_broken_invariant() -> None:
    rig = Rig()
    rig.executor.submit(rig.run(1), 0)
    rig.executor.submit(rig.run(2), 0)

    with pytest.raises(InvariantBroken):
        rig.executor.submit(rig.run(3), 0)


def test_an_abort_stops_what_waits_at_once_and_what_runs_soon() -> None:
    rig = Rig()
    rig.trouble.throttle = 100.0
    rig.executor.submit(rig.run(1), 0)
    rig.executor.submit(rig.run(2), 0)
    rig.agenda.play(5 * MS)
    rig.executor.abort(2, 5 * MS)
    rig.executor.abort(1, 5 * MS)
    rig.agenda.play(1_000 * MS)
    (waited, first), (ran, second) = rig.told

    assert (first, second) == (Failed(2, "aborted"), Failed(1, "aborted"))
    assert waited == 5 * MS < ran < 6 * MS


def test_an_abort_that_comes_too_late_changes_nothing() -> None:
    rig = Rig()
    rig.executor.submit(rig.run(), 0)
    rig.agenda.play(rig.lasts)
    rig.executor.abort(1, rig.lasts)
    rig.agenda.play(1_000 * MS)
    rig.executor.abort(1, 1_000 * MS)
    rig.agenda.play(2_000 * MS)

    assert rig.ends == ["finished"]


def test_a_run_that_hangs_does_not_hear_its_abort() -> None:
    rig = Rig()
    rig.trouble.hang_until = 900 * MS
    rig.executor.submit(rig.run(), 0)
    rig.agenda.play(100 * MS)
    rig.executor.abort(1, 100 * MS)
    rig.agenda.play(899 * MS)

    assert rig.ends == []
    rig.agenda.play(1_000 * MS)
    assert rig.ends == ["finished"]


def test_a_run_stands_still_with_its_process() -> None:
    rig = Rig()
    rig.executor.submit(rig.run(), 0)
    rig.agenda.play(1)
    rig.executor.freeze(1)
    rig.agenda.play(500 * MS)

    assert rig.ends == []
    rig.executor.thaw(500 * MS)
    rig.agenda.play(2_000 * MS)
    assert rig.ends == ["finished"]
    assert rig.told[0][0] > 500 * MS


def test_nothing_comes_of_a_run_whose_process_was_killed() -> None:
    rig = Rig()
    rig.executor.submit(rig.run(1), 0)
    rig.executor.submit(rig.run(2), 0)
    rig.executor.die()
    rig.agenda.play(2_000 * MS)

    assert rig.told == []


def test_failing_runs_and_rows_say_so() -> None:
    rig = Rig()
    rig.trouble.fail = 1.0
    rig.executor.submit(rig.run(1), 0)
    rig.agenda.play(1_000 * MS)
    rig.trouble.fail, rig.trouble.bad_rows = 0.0, 1.0
    rig.executor.submit(rig.run(2), 1_000 * MS)
    rig.agenda.play(2_000 * MS)
    last = rig.told[-1][1]

    assert rig.ends == ["error", "finished"]
    assert isinstance(last, Finished)
    assert last.results[0].error


def test_a_run_in_place_is_dated_when_it_has_ended() -> None:
    rig = Rig()
    lasts = rig.executor.begin_in_place(rig.run(), 7)
    event = rig.executor.end_in_place(7 + 2 * lasts)

    assert isinstance(event, Finished)
    assert (event.began_ns, event.ended_ns) == (7, 7 + 2 * lasts)
    assert rig.executor.begin_in_place(rig.run(2, latest_ns=0), 7) == 0
    assert isinstance(rig.executor.end_in_place(7), Failed)
