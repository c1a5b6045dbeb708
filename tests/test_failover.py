"""A node that dies, hangs, leaves or does badly while requests come: none is late, and the other node gets the next one."""

from __future__ import annotations

import pytest
from plans import make_input, make_plan

from cloud.session import Session
from edge.paths import State
from hil.pair import MS, Pair
from shared.events import Arrived, Draining, Failed, Leave, Received, Run, Send, WakeAt
from shared.request import Answer, Rejected
from shared.settings import CloudSettings, EdgeSettings, Fleet, NodeAddress, NodeGroup, Outliers
from shared.wire.messages import Bye, Drain, Hello, Infer, Refusal, Welcome

NODES = tuple(NodeAddress(name=name, endpoint=f"tcp://127.0.0.1:{i}") for i, name in enumerate("ab", 1))
CONTRACT, PLAN = make_plan(edge_ms=(6.0, 2.0), cloud_ms=0.5)


def pair_of(nodes: tuple[NodeAddress, ...] = NODES, **fields: object) -> Pair:
    pair = Pair({CONTRACT: PLAN}, EdgeSettings(nodes=nodes, **fields))  # type: ignore[arg-type]
    pair.run(300)
    return pair


def ask(pair: Pair, requests: int, hertz: float, deadline_ms: float = 15.0) -> list[int]:
    asked = []
    for i in range(requests):
        asked.append(pair.ask(make_input(i), deadline_ms))
        pair.run(1000.0 / hertz)
    return asked


def node_in_use(pair: Pair) -> str:
    sequence = pair.ask(make_input(), 15)
    pair.run(20)
    return pair.answer(sequence).node or ""


def other(name: str) -> str:
    return "b" if name == "a" else "a"


def check_all_in_time(pair: Pair, asked: list[int], deadline_ms: float = 15.0) -> None:
    """Each has its answer by its deadline, or was told at once that the device has no room for it."""
    for sequence in asked:
        outcome = pair.outcome(sequence)
        assert isinstance(outcome, Answer | Rejected), outcome
        if isinstance(outcome, Answer):
            assert outcome.elapsed_ns <= deadline_ms * MS


@pytest.mark.parametrize("hertz", [30, 300])
def test_a_node_that_is_killed_costs_no_answer_and_the_next_request_goes_to_the_other(hertz: float) -> None:
    pair = pair_of()
    used = node_in_use(pair)
    before = ask(pair, 30, hertz)
    during = [pair.ask(make_input(), 15)]
    pair.run(0.7)
    pair.kill(used)
    after = ask(pair, 60, hertz)
    pair.run(50)
    check_all_in_time(pair, before + during + after)
    assert pair.answer(after[0]).node == other(used)
    assert {pair.answer(s).node for s in after if isinstance(pair.outcome(s), Answer)} <= {other(used), None}
    assert sum(pair.answer(s).source == "cloud" for s in after if isinstance(pair.outcome(s), Answer)) >= 0.9 * len(
        after
    )


@pytest.mark.parametrize("hertz", [30, 300])
def test_a_node_that_hangs_costs_no_answer_and_is_left_when_that_can_be_seen(hertz: float) -> None:
    pair = pair_of()
    used = node_in_use(pair)
    before = ask(pair, 30, hertz)
    pair.stall(used)
    unseen: list[int] = []
    while pair.broker.nodes.by_name[used].paths[0].state is State.UP:
        unseen += ask(pair, 1, hertz)
    after = ask(pair, 60, hertz)
    pair.run(50)
    check_all_in_time(pair, before + unseen + after)
    assert pair.answer(after[0]).node == other(used)
    assert len(unseen) <= 1 + 0.05 * hertz, "until the first answer is overdue"


def test_a_node_that_is_told_to_leave_answers_what_it_has_and_gets_nothing_more() -> None:
    pair = pair_of()
    first = pair.ask(make_input(), 15)
    used = next(name for name, node in pair.broker.nodes.by_name.items() if node.out)
    pair.run(1.1)
    pair.drain(used)
    pair.run(1.1)
    rest = ask(pair, 30, 100)
    pair.run(50)
    assert pair.answer(first).node == used
    assert {pair.answer(s).node for s in rest} == {other(used)}
    assert not pair.nodes[used].alive


def test_rolling_over_all_nodes_leaves_every_answer_to_the_cloud() -> None:
    pair = pair_of()
    asked: list[int] = []
    for name in "ab":
        asked += ask(pair, 20, 100)
        pair.drain(name)
        asked += ask(pair, 20, 100)
        pair.start(name)
        asked += ask(pair, 60, 100)
    pair.run(50)
    assert {pair.answer(s).source for s in asked} == {"cloud"}


def test_a_node_that_is_told_to_leave_while_nothing_is_there_leaves_at_once_with_a_good_bye() -> None:
    session = Session(CloudSettings(), {CONTRACT: PLAN}, "node", 7)
    session.handle(Received("e:1:data", Hello(1, "e", 1, "data", (CONTRACT,))), MS)
    actions = session.handle(Draining(), 2 * MS)
    assert [a.message for a in actions if isinstance(a, Send)] == [Drain(7), Bye("closing")]
    assert actions[-1] == Leave()
    assert not any(isinstance(a, Leave) for a in session.handle(Draining(), 3 * MS))


def test_a_node_that_is_told_to_leave_does_not_wait_for_ever_for_what_it_has() -> None:
    pair = Pair({CONTRACT: PLAN}, EdgeSettings(nodes=NODES[:1]), CloudSettings(node=NodeGroup(drain_ms=5.0)))
    pair.run(300)
    pair.nodes["a"].slow = 1000.0
    sequence = pair.ask(make_input(), 15)
    pair.run(1.5)
    pair.drain("a")
    pair.run(5.2)
    session = pair.nodes["a"].machine
    assert not session.peers.credits.out("edge:1")  # type: ignore[union-attr]
    pair.run(20)
    assert not pair.nodes["a"].alive
    assert pair.answer(sequence).source == "edge"


def test_whoever_greets_a_node_that_leaves_is_told_so_and_lent_nothing() -> None:
    session = Session(CloudSettings(), {CONTRACT: PLAN}, "node", 7)
    session._leave_by = 10_000 * MS
    session._left = True
    actions = session.handle(Received("e:1:data", Hello(1, "e", 1, "data", (CONTRACT,))), MS)
    assert [type(a.message) for a in actions if isinstance(a, Send)] == [Welcome, Drain]


def test_a_node_whose_runs_all_fail_is_left_alone_for_a_while() -> None:
    pair = pair_of(outliers=Outliers(failures=3, pause_ms=(1000.0, 60_000.0)))
    used = node_in_use(pair)
    host = pair.nodes[used]
    launch = pair._launch

    def failing(at: object, run: Run) -> None:
        if at is host:
            host.running.add(run.run)
            pair._end(host, run, pair.now + MS, Failed(run.run, "error", "broken"))
        else:
            launch(at, run)  # type: ignore[arg-type]

    pair._launch = failing  # type: ignore[method-assign]
    asked: list[int] = []
    while not pair.broker.nodes.outliers.ejected(used, pair.now):
        pair.broker.nodes.by_name[other(used)].wait_ns = 4 * MS
        asked += ask(pair, 1, 30)
    check_all_in_time(pair, asked)
    left = ask(pair, 20, 30)
    assert pair.nodes[used].machine.counters["refused-failed"] == 3
    assert {pair.answer(s).node for s in left} == {other(used)}


def test_a_node_that_is_far_slower_than_its_peer_is_left_alone() -> None:
    pair = pair_of(fleet=Fleet(subset=2), outliers=Outliers(slower=3.0))
    names = ["a", "b"]
    for _ in range(20):
        for name in names:
            pair.broker.nodes.outliers.answered(name, 5.0 if name == "a" else 1.0, pair.now)
    assert node_in_use(pair) == "b"
    paths = pair.broker.nodes.usable(CONTRACT, pair.now)
    assert [path.node.name for path in paths] == ["b"]


def test_of_a_large_fleet_an_edge_uses_a_few_and_the_next_one_where_one_of_them_is_away() -> None:
    fleet = tuple(NodeAddress(name=f"n{i}", endpoint=f"tcp://127.0.0.1:{i + 1}") for i in range(6))
    pair = pair_of(fleet, fleet=Fleet(subset=2))
    used = [path.node.name for path in pair.broker.nodes.usable(CONTRACT, pair.now)]
    assert len(used) == 2
    asked = ask(pair, 20, 100)
    assert {pair.answer(s).node for s in asked} <= set(used)
    pair.kill(used[0])
    after = [path.node.name for path in pair.broker.nodes.usable(CONTRACT, pair.now)]
    assert after[0] == used[1]
    assert len(after) == 2
    assert {pair.answer(s).source for s in ask(pair, 20, 100)} == {"cloud"}


def test_wake_ups_of_a_node_that_leaves_end() -> None:
    session = Session(CloudSettings(), {CONTRACT: PLAN}, "node", 7)
    session.handle(Draining(), MS)
    assert not any(isinstance(a, WakeAt | Refusal) for a in session.handle(Draining(), 2 * MS))


def test_a_node_that_is_told_to_leave_refuses_what_is_new_and_lends_nothing() -> None:
    pair = pair_of(NODES[:1])
    pair.ask(make_input(), 15)
    pair.run(1.1)
    session = pair.nodes["a"].machine
    pair.drain("a")
    peer = next(iter(session.peers.all()))  # type: ignore[union-attr]
    late = [a for a in pair.broker.handle(Arrived(pair.request(make_input(1), 15)), pair.now) if isinstance(a, Send)]
    (asked,) = [a for a in late if isinstance(a.message, Infer)]
    frames = tuple(bytes(memoryview(f).cast("B")) for f in asked.frames)
    actions = session.handle(Received(peer.data[0], asked.message, frames), pair.now + pair.nodes["a"].skew_ns)
    (refused,) = [a.message for a in actions if isinstance(a, Send)]
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.load.credits) == ("draining", 0)
