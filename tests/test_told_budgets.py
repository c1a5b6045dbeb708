"""What of a deadline a node is told where others wait there: no more than an answer that is still in time leaves it."""

from __future__ import annotations

from plans import make_input, make_plan

from edge.nodes import Node
from hil.pair import CLIENT, MS, Pair, Way
from shared.events import LinkDown
from shared.plan import Route
from shared.request import Answer
from shared.settings import Duplicates, EdgeSettings, NodeAddress, PathAddress

ONE = NodeAddress(name="a", endpoint="tcp://127.0.0.1:1")
TWO = NodeAddress(name="a", endpoint="tcp://127.0.0.1:1", paths=(PathAddress(source="eth1"),))
NEAR, FAR = 1 * MS, 25 * MS
CLOSE = MS // 2
"""Bytes, padding and the drift of clocks make so much of a difference."""


def pair_of(address: NodeAddress = ONE) -> Pair:
    """A device that is much slower than the cloud."""
    contract, plan = make_plan(edge_ms=(300.0, 280.0))
    return Pair({contract: plan}, EdgeSettings(nodes=(address,), duplicates=Duplicates(extra_bytes=0.0)))


def node_of(pair: Pair) -> Node:
    return pair.broker.nodes.by_name["a"]


def too_early(pair: Pair, waits_ns: int = 1) -> int:
    """How long before the edge's last moment for an answer a node takes a request to be too late that it is asked now, where
    it has told of a wait: what is done by then is just in time where that is as long as the way back."""
    node_of(pair).wait_ns = waits_ns
    sequence = pair.ask(make_input(), 200.0)
    open_ = pair.broker._open.of(CLIENT, sequence)
    assert open_ is not None
    due_ns = open_.resolve_by
    pair.run(26)
    host = pair.nodes["a"]
    (admitted,) = host.machine._admitted.values()  # type: ignore[union-attr]
    return due_ns - (admitted.deadline_ns - host.skew_ns)


def lose(pair: Pair, number: int) -> None:
    """One way to the node is there no more."""
    pair.ways[f"a.{number}"].up = False
    for kind in ("data", "probe"):
        pair._feed(pair.edge, LinkDown(f"a/{kind}.{number}"))


def busy(pair: Pair) -> None:
    """The node takes so long for everything that it still has it when one looks."""
    pair.nodes["a"].slow = 50.0


def test_a_node_is_told_of_what_is_left_less_the_way_back_where_others_wait() -> None:
    pair = pair_of()
    pair.ways["a"].one_way_ns = FAR
    busy(pair)
    pair.run(3000)
    assert abs(too_early(pair) - FAR) < CLOSE


def test_a_node_where_nobody_waits_is_told_of_all_that_is_left() -> None:
    pair = pair_of()
    pair.ways["a"].one_way_ns = FAR
    busy(pair)
    pair.run(3000)
    assert abs(too_early(pair, 0) + FAR) < CLOSE


def test_the_answer_may_come_back_on_the_shortest_way_that_is_up() -> None:
    pair = pair_of(TWO)
    pair.ways["a"].one_way_ns = FAR
    pair.ways["a.1"].one_way_ns = 2 * FAR
    busy(pair)
    pair.run(3000)
    far = node_of(pair).paths[1]
    pair.broker.nodes.usable = lambda contract, now: [far]  # type: ignore[method-assign]
    node_of(pair).wait_ns = 1
    sequence = pair.ask(make_input(), 200.0)
    assert far.out
    open_ = pair.broker._open.of(CLIENT, sequence)
    assert open_ is not None
    due_ns = open_.resolve_by
    pair.run(52)
    host = pair.nodes["a"]
    (admitted,) = host.machine._admitted.values()  # type: ignore[union-attr]
    assert abs(due_ns - (admitted.deadline_ns - host.skew_ns) - FAR) < CLOSE


def test_no_answer_comes_back_on_a_way_that_is_not_up() -> None:
    pair = pair_of(TWO)
    pair.ways["a"].one_way_ns = FAR
    pair.ways["a.1"].one_way_ns = NEAR
    busy(pair)
    pair.run(3000)
    lose(pair, 1)
    pair.run(1000)
    assert abs(too_early(pair) - FAR) < CLOSE


def test_a_way_that_has_become_longer_is_left_out_once_since_the_node_knows_the_clock_by_the_shorter() -> None:
    pair = pair_of()
    pair.ways["a"].one_way_ns = NEAR
    busy(pair)
    pair.run(3000)
    pair.ways["a"].one_way_ns = FAR
    pair.run(60_000)
    assert abs(too_early(pair) - FAR) < CLOSE


def test_a_link_that_is_quick_again_is_found_out_though_others_wait_at_the_node() -> None:
    """Larger messages were held up for a while, padding as well, so that bytes seem to take longer than any deadline."""

    class Held(Way):
        extra_ns = 3 * MS

        def delay_ns(self, nbytes: int) -> int:
            return self.one_way_ns + (self.extra_ns if nbytes > 230 else 0)

    contract, plan = make_plan(edge_ms=(60.0, 14.0), routes=(Route(0, "raw", 1.0, 400, 100_000),))
    pair = Pair({contract: plan}, EdgeSettings(nodes=(ONE,)))
    way = pair.ways["a"] = Held()
    pair.run(1000)

    def by_the_cloud(requests: int) -> int:
        asked: list[int] = []
        for _ in range(requests):
            node_of(pair).wait_ns = 1
            asked.append(pair.ask(make_input(), 60.0))
            pair.run(100)
        outcomes = [pair.outcome(sequence) for sequence in asked]
        return sum(isinstance(outcome, Answer) and outcome.source == "cloud" for outcome in outcomes)

    assert by_the_cloud(40) == 40
    way.extra_ns = 90 * MS
    assert by_the_cloud(100) == 0
    way.extra_ns = 3 * MS
    assert by_the_cloud(50) > 40
