"""The checks 4 and 16 of the simulator find what they are there for: promises, and what they rest on."""

from __future__ import annotations

import msgspec
import pytest
from checks_bench import (
    MS,
    Bench,
    busy_broker,
    run_of,
    with_fields,
)
from test_sim_checks import breaks

from edge.nodes import Nodes
from hil.sim.books_schedule import can_be_dealt
from shared.events import Action, Resolve, Send
from shared.request import Missed
from shared.running import NEVER_NS, Running
from shared.scheduler import Scheduler

# --- 4 and 16: promises --------------------------------------------------------------------------------------------------


def test_4_a_promise_that_is_taken_back_for_nothing_is_found() -> None:
    bench = busy_broker(40)
    (job,) = bench.edge_book.promised
    bench.broker.scheduler._queue.remove(job)
    with breaks(4, "is taken back after 0.000 ms, and nothing had overrun"):
        bench.edge_step(bench.nudge_edge())


def test_4_a_promise_that_is_taken_back_after_an_overrun_is_let_pass() -> None:
    bench = busy_broker(60)
    (job,) = bench.edge_book.promised
    bench.now += 14 * MS  # the worst case that was planned for is 13.2
    bench.broker.scheduler._queue.remove(job)
    bench.edge_step(bench.nudge_edge())


def test_4_a_promise_that_cannot_be_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "can_promise", lambda self, now, work: True)
    monkeypatch.setattr(Scheduler, "_shed", lambda self, now: ())
    with breaks(4, "is promised, and cannot be done in time"):
        busy_broker(16, 16, 16)


@pytest.mark.parametrize(
    ("free", "work", "kept"),
    [
        # By deadline, each to the executor that is free first, the third would end at 22: the second must wait instead.
        ([0, 14, 6], [(7, 8), (7, 17), (15, 21)], True),
        ([0, 14, 7], [(7, 8), (7, 17), (15, 21)], False),
        ([0, 14, NEVER_NS], [(7, 8), (7, 17), (15, 21)], False),
        ([0, 0], [(4, 9)] * 5, False),
        ([0, 0], [(4, 9)] * 4, True),
        ([3], [(4, 7), (1, 8)], True),
        ([0, 0], [], True),
    ],
)
def test_4_work_can_be_kept_where_it_can_be_dealt_out_somehow(
    free: list[int], work: list[tuple[int, int]], kept: bool
) -> None:
    assert can_be_dealt(free, work) is kept


def test_4_a_promise_to_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy_broker()
    with breaks(4, "is promised to nobody"):
        bench.edge_step(bench.arrival(2, 60), lambda actions: _forget_owners(bench, actions))


def _forget_owners(bench: Bench, actions: list[Action]) -> list[Action]:
    bench.broker._work._owners.clear()
    return actions


def test_4_a_promise_for_later_than_its_request_is_due_is_found() -> None:
    bench = busy_broker()
    with breaks(4, "is promised 5.000 ms after"):
        bench.edge_step(bench.arrival(2, 60), lambda actions: _promise_later(bench, actions))


def _promise_later(bench: Bench, actions: list[Action]) -> list[Action]:
    promised = bench.broker.scheduler._queue.promised
    for number, job in promised.items():
        promised[number] = msgspec.structs.replace(job, deadline_ns=job.deadline_ns + 5 * MS)
    return actions


def test_4_a_promised_request_that_ends_without_an_answer_is_found() -> None:
    bench = busy_broker(40)
    run = bench.edge_book.out[1].run
    bench.now += 12 * MS
    actions = bench.edge_step(bench.finish(run, 12.0))
    bench.now += 10 * MS
    resolve = with_fields(Resolve, outcome=Missed("rung"))
    with breaks(4, "was promised 22.000 ms ago and ends as Missed"):
        bench.edge_step(bench.finish(run_of(actions), 10.0), resolve)


def test_16_a_promise_that_rests_on_a_suspect_executor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Running, "overdue", lambda self, now: ())
    bench = busy_broker(80)
    bench.now += 40 * MS
    with breaks(16, r"cannot be done without the executors of the overdue runs \[1\]"):
        bench.edge_step(bench.nudge_edge())


def test_16_a_request_to_a_node_that_was_not_greeted_is_found() -> None:
    bench = Bench()
    bench.welcome()
    bench.edge_book.nodes["node"].paths[0].welcomed = False
    with breaks(16, "and is not greeted"):
        bench.arrive(due_ms=20)


def test_16_a_request_to_a_node_that_does_not_serve_it_is_found() -> None:
    bench = Bench()
    bench.welcome()
    bench.edge_book.nodes["node"].contracts = ()
    with breaks(16, "and is not serving the contract"):
        bench.arrive(due_ms=20)


def test_16_a_request_to_a_node_whose_connection_is_lost_is_found() -> None:
    bench = Bench()
    bench.welcome()
    bench.edge_book.nodes["node"].paths[0].linked = False
    with breaks(16, "and is not connected"):
        bench.arrive(due_ms=20)


def test_16_a_request_on_another_connection_is_found() -> None:
    bench = Bench()
    bench.welcome()
    with breaks(16, "on node/probe"):
        bench.arrive(due_ms=20, change=with_fields(Send, link="node/probe"))


def test_16_a_request_to_a_stalled_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nodes, "overdue", lambda self, node, now: False)
    bench = Bench()
    bench.welcome()
    bench.arrive(1, due_ms=20)
    bench.now += 100 * MS
    bench.edge_step(bench.nudge_edge())
    with breaks(16, r"its answer to 1/1 is overdue for"):
        bench.arrive(2, due_ms=20)
