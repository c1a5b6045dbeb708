"""A recorded run is the same when it is replayed; what is not the same is found, with the step."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

import msgspec
import numpy as np
import pytest
from busy import busy_pair, recorders
from hypothesis import given
from hypothesis import strategies as st
from plans import make_input, make_plan
from rich.console import Console

from edge.hold import HoldMargin
from edge.journal import EDGE, build_broker, edge_setup
from hil import journal_cost
from hil.journals import KINDS, journal
from hil.pair import CLIENT, MS, Pair
from shared.errors import InvariantBroken
from shared.events import Action, Arrived, Event, Finished, RowResult, Run, Tick, Withdrawn
from shared.journal.file import Journal, head_of, pieces
from shared.journal.marks import Blanks
from shared.journal.recorder import Frozen, Recorder, Records, Segment
from shared.journal.records import decode_record, encode_record
from shared.journal.replay import Replay, journal_of, verify
from shared.request import Answer, Array, Request
from shared.settings import EdgeSettings

SMALL = 240
"""Steps of a ring that forgets most of a busy run."""


def recorded_broker(events: int = 1_000) -> tuple[Recorder, str]:
    """A recorded broker without nodes, and the contract that it serves."""
    contract, plan = make_plan()
    setup = edge_setup(EdgeSettings(), {contract: plan}, 1, 0)
    return Recorder(build_broker(setup), EDGE, setup, events=events), contract


def request(contract: str, sequence: int, inputs: tuple[Array, ...], now: int) -> Request:
    return Request(CLIENT, sequence, contract, inputs, 1, now, now + 20 * MS)


@pytest.mark.parametrize("seed", range(3))
def test_every_machine_of_a_run_with_killed_and_stalled_nodes_replays_byte_for_byte(seed: int) -> None:
    pair = busy_pair(seed)
    for recorder in recorders(pair).values():
        found = journal(recorder)
        assert found.first == 0
        assert verify(found) is None
    assert {type(outcome).__name__ for outcomes in pair.delivered.values() for _, outcome in outcomes} == {
        "Answer",
        "Missed",
        "Rejected",
        "Superseded",
    }


@pytest.mark.parametrize("seed", range(3))
def test_a_ring_that_has_forgotten_its_beginning_replays_from_each_of_its_segments(seed: int) -> None:
    pair = busy_pair(seed, journal=SMALL)
    for name, recorder in recorders(pair).items():
        found = journal(recorder)
        if name == "edge":
            assert found.first > 0
        for place in range(len(found.segments)):
            assert verify(msgspec.structs.replace(found, segments=found.segments[place:])) is None


def test_a_ring_holds_no_more_steps_than_it_may() -> None:
    recorder, _ = recorded_broker(events=100)
    for number in range(1_000):
        recorder.handle(Tick(number % 7), number * MS)
        assert sum(len(segment.records) for segment in recorder.frozen().segments) <= 100 + 64
    found = journal(recorder)
    assert found.segments[-1].first + len(found.segments[-1].records) == 1_000
    assert verify(found) is None


def test_a_journal_that_is_read_while_the_loop_goes_on_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, _ = recorded_broker(events=100)
    ticks = iter(range(100_000))

    def go_on(steps: int) -> None:
        for _ in range(steps):
            number = next(ticks)
            recorder.handle(Tick(number % 7), number * MS)

    read = Records.all

    def slowly(records: Records) -> list[bytes]:
        go_on(300)
        return read(records)

    go_on(150)
    monkeypatch.setattr(Records, "all", slowly)
    found = journal(recorder)
    monkeypatch.undo()
    assert found.segments[0].first <= 150
    assert [len(segment.records) > 0 for segment in found.segments] == [True] * len(found.segments)
    assert verify(msgspec.structs.replace(found, segments=found.segments[:1])) is None


def test_a_replay_is_the_same_in_a_process_that_hashes_otherwise(tmp_path: Path) -> None:
    pair = busy_pair(1, journal=SMALL)
    for name, recorder in recorders(pair).items():
        frozen = recorder.frozen()
        head = head_of(frozen, reason="asked", saved="", headtail="", code="", python="")
        (tmp_path / f"{name}.journal").write_bytes(b"".join(pieces(head, frozen)))
    program = (
        "import sys; from pathlib import Path; from hil.journals import load; from shared.journal.replay import verify\n"
        "print([str(verify(load(path))) for path in sorted(Path(sys.argv[1]).iterdir())])"
    )
    for seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("['None', 'None', 'None']\n", "")


def test_a_standby_serves_less_than_its_contract_says_and_replays() -> None:
    contract, plan = make_plan()
    setup = edge_setup(EdgeSettings(), {contract: msgspec.structs.replace(plan, ladder=plan.ladder[-1:])}, 1, 0)
    recorder = Recorder(build_broker(setup), EDGE, setup, events=1_000)
    recorder.handle(Arrived(request(contract, 1, make_input(), 1 * MS)), 1 * MS)
    assert verify(journal(recorder)) is None


def with_record(found: Journal, number: int, change: Callable[[bytes], bytes]) -> Journal:
    """The journal with one record changed."""
    segments: list[Segment] = []
    for segment in found.segments:
        records = list(segment.records)
        if segment.first <= number < segment.first + len(records):
            records[number - segment.first] = change(records[number - segment.first])
        segments.append(Segment(segment.first, segment.state, records))
    return msgspec.structs.replace(found, segments=tuple(segments))


def test_the_first_action_that_differs_is_found_and_told() -> None:
    found = journal(recorders(busy_pair(requests=20))["edge"])
    steps = list(Replay(found).steps())
    place = next(step.number for step in steps if any(isinstance(action, Run) for action in step.actions))
    step = steps[place]
    fewer = [action for action in step.actions if not isinstance(action, Run)]
    difference = verify(with_record(found, place, lambda record: encode_record(step.now_ns, step.event, fewer)))
    assert difference is not None
    assert difference.number == place
    assert "Run" in difference.got
    assert str(difference).startswith(f"step {place}: other action ")


def test_a_machine_that_decides_otherwise_is_found_by_its_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = journal(recorders(busy_pair(requests=50))["edge"])
    monkeypatch.setattr("edge.broker.MS", 2 * MS)
    difference = verify(found)
    assert difference is not None
    assert difference.what.startswith("action")


def test_a_machine_whose_state_went_another_way_is_found_at_the_next_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, _ = recorded_broker(events=100)
    for number in range(200):
        recorder.handle(Tick(number), number * MS)
    found = journal(recorder)
    assert len(found.segments) > 1
    monkeypatch.setattr(HoldMargin, "woke", lambda margin, late_ns: None)
    difference = verify(found)
    assert difference is not None
    assert (difference.number, difference.what) == (found.segments[1].first, "state")


def test_what_a_machine_raises_is_recorded_and_raised_again() -> None:
    recorder, _ = recorded_broker()
    told: list[Exception] = []
    recorder.rescue = told.append
    recorder.handle(Tick(1), 1 * MS)
    with pytest.raises(InvariantBroken) as broken:
        recorder.handle(Finished(99, (), 1, 2), 2 * MS)
    assert told == [broken.value]
    found = journal(recorder)
    assert verify(found) is None
    last = list(Replay(found).steps())[-1]
    assert last.raised == f"InvariantBroken: {broken.value}"
    assert isinstance(last.event, Finished)


def test_a_machine_that_no_longer_raises_is_told_from_one_that_did() -> None:
    recorder, _ = recorded_broker()
    recorder.handle(Tick(1), 1 * MS)
    found = journal(recorder)
    broke = with_record(found, 0, lambda record: encode_record(1 * MS, Tick(1), "InvariantBroken: all is lost"))
    difference = verify(broke)
    assert difference is not None
    assert (difference.what, difference.expected, difference.got) == (
        "end",
        "InvariantBroken: all is lost",
        "no error",
    )


def test_a_recorder_keeps_no_tensor_alive_and_nothing_of_what_it_holds() -> None:
    recorder, contract = recorded_broker(events=40)
    secret = a_secret()
    held = weakref.ref(secret)
    actions = recorder.handle(Arrived(request(contract, 1, (secret,), 1 * MS)), 1 * MS)
    (run,) = [action for action in actions if isinstance(action, Run)]
    result = RowResult(run.rows[0].job, (secret[:, :4].copy(),))
    del actions
    for _ in range(60):
        recorder.handle(Tick(0), 2 * MS)
    recorder.idle(1 << 60)
    assert len(recorder.frozen().segments) > 1
    recorder.handle(Finished(run.run, (result,), 2 * MS, 3 * MS), 6 * MS)
    recorder.idle(1 << 60)
    del run, result, secret
    gc.collect()
    assert held() is None
    kept = recorder.frozen()
    assert all(SECRET not in record for segment in kept.segments for record in segment.records)
    assert all(SECRET not in segment.state for segment in kept.segments)
    assert verify(journal(recorder)) is None


SECRET = b"\x00\x00\x9aD" * 3


def a_secret() -> Array:
    return make_input()[0] * 0 + 1232.0


def test_a_node_with_waiting_frames_is_remembered_without_them() -> None:
    pair = pair_with_waiting_frames()
    recorder = recorders(pair)["a"]
    for _ in range(200):
        recorder.handle(Tick(0), pair.now + pair.nodes["a"].skew_ns)
    states = [segment.state for segment in recorder.frozen().segments if segment.state]
    assert states
    assert all(a_secret().tobytes()[:16] not in state for state in states)


def pair_with_waiting_frames() -> Pair:
    pair = busy_pair(requests=1, journal=100)
    for _ in range(4):
        pair.ask((a_secret(),), 50.0)
    pair.run(1.2)
    assert pair.nodes["a"].machine.scheduler.queued or pair.nodes["a"].machine.scheduler.running
    return pair


def test_a_recorder_that_meets_what_it_cannot_hold_stops_and_says_why_and_what_it_has_replays() -> None:
    recorder, _ = recorded_broker(events=100)
    recorder.handle(Tick(1), 1 * MS)
    recorder.machine.stranger = Stranger()
    for number in range(200):
        recorder.handle(Tick(1), number * MS)
    frozen = recorder.frozen()
    assert "Stranger in a machine's state" in frozen.stopped
    assert verify(journal_of(frozen, KINDS)) is None
    recorder.handle(Withdrawn(CLIENT, 1), 500 * MS)
    assert recorder.frozen() == frozen


class Stranger:
    pass


def test_a_step_that_cannot_be_written_stops_the_recorder_and_not_the_machine() -> None:
    recorder, _ = recorded_broker()
    recorder.handle(Tick(1), 1 * MS)
    for _ in range(70):
        assert recorder.handle(Withdrawn("\ud800", 1), 2 * MS) == []
    frozen = recorder.frozen()
    assert frozen.stopped.startswith("a step cannot be written: ")
    assert [len(segment.records) for segment in frozen.segments] == [1]


STRANGE = Withdrawn(np.str_("app"), 1)
"""A step in which a value is of no type that a record can hold, as only a fault of ours lets one come."""


def serving(**options: object) -> Recorder:
    """A recorder as a serving process has it."""
    contract, plan = make_plan()
    setup = edge_setup(EdgeSettings(), {contract: plan}, 1, 0)
    return Recorder(build_broker(setup), EDGE, setup, events=100, strict=False, **options)


@pytest.mark.parametrize("idle", [True, False])
def test_a_step_that_no_record_can_hold_ends_the_recording_of_a_process_that_serves_and_nothing_else(
    idle: bool,
) -> None:
    recorder = serving()
    recorder.handle(Tick(1), 1 * MS)
    recorder.handle(STRANGE, 2 * MS)
    for number in range(200):
        assert recorder.handle(Tick(1), (3 + number) * MS) == recorder.machine.handle(Tick(1), (3 + number) * MS)
        if idle:
            recorder.idle(1 << 60)
    frozen = recorder.frozen()
    assert frozen.stopped.startswith("InvariantBroken: a journal cannot hold a str_")
    assert [len(segment.records) for segment in frozen.segments] == [1]
    assert verify(journal_of(frozen, KINDS)) is None


def test_in_tests_and_simulations_a_step_that_no_record_can_hold_is_the_error_that_it_is() -> None:
    recorder, _ = recorded_broker()
    recorder.handle(STRANGE, 1 * MS)
    with pytest.raises(InvariantBroken, match="a journal cannot hold a str_"):
        recorder.frozen()
    with pytest.raises(InvariantBroken, match="a journal cannot hold a str_"):
        recorder.idle(0)


def test_what_came_before_a_step_that_is_not_bytes_yet_and_cannot_be_is_frozen_all_the_same() -> None:
    recorder = serving()
    for number in range(3):
        recorder.handle(Tick(1), number * MS)
    recorder.handle(STRANGE, 3 * MS)
    recorder.handle(Tick(1), 4 * MS)
    frozen = recorder.frozen()
    assert "a journal cannot hold a str_" in frozen.stopped
    assert [len(segment.records) for segment in frozen.segments] == [3]
    assert recorder.stopped == ""


def refuse_memory(size: int) -> mmap:
    raise OSError(12, "Cannot allocate memory")


@pytest.mark.parametrize(("part", "value"), [("_block", refuse_memory), ("encode_record", None), ("write_state", None)])
def test_whatever_keeps_a_serving_process_from_recording_its_answers_are_the_same(
    part: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, plain = serving(), serving()
    recorder._spare.clear()
    monkeypatch.setattr(f"shared.journal.recorder.{part}", value)
    told: list[str] = []
    recorder.gave_up = told.append
    for number in range(200):
        assert recorder.handle(Tick(1), number * MS) == plain.machine.handle(Tick(1), number * MS)
        recorder.idle(1 << 60)
    assert told == [recorder.stopped]


def test_a_look_that_fails_ends_the_recording_of_a_process_that_serves() -> None:
    def look(now: int, event: Event, actions: list[Action]) -> None:
        raise KeyError("nothing")

    recorder = serving(look=look)
    recorder.handle(Tick(1), 1 * MS)
    recorder.idle(0)
    assert recorder.frozen().stopped == "KeyError: 'nothing'"
    assert verify(journal(recorder)) is None


def test_what_is_frozen_between_two_steps_is_all_that_came_before() -> None:
    recorder, _ = recorded_broker(events=150)
    for number in range(400):
        recorder.handle(Tick(number), number * MS)
        if number % 50 == 7:
            recorder.idle(0)
        frozen = recorder.frozen()
        steps = [decode_record(r, Blanks()) for segment in frozen.segments for r in segment.records]
        assert steps[-1].now_ns == number * MS
        assert [s.now_ns for s in steps] == [(number - len(steps) + 1 + i) * MS for i in range(len(steps))]


def test_a_snapshot_waits_for_a_pause_that_is_long_enough_but_not_for_ever() -> None:
    contract, plan = make_plan()
    setup = edge_setup(EdgeSettings(), {contract: plan}, 1, 0)
    ticking = iter(range(0, 1 << 40, 500_000))
    recorder = Recorder(build_broker(setup), EDGE, setup, events=400, clock=lambda: next(ticking))

    def run(steps: int, slack_ns: int) -> int:
        for _ in range(steps):
            recorder.handle(Tick(0), 1 * MS)
            recorder.idle(slack_ns)
        return recorder.frozen().segments[-1].first

    assert run(100, 1 << 40) == 100
    assert recorder.longest_ns == 500_000
    assert run(150, 999_999) == 100
    assert run(1, 1_000_000) == 251
    assert run(200, 0) == 451


def test_a_look_sees_every_step_once() -> None:
    contract, plan = make_plan()
    setup = edge_setup(EdgeSettings(), {contract: plan}, 1, 0)
    seen: list[int] = []
    recorder = Recorder(build_broker(setup), EDGE, setup, events=10, look=lambda now, event, actions: seen.append(now))
    for number in range(100):
        recorder.handle(Tick(0), number)
    recorder.idle(0)
    assert seen == list(range(100))


def test_what_recording_costs_is_measured_for_both_kinds_of_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_cost, "TURNS", 1)
    costs = journal_cost.measure()
    assert {cost.kind for cost in costs} == {"edge", "node"}
    assert all(cost.steps > 100 and cost.step_us > 0 and cost.snapshot_ms > 0 for cost in costs)
    slow = msgspec.structs.replace(costs[0], step_us=1_000.0)
    assert not journal_cost.show([slow], Console(quiet=True))


def test_answers_are_the_same_with_a_recorder_and_without() -> None:
    plain, taped = busy_pair(2, journal=0), busy_pair(2)
    told = [
        {s: [(at, o.rung if isinstance(o, Answer) else o) for at, o in got] for s, got in pair.delivered.items()}
        for pair in (plain, taped)
    ]
    assert told[0] == told[1]
    assert isinstance(recorders(taped)["edge"].frozen(), Frozen)


@given(
    st.lists(st.binary(min_size=1, max_size=40).flatmap(lambda b: st.sampled_from([b, b * 100, b * 8000])), max_size=40)
)
def test_records_of_any_size_come_back_in_their_order(records: list[bytes]) -> None:
    spare: list[mmap] = []
    for _ in range(2):
        kept = Records(spare)
        for number, record in enumerate(records):
            assert len(kept) == number
            kept.append(record)
        assert kept.all() == records
        records = records[::-1]
        blocks = len(spare)
        spare += kept.release()
        assert len(spare) - blocks <= len(records)
