"""When a process saves its journal, where, and what it says of it."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import msgspec
import numpy as np
import pytest
from plans import make_input, make_plan

from edge.journal import EDGE, build_broker, edge_setup
from hil.journals import load
from hil.pair import CLIENT, MS
from shared.errors import InvariantBroken, JournalError
from shared.events import Action, Arrived, ClientGone, Event, Finished, Resolve, Send, Tick, Withdrawn
from shared.journal.keeper import Keeper
from shared.journal.replay import Replay, verify
from shared.journal.share import OnTimeShare
from shared.request import EXACT, Answer, Missed, Outcome, Rejected, Request, Superseded
from shared.settings import EdgeSettings, Journal
from shared.settings_file import load_cloud, load_edge
from shared.wire.messages import Load, Refusal, Reply

PATIENCE_S = 30.0


class Kept(Keeper):
    """A keeper that tells a test what it says."""

    def __init__(self, settings: Journal, *, own_process: bool = True, name: str = "edge") -> None:
        self.said: Queue[str] = Queue()
        contract, plan = make_plan()
        whole = EdgeSettings(journal=settings)
        setup = edge_setup(
            msgspec.structs.replace(whole, agent=msgspec.structs.replace(whole.agent, name=name)),
            {contract: plan},
            1,
            0,
        )
        self.contract = contract
        super().__init__(build_broker(setup), EDGE, setup, settings, own_process=own_process)

    def _tell(self, line: str) -> None:
        self.said.put(line)

    def saved(self) -> Path:
        """Wait for the next file."""
        line = self.said.get(timeout=PATIENCE_S)
        assert line.startswith("journal saved, since "), line
        return Path(line.partition(": ")[2].partition(" (")[0])


@pytest.fixture
def keep() -> Iterator[Callable[..., Kept]]:
    made: list[Kept] = []

    def make(*args: object, **kwargs: object) -> Kept:
        made.append(Kept(*args, **kwargs))
        return made[-1]

    yield make
    for keeper in made:
        keeper.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tick(keeper: Keeper, steps: int = 10) -> None:
    for number in range(steps):
        keeper.machine.handle(Tick(number), number * MS)


def rest(keeper: Keeper) -> None:
    assert keeper.idle is not None
    keeper.idle(0)


def miss(keeper: Kept, first: int, count: int) -> None:
    """Requests that come too late to be answered."""
    for sequence in range(first, first + count):
        request = Request(CLIENT, sequence, keeper.contract, make_input(), 1, 0, 20 * MS)
        keeper.machine.handle(Arrived(request), 1 * MS)
        keeper.machine.handle(Tick(0), 30 * MS)


def test_a_journal_is_saved_where_it_is_asked_for_and_replays(keep: Callable[..., Kept], tmp_path: Path) -> None:
    keeper = keep(Journal())
    tick(keeper)
    path = tmp_path / "new" / "mine.journal"
    path.parent.mkdir()
    path.write_text("something else")
    assert keeper.save(path) == 10
    found = load(path)
    assert (found.head.reason, found.head.name, found.head.kind) == ("asked", "edge", "edge")
    assert verify(found) is None
    assert names(path.parent) == ["mine.journal"]


def test_a_journal_that_cannot_be_written_says_where_and_why_and_leaves_nothing(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    keeper = keep(Journal())
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"file/x\.journal: cannot be written: File exists"):
        keeper.save(tmp_path / "file" / "x.journal")
    (tmp_path / "folder").mkdir()
    with pytest.raises(JournalError, match="folder: cannot be written: Is a directory"):
        keeper.save(tmp_path / "folder")
    assert names(tmp_path) == ["file", "folder"]


def test_without_a_ring_nothing_is_recorded_and_saving_says_so(keep: Callable[..., Kept], tmp_path: Path) -> None:
    keeper = keep(Journal(events=0))
    tick(keeper)
    assert keeper.idle is None
    with pytest.raises(JournalError, match=r"journal\.events is 0"):
        keeper.save(tmp_path / "x.journal")
    keeper.ask("signal")
    assert "journal.events is 0" in keeper.said.get(timeout=PATIENCE_S)


def test_a_signal_saves_into_the_folder_and_says_where(keep: Callable[..., Kept], tmp_path: Path) -> None:
    keeper = keep(Journal(folder=str(tmp_path / "journals")), name="car 7/a")
    tick(keeper)
    keeper.ask("signal")
    path = keeper.saved()
    assert path.parent == tmp_path / "journals"
    assert path.name.startswith("edge-car_7_a-")
    assert path.name.endswith("-signal.journal")
    assert load(path).head.reason == "signal"


def test_without_a_folder_a_signal_saves_among_the_temporary_files(
    keep: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keeper = keep(Journal())
    tick(keeper)
    keeper.ask("signal")
    assert keeper.saved().parent == tmp_path


def test_only_the_newest_files_of_its_own_are_kept(keep: Callable[..., Kept], tmp_path: Path) -> None:
    others = {"edge-edge-notes.journal", "edge-edge-2-20260101T000000.000000Z-signal.journal", "mine.journal"}
    for name in others:
        (tmp_path / name).write_text("")
    (tmp_path / "edge-edge-20200101T000000.000000Z-share.journal").write_text("old")
    keeper = keep(Journal(folder=str(tmp_path), keep_files=2))
    tick(keeper)
    saved = []
    for _ in range(4):
        keeper.ask("signal")
        saved.append(keeper.saved().name)
    assert set(names(tmp_path)) == others | set(saved[-2:])


def test_when_too_few_requests_are_on_time_the_journal_is_saved_once_in_a_while(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    keeper = keep(Journal(folder=str(tmp_path), save_window=10, save_pause_s=3600.0))
    miss(keeper, 1, 40)
    rest(keeper)
    path = keeper.saved()
    assert load(path).head.reason == "share"
    assert verify(load(path)) is None
    miss(keeper, 100, 40)
    rest(keeper)
    keeper.ask("signal")
    assert keeper.saved().name.endswith("-signal.journal")
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize(
    "settings", [Journal(save_window=10), Journal(save_window=10, folder="FOLDER", save_below=0.0)]
)
def test_without_a_folder_or_a_share_nothing_is_saved_when_requests_are_late(
    keep: Callable[..., Kept], settings: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keeper = keep(msgspec.structs.replace(settings, folder=settings.folder and str(tmp_path)))
    miss(keeper, 1, 100)
    rest(keeper)
    keeper.ask("signal")
    assert keeper.saved().name.endswith("-signal.journal")
    assert len(names(tmp_path)) == 1


def test_when_the_machine_breaks_a_rule_the_error_says_where_its_journal_is(
    keep: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keeper = keep(Journal(), own_process=False)
    tick(keeper)
    with pytest.raises(InvariantBroken, match="none such is out") as broken:
        keeper.machine.handle(Finished(7, (), 1, 2), 1_000 * MS)
    (note,) = broken.value.__notes__
    (path,) = tmp_path.iterdir()
    assert note == f"the journal of what led here: {path} (11 steps); headtail replay shows it"
    found = load(path)
    assert found.head.reason == "raised"
    assert verify(found) is None
    assert list(Replay(found).steps())[-1].raised.startswith("InvariantBroken: run 7 ended")


def test_an_error_leaves_the_machine_although_its_journal_cannot_be_saved(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    keeper = keep(Journal(folder=str(tmp_path / "file")))
    with pytest.raises(InvariantBroken, match="none such is out") as broken:
        keeper.machine.handle(Finished(7, (), 1, 2), 1_000 * MS)
    (note,) = broken.value.__notes__
    assert note.startswith("the journal of what led here was not saved: ")


def test_in_an_applications_process_a_save_that_fails_is_a_warning(keep: Callable[..., Kept], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        keeper = keep(Journal(folder=str(tmp_path / "file"), save_window=10), own_process=False)
        miss(keeper, 1, 20)
        rest(keeper)
        assert "was not saved" in keeper.said.get(timeout=PATIENCE_S)
        keeper.close()
    assert any("the journal was not saved" in str(warning.message) for warning in seen)


def test_closing_ends_the_thread_and_may_come_twice(keep: Callable[..., Kept], tmp_path: Path) -> None:
    keeper = keep(Journal(folder=str(tmp_path)))
    tick(keeper, 100)
    keeper.ask("signal")
    keeper.close()
    keeper.close()
    assert load(keeper.saved()).head.reason == "signal"
    assert keeper._thread is not None
    assert not keeper._thread.is_alive()


def test_a_process_says_when_its_journal_records_no_more_and_what_is_there_can_be_saved(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    keeper = keep(Journal())
    tick(keeper)
    keeper.machine.handle(Withdrawn("\ud800", 1), 1_000 * MS)
    rest(keeper)
    assert keeper.said.get(timeout=PATIENCE_S).startswith("the journal records no more: a step cannot be written: ")
    assert keeper.save(tmp_path / "x.journal") == 10
    assert load(tmp_path / "x.journal").head.stopped.startswith("a step cannot be written: ")


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "/", ""])
def test_a_name_that_no_file_can_have_is_one_clear_error(keep: Callable[..., Kept], name: str) -> None:
    keeper = keep(Journal())
    tick(keeper)
    with pytest.raises(JournalError, match=r"cannot be written: no file can be called that: "):
        keeper.save(Path(name))


def no_temporary_folder() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")


def test_a_journal_that_finds_no_folder_says_so_and_the_next_one_is_saved(
    keep: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keep(Journal())
    tick(keeper)
    monkeypatch.setattr(tempfile, "gettempdir", no_temporary_folder)
    keeper.ask("signal")
    said = keeper.said.get(timeout=PATIENCE_S)
    assert said.startswith("the journal was not saved: no folder for temporary files: No usable temporary directory")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    keeper.ask("signal")
    assert keeper.saved().parent == tmp_path


def unforeseen(*parts: object) -> object:
    raise KeyError("unforeseen")


def test_whatever_a_save_that_nobody_waits_for_meets_is_told_and_the_next_one_is_saved(
    keep: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keep(Journal(folder=str(tmp_path)))
    tick(keeper)
    with monkeypatch.context() as broken:
        broken.setattr("shared.journal.keeper.pieces", unforeseen)
        keeper.ask("signal")
        assert keeper.said.get(timeout=PATIENCE_S).startswith("the journal was not saved: KeyError: ")
    keeper.ask("signal")
    assert keeper.saved().parent == tmp_path
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("folder", ["", "\0x", "/dev/null/x"])
def test_the_machines_own_error_leaves_the_loop_whatever_becomes_of_its_journal(
    keep: Callable[..., Kept], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", no_temporary_folder)
    keeper = keep(Journal(folder=folder), own_process=False)
    with pytest.raises(InvariantBroken, match="none such is out") as broken:
        keeper.machine.handle(Finished(7, (), 1, 2), 1_000 * MS)
    (note,) = broken.value.__notes__
    assert note.startswith("the journal of what led here was not saved: ")


def test_the_journal_of_what_led_to_an_error_is_saved_up_to_a_step_that_cannot_be_written(
    keep: Callable[..., Kept], tmp_path: Path
) -> None:
    keeper = keep(Journal(folder=str(tmp_path)), own_process=False)
    tick(keeper)
    keeper.machine.handle(STRANGE, 500 * MS)
    with pytest.raises(InvariantBroken, match="none such is out"):
        keeper.machine.handle(Finished(7, (), 1, 2), 1_000 * MS)
    (path,) = tmp_path.iterdir()
    assert len(list(load(path).records)) == 10
    assert "a journal cannot hold a str_" in load(path).head.stopped


STRANGE = Withdrawn(np.str_("app"), 1)
"""A step that cannot be recorded."""


class Closed:
    """A stderr that takes nothing."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("stderr", [None, Closed()])
@pytest.mark.parametrize("own_process", [True, False])
def test_a_loop_whose_journal_gives_up_goes_on_although_it_can_tell_nobody(
    stderr: object, own_process: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, plan = make_plan()
    settings = EdgeSettings(journal=Journal(folder=str(tmp_path)))
    setup = edge_setup(settings, {contract: plan}, 1, 0)
    keeper = Keeper(build_broker(setup), EDGE, setup, settings.journal, own_process=own_process)
    with warnings.catch_warnings(), monkeypatch.context() as quiet:
        warnings.simplefilter("error")
        quiet.setattr(sys, "stderr", stderr)
        keeper.machine.handle(STRANGE, 0)
        rest(keeper)
        assert keeper.machine.handle(Tick(0), 1 * MS) == []
        keeper.ask("signal")
        keeper.ask("signal")
        keeper.close()
    assert len(names(tmp_path)) == 2


def test_source_that_is_gone_keeps_no_journal_from_being_saved(
    keep: Callable[..., Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = keep(Journal())
    tick(keeper)
    monkeypatch.setattr("edge.broker.__file__", str(tmp_path / "gone.py"))
    assert keeper.save(tmp_path / "x.journal") == 10
    assert load(tmp_path / "x.journal").head.code == ""


def test_the_folder_of_a_file_of_settings_is_beside_that_file(tmp_path: Path) -> None:
    (tmp_path / "edge.toml").write_text('[journal]\nfolder = "journals"\n')
    (tmp_path / "cloud.toml").write_text('[journal]\nfolder = "/var/journals"\n')
    assert load_edge(tmp_path / "edge.toml").journal.folder == str(tmp_path / "journals")
    assert load_cloud(tmp_path / "cloud.toml").journal.folder == "/var/journals"


# --- the share ----------------------------------------------------------------------------------------------------------


class Share:
    """A share of ten requests, and how often it has fallen below one half."""

    def __init__(self) -> None:
        self.fallen = 0
        self.share = OnTimeShare(0.5, 10, self._fall)

    def _fall(self) -> None:
        self.fallen += 1

    def end(self, sequence: int, outcome: Outcome, *, at_ms: int = 5) -> None:
        inputs = make_input()
        self.share.look(0, Arrived(Request("c", sequence, "p", inputs, 1, 0, 10 * MS)), [])
        self.share.look(at_ms * MS, Tick(), [Resolve("c", sequence, outcome)])


ANSWER = Answer({}, "edge", None, "whole", None, EXACT, "p")


@pytest.mark.parametrize(
    ("outcome", "at_ms", "counts"),
    [
        (Missed("uplink"), 5, True),
        (Rejected("overload"), 5, True),
        (Rejected("no-route"), 5, True),
        (ANSWER, 11, True),
        (ANSWER, 10, False),
        (Rejected("input"), 5, False),
        (Superseded(), 5, False),
    ],
)
def test_the_share_falls_by_what_was_not_on_time_and_by_nothing_else(
    outcome: Outcome, at_ms: int, counts: bool
) -> None:
    share = Share()
    for sequence in range(5):
        share.end(sequence, ANSWER)
    for sequence in range(5, 11):
        share.end(sequence, outcome, at_ms=at_ms)
    assert share.fallen == counts


def test_a_share_of_exactly_the_limit_is_enough_and_one_less_is_not() -> None:
    share = Share()
    for sequence in range(10):
        share.end(sequence, ANSWER if sequence % 2 else Missed("rung"))
    assert share.fallen == 0
    share.end(11, Missed("rung"))
    share.end(12, Missed("rung"))
    assert share.fallen == 1


def test_the_share_is_told_again_only_after_as_many_requests_again() -> None:
    share = Share()
    for sequence in range(29):
        share.end(sequence, Missed("rung"))
    assert share.fallen == 2


def test_a_request_that_its_client_gave_up_after_its_deadline_counts_and_one_before_does_not() -> None:
    for at_ms, fallen in ((11, 1), (9, 0)):
        share = Share()
        for sequence in range(10):
            share.share.look(0, Arrived(Request("c", sequence, "p", make_input(), 1, 0, 10 * MS)), [])
            share.share.look(at_ms * MS, Withdrawn("c", sequence), [])
        assert share.fallen == fallen


def test_requests_of_a_client_that_left_are_forgotten() -> None:
    share = Share()
    for sequence in range(10):
        share.share.look(0, Arrived(Request("c", sequence, "p", make_input(), 1, 0, 10 * MS)), [])
    share.share.look(1, ClientGone("c"), [])
    assert share.share._due == {}


def test_on_a_node_replies_count_against_refusals_for_want_of_time() -> None:
    reply = Reply(1, 1, 1, "c", 0, "raw", 1, (), {}, 0, Load(0, 1))

    def fallen(reason: str) -> int:
        share = Share()
        refusal = Refusal(1, 1, 1, reason, "", 0, Load(0, 1))
        messages = [reply, reply, reply, reply, *([refusal] * 6)]
        event: Event = Tick()
        for message in messages:
            actions: list[Action] = [Send("peer", message)]
            share.share.look(0, event, actions)
        return share.fallen

    assert fallen("expired") == fallen("overload") == fallen("failed") == fallen("credit") == 1
    assert fallen("cancelled") == fallen("duplicate") == fallen("contract") == 0
