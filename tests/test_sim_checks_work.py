"""Each check of the simulator finds what it is there for: runs, nodes, clocks, rest."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import msgspec
import pytest
from checks_bench import (
    CONTRACT,
    EDGE_LINK,
    MS,
    PROBE_LINK,
    T0,
    Bench,
    busy_broker,
    busy_node,
    plus,
    sent,
    with_fields,
    with_message,
    without,
)
from plans import make_input
from test_sim_checks import breaks

from shared.events import Abort, Action, Received, Run, Send
from shared.memory import PoolKey
from shared.plan import SegmentRange
from shared.queue import Job
from shared.scheduler import Scheduler
from shared.settings import CloudSettings, NodeExecution, NodeGroup
from shared.wire.messages import PROTOCOL, Hello, Load, Probe, ProbeReply, Refusal, Reply

TWO_EXECUTORS = CloudSettings(execution=NodeExecution(executors=2))


# --- 5, 6, 7: runs, windows, slots ---------------------------------------------------------------------------------------


def test_5_a_second_run_on_a_busy_executor_is_found() -> None:
    bench, run = busy_node(1)
    other = msgspec.structs.replace(run, run=2, slot=1)
    with breaks(5, r"run 2 is launched on executor 0, where \[1\] are out"):
        bench.node_step(bench.nudge_node(), plus(other))


def test_5_a_run_on_an_executor_that_there_is_not_is_found() -> None:
    bench = Bench()
    bench.greet()
    with breaks(5, "which there is not"):
        bench.infer(1, with_fields(Run, executor=1))


def test_5_a_row_in_two_runs_is_found() -> None:
    bench, run = busy_node(0, TWO_EXECUTORS)
    other = msgspec.structs.replace(run, run=2, slot=1, executor=1)
    with breaks(5, r"run 2 has jobs \[1\]; \[1\] are out already"):
        bench.node_step(bench.nudge_node(), plus(other))


def test_5_a_run_that_comes_out_of_its_order_is_found() -> None:
    bench, _ = busy_node(0, TWO_EXECUTORS)
    with breaks(5, "comes after run 1"):
        bench.infer(2, with_fields(Run, run=1))


def test_5_an_abort_of_what_is_not_out_is_found() -> None:
    bench, _ = busy_node(0)
    with breaks(5, "is aborted on executor 0, where it is not out"):
        bench.node_step(bench.nudge_node(), plus(Abort(9, 0)))


def test_6_a_run_for_a_request_that_is_over_is_found() -> None:
    bench = busy_broker(40)
    run = bench.edge_book.out[1].run
    bench.now += 12 * MS
    bench.edge_book.open.pop(("app:1:agent", 2))
    with breaks(6, "which nobody wants any more"):
        bench.edge_step(bench.finish(run, 12.0))


def test_6_a_run_of_a_node_for_a_request_that_is_over_is_found() -> None:
    bench, run = busy_node(1)
    bench.node_book.over(next(r for r in bench.node_book.open.values() if r.job == 2))
    bench.now += MS
    with breaks(6, "run 2 is launched for job 2, which nobody wants any more"):
        bench.node_step(bench.finish(run))


@pytest.mark.parametrize(
    ("latest_ns", "story"), [(T0 - MS, "1.000 ms after its window"), (T0 + 99 * MS, "may begin until")]
)
def test_6_a_window_that_is_over_or_too_long_is_found(latest_ns: int, story: str) -> None:
    with breaks(6, story):
        Bench().arrive(change=with_fields(Run, latest_ns=latest_ns))
    bench = Bench()
    bench.greet()
    with breaks(6, story):
        bench.infer(1, with_fields(Run, latest_ns=latest_ns))


def test_6_an_executor_that_begins_too_late_or_twice_is_found() -> None:
    bench, run = busy_node(0)
    bench.checks.began(bench.node, run, bench.now)
    with breaks(6, "begins twice"):
        bench.checks.began(bench.node, run, bench.now)
    bench, run = busy_node(0)
    with breaks(6, "begins 1.000 ms after its window"):
        bench.checks.began(bench.node, run, run.latest_ns + MS)


def test_7_a_slot_that_there_is_not_is_found() -> None:
    bench = Bench()
    bench.greet()
    with breaks(7, "into slot 9 of the 2"):
        bench.infer(1, with_fields(Run, slot=9))


def test_7_a_slot_that_another_run_holds_is_found() -> None:
    bench, _ = busy_node(0, TWO_EXECUTORS)
    with breaks(7, "which run 1 holds"):
        bench.infer(2, with_fields(Run, slot=0))


def test_7_a_lease_that_is_not_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, run = busy_node(0)
    monkeypatch.setattr(bench.session.scheduler.arena, "release", lambda lease: None)
    bench.now += MS
    with breaks(7, "1 slots are leased, and 0 runs are out in slots"):
        bench.node_step(bench.finish(run))


def test_7_a_generation_that_does_not_count_what_was_freed_is_found() -> None:
    bench, run = busy_node(0)
    bench.now += MS
    bench.node_step(bench.finish(run))
    bench.sweep()
    bench.session.scheduler.arena._pools[PoolKey(run.contract, 0, 0)].generations[run.slot] = 5
    with breaks(7, "was freed 1 times, and is at 5"):
        bench.sweep()


# --- 10 and 14: batches --------------------------------------------------------------------------------------------------


def test_10_rows_of_another_contract_or_range_are_found() -> None:
    bench = Bench()
    bench.greet()
    with breaks(10, "has a row of .* and does"):
        bench.infer(1, with_fields(Run, range=SegmentRange(0, 1, 2)))
    with breaks(10, "runs SegmentRange"):
        Bench().arrive(change=with_fields(Run, range=SegmentRange(0, 0, 1)))


def test_10_more_rows_than_a_launch_takes_are_found() -> None:
    bench = Bench()
    bench.greet()
    with breaks(10, "has 99 rows, and 8 is the most"):
        bench.infer(1, lambda actions: [_with_rows(a, 99) for a in actions])


def _with_rows(action: Action, rows: int) -> Action:
    if not isinstance(action, Run):
        return action
    return msgspec.structs.replace(action, rows=tuple(msgspec.structs.replace(r, rows=rows) for r in action.rows))


def test_10_a_launch_that_is_predicted_to_end_too_late_is_found() -> None:
    bench = Bench()
    with breaks(10, "after a row of it is due"):
        bench.edge_step(bench.arrival(1, 13), lambda actions: _slower(bench, actions))


def _slower(bench: Bench, actions: list[Action]) -> list[Action]:
    for curve in bench.broker.scheduler.latency._curves.values():
        curve.median *= 5
    return [msgspec.structs.replace(a, latest_ns=bench.now) if isinstance(a, Run) else a for a in actions]


def test_14_a_row_that_is_left_behind_by_a_later_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_only(scheduler: Scheduler, head: Job, now: int) -> list[Job]:
        return [[job for lane in scheduler._queue.lanes() for job in lane.jobs][-1]]

    bench, run = busy_node(2)
    monkeypatch.setattr(Scheduler, "_batch", last_only)
    bench.now += MS
    with breaks(14, "job 2, due in .* is left behind by run 2, though it fits"):
        bench.node_step(bench.finish(run))


# --- 11 and 12: credit, once each ----------------------------------------------------------------------------------------


def test_11_more_attempts_than_credits_are_found() -> None:
    bench = Bench()
    bench.welcome(credits_=8)
    bench.edge_book.nodes["node"].credits = 0
    with breaks(11, "1 attempts are out at node, 1 of them on one path; 4 may be on each, of 0 lent"):
        bench.arrive(due_ms=20)


def test_11_more_requests_at_a_node_than_were_lent_are_found() -> None:
    bench = Bench(cloud=CloudSettings(node=NodeGroup(credits=1)))
    bench.greet()
    bench.infer(1)
    bench.session.peers.credits.take = lambda peer: True  # type: ignore[method-assign]
    with breaks(11, "2 requests of .* are here, and 1 credits are lent to it"):
        bench.infer(2)


def test_11_more_requests_than_there_are_credits_are_found() -> None:
    bench = Bench()
    bench.greet()
    bench.session.peers.credits._capacity = 0
    with breaks(11, "1 requests are here, and 0 credits exist"):
        bench.infer(1)


def test_11_a_peer_that_is_told_of_more_than_it_has_is_found() -> None:
    bench = Bench()
    bench.greet(PROBE_LINK, "probe")
    with breaks(11, "is told of 99 credits, and has fewer"):
        bench.node_step(Received(PROBE_LINK, Probe(1, bench.now, 0, 0)), with_message(ProbeReply, load=Load(0, 99)))


def test_11_credits_that_are_not_given_back_are_found() -> None:
    bench, _ = busy_node(0)
    bench.sweep()
    bench.session.peers.credits._out["edge:1"] = 2
    with breaks(11, "requests that are here, by the messages"):
        bench.sweep()


def test_11_credit_that_an_edge_keeps_for_what_was_answered_is_found() -> None:
    bench = Bench()
    bench.welcome()
    bench.arrive(due_ms=20)
    bench.sweep()
    bench.edge_book.nodes["node"].out.clear()
    with breaks(11, "hold credit of node, and are answered or lost"):
        bench.sweep()


def test_12_a_request_that_is_executed_twice_is_found() -> None:
    bench, run = busy_node(0)
    bench.now += MS
    bench.node_step(bench.finish(run), without(Send))
    again = msgspec.structs.replace(run, run=2)
    with breaks(12, "is executed twice"):
        bench.node_step(bench.nudge_node(), plus(again))


def test_12_an_answer_or_refusal_that_comes_twice_is_found() -> None:
    bench, run = busy_node(0)
    bench.now += MS
    with breaks(12, "which is not here or did not run"):
        bench.node_step(bench.finish(run), lambda actions: [*actions, *actions])
    bench, _ = busy_node(0)
    refusal = Refusal(1, 7, 1, "expired", "", bench.now, Load(0, 1))
    with breaks(12, r"is refused 7/1 \(expired\), which is not here"):
        bench.node_step(bench.nudge_node(), plus(Send(EDGE_LINK, refusal)))


def test_12_a_request_that_comes_to_nothing_is_found() -> None:
    bench = Bench()
    bench.greet()
    with breaks(12, "was neither let in nor refused"):
        bench.infer(1, without(Send), budget_ms=0.1)


def test_12_a_request_that_is_let_in_by_a_node_that_is_to_leave_is_found() -> None:
    bench = Bench()
    bench.greet()
    bench.node_book.draining = True
    with breaks(12, "is let in, and this node was told to leave"):
        bench.infer(1)


def test_12_an_ending_that_is_not_said_on_every_connection_is_found() -> None:
    bench, run = busy_node(0)
    hello = Hello(PROTOCOL, "edge", 1, "data", (CONTRACT,), 1)
    bench.node_step(Received("edge:1:node/data.1", hello))
    asked = bench.node_book.open["edge", 1, 1, 1]
    bench.node_step(Received("edge:1:node/data.1", asked.message, (make_input(1)[0].tobytes(),)))
    bench.now += MS
    with breaks(12, r"has ended, and \['edge:1:node/data.1'\] were not told"):
        bench.node_step(
            bench.finish(run), lambda actions: [a for a in actions if getattr(a, "link", "") != "edge:1:node/data.1"]
        )


def test_12_a_copy_that_is_refused_leaves_the_request_as_it_is() -> None:
    bench, run = busy_node(0)
    refused = sent(bench.infer(1), Refusal)
    assert refused.message.reason == "duplicate"
    bench.now += MS
    sent(bench.node_step(bench.finish(run)), Reply)


# --- 15: clocks ----------------------------------------------------------------------------------------------------------


def probed(bench: Bench) -> None:
    """The node gets a probe of the edge that bounds the offset from both sides; each message takes 1 ms."""
    last = (bench.node.local(bench.now - 2 * MS), bench.agent.local(bench.now - MS))
    bench.node_step(Received(PROBE_LINK, Probe(1, bench.agent.local(bench.now - MS), *last)))


def test_15_an_offset_interval_without_the_true_offset_is_found() -> None:
    bench = Bench()
    bench.agent.ahead_ns = 7 * MS
    bench.greet(PROBE_LINK, "probe")
    probed(bench)
    bench.sweep()
    (peer,) = bench.session.peers.all()
    assert peer.offset._low == 6 * MS
    peer.offset._low = 7 * MS + 10
    with breaks(15, "the clock of edge#1 is 7000000 ns ahead, and is held to be between 7000010 and"):
        bench.sweep()


def test_15_an_edge_that_holds_a_wrong_interval_is_found() -> None:
    bench = Bench()
    bench.welcome()
    offset = bench.broker.nodes.by_name["node"].offset
    offset._high, offset._at = -5, bench.now
    with breaks(15, "the clock of node#1 is 0 ns ahead, and is held to be between None and -5"):
        bench.sweep()


def test_15_a_clock_that_has_stood_still_is_let_be_until_it_is_found_right_again() -> None:
    bench = Bench()
    bench.greet(PROBE_LINK, "probe")
    probed(bench)
    bench.sweep()
    bench.now += 1000 * MS
    bench.agent.ahead_ns = -1000 * MS  # the edge was suspended, and the node has not been told
    bench.sweep()
    bench.now += 100 * MS
    (peer,) = bench.session.peers.all()
    peer.offset.reset()
    probed(bench)
    bench.now += 100 * MS
    bench.sweep()
    peer.offset._high = -2000 * MS
    with breaks(15, "the clock of edge#1"):
        bench.sweep()


# --- 18 and 0: rest, machines that find out themselves -------------------------------------------------------------------


def test_18_what_is_left_at_rest_is_found() -> None:
    bench, _ = busy_node(0)
    bench.node_book.open.clear()
    bench.node_book.accounts.clear()
    with breaks(18, r"left at rest: \{'runs': \[1\], 'leases': 1, 'launches': 1\}"):
        _rest_of_check_18(bench)


def test_18_a_timer_that_is_left_at_rest_is_found() -> None:
    bench = Bench()
    bench.attach()
    bench.now += 100 * MS
    bench.client_step(bench.tick())
    _rest_of_check_18(bench)
    bench.client_book.wake_ns = bench.now + 50 * MS
    with breaks(18, "a wake-up is asked for, and nothing is open"):
        _rest_of_check_18(bench)


def _rest_of_check_18(bench: Bench) -> None:
    (check,) = [c for c in bench.checks.checks if c.number == 18]
    check.rest(bench.checks._shelf, bench.now)


def test_every_check_has_a_number_of_its_own_from_1_to_18() -> None:
    assert [check.number for check in Bench().checks.checks] == list(range(1, 19))


def test_the_manual_says_of_each_rule_what_its_check_says() -> None:
    page = (Path(__file__).parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")
    told = {int(n): says for n, says in re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)}
    said = {check.number: (inspect.getdoc(type(check)) or "").split("\n\n")[0] for check in Bench().checks.checks}
    assert {f"{number}. {says}" for number, says in told.items()} == {" ".join(text.split()) for text in said.values()}
