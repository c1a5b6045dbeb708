"""Journals as tests: the machines of today keep their promise with the events of then.

Every file `tests/journals/*.journal` is a test. That a machine which does not keep it is found out is tested below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from busy import busy_pair, recorders

from cloud.session import Session
from edge.broker import Broker
from hil.journals import journal, load
from hil.pair import MS
from hil.rerun import rerun
from shared.errors import InvariantBroken
from shared.events import Action, Event, LinkDown, Resolve, Send, WakeAt
from shared.journal.file import Journal
from shared.journal.replay import verify
from shared.wire.messages import Reply

FOLDER = Path(__file__).parent / "journals"
FILES = sorted(FOLDER.glob("*.journal"))

Handle = Callable[[Event, int], list[Action]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_machines_of_today_keep_their_promise_in_a_journal(path: Path) -> None:
    assert rerun(load(path)).faults == ()


def test_there_are_journals_of_both_kinds() -> None:
    assert {load(path).head.kind for path in FILES} == {"edge", "node"}


@cache
def busy(name: str) -> Journal:
    return journal(recorders(busy_pair())[name])


@pytest.mark.parametrize("name", ["edge", "a", "b"])
def test_an_unchanged_machine_takes_every_step_as_then_and_has_no_fault(name: str) -> None:
    found = rerun(busy(name))
    assert (found.faults, found.parted) == ((), None)
    assert found.steps == sum(1 for _ in busy(name).records)
    assert found.on_time > 0


def test_what_was_asked_before_a_forgotten_beginning_may_be_answered() -> None:
    for recorder in recorders(busy_pair(journal=200)).values():
        assert rerun(journal(recorder)).faults == ()


def spoil(monkeypatch: pytest.MonkeyPatch, kind: type, change: Callable[[list[Action]], list[Action]]) -> None:
    """Let a machine of this class do something else than it decides."""
    handle = kind.handle
    monkeypatch.setattr(kind, "handle", lambda self, event, now: change(handle(self, event, now)))


def test_a_machine_that_decides_otherwise_and_keeps_its_promise_has_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    then = busy("edge")
    monkeypatch.setattr("edge.broker.MS", 2 * MS)
    found = rerun(then)
    assert found.parted is not None
    assert found.faults == ()


def test_a_machine_that_forgets_an_outcome_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter(range(1 << 30))

    def forget(actions: list[Action]) -> list[Action]:
        return [a for a in actions if not isinstance(a, Resolve) or next(outcomes) % 50 != 9]

    spoil(monkeypatch, Broker, forget)
    faults = rerun(busy("edge")).faults
    assert faults
    assert all(fault.endswith("has no outcome after its deadline") for fault in faults)


def test_a_machine_that_gives_an_outcome_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, Broker, lambda actions: [*actions, *(a for a in actions if isinstance(a, Resolve))])
    assert any("has an outcome and is not open" in fault for fault in rerun(busy("edge")).faults)


def test_a_machine_that_asks_to_be_woken_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def later(actions: list[Action]) -> list[Action]:
        return [WakeAt(a.at_ns + 5 * MS) if isinstance(a, WakeAt) else a for a in actions]

    spoil(monkeypatch, Broker, later)
    assert any(" ms after its deadline" in fault for fault in rerun(busy("edge")).faults)


def test_a_machine_whose_books_disagree_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(machine: Broker) -> None:
        raise InvariantBroken("two books disagree")

    monkeypatch.setattr(Broker, "validate", wrong)
    assert rerun(busy("edge")).faults == ("step 0: InvariantBroken: two books disagree",)


def test_a_node_that_answers_an_attempt_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(actions: list[Action]) -> list[Action]:
        replies = [a for a in actions if isinstance(a, Send) and isinstance(a.message, Reply)]
        return [*actions, *replies]

    spoil(monkeypatch, Session, twice)
    assert any("is answered and was not asked, or is over" in fault for fault in rerun(busy("b")).faults)


def test_the_journal_of_a_machine_that_raised_fails_until_that_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        handle = Broker.handle

        def raises(machine: Broker, event: Event, now: int) -> list[Action]:
            if isinstance(event, LinkDown):
                raise InvariantBroken("nobody thought of a node that dies")
            return handle(machine, event, now)

        broken.setattr(Broker, "handle", raises)
        pair = busy_pair(requests=0)
        with pytest.raises(InvariantBroken):
            pair.kill("a")
        failure = journal(recorders(pair)["edge"])
        assert verify(failure) is None
        (fault,) = rerun(failure).faults
        assert fault.endswith(": InvariantBroken: nobody thought of a node that dies")
    mended = rerun(failure)
    assert mended.parted is not None
    assert mended.faults == ()
