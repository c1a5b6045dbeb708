"""Directories of a fleet: which one counts, what an edge does about it, how it is kept, and how a node tells of it."""

from __future__ import annotations

import os
import random
import select
from contextlib import closing
from pathlib import Path

import pytest
from plans import make_input, make_plan

from cloud.session import Session
from edge.fleet import with_newest
from edge.nodes import LEAVE_NS, MS, Nodes
from hil.pair import Pair
from shared.directory import Directory, check_length, from_message, newest, to_message
from shared.directory_file import DirectoryWatch, Keeping, keep, load_directory, load_kept
from shared.errors import SettingsError
from shared.events import Dial, DirectorySeen, HangUp, Keep, Received, Send
from shared.settings import CloudSettings, EdgeSettings, Fleet, NodeAddress, PathAddress
from shared.wire.codec import decode_node, encode
from shared.wire.messages import Hello, NodeEntry, NodeList, Welcome

CONTRACT, PLAN = make_plan(edge_ms=(6.0, 2.0), cloud_ms=0.5)
A = NodeAddress(name="a", endpoint="tcp://127.0.0.1:1", source="lo")
B = NodeAddress(name="b", endpoint="tcp://127.0.0.1:2")
C = NodeAddress(name="c", endpoint="tcp://127.0.0.1:3", connections=2)


def told(epoch: int, *nodes: NodeAddress) -> Directory:
    """As a node tells of it: without sources."""
    return from_message(to_message(Directory(epoch=epoch, nodes=nodes)))


def make_nodes(*known: NodeAddress, epoch: int = 0) -> Nodes:
    settings = EdgeSettings(nodes=known, fleet=Fleet(epoch=epoch))
    return Nodes(settings, (CONTRACT,), 1, random.Random(1))


# --- which one counts -----------------------------------------------------------------------------------------------------


def test_the_newest_counts_and_of_two_of_one_epoch_the_first() -> None:
    one, two, other = told(1, A), told(2, B), told(2, C)
    assert newest(None, one, None, two, other) is two
    assert newest(None) is None


def test_a_directory_crosses_the_wire_and_what_an_edge_adds_of_its_own_does_not() -> None:
    more = NodeAddress(
        name="d", endpoint="tcp://h:1", paths=(PathAddress(endpoint="tcp://g:1"), PathAddress(source="x"))
    )
    message = to_message(Directory(epoch=7, nodes=(A, C, more)))
    decoded, _ = decode_node([bytes(frame) for frame in encode(message)])
    assert decoded == message
    back = from_message(message)
    assert [node.source for node in back.nodes] == ["", "", ""]
    assert back.nodes[1] == C
    assert back.nodes[2].paths == (PathAddress(endpoint="tcp://g:1"),)


def test_more_nodes_than_a_message_holds_are_refused() -> None:
    many = tuple(NodeAddress(name=f"{i:060}", endpoint=f"tcp://{'h' * 40}:{i + 1}") for i in range(60))
    with pytest.raises(SettingsError, match="60 nodes take"):
        check_length(Directory(epoch=1, nodes=many))


# --- at an edge -----------------------------------------------------------------------------------------------------------


def test_an_edge_takes_newer_directories_only_and_keeps_them() -> None:
    nodes = make_nodes(A, B, epoch=3)
    assert nodes.follow(told(3, C), MS) == ([], [])
    actions, lost = nodes.follow(told(4, A, C), MS)
    assert lost == []
    assert actions[0] == Keep(told(4, A, C))
    assert [a.link for a in actions if isinstance(a, Dial)] == ["c/data", "c/probe", "c/data.1", "c/probe.1"]
    assert set(nodes.by_name) == {"a", "b", "c"}
    assert nodes.follow(told(4, B), MS) == ([], [])


def test_an_edge_reaches_a_node_as_its_own_settings_say() -> None:
    nodes = make_nodes(A)
    actions, lost = nodes.follow(told(1, A), MS)
    assert (len(actions), lost) == (1, [])
    (node,) = nodes.by_name.values()
    assert node.name == "a"


def test_a_node_that_is_in_it_no_more_is_asked_nothing_and_left_when_all_is_answered() -> None:
    pair = Pair({CONTRACT: PLAN}, EdgeSettings(nodes=(A, B)))
    pair.run(300)
    first = pair.ask(make_input(), 15)
    used = next(name for name, node in pair.broker.nodes.by_name.items() if node.out)
    stays = B if used == "a" else A
    pair.tell(told(1, stays))
    rest = []
    for i in range(10):
        rest.append(pair.ask(make_input(i), 15))
        pair.run(20)
    assert pair.answer(first).node == used
    assert {pair.answer(s).node for s in rest} == {stays.name}
    assert set(pair.broker.nodes.by_name) == {stays.name}
    assert pair.broker.nodes.of_link(f"{used}/data") is None


def test_a_node_whose_answers_do_not_come_is_left_all_the_same() -> None:
    nodes = make_nodes(A, B)
    node = nodes.by_name["b"]
    nodes.connected("b/data", MS)
    nodes.welcomed(node.paths[0], Welcome(1, "b", 5, (CONTRACT,), 4, 32), MS)
    node.out[1, 1] = None  # type: ignore[assignment]
    nodes.follow(told(1, A), 2 * MS)
    assert nodes.usable(CONTRACT, 2 * MS) == []
    actions, _, _ = nodes.tick(3 * MS)
    assert not any(isinstance(a, HangUp) for a in actions)
    assert nodes.next_wakeup() == 2 * MS + LEAVE_NS
    actions, lost, _ = nodes.tick(2 * MS + LEAVE_NS)
    assert [a.link for a in actions if isinstance(a, HangUp)] == ["b/data", "b/probe"]
    assert lost == list(node.paths)


def test_a_node_that_has_moved_is_reached_at_its_new_address() -> None:
    nodes = make_nodes(A, B)
    moved = NodeAddress(name="b", endpoint="tcp://127.0.0.1:9")
    actions, lost = nodes.follow(told(1, A, moved), MS)
    assert [type(a).__name__ for a in actions] == ["Keep", "HangUp", "HangUp", "Dial", "Dial"]
    assert actions[3] == Dial("b/data", "tcp://127.0.0.1:9", "")
    assert len(lost) == 1


def test_a_node_that_is_added_while_running_answers() -> None:
    pair = Pair({CONTRACT: PLAN}, EdgeSettings(nodes=(A,)))
    pair.run(300)
    pair.start("c")
    pair.tell(told(2, C))
    pair.run(300)
    sequence = pair.ask(make_input(), 15)
    pair.run(30)
    assert pair.answer(sequence).node == "c"
    assert set(pair.broker.nodes.by_name) == {"c"}


def test_what_a_node_tells_counts_unless_the_edge_does_not_follow_or_it_is_no_directory() -> None:
    for follow, nodes, known in (
        (True, (NodeEntry("c", "tcp://h:3", 1, ()),), {"a", "c"}),
        (False, (NodeEntry("c", "tcp://h:3", 1, ()),), {"a"}),
        (True, (NodeEntry("c", "nonsense", 1, ()),), {"a"}),
        (True, (NodeEntry("c", "tcp://h:3", 99, ()),), {"a"}),
        (True, (NodeEntry("c", "tcp://h:3", 1, ()), NodeEntry("c", "tcp://h:4", 1, ())), {"a"}),
    ):
        pair = Pair({CONTRACT: PLAN}, EdgeSettings(nodes=(A,), fleet=Fleet(follow=follow)))
        pair.run(100)
        pair.broker.handle(Received("a/data", NodeList(5, nodes)), pair.now)
        assert set(pair.broker.nodes.by_name) == known
        pair.broker.validate()


# --- at a node ------------------------------------------------------------------------------------------------------------


def test_a_node_tells_its_edges_when_it_finds_a_newer_one_and_whoever_greets_it() -> None:
    session = Session(CloudSettings(), {CONTRACT: PLAN}, "node", 7)
    hello = Hello(1, "e", 1, "data", (CONTRACT,))
    session.handle(Received("e:1:data", hello), MS)
    found = session.handle(DirectorySeen(told(2, A)), MS)
    assert [a.message for a in found if isinstance(a, Send)] == [to_message(told(2, A))]
    assert session.handle(DirectorySeen(told(2, B)), MS) == []
    greeted = session.handle(Received("e:1:data", hello), MS)
    assert [type(a.message) for a in greeted if isinstance(a, Send)] == [Welcome, NodeList]
    probe = session.handle(Received("e:1:probe", Hello(1, "e", 1, "probe", (CONTRACT,))), MS)
    assert [type(a.message) for a in probe if isinstance(a, Send)] == [Welcome]


# --- files ----------------------------------------------------------------------------------------------------------------

TEXT = """
epoch = 4
[[nodes]]
name = "a"
endpoint = "tcp://127.0.0.1:1"
"""


def test_a_directory_is_read_from_a_file_and_faults_are_told_by_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(TEXT)
    assert load_directory(path) == Directory(epoch=4, nodes=(NodeAddress(name="a", endpoint="tcp://127.0.0.1:1"),))
    for wrong, story in (
        (TEXT.replace("epoch = 4", ""), "epoch: missing"),
        (TEXT.replace("epoch = 4", "epoch = 0"), "epoch: is 0; expected"),
        (TEXT.replace("tcp://127.0.0.1:1", "nowhere"), r"nodes\[0\].endpoint: is 'nowhere'"),
        (TEXT + TEXT.replace("epoch = 4", ""), "nodes.name: 'a' is there twice"),
        (TEXT.replace("name", "nmae"), "did you mean 'name'"),
    ):
        path.write_text(wrong)
        with pytest.raises(SettingsError, match=story):
            load_directory(path)


def test_what_is_kept_is_whole_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    assert load_kept(path) is None
    keep(path, told(3, A, C))
    keep(path, told(4, C))
    assert load_kept(path) == told(4, C)
    assert [found.name for found in tmp_path.iterdir()] == ["kept.json"]
    path.write_text("{")
    with pytest.raises(SettingsError, match="no list of nodes that was kept"):
        load_kept(path)


def test_keeping_writes_the_last_and_says_what_went_wrong(tmp_path: Path) -> None:
    heard: list[str] = []
    keeping = Keeping(tmp_path / "kept.json", heard.append)
    for epoch in range(1, 20):
        keeping.keep(told(epoch, A))
    keeping.close()
    assert load_kept(tmp_path / "kept.json") == told(19, A)
    assert heard == []
    folder = tmp_path / "leaves"
    folder.mkdir()
    lost = Keeping(folder / "kept.json", heard.append)
    folder.rmdir()
    for epoch in (1, 2):
        lost.keep(told(epoch, A))
        lost.close()
    assert heard == [f"{lost.fault}; the list of nodes is not kept"]
    assert "cannot be written" in lost.fault
    with pytest.raises(SettingsError, match=r"fleet.state: is .*; expected a file in a folder that is there"):
        Keeping(folder / "kept.json", heard.append)


def test_an_agent_begins_with_the_newest_list_and_its_own_ways_to_the_nodes(tmp_path: Path) -> None:
    state = tmp_path / "kept.json"
    settings = EdgeSettings(nodes=(A, B), fleet=Fleet(epoch=2, state=str(state)))
    assert with_newest(settings, told(2, C)) == (settings, "")
    found, _ = with_newest(settings, told(3, A, C))
    assert found.nodes == (A, C)
    assert found.fleet.epoch == 3
    keep(state, told(5, B))
    found, _ = with_newest(settings, told(3, A, C))
    assert (found.nodes, found.fleet.epoch) == ((B,), 5)
    state.write_text("?")
    found, fault = with_newest(settings, told(3, A, C))
    assert (found.nodes, found.fleet.epoch) == ((A, C), 3)
    assert str(state) in fault


def test_a_file_that_changes_is_seen_and_one_that_is_wrong_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.directory_file.LOOK_NS", 1_000_000)
    path = tmp_path / "fleet.toml"
    path.write_text(TEXT)
    heard: list[str] = []
    with closing(DirectoryWatch(path, heard.append, announce=True)) as watch:
        assert watch.pending()
        assert list(watch.drain()) == [DirectorySeen(load_directory(path))]
        assert not watch.pending()
        path.write_text(TEXT.replace("epoch = 4", "epoch = 5"))
        os.utime(path, ns=(1, 1))
        assert list(wait(watch)) == [DirectorySeen(load_directory(path))]
        path.write_text("epoch = ?")
        os.utime(path, ns=(2, 2))
        assert list(wait(watch)) == []
        assert watch.faults == 1
        assert [line.partition(" TOML")[0] for line in heard] == [f"{path}: not valid"]
        path.write_text(TEXT.replace("epoch = 4", "epoch = 5").replace(":1", ":2"))
        os.utime(path, ns=(3, 3))
        assert list(wait(watch)) == [DirectorySeen(load_directory(path))]
        assert heard[1:] == [f"{path}: epoch: is 5; expected more than 5 for a list that counts"]


def wait(watch: DirectoryWatch) -> list[object]:
    select.select([watch], [], [], 10.0)
    return list(watch.drain())
