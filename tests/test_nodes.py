"""What an edge makes of nodes that misbehave, message by message, on virtual time."""

from __future__ import annotations

import random

from edge.nodes import FORGET_NS, HELLO_EVERY_NS, MS, Node, Nodes, Sent, State
from shared.events import Action, Send
from shared.settings import EdgeSettings, NodeAddress
from shared.wire.messages import PROTOCOL, Hello, Load, ProbeReply, Welcome

CONTRACT = "c" * 64


def make_nodes() -> tuple[Nodes, Node]:
    settings = EdgeSettings(nodes=(NodeAddress(name="n1", endpoint="tcp://n1:1"),))
    nodes = Nodes(settings, (CONTRACT,), 1, random.Random(1))
    return nodes, nodes.by_name["n1"]


def welcome(nodes: Nodes, node: Node, now: int) -> None:
    nodes.welcomed(node, Welcome(PROTOCOL, "n1", 5, (CONTRACT,), 8), now)


def greetings(actions: list[Action]) -> list[str]:
    return [a.link for a in actions if isinstance(a, Send) and isinstance(a.message, Hello)]


def test_a_node_that_turns_every_greeting_down_is_greeted_with_pauses() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    sent = 0
    for now in range(0, 4 * HELLO_EVERY_NS, MS):
        sent += len(greetings(nodes.left(node, "hello", now)))
        sent += len(greetings(nodes.tick(now)[0]))
    assert 2 <= sent <= 8


def test_a_node_that_forgot_the_edge_is_greeted_at_once_on_both_connections() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    welcome(nodes, node, MS)
    assert sorted(greetings(nodes.left(node, "hello", 2 * MS))) == ["n1/data", "n1/probe"]


def test_answers_that_a_node_owes_for_ever_do_not_shut_it_out_for_ever() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/data", 0)
    welcome(nodes, node, 0)
    for sequence in (1, 2):
        node.out[sequence, 1] = Sent(0, 5 * MS, 9 * MS, 100, False)
    assert not nodes.usable(CONTRACT)
    for now in range(0, FORGET_NS + 4 * HELLO_EVERY_NS, 10 * MS):
        nodes.tick(now)
        if node.state is State.STALLED:
            welcome(nodes, node, now)
    assert nodes.usable(CONTRACT) == [node]


def test_what_a_probe_before_a_loss_said_of_clocks_is_told_to_nobody_after_it() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    welcome(nodes, node, MS)
    nodes.probed(node, ProbeReply(1, 2 * MS, 50 * MS, 51 * MS, Load(0, 4)), 4 * MS)
    assert node.last_probe == (51 * MS, 4 * MS)
    nodes.disconnected("n1/data")
    assert node.last_probe == (0, 0)
    assert node.offset.bounds(5 * MS) == (None, None)


def test_a_pause_after_a_loss_is_kept_over_a_suspend() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/probe", MS)
    nodes.connected("n1/data", MS)
    welcome(nodes, node, 2 * MS)
    nodes.disconnected("n1/data")
    nodes.connected("n1/data", 3 * MS)
    welcome(nodes, node, 4 * MS)
    assert node.state is State.PAUSED
    assert greetings(nodes.jumped(5 * MS)) == ["n1/probe", "n1/data"]
    welcome(nodes, node, 6 * MS)
    assert node.state is State.PAUSED


def test_a_node_that_is_silent_after_a_suspend_is_lost_with_what_is_out_there_and_greeted_on() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/probe", MS)
    nodes.connected("n1/data", MS)
    welcome(nodes, node, 2 * MS)
    node.out[1, 1] = Sent(2 * MS, 5 * MS, 9 * MS, 100, False)
    nodes.jumped(3 * MS)
    lost: list[Node] = []
    now = 3 * MS
    while not lost and now < 10_000 * MS:
        now += MS
        lost = nodes.tick(now)[1]
    assert lost == [node]
    assert not node.out
    assert node.state is State.GREETING
    later = range(now + MS, now + 2 * HELLO_EVERY_NS, MS)
    assert greetings([action for at in later for action in nodes.tick(at)[0]])
    welcome(nodes, node, now + 3 * HELLO_EVERY_NS)
    assert node.state is State.PAUSED


def test_what_is_out_at_a_node_is_lost_where_another_incarnation_of_it_answers() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/data", MS)
    welcome(nodes, node, 2 * MS)
    node.out[1, 1] = Sent(2 * MS, 5 * MS, 9 * MS, 100, False)
    nodes.unknown_to(node, 3 * MS)
    assert nodes.welcomed(node, Welcome(PROTOCOL, "n1", 6, (CONTRACT,), 8), 4 * MS)
    assert not node.out
    assert node.state is State.PAUSED


def test_a_pause_after_a_loss_is_kept_over_a_new_connection() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/data", MS)
    welcome(nodes, node, 2 * MS)
    nodes.disconnected("n1/data")
    nodes.connected("n1/data", 3 * MS)
    welcome(nodes, node, 4 * MS)
    assert node.state is State.PAUSED
    nodes.connected("n1/data", 5 * MS)
    welcome(nodes, node, 6 * MS)
    assert node.state is State.PAUSED
    nodes.tick(node.return_at)
    assert node.state is State.UP


def test_an_answer_to_a_probe_of_an_earlier_process_says_nothing_of_clocks() -> None:
    nodes, node = make_nodes()
    nodes.connected("n1/probe", 10 * MS)
    nodes.connected("n1/data", 10 * MS)
    nodes.probed(node, ProbeReply(1, 9 * MS, 50 * MS, 51 * MS, Load(0, 4)), 12 * MS)
    assert node.offset.bounds(12 * MS) == (None, None)
