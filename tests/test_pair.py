"""The edge and its nodes together, on virtual time."""

from __future__ import annotations

import msgspec
import pytest
from plans import INT8_ROUTE, Y, make_input, make_plan

from hil.pair import MS, WAKE_NS, Pair, stamp
from shared.events import ClockJumped, Received
from shared.latency import WorkKey
from shared.plan import Plan, Route, Rung, SegmentRange, contract_digest
from shared.request import Answer, Array, Missed, Rejected, Superseded
from shared.settings import CloudSettings, EdgeLimits, EdgeSettings, NodeAddress, NodeGroup
from shared.wire.messages import Load, Reply, tensor_table

TWO = (NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"), NodeAddress(name="b", endpoint="tcp://127.0.0.1:2"))


def pair_of(plan: tuple[str, Plan] | None = None, nodes: tuple[NodeAddress, ...] = TWO, **fields: object) -> Pair:
    contract, made = plan or make_plan()
    cloud = fields.pop("cloud", None)
    pair = Pair({contract: made}, EdgeSettings(nodes=nodes, **fields), cloud)  # type: ignore[arg-type]
    pair.run(50)
    return pair


def expected(inputs: tuple[Array, ...], program: int = 0) -> Array:
    """What the virtual devices compute: program 0 is two segments, unless it runs as one launch."""
    return stamp(list(inputs), program, [(Y.at(inputs[0].shape[0]), "float32")])[0]


def test_the_cloud_answers_where_the_link_is_good_and_the_rung_is_aborted() -> None:
    pair = pair_of()
    x = make_input()
    sequence = pair.ask(x)
    pair.run(20)
    answer = pair.answer(sequence)
    assert (answer.source, answer.rung, answer.cut, str(answer.fidelity)) == ("cloud", "whole", 0, "exact")
    assert (answer.outputs["y"] == expected(x)).all()
    assert not pair.edge.running


def test_stages_add_up_to_the_time_until_the_outcome() -> None:
    pair = pair_of()
    asked = pair.now
    sequence = pair.ask(make_input())
    pair.run(20)
    at, outcome = pair.delivered[sequence][0]
    assert isinstance(outcome, Answer)
    assert sum(outcome.stages.values()) == at - asked
    assert outcome.stages["uplink"] == pytest.approx(1 * MS, rel=0.1)


def test_without_nodes_the_best_rung_that_fits_answers() -> None:
    pair = pair_of(nodes=())
    x = make_input()
    tight = pair.ask(x, 10)
    pair.run(20)
    wide = pair.ask(x, 20)
    pair.run(30)
    assert (pair.answer(tight).rung, pair.answer(tight).fidelity.kind) == ("small", "rung")
    assert (pair.answer(tight).outputs["y"] == expected(x, 1)).all()
    assert (pair.answer(wide).rung, str(pair.answer(wide).fidelity)) == ("whole", "exact")


def test_a_slow_link_is_not_waited_for() -> None:
    pair = pair_of()
    for way in pair.ways.values():
        way.one_way_ns = 20 * MS
    pair.run(2000)
    pair.ask(make_input())
    pair.run(100)
    asked = pair.now
    sequence = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(sequence).source == "edge"
    assert pair.delivered[sequence][0][0] == asked + 4 * MS + WAKE_NS


def test_a_local_answer_is_held_for_the_cloud_and_pushed_to_the_client() -> None:
    pair = pair_of()
    for way in pair.ways.values():
        way.stalled = []
    asked = pair.now
    sequence = pair.ask(make_input())
    pair.run(20)
    at, _ = pair.delivered[sequence][0]
    assert pair.answer(sequence).source == "edge"
    assert [a.rung for _, a in pair.held[sequence]] == ["small"]
    assert at == asked + 10 * MS - int(0.5 * MS) - int(0.5 * MS)
    assert pair.answer(sequence).stages["hold"] == pytest.approx(5 * MS, rel=0.01)


def test_a_stalled_link_is_left_after_few_requests_and_used_again_when_it_moves() -> None:
    pair = pair_of()
    for name in pair.ways:
        pair.stall(name)
    sent = []
    for _ in range(20):
        sent.append(pair.ask(make_input()))
        pair.run(33)
    assert all(pair.answer(s).source == "edge" for s in sent)
    waited = [s for s in sent if s in pair.held]
    assert len(waited) <= 6
    for name in pair.ways:
        pair.resume(name)
    pair.run(1000)
    again = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(again).source == "cloud"


def test_a_killed_node_costs_no_answer_and_the_other_takes_over() -> None:
    pair = pair_of()
    first = pair.ask(make_input())
    pair.run(1)
    taken = [n for n, host in pair.nodes.items() if host.machine.scheduler.running or pair.broker.nodes.by_name[n].out]
    pair.kill(taken[0])
    pair.run(20)
    second = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(first).source == "cloud"
    assert pair.answer(second).node not in taken
    assert pair.answer(second).source == "cloud"


def test_with_all_nodes_killed_the_edge_answers_at_once_when_it_can() -> None:
    pair = pair_of()
    pair.kill("a")
    pair.kill("b")
    asked = pair.now
    sequence = pair.ask(make_input())
    pair.run(20)
    at, _ = pair.delivered[sequence][0]
    assert pair.answer(sequence).source == "edge"
    assert at - asked == 4 * MS + WAKE_NS


def test_a_node_that_comes_back_is_used_after_its_pause() -> None:
    pair = pair_of(nodes=TWO[:1])
    pair.kill("a")
    pair.run(100)
    pair.start("a")
    pair.run(50)
    early = pair.ask(make_input())
    pair.run(400)
    late = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(early).source == "edge"
    assert pair.answer(late).source == "cloud"


def test_a_restarted_node_does_not_answer_for_the_one_before_it() -> None:
    pair = pair_of(nodes=TWO[:1])
    sequence = pair.ask(make_input())
    pair.run(0.5)
    pair.kill("a")
    pair.start("a")
    pair.run(20)
    assert pair.answer(sequence).source == "edge"
    assert pair.broker.counters["unknown-reply"] == 0


def test_the_cut_is_sent_in_its_coding_and_the_fidelity_says_so() -> None:
    pair = pair_of(make_plan(edge_ms=(4.0, 1.0), routes=(INT8_ROUTE,), cloud_ms=0.5))
    tight = pair.ask(make_input(), 9)
    pair.run(20)
    wide = pair.ask(make_input(), 20)
    pair.run(30)
    answer = pair.answer(tight)
    assert (answer.source, answer.cut, str(answer.fidelity), answer.agreement) == ("cloud", 1, "lossy(int8)", 0.97)
    assert str(pair.answer(wide).fidelity) == "exact", (
        "a lossy cloud answer is no better than the whole model on the device"
    )


def test_a_forced_split_runs_its_tail_in_the_node() -> None:
    plan = make_plan(edge_ms=(5.0, 2.0), routes=(Route(1, "raw", 1.0, 200, 200),), cloud_ms=0.2)
    pair = pair_of(plan)
    sequence = pair.ask(make_input(), 9)
    pair.run(20)
    answer = pair.answer(sequence)
    assert (answer.source, answer.cut, str(answer.fidelity)) == ("cloud", 1, "exact")
    ran = [(r.range.program, r.range.first, r.range.last) for host in pair.nodes.values() for r in host.launched]
    assert ran == [(0, 1, 2)]
    assert (0, 0, 1) in [(r.range.program, r.range.first, r.range.last) for r in pair.edge.launched]


def test_of_two_nodes_the_one_that_is_predicted_to_finish_first_gets_the_requests() -> None:
    pair = pair_of()
    pair.ways["a"].one_way_ns = 2 * MS
    pair.run(2000)
    asked = []
    for _ in range(10):
        asked.append(pair.ask(make_input()))
        pair.run(33)
    assert [pair.answer(s).node for s in asked] == ["b"] * 10, "a is 2 ms further away than b"


def test_a_node_that_is_loaded_is_passed_over_for_one_that_is_idle() -> None:
    pair = pair_of()
    pair.broker.nodes.by_name["a"].wait_ns = 3 * MS
    sequence = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(sequence).node == "b"


def test_only_one_copy_of_a_request_is_ever_answered() -> None:
    pair = pair_of()
    sequences = []
    for i in range(50):
        sequences.append(pair.ask(make_input(i), 10))
        pair.run(7)
    pair.run(100)
    assert all(len(pair.delivered[s]) == 1 for s in sequences)
    assert all(
        (pair.answer(s).outputs["y"] == expected(make_input(i), 0 if pair.answer(s).rung == "whole" else 1)).all()
        for i, s in enumerate(sequences)
    )


def test_an_overrun_device_rejects_or_misses_but_always_ends() -> None:
    pair = pair_of(nodes=())
    sequences = [pair.ask(make_input(i), 10) for i in range(30)]
    pair.run(50)
    kinds = {type(pair.outcome(s)) for s in sequences}
    assert len(sequences) == sum(len(pair.delivered[s]) for s in sequences)
    assert kinds <= {Answer, Rejected, Missed}
    assert Rejected in kinds


def test_a_device_that_became_slow_ends_in_missed_rung() -> None:
    pair = pair_of(nodes=())
    pair.edge.slow = 5.0
    asked = pair.now
    sequence = pair.ask(make_input())
    pair.run(50)
    outcome = pair.outcome(sequence)
    assert isinstance(outcome, Missed)
    assert outcome.stage == "rung"
    assert pair.delivered[sequence][0][0] == asked + int(9.5 * MS)


def test_a_newer_frame_supersedes_the_older_open_one() -> None:
    pair = pair_of(nodes=())
    older = pair.ask(make_input(), 50, stream=3, latest_wins=True)
    pair.run(1)
    newer = pair.ask(make_input(), 50, stream=3, latest_wins=True)
    pair.run(100)
    assert isinstance(pair.outcome(older), Superseded)
    assert isinstance(pair.outcome(newer), Answer)


def test_too_many_open_requests_are_rejected_at_once() -> None:
    pair = pair_of(nodes=(), limits=EdgeLimits(max_open=2))
    asked = [pair.ask(make_input(), 100) for _ in range(3)]
    assert pair.outcome(asked[2]) == Rejected("too-many-open", "2 requests are open")


def test_without_a_ladder_and_without_nodes_there_is_no_route() -> None:
    pair = pair_of(make_plan(ladder=False), nodes=())
    outcome = pair.outcome(pair.ask(make_input()))
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "no-route"


def test_without_a_ladder_the_cloud_answers_alone() -> None:
    pair = pair_of(make_plan(ladder=False))
    sequence = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(sequence).source == "cloud"


def test_a_late_request_is_not_run_by_the_node() -> None:
    pair = pair_of(nodes=TWO[:1])
    pair.stall("a")
    sequence = pair.ask(make_input())
    pair.run(15)
    pair.resume("a")
    pair.run(20)
    assert pair.answer(sequence).source == "edge"
    assert pair.nodes["a"].launched == []


def test_credit_comes_back_after_every_kind_of_end() -> None:
    pair = pair_of(nodes=TWO[:1], cloud=CloudSettings(node=NodeGroup(credits=2)))
    for i in range(40):
        pair.ask(make_input(i), 10)
        pair.run(3)
    pair.run(200)
    assert pair.broker.nodes.by_name["a"].out == {}
    last = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(last).source == "cloud"


def test_a_second_input_route_that_is_recovered_is_found_again_by_exploration() -> None:
    pair = pair_of(nodes=TWO[:1])
    pair.ways["a"].one_way_ns = 15 * MS
    for _ in range(30):
        pair.ask(make_input())
        pair.run(33)
    pair.ways["a"].one_way_ns = 1 * MS
    sources = []
    for _ in range(60):
        s = pair.ask(make_input())
        pair.run(33)
        sources.append(pair.answer(s).source)
    assert sources[-30:] == ["cloud"] * 30


def test_same_seed_same_trace() -> None:
    def trace() -> list[tuple[int, str]]:
        pair = pair_of()
        for i in range(20):
            pair.ask(make_input(i))
            pair.run(11)
            if i == 7:
                pair.kill("a")
            if i == 12:
                pair.start("a")
        pair.run(100)
        return [(at, str(type(o))) for s in sorted(pair.delivered) for at, o in pair.delivered[s]]

    assert trace() == trace()


def test_an_overdue_answer_that_is_the_only_hope_is_still_taken() -> None:
    pair = pair_of(make_plan(ladder=False), nodes=TWO[:1])
    pair.stall("a")
    sequence = pair.ask(make_input(), 1000)
    pair.run(200)
    assert sequence not in pair.delivered
    pair.resume("a")
    pair.run(50)
    assert pair.answer(sequence).source == "cloud"


def test_a_request_at_a_stalled_node_is_tried_at_the_other_and_answered_once() -> None:
    pair = pair_of(make_plan(ladder=False))
    pair.stall("a")
    pair.ways["b"].one_way_ns = 3 * MS
    sequence = pair.ask(make_input(), 1000)
    pair.run(200)
    assert pair.answer(sequence).node == "b"
    pair.resume("a")
    pair.run(200)
    assert pair.answer(sequence).node == "b"


def test_a_route_whose_head_would_cost_the_promise_does_not_hide_the_others() -> None:
    lossy = Route(1, "int8", 0.97, 160, 200)
    raw = Route(0, "raw", 1.0, 400, 200)
    pair = pair_of(make_plan(edge_ms=(6.0, 8.0), routes=(lossy, raw)), nodes=TWO[:1])
    sequence = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(sequence).cut == 0


def test_an_exploration_whose_head_must_run_first_is_sent_and_finds_the_link_recovered() -> None:
    big = Route(1, "int8", 0.97, 8000, 200)
    pair = pair_of(make_plan(edge_ms=(4.0, 1.0), routes=(big,), cloud_ms=0.5), nodes=TWO[:1])
    pair.ways["a"].per_byte_ns = 50_000
    for _ in range(30):
        pair.ask(make_input(), 9)
        pair.run(33)
    pair.ways["a"].per_byte_ns = 40
    sources = []
    for _ in range(60):
        s = pair.ask(make_input(), 9)
        pair.run(33)
        sources.append(pair.answer(s).source)
    assert sources[:3].count("cloud") < 3
    assert sources[-30:] == ["cloud"] * 30


def test_after_a_slow_link_the_cloud_comes_back_although_the_soonest_route_cannot_be_afforded() -> None:
    lossy = Route(1, "int8", 0.97, 160, 200)
    raw = Route(0, "raw", 1.0, 8000, 200)
    pair = pair_of(make_plan(edge_ms=(6.0, 8.0), routes=(lossy, raw)), nodes=TWO[:1])
    pair.ways["a"].one_way_ns = 15 * MS
    for _ in range(30):
        pair.ask(make_input())
        pair.run(33)
    pair.ways["a"].one_way_ns = 1 * MS
    sources = []
    for _ in range(60):
        s = pair.ask(make_input())
        pair.run(33)
        sources.append(pair.answer(s).source)
    assert sources[-30:] == ["cloud"] * 30


def test_a_reply_to_another_incarnation_does_not_take_the_place_of_the_right_one() -> None:
    pair = pair_of(make_plan(ladder=False), nodes=TWO[:1])
    sequence = pair.ask(make_input(), 100)
    plan = pair.plans[next(iter(pair.plans))]
    tensors = tensor_table(plan.outputs, 1)[1]
    contract = next(iter(pair.plans))
    alien = Reply(99, sequence, 1, contract, 0, "raw", 1, tensors, {}, 0, Load(0, 64))
    pair.broker.handle(Received("a/data", alien, (bytes(16),)), pair.now)
    pair.run(50)
    assert pair.answer(sequence).source == "cloud"
    assert pair.broker.counters["unknown-reply"] == 1


def test_a_better_rung_is_not_risked_that_was_too_slow_a_moment_ago() -> None:
    pair = pair_of(make_plan(edge_ms=(6.0, 4.0)), nodes=())
    asked = []
    for slow in (1.0, 1.2, 1.0, 1.0):
        pair.edge.slow = slow
        asked.append(pair.ask(make_input(), 14.5))
        pair.run(50)
    assert [pair.answer(s).rung for s in (asked[0], *asked[2:])] == ["whole", "small", "small"]


def test_an_edge_that_was_suspended_greets_its_nodes_anew_and_is_served_at_once() -> None:
    pair = pair_of(nodes=TWO[:1])
    asked = pair.ask(make_input())
    for host in pair.nodes.values():
        host.skew_ns += 1_000 * MS  # the edge's clock stood still for a second, the node's did not
    pair._feed(pair.edge, ClockJumped(1_000 * MS))
    assert isinstance(pair.outcome(asked), Missed)
    pair.run(10)
    sequence = pair.ask(make_input())
    pair.run(20)
    assert pair.answer(sequence).source == "cloud"
    assert pair.nodes["a"].machine.counters["refused-expired"] == 0


def test_the_work_before_sending_comes_before_the_rung_which_runs_while_the_cloud_works() -> None:
    _, plan = make_plan(edge_ms=(1.0, 6.0), routes=(INT8_ROUTE,), rung_agreement=0.5)
    plan = msgspec.structs.replace(plan, ladder=plan.ladder[1:])
    pair = pair_of((contract_digest(plan), plan))
    sequence = pair.ask(make_input(), 11.0)
    pair.run(30)
    assert [run.range.program for run in pair.edge.launched] == [0, 1]
    assert pair.answer(sequence).source == "cloud"


def split_pair(*routes: Route, rungs: tuple[Rung, ...] = (Rung("small", 1, 0.5),), **times: object) -> Pair:
    _, plan = make_plan(routes=routes, **times)  # type: ignore[arg-type]
    plan = msgspec.structs.replace(plan, ladder=rungs)
    return pair_of((contract_digest(plan), plan))


SPLIT = Route(1, "raw", 1.0, 160, 200)


def test_an_executor_that_wakes_late_begins_the_work_before_sending_while_the_rung_still_has_its_time() -> None:
    pair = split_pair(SPLIT, edge_ms=(5.0, 4.0), cloud_ms=0.2)
    pair.edge.wake_ns = 8 * MS // 10
    sequence = pair.ask(make_input(), 10.5)
    pair.edge.wake_ns = WAKE_NS
    pair.run(20)
    assert pair.answer(sequence).source == "cloud"
    assert [run.range.program for run in pair.edge.launched] == [0, 1]


def test_where_the_work_before_sending_comes_to_nothing_a_way_without_it_is_taken() -> None:
    pair = split_pair(SPLIT, Route(0, "raw", 1.0, 2000, 200), edge_ms=(5.0, 4.0), cloud_ms=0.2)
    sequence = pair.ask(make_input(), 10.5)
    pair.run(20)
    assert pair.answer(sequence).cut == 1, "the fewest bytes"
    pair.edge.wake_ns = 2 * MS
    sequence = pair.ask(make_input(), 10.5)
    pair.edge.wake_ns = WAKE_NS
    pair.run(20)
    assert (pair.answer(sequence).source, pair.answer(sequence).cut) == ("cloud", 0)
    assert pair.delivered[sequence][0][0] < pair.now - 10 * MS


def test_a_rung_that_was_once_slow_does_not_come_before_the_work_before_sending() -> None:
    pair = split_pair(SPLIT, edge_ms=(3.0, 5.0), cloud_ms=0.2)
    key = WorkKey(next(iter(pair.plans)), SegmentRange(1, 0, 1))
    for took_ms in (9, *[5] * 40):
        pair.broker.scheduler.latency.observe(key, 1, took_ms * MS)
    sequence = pair.ask(make_input(), 11)
    pair.run(20)
    assert pair.answer(sequence).source == "cloud"


def test_a_better_answer_of_the_device_is_not_given_up_for_a_way_that_is_hardly_in_time() -> None:
    heavy = Route(0, "raw", 1.0, 400_000, 200)
    rungs = (Rung("whole", 0, 0.95), Rung("small", 1, 0.5))
    pair = split_pair(SPLIT, heavy, rungs=rungs, edge_ms=(3.0, 2.0), cloud_ms=0.2)
    for way in pair.ways.values():
        way.one_way_ns = 26 * MS // 10
    pair.run(1_000)
    asked = [pair.ask(make_input(), 10) for _ in range(5) if pair.run(40) is None]
    pair.run(40)
    assert {pair.answer(sequence).rung for sequence in asked} == {"whole"}
    assert {(run.range.program, run.range.last) for run in pair.edge.launched} == {(0, 2)}
