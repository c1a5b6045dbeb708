"""Several paths to one node: their names, and what of a node is lost with one of them, message by message."""

from __future__ import annotations

import random

import pytest

from edge.nodes import FORGET_NS, MS, Nodes
from edge.paths import Path, Sent, State, connections, of_node, ways_of
from shared.endpoints import with_source
from shared.events import Action, Dial, Send
from shared.settings import EdgeSettings, NodeAddress, PathAddress
from shared.wire.messages import PROTOCOL, Hello, Load, ProbeReply, Welcome

CONTRACT = "c" * 64
TWO_WAYS = NodeAddress(
    name="n1",
    endpoint="tcp://10.0.0.1:7711",
    source="wlan0",
    connections=2,
    paths=(PathAddress(endpoint="tcp://192.0.2.1:7711", source="198.51.100.7"),),
)


def make_nodes(address: NodeAddress = TWO_WAYS) -> tuple[Nodes, tuple[Path, ...]]:
    nodes = Nodes(EdgeSettings(nodes=(address,)), (CONTRACT,), 1, random.Random(1))
    return nodes, nodes.by_name["n1"].paths


def welcome(
    nodes: Nodes, path: Path, now: int, incarnation: int = 5, paths: int = 32
) -> tuple[list[Action], list[Path]]:
    return nodes.welcomed(path, Welcome(PROTOCOL, "n1", incarnation, (CONTRACT,), 2, paths), now)


def all_up() -> tuple[Nodes, tuple[Path, ...]]:
    nodes, paths = make_nodes()
    for path in paths:
        nodes.connected(path.data, MS)
        nodes.connected(path.probe, MS)
        welcome(nodes, path, 2 * MS)
    return nodes, paths


def send(path: Path, sequence: int, at: int) -> None:
    sent = Sent(at, at + 5 * MS, at + 9 * MS, 100, False)
    path.out[sequence, 1] = sent
    path.node.out.setdefault((sequence, 1), sent)


def hellos(actions: list[Action]) -> list[tuple[str, int]]:
    return [(a.link, a.message.path) for a in actions if isinstance(a, Send) and isinstance(a.message, Hello)]


def test_each_address_has_as_many_paths_as_connections_and_each_path_two_connections_of_its_own() -> None:
    known = list(connections(TWO_WAYS))
    assert [c.link for c in known[::2]] == ["n1/data", "n1/data.1", "n1/data.2", "n1/data.3"]
    assert [c.link for c in known[1::2]] == ["n1/probe", "n1/probe.1", "n1/probe.2", "n1/probe.3"]
    assert [(c.endpoint, c.source) for c in known[::4]] == [
        ("tcp://10.0.0.1:7711", "wlan0"),
        ("tcp://192.0.2.1:7711", "198.51.100.7"),
    ]
    assert ways_of(TWO_WAYS) == (0, 0, 1, 1)
    assert [c.link for c in connections(NodeAddress(name="a", endpoint="tcp://h:1"))] == ["a/data", "a/probe"]


def test_a_further_way_without_an_endpoint_goes_to_the_nodes_own() -> None:
    address = NodeAddress(name="a", endpoint="tcp://h:1", paths=(PathAddress(source="eth1"),))
    assert [(c.endpoint, c.source) for c in connections(address)][2:] == [("tcp://h:1", "eth1")] * 2


@pytest.mark.parametrize(
    ("link", "is_one"),
    [
        ("n1/data", True),
        ("n1/probe.12", True),
        ("a/b/data", True),
        ("cam:5:agent", False),
        ("cam/data:5:agent", False),
        ("cam/data.5:1:agent", False),
        ("data", False),
    ],
)
def test_connections_to_nodes_are_told_from_those_of_clients_by_their_names(link: str, is_one: bool) -> None:
    assert of_node(link) is is_one


def test_a_source_is_written_before_the_address_that_is_connected_to() -> None:
    assert with_source("tcp://h:1", "10.0.0.2") == "tcp://10.0.0.2:0;h:1"
    assert with_source("tcp://[::1]:1", "fe80::2") == "tcp://[fe80::2]:0;[::1]:1"


def test_each_path_greets_with_its_number() -> None:
    nodes, paths = make_nodes()
    assert hellos(nodes.connected(paths[2].data, MS)) == [("n1/data.2", 2)]


def test_one_path_stalls_and_the_others_are_used() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 10 * MS)
    _, lost, stalled = nodes.tick(10 * MS + 46 * MS)
    assert (lost, stalled) == ([], [paths[0]])
    assert nodes.usable(CONTRACT, 0) == list(paths[1:])
    nodes.moved(paths[0], 60 * MS)
    assert nodes.usable(CONTRACT, 0) == list(paths)


def test_a_node_lends_one_credit_for_all_copies_of_an_attempt() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 10 * MS)
    send(paths[1], 1, 10 * MS)
    assert nodes.usable(CONTRACT, 0) == list(paths), "one of two credits is out"
    send(paths[2], 2, 10 * MS)
    assert nodes.usable(CONTRACT, 0) == []
    assert nodes.spare(paths[0].node, CONTRACT, [paths[0], paths[1]]) == list(paths[2:]), "a copy needs no credit"


def test_no_copy_goes_to_a_node_that_has_said_since_that_it_does_not_serve_the_contract() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 10 * MS)
    paths[0].node.contracts = frozenset()
    assert nodes.spare(paths[0].node, CONTRACT, [paths[0]]) == []


def test_what_is_out_on_a_lost_path_holds_its_credit_as_long_as_another_path_carries_it() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 10 * MS)
    send(paths[1], 1, 10 * MS)
    send(paths[0], 2, 10 * MS)
    assert nodes.disconnected("n1/data") is paths[0]
    assert set(paths[0].node.out) == {(1, 1)}
    assert paths[0].node.credits == 2
    nodes.disconnected("n1/data.1")
    assert not paths[0].node.out


def test_a_node_lends_nothing_any_more_when_its_last_path_is_lost() -> None:
    nodes, paths = all_up()
    for path in paths[:-1]:
        nodes.disconnected(path.data)
    assert nodes.usable(CONTRACT, 0) == [paths[-1]]
    nodes.disconnected(paths[-1].data)
    assert paths[0].node.credits == 0


def test_a_path_on_which_the_same_node_returns_is_used_at_once_and_trusted_less_than_the_others() -> None:
    nodes, paths = all_up()
    nodes.disconnected("n1/data")
    nodes.connected("n1/data", 20 * MS)
    welcome(nodes, paths[0], 21 * MS)
    assert nodes.usable(CONTRACT, 0) == list(paths)
    assert [path.estimate.trust(21 * MS) for path in paths] == [0.3, 1.0, 1.0, 1.0]


def test_paths_on_which_a_node_returns_that_was_started_anew_are_used_after_a_pause_each() -> None:
    nodes, paths = all_up()
    for path in paths:
        nodes.disconnected(path.data)
    for path in paths:
        nodes.connected(path.data, 20 * MS)
        welcome(nodes, path, 21 * MS, incarnation=6)
    assert [path.state for path in paths] == [State.PAUSED] * 4
    assert not nodes.usable(CONTRACT, 0)
    nodes.tick(max(path.return_at for path in paths))
    assert nodes.usable(CONTRACT, 0) == list(paths)


def test_another_incarnation_that_shows_on_one_path_is_greeted_anew_on_all() -> None:
    nodes, paths = all_up()
    send(paths[1], 1, 10 * MS)
    nodes.disconnected("n1/data")
    nodes.connected("n1/data", 20 * MS)
    greetings, lost = welcome(nodes, paths[0], 21 * MS, incarnation=6)
    assert lost == list(paths)
    assert {link for link, _ in hellos(greetings)} == {
        f"n1/{kind}.{number}" for kind in ("data", "probe") for number in (1, 2, 3)
    }
    assert not paths[0].node.out
    assert [path.state for path in paths] == [State.PAUSED, *[State.GREETING] * 3]


def test_a_good_bye_is_of_its_path_since_answers_may_still_come_on_the_others() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 4 * MS)
    assert hellos(nodes.left(paths[1], "hello", 5 * MS)) == [("n1/probe.1", 1), ("n1/data.1", 1)]
    assert nodes.usable(CONTRACT, 0) == [paths[0], *paths[2:]]
    assert nodes.left(paths[2], "closing", 6 * MS) == []
    assert nodes.usable(CONTRACT, 0) == [paths[0], paths[3]]
    assert set(paths[0].node.out) == {(1, 1)}


def test_a_node_that_takes_one_path_is_used_on_the_first_alone() -> None:
    nodes, paths = make_nodes(NodeAddress(name="n1", endpoint="tcp://h:1", connections=2))
    for path in paths:
        nodes.connected(path.data, MS)
        nodes.connected(path.probe, MS)
    welcome(nodes, paths[0], 2 * MS, paths=1)
    greetings, lost = welcome(nodes, paths[1], 3 * MS, paths=1)
    assert lost == [paths[1]]
    assert hellos(greetings) == [("n1/probe", 0), ("n1/data", 0)], "the second took the first one's place"
    welcome(nodes, paths[0], 4 * MS, paths=1)
    later, _, _ = nodes.tick(500 * MS)
    assert {a.link for a in later if isinstance(a, Send)} == {"n1/probe"}, "nothing is said on the second"
    assert nodes.usable(CONTRACT, 0) == [paths[0]]
    nodes.disconnected("n1/data.1")
    assert hellos(nodes.connected("n1/data.1", 600 * MS)) == [("n1/data.1", 1)], "another start may take more"


def test_probes_are_answered_path_by_path_and_tell_of_one_clock() -> None:
    nodes, paths = all_up()
    nodes.tick(10 * MS)
    nodes.probed(paths[3], ProbeReply(1, 10 * MS, 50 * MS, 51 * MS, Load(7, 4)), 14 * MS)
    assert paths[3].last_probe == (51 * MS, 14 * MS)
    assert paths[0].last_probe == (0, 0)
    assert (paths[0].node.credits, paths[0].node.wait_ns) == (4, 7)
    assert [path.probes_out for path in paths] == [1, 1, 1, 0]


def test_answers_that_a_path_owes_for_ever_hold_no_credit_for_ever() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 0)
    send(paths[1], 2, 0)
    assert not nodes.usable(CONTRACT, 0)
    for now in range(0, FORGET_NS + 1000 * MS, 50 * MS):
        nodes.tick(now)
        for path in paths:
            nodes.moved(path, now)
            path.probes_out = 0
    assert nodes.usable(CONTRACT, 0) == list(paths)


def test_a_connection_that_alone_carries_nothing_is_made_anew_and_used_when_it_has_greeted() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 10 * MS)
    send(paths[1], 1, 10 * MS)
    paths[1].answered(paths[1].out.pop((1, 1)), 0, 15 * MS)
    paths[1].answered_ns = 11 * MS
    actions, lost, stalled = nodes.tick(10 * MS + 46 * MS)
    assert [a for a in actions if isinstance(a, Dial)] == [Dial("n1/data", "tcp://10.0.0.1:7711", "wlan0")]
    assert (lost, stalled) == ([paths[0]], [])
    assert paths[0].state is State.DOWN
    nodes.connected("n1/data", 60 * MS)
    welcome(nodes, paths[0], 65 * MS)
    assert paths[0].state is State.UP


def test_a_stall_of_the_whole_way_is_waited_out() -> None:
    nodes, paths = all_up()
    send(paths[0], 1, 10 * MS)
    send(paths[1], 2, 10 * MS)
    paths[2].answered_ns = 50 * MS
    actions, _, stalled = nodes.tick(10 * MS + 46 * MS)
    assert not any(isinstance(a, Dial) for a in actions), "another way says nothing of this one"
    assert stalled == [paths[0], paths[1]]
