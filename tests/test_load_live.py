"""The load generator at work: on targets that do as they are told, on a node and an agent, and from the command line. No time
is asserted, only what was sent and what came of it."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edge.client import Client
from hil.load import play as playing
from hil.load.agent_target import AgentTarget
from hil.load.figures import figures_of
from hil.load.node_target import NodeTarget
from hil.load.opening import coding_of, frames_of, golden_inputs, made_inputs
from hil.load.play import play
from hil.load.report import read_report
from hil.load.rows import REJECTED, Recorder
from hil.load.source import Source, schedule
from hil.own_node import OwnNode
from hil.small_plans import write_small
from hil.timed_device import Device
from hil.timed_node import timed_settings, write_timed
from shared import cli
from shared.bundle import Bundle, load_bundle
from shared.errors import HeadtailError, UserError
from shared.events import Received, Send
from shared.plan import RAW
from shared.settings import AgentGroup, EdgeSettings
from shared.transport import Router
from shared.wire.codec import decode_edge
from shared.wire.messages import Bye, Hello, Infer, Load, Refusal, Welcome

ENDED = 0.2


class Obedient:
    """A target that answers, refuses or keeps silent as `word` says, when it is asked next. With `rings` its descriptor alone
    shows that it has answered."""

    def __init__(self, word: str = "answer", *, rings: bool = False) -> None:
        self.word = word
        self.rings = rings
        self.unsent = 0
        self.most_room = 100
        self.most_open = 0
        self._waiting: deque[int] = deque()
        self._recorder = Recorder()
        self._pipe = os.pipe()

    def fileno(self) -> int:
        return self._pipe[0]

    def pending(self) -> bool:
        return self.word != "silence" and not self.rings and bool(self._waiting)

    def room(self) -> int:
        return self.most_room - len(self._waiting)

    def send(self, place: int, scheduled_ns: int, due_ns: int, now: int) -> None:
        assert scheduled_ns <= now
        self._waiting.append(place)
        if self.rings:
            os.write(self._pipe[1], b".")
        self.most_open = max(self.most_open, len(self._waiting))

    def take(self) -> list[int]:
        if self.word == "silence":
            return []
        ended, self._waiting = list(self._waiting), deque()
        if self.rings and ended:
            os.read(self._pipe[0], len(ended))
        for place in ended:
            if self.word == "answer":
                self._recorder.answered(place, {}, time.monotonic_ns())
            else:
                self._recorder.refused(place, REJECTED, "overload", time.monotonic_ns())
        return ended

    def lead_to(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def close(self) -> None:
        for end in self._pipe:
            os.close(end)


def test_an_open_loop_sends_all_that_is_scheduled_to_whom_it_is_for() -> None:
    sources = [Source(rate_per_s=300.0), Source(rate_per_s=900.0, process="periodic")]
    with closing(Obedient()) as first, closing(Obedient("refuse")) as second:
        played = play([first, second], sources, ENDED, 5)
    planned = schedule(sources, ENDED, 5)
    assert (played.rows.scheduled_ns - played.began_ns).tolist() == planned.at_ns
    assert played.rows.source.tolist() == planned.source
    assert (played.rows.sent_ns >= played.rows.scheduled_ns).all()
    assert figures_of(played.rows.of(1), ENDED).rejected_by == {"overload": planned.source.count(1)}
    assert figures_of(played.rows.of(0), ENDED).kinds["rejected"] == 0


def test_a_closed_loop_keeps_so_many_requests_open_and_no_more() -> None:
    with closing(Obedient()) as target:
        played = play([target], [Source(in_flight=3)], ENDED, 1)
    assert target.most_open == 3
    assert len(played.rows) > 3
    assert (played.rows.scheduled_ns == played.rows.sent_ns).all()


def test_the_next_request_of_a_closed_loop_waits_for_nothing_but_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "CHECK_NS", 10**12)
    with closing(Obedient(rings=True)) as target:
        played = play([target], [Source(in_flight=1)], ENDED, 1)
    assert len(played.rows) > 2


def test_a_closed_loop_sends_no_more_than_its_target_has_room_for() -> None:
    with closing(Obedient()) as target:
        target.most_room = 2
        play([target], [Source(in_flight=7)], ENDED, 1)
    assert target.most_open == 2


def test_requests_of_which_nobody_says_a_word_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "GRACE_NS", 1_000_000)
    with closing(Obedient("silence")) as target:
        played = play([target], [Source(in_flight=2, deadline_ms=1.0)], ENDED, 1)
    found = figures_of(played.rows, ENDED)
    assert found.kinds["silent"] == found.requests == found.overdue >= 2


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("load")
    return load_bundle(write_timed(folder, Device("timed", 0.2, 0.3, 8), 0))


def test_a_node_is_loaded_as_an_edge_would_and_says_itself_what_it_ran(bundle: Bundle) -> None:
    raw = coding_of(bundle.plan, None)
    assert raw.name == "raw"
    with OwnNode(bundle.path, 1, timed_settings([bundle.path], "tcp://127.0.0.1:7711")) as node:
        endpoint = node.endpoint()
        with closing(NodeTarget(endpoint, bundle.contract, bundle.plan, "raw", frames_of(bundle, raw), 1)) as target:
            played = play([target], [Source(rate_per_s=100.0, deadline_ms=5_000.0)], ENDED, 1)
            closed = play([target], [Source(in_flight=4, deadline_ms=5_000.0)], ENDED, 1)
        with pytest.raises(HeadtailError, match="does not serve"):
            NodeTarget(endpoint, "0" * 64, bundle.plan, "raw", frames_of(bundle, raw), 1)
        with (
            closing(NodeTarget(endpoint, bundle.contract, bundle.plan, "raw", frames_of(bundle, raw), 9)) as target,
            pytest.raises(UserError, match="none of these requests: priority 9, expected 0 to 2"),
        ):
            play([target], [Source(in_flight=1, deadline_ms=5_000.0)], ENDED, 1)
        stats = node.end()
    for rows in (played.rows, closed.rows):
        found = figures_of(rows, ENDED)
        assert found.on_time == found.requests > 0
        assert found.doubled == found.overdue == 0
    assert sum(each.rows * each.count for each in stats.launches) == len(played.rows) + len(closed.rows)


def test_a_node_that_forgets_its_edge_is_greeted_again_and_what_it_was_asked_is_missed(bundle: Bundle) -> None:
    node = Router("tcp://127.0.0.1:*", decode_edge)
    poll = select.poll()
    poll.register(node.fileno(), select.POLLIN)
    forgotten = 0

    def serve() -> None:
        nonlocal forgotten
        while forgotten >= 0:
            poll.poll(20)
            for event in node.drain():
                if not isinstance(event, Received):
                    continue
                if isinstance(event.message, Hello):
                    node.send(Send(event.link, Welcome(1, "n", 1, (bundle.contract,), 4)))
                elif isinstance(event.message, Infer) and not forgotten:
                    forgotten = 1
                    node.send(Send(event.link, Bye("hello")))
                elif isinstance(event.message, Infer):
                    detail, load = "0.4 ms too late to begin", Load(0, 4)
                    sequence = event.message.sequence
                    refusal = Refusal(event.message.incarnation, sequence, 0, "expired", detail, 1, load)
                    node.send(Send(event.link, refusal))

    thread = threading.Thread(target=serve)
    thread.start()
    frames = frames_of(bundle, RAW)
    with closing(NodeTarget(node.endpoint, bundle.contract, bundle.plan, "raw", frames, 1)) as target:
        played = play([target], [Source(in_flight=1, deadline_ms=5_000.0)], 0.5, 1)
    forgotten = -1
    thread.join()
    node.close()
    found = figures_of(played.rows, ENDED)
    assert found.missed_by == {"forgotten": 1}
    assert found.rejected_by == {"expired-at-launch": found.requests - 1}
    assert found.requests > 1


def test_an_agent_is_loaded_through_its_client(tmp_path: Path) -> None:
    loaded = load_bundle(write_small(tmp_path, "small", rungs=("whole", "small"), routes=()))
    settings = EdgeSettings(agent=AgentGroup(models=(str(loaded.path),)))
    inputs = golden_inputs(loaded)
    with closing(AgentTarget(Client.embedded(settings), None, inputs, 1)) as target:
        played = play([target], [Source(rate_per_s=100.0, deadline_ms=5_000.0)], ENDED, 1)
        closed = play([target], [Source(in_flight=2, deadline_ms=5_000.0)], ENDED, 1)
        late = play([target], [Source(rate_per_s=50.0, deadline_ms=1e-5)], ENDED, 1)
    with (
        closing(AgentTarget(Client.embedded(settings), None, inputs, 9)) as target,
        pytest.raises(UserError, match="none of these requests: priority"),
    ):
        play([target], [Source(in_flight=1, deadline_ms=5_000.0)], ENDED, 1)
    for rows in (played.rows, closed.rows):
        found = figures_of(rows, ENDED)
        assert found.on_time == found.requests > 0
    assert figures_of(late.rows, ENDED).on_time == 0
    assert figures_of(late.rows, ENDED).kinds["silent"] == 0


def test_inputs_are_made_where_no_bundle_gives_them(tmp_path: Path) -> None:
    loaded = load_bundle(write_small(tmp_path, "small", rungs=("small",), routes=()))
    settings = EdgeSettings(agent=AgentGroup(models=(str(loaded.path),)))
    with Client.embedded(settings) as client:
        (info,) = client.models().values()
        made = made_inputs(info, 1)
        assert {name: (a.dtype, a.shape) for name, a in made[0].items()} == {
            spec.name: (spec.dtype, spec.shape) for spec in loaded.plan.inputs
        }
        assert client.infer(made[0], 5_000).on_time  # type: ignore[union-attr]


def status_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.run(arguments, cli.commands(cli.entry_points(group=cli.GROUP)))
    return int(ended.value.code or 0)


def test_a_bundle_is_loaded_from_the_command_line_and_the_report_is_one_json(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    asked = ("--rate", "50,100", "--deadline", "5s", "--seconds", "0.2", "--warm-up", "0", "--late-share", "1")
    assert status_of("bench", "load", str(bundle.path), *asked, "--json", str(path)) in (0, 1)
    report = read_report(path)
    assert [run.source.rate_per_s for run in report.runs] == [50.0, 100.0]
    assert all(run.figures.on_time == run.figures.requests for run in report.runs)
    assert report.environment.versions["numpy"]
    assert "percentiles" in capsys.readouterr().out.lower()
    assert status_of("bench", "compare", str(path), str(path)) == 0
    assert "1.000" in capsys.readouterr().out


def test_a_run_in_which_nothing_was_due_is_not_judged_and_no_search_goes_on_from_it(
    bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--rate", "0.1", "--arrivals", "periodic", "--seconds", "0.2", "--warm-up", "0")
    assert status_of("bench", "load", str(bundle.path), *asked) == 1
    assert "NOT JUDGED: no request was due in it" in capsys.readouterr().out
    assert status_of("bench", "load", str(bundle.path), *asked, "--search") == 2
    assert "expected a longer run or a higher rate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("nowhere",), "'nowhere': expected an agent"),
        (("tcp://127.0.0.1:1",), "by --plan"),
        (("tcp://127.0.0.1:1", "--plan", "none.plan"), "none.plan"),
        (("ipc://relative",), "expected ipc:///absolute"),
        (("ipc:///tmp/none", "--coding", "raw"), "--coding"),
        (("ipc:///tmp/none", "--threads", "2"), "--threads: ipc:///tmp/none runs already"),
        (("tcp://127.0.0.1:1", "--plan", "none.plan", "--threads", "1"), "--threads"),
    ],
)
def test_a_target_that_cannot_be_asked_is_one_line_and_status_2(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("bench", "load", *arguments, "--rate", "10") == 2
    said = capsys.readouterr().err
    assert named in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "nothing to send"),
        (("--rate", "10", "--in-flight", "2"), "closed loop"),
        (("--search", "--rate", "10,20"), "the one rate"),
        (("--rate", "10", "--deadline", "10"), "duration '10'"),
        (("--rate", "10", "--arrivals", "never"), "arrivals 'never'"),
        (("--rate", "10", "--json", "/nowhere/at/all.json"), "cannot be written: No such"),
    ],
)
def test_a_wrong_wish_is_one_line_and_status_2(
    options: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("bench", "load", "ipc:///tmp/none", *options) == 2
    assert named in capsys.readouterr().err


def test_a_coding_that_the_input_does_not_have_is_refused_with_those_that_it_has(bundle: Bundle) -> None:
    with pytest.raises(UserError, match="expected raw, jpeg90"):
        coding_of(bundle.plan, "int8")


def refused(monkeypatch: pytest.MonkeyPatch, missing: str) -> Callable[[str], object]:
    from importlib.util import find_spec

    return lambda name: None if name == missing else find_spec(name)


def test_the_parts_need_more_than_a_load_does_and_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hil.bench_cli.find_spec", refused(monkeypatch, "skimage"))
    assert status_of("bench", "--only", "refusals") == 2
    assert "needs the extra 'dev'" in capsys.readouterr().err
