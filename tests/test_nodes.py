"""What an edge makes of nodes that misbehave, message by message, on virtual time."""

from __future__ import annotations

import random

from edge.nodes import FORGET_NS, HELLO_EVERY_NS, MS, REPLACED, Node, Nodes
from edge.paths import Path, Sent, State
from shared.events import Action, Send
from shared.settings import EdgeSettings, Link, NodeAddress
from shared.wire.messages import PROTOCOL, Hello, Load, Probe, ProbeReply, Welcome

CONTRACT = "c" * 64


def make_nodes() -> tuple[Nodes, Path]:
    settings = EdgeSettings(nodes=(NodeAddress(name="n1", endpoint="tcp://n1:1"),))
    nodes = Nodes(settings, (CONTRACT,), 1, random.Random(1))
    return nodes, nodes.by_name["n1"].paths[0]


def welcome(nodes: Nodes, path: Path, now: int, incarnation: int = 5) -> None:
    nodes.welcomed(path, Welcome(PROTOCOL, "n1", incarnation, (CONTRACT,), 8), now)


def send(path: Path, sequence: int, at: int) -> None:
    path.out[sequence, 1] = path.node.out[sequence, 1] = Sent(at, 5 * MS, 9 * MS, 100, False)


def greetings(actions: list[Action]) -> list[str]:
    return [a.link for a in actions if isinstance(a, Send) and isinstance(a.message, Hello)]


def test_a_node_that_turns_every_greeting_down_is_greeted_with_pauses() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    sent = 0
    for now in range(0, 4 * HELLO_EVERY_NS, MS):
        sent += len(greetings(nodes.left(path, "hello", now)))
        sent += len(greetings(nodes.tick(now)[0]))
    assert 2 <= sent <= 8


def test_a_node_that_forgot_the_edge_is_greeted_at_once_on_both_connections() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    welcome(nodes, path, MS)
    assert sorted(greetings(nodes.left(path, "hello", 2 * MS))) == ["n1/data", "n1/probe"]


def test_an_agent_whose_name_another_one_took_goes_on_asking_for_its_place() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    welcome(nodes, path, MS)
    assert sorted(greetings(nodes.left(path, REPLACED, 2 * MS))) == ["n1/data", "n1/probe"]
    assert greetings(nodes.left(path, REPLACED, 3 * MS)) == []
    assert greetings(nodes.tick(2 * MS + HELLO_EVERY_NS)[0])


def test_answers_that_a_node_owes_for_ever_do_not_shut_it_out_for_ever() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/data", 0)
    welcome(nodes, path, 0)
    for sequence in (1, 2, 3, 4):
        send(path, sequence, 0)
    assert not nodes.usable(CONTRACT, 0)
    for now in range(0, FORGET_NS + 4 * HELLO_EVERY_NS, 10 * MS):
        nodes.tick(now)
        if path.state is State.STALLED:
            welcome(nodes, path, now)
    assert nodes.usable(CONTRACT, 0) == [path]


def test_what_a_probe_before_a_loss_said_of_clocks_is_told_to_nobody_after_it() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", 0)
    nodes.connected("n1/data", 0)
    welcome(nodes, path, MS)
    nodes.probed(path, ProbeReply(1, 2 * MS, 50 * MS, 51 * MS, Load(0, 4)), 4 * MS)
    assert path.last_probe == (51 * MS, 4 * MS)
    nodes.disconnected("n1/data")
    assert path.last_probe == (0, 0)
    assert path.node.offset.bounds(5 * MS) == (None, None)


def test_a_pause_after_a_loss_is_kept_over_a_suspend() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", MS)
    nodes.connected("n1/data", MS)
    welcome(nodes, path, 2 * MS)
    nodes.disconnected("n1/data")
    nodes.connected("n1/data", 3 * MS)
    welcome(nodes, path, 4 * MS, incarnation=6)
    assert path.state is State.PAUSED
    assert greetings(nodes.jumped(5 * MS)) == ["n1/probe", "n1/data"]
    welcome(nodes, path, 6 * MS, incarnation=6)
    assert path.state is State.PAUSED


def test_a_node_that_is_silent_after_a_suspend_is_lost_with_what_is_out_there_and_greeted_on() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", MS)
    nodes.connected("n1/data", MS)
    welcome(nodes, path, 2 * MS)
    send(path, 1, 2 * MS)
    nodes.jumped(3 * MS)
    lost: list[Path] = []
    now = 3 * MS
    while not lost and now < 10_000 * MS:
        now += MS
        lost = nodes.tick(now)[1]
    assert lost == [path]
    assert not path.node.out
    assert path.state is State.GREETING
    later = range(now + MS, now + 2 * HELLO_EVERY_NS, MS)
    assert greetings([action for at in later for action in nodes.tick(at)[0]])
    welcome(nodes, path, now + 3 * HELLO_EVERY_NS)
    assert path.state is State.UP


def test_what_is_out_at_a_node_is_lost_where_another_incarnation_of_it_answers() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/data", MS)
    welcome(nodes, path, 2 * MS)
    send(path, 1, 2 * MS)
    nodes.unknown_to(path, 3 * MS)
    assert nodes.welcomed(path, Welcome(PROTOCOL, "n1", 6, (CONTRACT,), 8), 4 * MS) == ([], [path])
    assert not path.node.out
    assert path.state is State.PAUSED


def test_a_pause_after_a_loss_is_kept_over_a_new_connection() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/data", MS)
    welcome(nodes, path, 2 * MS)
    nodes.disconnected("n1/data")
    nodes.connected("n1/data", 3 * MS)
    welcome(nodes, path, 4 * MS, incarnation=6)
    assert path.state is State.PAUSED
    nodes.connected("n1/data", 5 * MS)
    welcome(nodes, path, 6 * MS, incarnation=6)
    assert path.state is State.PAUSED
    nodes.tick(path.return_at)
    assert path.state is State.UP


def test_a_node_that_was_out_of_reach_is_greeted_from_the_loss_on_used_at_once_and_trusted_by_and_by() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", MS)
    nodes.connected("n1/data", MS)
    welcome(nodes, path, 2 * MS)
    now, greeted = 2 * MS, []
    while path.state is State.UP:
        now += MS
        greeted = greetings(nodes.tick(now)[0])
    assert path.state is State.GREETING
    assert greeted == ["n1/probe", "n1/data"], "what was sent before the link is back is there as soon as it is"
    assert greetings(nodes.tick(now + HELLO_EVERY_NS)[0]) == ["n1/probe", "n1/data"]
    welcome(nodes, path, now + 300 * MS)
    assert nodes.usable(CONTRACT, now + 300 * MS) == [path], "it has lost nothing, and no other edge comes for it alone"
    assert path.estimate.trust(now + 300 * MS) < 1.0
    assert path.estimate.trust(now + 600 * MS) == 1.0


def test_an_answer_to_a_probe_of_an_earlier_process_says_nothing_of_clocks() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/probe", 10 * MS)
    nodes.connected("n1/data", 10 * MS)
    nodes.probed(path, ProbeReply(1, 9 * MS, 50 * MS, 51 * MS, Load(0, 4)), 12 * MS)
    assert path.node.offset.bounds(12 * MS) == (None, None)


def test_an_idle_connection_is_kept_warm_and_its_padding_teaches_what_the_link_is_like() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/data", 0)
    welcome(nodes, path, 0)
    path.warm.used(20_000, 0)
    pads = 0
    for now in range(0, 20_000 * MS, MS):
        for action in nodes.tick(now)[0]:
            if isinstance(action, Send) and isinstance(action.message, Probe):
                assert action.link == path.data
                ((tensor,), (frame,)) = action.message.tensors, action.frames
                assert (tensor.dtype, tensor.shape) == ("uint8", (len(frame),))
                pads += len(frame)
                took = 10 * MS + len(frame) * 100
                at = now + took
                path.padded(ProbeReply(action.message.number, now, at - MS, at - MS, Load(0, 8)), at)
    assert 0.9 * 64_000 * 10 <= pads <= 64_000 * 11
    assert path.estimate.chance(20_000, path.estimate.network_ns(20_000), MS, 9_000 * MS) > 0.85
    nodes.tick(60_000 * MS)
    assert path.warm.next_at() is None


def test_a_node_that_knows_no_padding_is_sent_no_more_of_it() -> None:
    nodes, path = make_nodes()
    nodes.connected("n1/data", 0)
    welcome(nodes, path, 0)
    path.warm.used(20_000, 0)
    sent = [a for now in range(0, 9_000 * MS, MS) for a in nodes.tick(now)[0] if isinstance(a.message, Probe)]  # type: ignore[union-attr]
    assert len(sent) == 1


def test_where_there_is_a_budget_of_bytes_none_are_spent_on_padding() -> None:
    path = Node("n1", Link(budget_mb_per_hour=100.0)).paths[0]
    path.warm.used(20_000, 0)
    assert path.warm.next_at() is None


def two_nodes() -> Nodes:
    settings = EdgeSettings(nodes=tuple(NodeAddress(name=n, endpoint=f"tcp://{n}:1") for n in ("n1", "n2")))
    nodes = Nodes(settings, (CONTRACT,), 1, random.Random(1))
    for path in nodes.paths():
        nodes.connected(path.data, 0)
        nodes.welcomed(path, Welcome(PROTOCOL, path.node.name, 5, (CONTRACT,), 8), 0)
    return nodes


def test_a_node_that_is_left_alone_is_asked_where_no_other_can_be() -> None:
    nodes = two_nodes()
    first, second = nodes.paths()
    for _ in range(5):
        nodes.outliers.failed("n1", 0)
    assert nodes.usable(CONTRACT, 0) == [second]
    second.state = State.STALLED
    assert nodes.usable(CONTRACT, 0) == [first]
    second.state = State.UP
    assert nodes.usable(CONTRACT, 0) == [second]
