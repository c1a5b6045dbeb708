"""Second copies of requests: by hand, and through an edge and its nodes on virtual time."""

from __future__ import annotations

import pytest
from plans import make_input, make_plan

from edge.copies import SAVED_BYTES, Copies, best_spare
from edge.nodes import Node
from hil.pair import CLIENT, MS, Pair, way_name
from shared.settings import Duplicates, EdgeSettings, Link, NodeAddress, PathAddress

ONE = NodeAddress(name="a", endpoint="tcp://127.0.0.1:1")
DOUBLE = NodeAddress(name="a", endpoint="tcp://127.0.0.1:1", connections=2)
BOTH = (DOUBLE, NodeAddress(name="b", endpoint="tcp://127.0.0.1:2", connections=2))
ALWAYS = Duplicates(below=1.0, extra_bytes=3.0)


def pair_of(*nodes: NodeAddress, duplicates: Duplicates = ALWAYS, deadline_ms: float = 20.0) -> Pair:
    contract, plan = make_plan(edge_ms=(6.0, 4.0), cloud_ms=1.0)
    pair = Pair({contract: plan}, EdgeSettings(nodes=nodes, duplicates=duplicates))
    pair.run(300)
    return pair


def hold_up(pair: Pair, requests: int, every: int, deadline_ms: float = 12.0) -> list[int]:
    """Ask 30 times a second, and hold each so manieth up for 60 ms on the connection that its first copy took. Sequences of
    those."""
    held: list[int] = []
    for i in range(requests):
        sequence = pair.ask(make_input(i), deadline_ms)
        way = ""
        if i % every == 0:
            number = pair.broker.number(CLIENT, sequence)
            first = min(
                (path.out[number, 1].sent_ns, path.number, path.data)
                for path in pair.broker.nodes.paths()
                if (number, 1) in path.out
            )
            way = way_name(first[2])
            pair.stall(way)
            held.append(sequence)
        pair.run(33)
        if way:
            pair.run(33)
            pair.resume(way)
    pair.run(200)
    return held


def from_cloud(pair: Pair, sequences: list[int]) -> float:
    return sum(pair.answer(s).source == "cloud" for s in sequences) / len(sequences)


# --- by hand -----------------------------------------------------------------------------------------------------------


def test_a_copy_goes_out_where_one_is_not_likely_enough_to_be_in_time() -> None:
    copies = Copies(Duplicates(below=0.9, at_once_kb=1))
    assert copies.wanted_at(0.95, 1000, 5 * MS, 3 * MS, 20 * MS, MS) is None
    assert copies.wanted_at(0.85, 1000, 5 * MS, 3 * MS, 20 * MS, MS) == MS


def test_a_large_message_is_copied_when_its_answer_is_overdue_and_a_copy_may_still_be_in_time() -> None:
    copies = Copies(Duplicates(below=0.9, at_once_kb=1))
    assert copies.wanted_at(0.5, 5000, 6 * MS, 4 * MS, 20 * MS, MS) == 11 * MS, "half way between 6 and 16 ms"
    assert copies.wanted_at(0.5, 5000, 18 * MS, 4 * MS, 20 * MS, MS) == 16 * MS, "later is too late"
    assert copies.wanted_at(0.5, 5000, 6 * MS, 20 * MS, 20 * MS, MS) is None, "no copy can be in time"


def test_copies_are_paid_for_by_what_is_sent_once() -> None:
    copies = Copies(Duplicates(extra_bytes=0.5))
    assert not copies.pay(100)
    copies.first(100)
    assert not copies.pay(100)
    copies.first(100)
    assert copies.pay(100)
    assert not copies.pay(1)
    for _ in range(100):
        copies.first(SAVED_BYTES)
    assert copies.pay(SAVED_BYTES)
    assert not copies.pay(1)


def test_without_extra_bytes_there_are_no_copies() -> None:
    copies = Copies(Duplicates(extra_bytes=0.0))
    copies.first(1 << 20)
    assert not copies.pay(1)


def test_another_link_is_preferred_to_another_connection_on_the_same() -> None:
    first, beside, other = Node("a", Link(), (0, 0, 1)).paths
    for path in (first, beside):
        path.estimate.probed(MS)
    other.estimate.probed(30 * MS)
    assert best_spare(first, [beside, other], 100) is other
    assert best_spare(first, [beside], 100) is beside
    assert best_spare(first, [], 100) is None


# --- an edge and its nodes ---------------------------------------------------------------------------------------------


def test_a_request_that_is_held_up_on_one_connection_is_answered_on_the_other() -> None:
    single, double = pair_of(ONE), pair_of(DOUBLE)
    for pair in (single, double):
        hold_up(pair, 60, 5)
        held = hold_up(pair, 60, 5)
        if pair is double:
            assert from_cloud(pair, held) >= 0.9
            assert pair.broker.counters["copies"] > 0
        else:
            assert from_cloud(pair, held) <= 0.1


@pytest.mark.parametrize("duplicates", [Duplicates(below=0.0), Duplicates(extra_bytes=0.0, below=1.0)])
def test_copies_are_sent_only_where_they_are_allowed(duplicates: Duplicates) -> None:
    pair = pair_of(DOUBLE, duplicates=duplicates)
    hold_up(pair, 40, 5)
    assert pair.broker.counters["copies"] == 0


def test_a_node_runs_copies_once_and_answers_on_both_connections() -> None:
    pair = pair_of(DOUBLE)
    hold_up(pair, 60, 4)
    node, edge = pair.nodes["a"].machine, pair.broker.counters
    assert edge["copies"] > 5
    assert node.counters["copies"] + node.counters["answered-again"] > 5
    rows = sum(len(run.rows) for run in pair.nodes["a"].launched)
    assert rows == len({row.job for run in pair.nodes["a"].launched for row in run.rows})
    assert rows <= 60
    assert edge["copy-reply"] + edge["copy-refused"] > 0
    assert edge["unknown-reply"] == 0


def test_all_credit_and_all_copies_are_settled_in_the_end() -> None:
    pair = pair_of(*BOTH)
    hold_up(pair, 40, 3)
    hold_up(pair, 40, 3)
    for node in pair.broker.nodes.by_name.values():
        assert not node.out
        assert all(not path.out for path in node.paths)
    for host in pair.nodes.values():
        assert not any(host.machine.peers.credits._out.values())  # type: ignore[union-attr]


def test_a_request_on_a_lost_path_moves_to_another_path_of_its_node_and_is_run_once() -> None:
    pair = pair_of(DOUBLE, duplicates=Duplicates(below=0.0))
    sequence = pair.ask(make_input(), 20)
    pair.run(0.5)
    carrying = next(path for path in pair.broker.nodes.by_name["a"].paths if path.out)
    pair.cut(carrying.data)
    pair.run(30)
    assert pair.answer(sequence).source == "cloud"
    assert pair.broker.counters["moved"] == 1
    assert sum(len(run.rows) for run in pair.nodes["a"].launched) == 1


def test_a_second_link_takes_over_when_the_first_one_stalls() -> None:
    node = NodeAddress(name="a", endpoint="tcp://127.0.0.1:1", paths=(PathAddress(source="10.0.0.2"),))
    pair = pair_of(node, duplicates=Duplicates(below=0.0))
    pair.ways["a.1"].one_way_ns = 3 * MS
    pair.run(1000)
    pair.stall("a")
    for i in range(6):
        pair.ask(make_input(i), 30)
        pair.run(33)
    asked = []
    for i in range(20):
        asked.append(pair.ask(make_input(i), 30))
        pair.run(33)
    assert from_cloud(pair, asked) == 1.0
