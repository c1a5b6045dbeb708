"""What a running agent's requests weighed, told from its journal."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from pathlib import Path

import msgspec
import pytest
from plans import INT8_ROUTE, RAW_ROUTE, make_input, make_plan
from test_pair import TWO

from hil.explain_cli import main, show
from hil.explain_live import LiveTold, explained, journal_of
from hil.explain_why import WayTold
from hil.journals import journal
from hil.pair import MS, Pair
from partitioner.terminal import PlainConsole
from shared.errors import InputError, UserError
from shared.journal.file import head_of, pieces
from shared.request import Answer
from shared.settings import EdgeSettings


def told(pair: Pair, last: int = 5, wanted: str = "") -> LiveTold:
    assert pair.edge.recorder is not None
    return explained(journal(pair.edge.recorder), last, wanted)


def pair_of_two_routes() -> Pair:
    contract, plan = make_plan(edge_ms=(6.0, 1.5), routes=(RAW_ROUTE, INT8_ROUTE))
    pair = Pair({contract: plan}, EdgeSettings(nodes=TWO), journal=10_000)
    pair.run(50)
    return pair


def taken(ways: tuple[WayTold, ...]) -> list[WayTold]:
    return [way for way in ways if way.taken]


def test_each_way_is_told_with_its_prediction_and_the_one_that_was_taken_is_the_one_that_was_sent() -> None:
    pair = pair_of_two_routes()
    sequence = 0
    for _ in range(8):
        sequence = pair.ask(make_input())
        pair.run(40)
    found = told(pair)
    assert found.difference is None
    assert len(found.requests) == 5
    last = found.requests[-1]
    outcome = pair.answer(sequence)
    assert isinstance(outcome, Answer)
    assert outcome.source == "cloud"
    (choice,) = last.choices
    assert len(choice.ways) == 4, "two routes at two nodes"
    (way,) = taken(choice.ways)
    assert (way.cut, way.node) == (outcome.cut, outcome.node)
    assert way.chance > 0.5
    assert 0 < way.typical_ms <= way.p95_ms
    assert way.typical_ms == pytest.approx(way.head_ms + way.network_ms + way.node_ms)
    assert all(way.why for way in choice.ways)


def test_what_is_told_of_a_saved_journal_is_what_the_broker_chose_then() -> None:
    """The watcher sees the choices of the machine itself, run again: the same as one that looked on live."""
    pair = pair_of_two_routes()
    seen: list[tuple[int, str | None]] = []
    pair.broker.watch(lambda one: seen.append((one.number, one.found.node.name if one.found else None)))
    pair.edge.recorder = None
    live = pair_of_two_routes()
    for each in (pair, live):
        for _ in range(6):
            each.ask(make_input())
            each.run(40)
    replayed = [
        (request.number, next((w.node for w in choice.ways if w.taken), None))
        for request in told(live, last=100).requests
        for choice in request.choices
    ]
    assert replayed == seen


def test_a_second_choice_after_a_node_died_is_told_with_the_request() -> None:
    pair = pair_of_two_routes()
    first = pair.ask(make_input(), 30.0)
    pair.run(0.5)
    (busy,) = [name for name, node in pair.broker.nodes.by_name.items() if node.out]
    pair.kill(busy)
    pair.run(40)
    (request,) = told(pair).requests
    assert pair.answer(first).node not in (None, busy)
    assert taken(request.choices[0].ways)[0].node == busy
    assert len(request.choices) == 2
    assert {way.node for way in request.choices[1].ways} == {name for name in ("a", "b") if name != busy}


def test_where_no_node_could_be_asked_that_is_said() -> None:
    pair = pair_of_two_routes()
    for name in ("a", "b"):
        pair.kill(name)
    pair.ask(make_input())
    pair.run(40)
    (request,) = told(pair).requests
    assert request.choices == ()
    assert request.without == "no node could be asked: a is down, b is down"


def test_hopeless_ways_are_told_as_such() -> None:
    pair = pair_of_two_routes()
    for way in pair.ways.values():
        way.one_way_ns = 40 * MS
    pair.run(2000)
    pair.ask(make_input())
    pair.run(200)
    (choice,) = told(pair).requests[-1].choices
    assert {way.chance < 0.1 for way in choice.ways} == {True}
    assert all("less likely than" in way.why or "learn" in way.why for way in choice.ways)


def test_one_request_is_found_by_its_name_or_number_and_a_wrong_one_is_refused() -> None:
    pair = pair_of_two_routes()
    for _ in range(3):
        pair.ask(make_input())
        pair.run(40)
    assert [r.id for r in told(pair, wanted="client:2").requests] == ["client:2"]
    assert told(pair, wanted="client:2") == told(pair, wanted=str(told(pair, wanted="client:2").requests[0].number))
    with pytest.raises(InputError, match="--request: 'client:9' is none of the 3"):
        told(pair, wanted="client:9")


def test_it_is_printed_as_a_table_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = pair_of_two_routes()
    for _ in range(3):
        pair.ask(make_input())
        pair.run(40)
    console = PlainConsole(width=150)
    console.file = io.StringIO()
    show(console, told(pair))
    text = console.file.getvalue()
    assert "chance" in text
    assert re.search(r"> 0/raw at [ab]", text)
    assert "client:3" in text
    narrow = PlainConsole(width=80)
    narrow.file = io.StringIO()
    show(narrow, told(pair))
    lines = narrow.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("> 0/raw at ") for line in lines), "a way's name is not broken within a word"
    file = tmp_path / "edge.journal"
    assert pair.edge.recorder is not None
    frozen = pair.edge.recorder.frozen()
    head = head_of(frozen, reason="asked", saved="now", headtail="1", code="", python="")
    file.write_bytes(b"".join(pieces(head, frozen)))
    main(live=file, as_json=True)
    assert msgspec.json.decode(capsys.readouterr().out, type=LiveTold).requests == told(pair).requests


def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="PLAN: expected a bundle"):
        main()
    with pytest.raises(InputError, match="--link: expected none beside --live"):
        main(live=tmp_path / "x.journal", link="1mbit,1ms")
    with pytest.raises(InputError, match="only with --live"):
        main(plan=tmp_path, last=3)
    config = tmp_path / "edge.toml"
    config.write_text(f'[agent]\nendpoint = "ipc://{tmp_path}/agent"\n')
    with pytest.raises(UserError, match=f"no agent runs at ipc://{tmp_path}/agent"):
        journal_of(config)
    config.write_text(f'[agent]\nendpoint = "ipc://{tmp_path}/agent"\n[journal]\nevents = 0\n')
    with pytest.raises(UserError, match="keeps no journal"):
        journal_of(config)


def test_an_agent_that_runs_is_asked_for_its_journal_by_signal(tmp_path: Path) -> None:
    """This process stands for the agent: the lock of its endpoint names it."""
    config = tmp_path / "edge.toml"
    config.write_text(f'[agent]\nname = "car"\nendpoint = "ipc://{tmp_path}/agent"\n[journal]\nfolder = "{tmp_path}"\n')
    (tmp_path / "agent.lock").write_text(f"{os.getpid()}\n")
    (tmp_path / "edge-car-20200101T000000.000000Z-signal.journal").write_text("an old one")
    new = tmp_path / "edge-car-20300101T000000.000000Z-signal.journal"
    came = threading.Event()

    def save(number: int, frame: object) -> None:
        new.write_text("the new one")
        came.set()

    before = signal.signal(signal.SIGUSR1, save)
    try:
        assert journal_of(config) == new
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came.is_set()
