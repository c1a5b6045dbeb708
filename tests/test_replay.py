"""`headtail replay`: what a person is shown of a journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
import typer
from busy import busy_pair, recorders

from hil.journals import journal
from hil.pair import CLIENT, MS, Pair
from hil.replay import main, run_again
from hil.replay_lives import Life
from shared.cli import guarded
from shared.journal.file import head_of, pieces
from shared.journal.recorder import Frozen, Segment
from shared.request import Answer, Missed, Rejected, Superseded


@cache
def pair() -> Pair:
    return busy_pair()


@cache
def lives(name: str) -> dict[str, Life]:
    return {life.id: life for life in run_again(journal(recorders(pair())[name]))[1]}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(recorders(pair())["edge"].frozen(), tmp_path_factory.mktemp("journals") / "edge.journal")


def written(frozen: Frozen, path: Path) -> Path:
    head = head_of(frozen, reason="signal", saved="2026-01-02T03:04:05+00:00", headtail="0.1.0", code="", python="")
    path.write_bytes(b"".join(pieces(head, frozen)))
    return path


def ended(run: Callable[..., None]) -> int:
    """The exit status of a verb."""
    try:
        guarded(run)()
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:
        return int(str(end.code))
    return 0


# --- lives --------------------------------------------------------------------------------------------------------------


def test_every_request_has_a_life_that_ended_as_its_client_was_told() -> None:
    found = lives("edge")
    kinds = {Answer: "answer", Missed: "missed", Rejected: "rejected", Superseded: "superseded"}
    assert len(found) == 306
    for sequence, outcomes in pair().delivered.items():
        ((at, outcome),) = outcomes
        life = found[f"{CLIENT}:{sequence}"]
        assert life.end == kinds[type(outcome)]
        assert life.took_ns == at - life.began_ns
        if isinstance(outcome, Answer):
            assert life.by.startswith(outcome.node or "the device")
    assert {life.end for life in found.values()} == {*kinds.values(), "withdrawn", "open"}


def test_the_stages_of_a_life_add_up_to_what_it_took() -> None:
    for life in lives("edge").values():
        if life.took_ns is not None:
            assert sum(life.stages.values()) == life.took_ns
    for life in lives("a").values():
        if life.end == "reply":
            assert sum(life.stages.values()) == life.took_ns


def test_the_moments_of_a_life_are_in_order_and_tell_of_its_attempts_and_its_runs() -> None:
    cloud = [life for life in lives("edge").values() if life.by.startswith("b:")]
    local = [life for life in lives("edge").values() if life.by.startswith("the device:")]
    assert cloud
    assert local
    for life in (*cloud, *local):
        assert [m.at_ns for m in life.moments] == sorted(m.at_ns for m in life.moments)
        assert life.moments[0].what.startswith("arrived at the agent")
    for life in cloud:
        assert any(m.what.startswith("attempt ") and " sent on b/data: cut " in m.what for m in life.moments)
        assert any(m.what.startswith("Reply from b/data, ") for m in life.moments)
    for life in local:
        assert any(" launched on " in m.what for m in life.moments)
        assert any(" done: it began at " in m.what for m in life.moments)


def test_a_node_shows_each_attempt_with_its_edge() -> None:
    found = lives("b")
    assert {life.end for life in found.values()} >= {"reply", "refused"}
    for name, life in found.items():
        peer, incarnation, _, _ = name.split(":")
        assert (peer, incarnation) == ("edge", "1")
        assert life.moments[0].what.startswith("Infer from edge")


def test_a_request_of_a_forgotten_beginning_is_found_with_what_is_left_of_it() -> None:
    small = busy_pair(journal=240)
    summary, found = run_again(journal(recorders(small)["edge"]))
    assert summary.first > 0
    assert summary.difference is None
    assert found


# --- the verb -----------------------------------------------------------------------------------------------------------


def test_a_summary_says_what_is_in_the_journal_and_that_the_actions_are_the_same(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(lambda: main(file)) == 0
    shown = capsys.readouterr().out
    assert "edge edge (incarnation 1), headtail 0.1.0" in shown
    assert "because: signal" in shown
    assert "Arrived 306" in shown
    assert "same actions: " in shown


def test_the_list_may_be_of_those_that_were_not_on_time(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(lambda: main(file, missed=True, json=True)) == 0
    found = json.loads(capsys.readouterr().out)
    assert {life["on_time"] for life in found} == {False}
    assert {life["end"] for life in found} == {"missed", "rejected"}
    assert ended(lambda: main(file, listed=True, last=3)) == 0
    shown = capsys.readouterr().out
    assert "client:306" in shown
    assert "client:303" not in shown
    assert "3 requests" in shown


def test_one_request_is_shown_with_its_moments_and_its_stages(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = next(life.id for life in lives("edge").values() if life.by.startswith("a:"))
    assert ended(lambda: main(file, request=name)) == 0
    shown = capsys.readouterr().out
    assert "arrived at the agent" in shown
    assert "uplink" in shown
    assert "in all" in shown
    assert ended(lambda: main(file, request=name, json=True)) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=Life) == lives("edge")[name]


def test_a_request_is_found_by_the_number_that_nodes_know_it_by(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attempts = {int(name.split(":")[2]) for name in lives("b")}
    numbers = {life.number: life.id for life in lives("edge").values()}
    assert attempts <= numbers.keys()
    number = max(attempts)
    assert ended(lambda: main(file, request=str(number))) == 0
    assert f"{numbers[number]} (number {number}):" in capsys.readouterr().out


def test_a_request_that_is_not_there_is_named_and_an_example_given(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(lambda: main(file, request="nobody:1")) == 2
    assert "'nobody:1' is none of the 306" in capsys.readouterr().err


def test_what_is_no_journal_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("hello\n")
    for name, expected in (("notes", "no journal of headtail"), ("none", "No such file"), (".", "Is a directory")):
        assert ended(lambda name=name: main(tmp_path / name)) == 2
        told = capsys.readouterr().err
        assert expected in told
        assert told.count("\n") == 1


@pytest.mark.parametrize("asked", [{}, {"listed": True}, {"missed": True}, {"request": "app:1"}, {"again": True}])
@pytest.mark.parametrize("wrong", ["record", "state", "plan"])
def test_what_is_wrong_with_a_journal_only_once_it_is_run_is_told_with_its_file(
    asked: dict[str, object], wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = recorders(pair())["edge"].frozen()
    (first,) = frozen.segments
    setup = frozen.setup
    match wrong:
        case "record":
            first = Segment(first.first, first.state, [*first.records[:5], b"?", *first.records[6:]])
            expected = "step 5: a record that is none: "
        case "state":
            first = Segment(7, b"?", first.records)
            expected = "a snapshot is damaged: "
        case _:
            plans = {contract: msgspec.structs.replace(plan, programs=()) for contract, plan in setup.plans.items()}
            setup = msgspec.structs.replace(setup, plans=plans)
            expected = "no edge can be built from its settings and plans: "
    path = written(msgspec.structs.replace(frozen, setup=setup, segments=(first,)), tmp_path / "edge.journal")
    assert ended(lambda: main(path, **asked)) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"headtail: {path}: {expected}")
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_difference_is_status_one_and_names_its_step(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.broker.MS", 2 * MS)
    assert ended(lambda: main(file)) == 1
    shown = capsys.readouterr().out
    assert "NOT THE SAME: step " in shown
    assert ended(lambda: main(file, listed=True)) == 1
    assert "the replay ended early: step " in capsys.readouterr().err
    assert ended(lambda: main(file, again=True)) == 0
    assert "then it went another way: step " in capsys.readouterr().out
