"""Whatever an application hands to its client, the client lives on: bad values are refused, bad callbacks are reported."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from fake_agent import LONG_MS, FakeAgent, X
from tiny import inputs_for, make_bundle

from edge.client import Client
from edge.tickets import OutcomeFuture, WaitTicket
from shared.bundle import load_bundle
from shared.driver import Mailbox
from shared.errors import HeadtailError, InputError, UserError
from shared.events import Send, StreamClosed
from shared.request import Answer, Missed, Rejected
from shared.settings import AgentGroup, CloudSettings, EdgeSettings
from shared.wire.messages import OpenStream, Submit, Withdraw


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client() as client:
        yield client


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


# --- yes and no ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wins", [True, False])
def test_numpys_truth_values_are_as_good_as_pythons(agent: FakeAgent, client: Client, wins: bool) -> None:
    stream = client.stream(period_ms=33, deadline_ms=LONG_MS, latest_wins=np.bool_(wins))  # type: ignore[arg-type]
    opened = agent.heard(OpenStream)
    assert isinstance(opened, OpenStream)
    assert opened.latest_wins is wins
    assert isinstance(stream.submit(X).result(30), Answer)
    submit = agent.heard(Submit)
    assert isinstance(submit, Submit)
    assert submit.latest_wins is wins


@pytest.mark.parametrize("wins", [1, 0, "yes", None, 1.0, np.int8(1), np.array([True, False])])
def test_what_is_neither_true_nor_false_is_refused_at_the_door(client: Client, wins: bool) -> None:
    with pytest.raises(InputError, match="latest_wins: expected True or False, got"):
        client.stream(period_ms=33, latest_wins=wins)
    with pytest.raises(InputError, match="latest_wins: expected True or False, got"):
        client.start(WaitTicket(), X, LONG_MS, latest_wins=wins)
    assert isinstance(client.infer(X, LONG_MS), Answer)


@pytest.mark.parametrize("stream", [-1, "1", None, 1.5])
def test_a_streams_number_is_a_whole_one(client: Client, stream: int) -> None:
    with pytest.raises(InputError, match="stream: expected 0, or the number of a stream"):
        client.start(WaitTicket(), X, LONG_MS, stream=stream)
    assert isinstance(client.infer(X, LONG_MS), Answer)


# --- other things at the door -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["ipc:///tmp/\ud800", "tcp://\ud800:1"])
def test_an_endpoint_that_is_no_unicode_is_refused(endpoint: str) -> None:
    with pytest.raises(UserError, match="expected ipc:///absolute/path"):
        Client(endpoint)
    with pytest.raises(UserError, match="expected ipc:///absolute/path"):
        Client("ipc:///tmp/nobody", standby=endpoint)


@pytest.mark.parametrize(
    "settings", [5, None, 10**5000, b"edge.toml", CloudSettings()], ids=lambda value: type(value).__name__
)
def test_an_embedded_agent_is_made_of_settings_or_of_a_path(settings: EdgeSettings) -> None:
    with pytest.raises(InputError, match="settings: expected a path, got "):
        Client.embedded(settings)


@pytest.mark.parametrize(
    "value", [10**5000, np.timedelta64(10, "ms"), np.timedelta64(10, "ns")], ids=lambda value: type(value).__name__
)
def test_numbers_that_are_none_are_refused_wherever_one_is_asked_for(client: Client, value: float) -> None:
    stream = client.stream(period_ms=33, deadline_ms=LONG_MS)
    for ask in (
        lambda: client.infer(X, value),
        lambda: client.infer(X, deadline_ns=value),  # type: ignore[arg-type]
        lambda: client.infer(X, priority=value),  # type: ignore[arg-type]
        lambda: client.stream(period_ms=value),
        lambda: client.stream(period_ms=33, rows=value),  # type: ignore[arg-type]
        lambda: client.stream(period_ms=33, model=value),  # type: ignore[arg-type]
        lambda: stream.submit(X, value),  # type: ignore[arg-type]
        lambda: stream.next_due_ns(value),  # type: ignore[arg-type]
        lambda: client.withdraw(value),  # type: ignore[arg-type]
        lambda: Client(max_open=value),  # type: ignore[arg-type]
        lambda: Client(name=value),  # type: ignore[arg-type]
        lambda: Client(value),  # type: ignore[arg-type]
        lambda: client.save_journal(value),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=r": expected|is unknown"):
            ask()
    assert isinstance(client.infer(X, LONG_MS), Answer)


# --- what callbacks do --------------------------------------------------------------------------------------------------


def gated(agent: FakeAgent) -> threading.Event:
    """The agent waits for this event before it answers, so that callbacks are there when the outcome comes."""
    go = threading.Event()

    def later(submit: Submit, send: Send) -> None:
        go.wait(30)
        agent.answer(submit, send)

    agent.on_submit = later
    return go


def leaves(_: object) -> None:
    sys.exit("enough")


def test_a_callback_that_ends_its_thread_ends_nothing_else(
    agent: FakeAgent, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    go = gated(agent)
    seen: Queue[object] = Queue()
    future = client.submit(X, LONG_MS)
    for callback in (leaves, seen.put, leaves, seen.put):
        future.add_done_callback(callback)
    go.set()
    assert (seen.get(timeout=30), seen.get(timeout=30)) == (future, future)
    assert isinstance(client.infer(X, LONG_MS), Answer)
    told = [record for record in caplog.records if record.name == "headtail"]
    assert [record.exc_info is not None and record.exc_info[0] for record in told] == [SystemExit, SystemExit]


def test_a_callback_added_when_all_is_over_ends_the_thread_that_adds_it(client: Client) -> None:
    future = client.submit(X, LONG_MS)
    future.result(30)
    with pytest.raises(SystemExit):
        future.add_done_callback(leaves)


def test_callbacks_that_end_their_thread_keep_nobody_waiting_when_the_client_closes(agent: FakeAgent) -> None:
    agent.on_submit = agent.silent
    client = agent.client()
    asked: Queue[object] = Queue()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            client.submit(X, LONG_MS).add_done_callback(leaves)
        agent.on_submit = lambda submit, send: asked.put(submit)
        waiting = pool.submit(client.infer, X, LONG_MS)
        asked.get(timeout=30)
        for _ in range(3):
            client.submit(X, LONG_MS).add_done_callback(leaves)
        client.close()
        assert isinstance(waiting.result(30), Rejected)
    assert agent.released.wait(30)
    assert isinstance(client.infer(X, LONG_MS), Rejected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_loop_tells_every_caller_whatever_their_callbacks_do(agent: FakeAgent) -> None:
    go = threading.Event()

    def breaks(submit: Submit, send: Send) -> None:
        go.wait(30)
        raise RuntimeError("the wheel came off")

    agent.on_submit = breaks
    with agent.client() as client:
        futures = [client.submit(X, LONG_MS) for _ in range(4)]
        for future in futures:
            future.add_done_callback(leaves)
        go.set()
        assert {type(future.result(30)) for future in futures} == {Rejected}
        assert agent.released.wait(30)


class BadTicket:
    """A ticket of somebody's own, which raises what it is made with."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def resolve(self, outcome: object) -> None:
        raise self._error

    def drop(self) -> None:
        raise self._error


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), GeneratorExit(), RuntimeError()])
def test_a_ticket_that_takes_no_outcome_is_no_other_callers_business(
    agent: FakeAgent, client: Client, error: BaseException
) -> None:
    client.start(BadTicket(error), X, LONG_MS)
    assert isinstance(client.infer(X, LONG_MS), Answer)
    agent.on_submit = agent.silent
    client.start(BadTicket(error), X, LONG_MS)
    client.close()
    client.start(BadTicket(error), X, LONG_MS)
    assert agent.released.wait(30)


def test_a_log_that_cannot_be_written_ends_nothing_either(
    agent: FakeAgent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit

    handler = Broken()
    monkeypatch.setattr(logging.getLogger("headtail"), "handlers", [handler])
    go = gated(agent)
    client.submit(X, LONG_MS).add_done_callback(leaves)
    go.set()
    assert isinstance(client.infer(X, LONG_MS), Answer)


def test_only_the_client_decides_what_a_future_is(agent: FakeAgent, client: Client) -> None:
    go = gated(agent)
    future = client.submit(X, LONG_MS)
    for meddle in (
        future.set_running_or_notify_cancel,
        lambda: future.set_result(Rejected("mine")),
        lambda: future.set_exception(RuntimeError()),
    ):
        with pytest.raises(HeadtailError, match="the client's to decide"):
            meddle()
    go.set()
    assert isinstance(future.result(30), Answer)
    assert isinstance(client.infer(X, LONG_MS), Answer)


def test_a_request_withdrawn_by_its_number_leaves_its_future_cancelled(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent
    future = client.submit(X, LONG_MS)
    client.withdraw(future.sequence)
    with pytest.raises(CancelledError):
        future.result(30)
    assert wait([future], 30).done == {future}


def test_a_callback_that_ends_the_thread_that_cancels_still_withdraws_the_request(
    agent: FakeAgent, client: Client
) -> None:
    agent.on_submit = agent.silent
    future = client.submit(X, LONG_MS)
    future.add_done_callback(leaves)
    with pytest.raises(SystemExit):
        future.cancel()
    agent.heard(Withdraw)
    assert wait([future], 30).done == {future}


def test_a_future_with_callbacks_is_freed_without_the_collector(client: Client) -> None:
    future = client.submit(X, LONG_MS)
    future.add_done_callback(lambda done: None)
    future.result(30)
    client.infer(X, LONG_MS)
    gone = weakref.ref(future)
    gc.disable()
    try:
        del future
        assert gone() is None
    finally:
        gc.enable()


def unanswered(agent: FakeAgent, client: Client) -> OutcomeFuture:
    """The future of a request that the agent has, and sits on."""
    asked = threading.Event()
    agent.on_submit = lambda submit, send: asked.set()
    future = client.submit(X, LONG_MS)
    assert asked.wait(30)
    return future


def in_a_callback(agent: FakeAgent, client: Client, act: Callable[[], object]) -> object:
    """What comes of `act` when it is called in a callback: on the client's own thread."""
    go = gated(agent)
    came: Queue[object] = Queue()

    def callback(_: object) -> None:
        try:
            came.put(act())
        except Exception as error:
            came.put(error)

    client.submit(X, LONG_MS).add_done_callback(callback)
    go.set()
    return came.get(timeout=30)


@pytest.mark.parametrize("what", ["result", "exception", "infer", "ainfer", "wait_promise"])
def test_a_callback_may_not_wait_for_its_own_client(agent: FakeAgent, client: Client, what: str) -> None:
    agent.on_stream = lambda opened: None
    stream = client.stream(period_ms=33)
    other = unanswered(agent, client)
    act: dict[str, Callable[[], object]] = {
        "result": other.result,
        "exception": lambda: other.exception(20),
        "infer": lambda: client.infer(X, LONG_MS),
        "ainfer": lambda: asyncio.run(client.ainfer(X, LONG_MS)),
        "wait_promise": stream.wait_promise,
    }
    refused = in_a_callback(agent, client, act[what])
    assert type(refused) is HeadtailError
    assert "would block the client's own loop" in str(refused)
    assert isinstance(client.infer(X, LONG_MS), Answer)


class Told:
    """A ticket that does something on the client's own thread when its outcome comes."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.came: Queue[object] = Queue()
        self._act = act

    def resolve(self, outcome: object) -> None:
        try:
            self.came.put(self._act())
        except HeadtailError as error:
            self.came.put(error)

    def drop(self) -> None:
        pass


def test_the_clients_own_thread_may_not_wait_for_an_agent(agent: FakeAgent) -> None:
    with agent.client(connect=False) as client:
        ticket = Told(client.wait_attached)
        client.start(ticket, X, 1.0)
        assert "wait_attached() would block the client's own loop" in str(ticket.came.get(timeout=30))


def test_a_callback_may_look_without_waiting(agent: FakeAgent, client: Client) -> None:
    stream = client.stream(period_ms=33)
    assert stream.wait_promise(30)
    done = client.submit(X, LONG_MS)
    outcome = done.result(30)
    assert in_a_callback(agent, client, done.result) is outcome
    assert in_a_callback(agent, client, done.exception) is None
    assert in_a_callback(agent, client, client.wait_attached) is True
    assert in_a_callback(agent, client, stream.wait_promise) is True
    other = unanswered(agent, client)
    assert isinstance(in_a_callback(agent, client, lambda: other.result(0)), TimeoutError)
    other.cancel()
    assert in_a_callback(agent, client, other.cancelled) is True


# --- how long to wait ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_s", [math.inf, 1e10, 1e308, 10**400, np.float32(5), np.int64(5)])
def test_no_time_is_too_long_to_wait(client: Client, wait_s: float) -> None:
    stream = client.stream(period_ms=33)
    assert stream.wait_promise(wait_s)
    assert client.wait_attached(wait_s)
    assert isinstance(client.submit(X, LONG_MS).result(wait_s), Answer)
    with FakeAgent().client(connect=False) as lonely:
        future = lonely.submit(X, LONG_MS)
        waits = (lonely.wait_attached, lonely.stream(period_ms=33).wait_promise, future.result, future.exception)
        with ThreadPoolExecutor(len(waits)) as pool:
            waiting = [pool.submit(each, wait_s) for each in waits]
            lonely.close()
            assert [isinstance(each.exception(30), OverflowError) for each in waiting] == [False] * len(waits)


@pytest.mark.parametrize("wait_s", [math.nan, np.float64("nan"), "5", True, 1j, np.timedelta64(5, "s")])
def test_what_is_no_time_is_not_waited_for(agent: FakeAgent, wait_s: float) -> None:
    agent.on_submit = agent.silent
    with agent.client(connect=False) as client:
        future = client.submit(X, LONG_MS)
        for each in (client.wait_attached, client.stream(period_ms=33).wait_promise, future.result, future.exception):
            with pytest.raises(InputError, match=r"timeout(_s)?: expected a number of seconds, got "):
                each(wait_s)


@pytest.mark.parametrize("wait_s", [0, -1, -math.inf])
def test_no_time_at_all_is_a_look(agent: FakeAgent, wait_s: float) -> None:
    with agent.client(connect=False) as client:
        assert not client.wait_attached(wait_s)
        assert not client.stream(period_ms=33).wait_promise(wait_s)
        with pytest.raises(TimeoutError):
            client.submit(X, LONG_MS).result(wait_s)


# --- the end ------------------------------------------------------------------------------------------------------------


def descriptors() -> set[Path]:
    """The descriptors that are open, by number. That of the listing itself is among them, each time the same one."""
    return set(Path("/proc/self/fd").iterdir())


def test_a_closed_client_says_that_nobody_is_there(client: Client) -> None:
    stream = client.stream(period_ms=33)
    assert stream.wait_promise(30)
    assert (client.attached, client.asking, client.health.asking) == (True, "agent", "agent")
    client.close()
    assert (client.attached, client.asking, client.health.asking) == (False, None, None)
    assert not client.wait_attached(30)
    assert not stream.wait_promise(30)
    assert (stream.promise, stream.reason) == (None, "closed")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_whose_loop_broke_says_that_nobody_is_there(agent: FakeAgent) -> None:
    def breaks(submit: Submit, send: Send) -> None:
        raise RuntimeError("the wheel came off")

    agent.on_submit = breaks
    with agent.client() as client:
        assert isinstance(client.infer(X, LONG_MS), Rejected)
        assert (client.attached, client.asking) == (False, None)


def test_who_waits_for_an_agent_waits_no_longer_than_the_client_is_open(agent: FakeAgent) -> None:
    client = agent.client(connect=False)
    stream = client.stream(period_ms=33)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(client.wait_attached, math.inf), pool.submit(stream.wait_promise, math.inf)]
        client.close()
        assert [each.result(30) for each in waiting] == [False, False]


def test_closing_once_more_waits_for_the_end_that_a_callback_began(agent: FakeAgent) -> None:
    held = threading.Event()
    agent.released.set = lambda: held.wait(30)  # type: ignore[method-assign, assignment]
    client = agent.client()
    thread = client._loop._thread
    assert in_a_callback(agent, client, client.close) is None
    assert (client.attached, client.asking) == (False, None)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(client.close)
        assert not wait([closing], 0).done
        held.set()
        closing.result(30)
    assert not thread.is_alive()


def test_a_closed_client_leaves_no_descriptor_and_no_thread_behind(bundle: Path, tmp_path: Path) -> None:
    settings = EdgeSettings(agent=AgentGroup(models=(str(bundle),)))
    makers: tuple[Callable[[], Client], ...] = (
        lambda: Client(f"ipc://{tmp_path}/nobody"),
        lambda: Client.embedded(settings),
    )
    for make in makers:
        make().close()
    gc.collect()
    gc.disable()
    try:
        for make in makers:
            before = (descriptors(), set(threading.enumerate()))
            clients = [make() for _ in range(3)]
            assert (descriptors(), set(threading.enumerate())) != before
            for client in clients:
                client.close()
            assert (descriptors(), set(threading.enumerate())) == before
    finally:
        gc.enable()


def test_what_is_put_into_a_closed_mailbox_is_written_to_nobodys_file() -> None:
    mailbox = Mailbox()
    assert not mailbox.pending()
    mailbox.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        os.dup2(other, mailbox.fileno())  # as if another file had been given its number
        assert mailbox.offer(StreamClosed("app", 1))
        with pytest.raises(BlockingIOError):
            os.eventfd_read(other)
    finally:
        for fd in {other, mailbox.fileno()}:
            os.close(fd)


# --- the beginning ------------------------------------------------------------------------------------------------------


def no_room(*_: object, **__: object) -> None:
    raise RuntimeError("can't start new thread")


def failing_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        no_room() if thread.name == "headtail-app" else start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)


FAILURES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "its transport": lambda patch: patch.setattr("edge.host.Dealers", no_room),
    "its journal": lambda patch: patch.setattr("edge.host.Keeper", no_room),
    "its machine": lambda patch: patch.setattr("edge.embedded.Direct", no_room),
    "its thread": failing_thread,
}


@pytest.mark.parametrize("what", [*FAILURES, "its name"])
def test_an_embedded_client_that_could_not_be_made_leaves_nothing_behind(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    settings = EdgeSettings(agent=AgentGroup(models=(str(bundle),)))
    Client.embedded(settings).close()
    gc.collect()
    before = (descriptors(), set(threading.enumerate()))
    name = "a\0b" if what == "its name" else "app"
    FAILURES.get(what, lambda patch: None)(monkeypatch)
    with pytest.raises(InputError if what == "its name" else RuntimeError):
        Client.embedded(settings, name=name)
    monkeypatch.undo()
    gc.collect()
    assert (descriptors(), set(threading.enumerate())) == before


def test_a_client_that_could_not_be_made_releases_its_connections(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.client_loop.Driver", no_room)
    with pytest.raises(RuntimeError, match="can't start"):
        agent.client(connect=False)
    assert agent.released.is_set()


class Name(str):
    """A text of somebody's own make."""

    __slots__ = ()

    def __str__(self) -> str:
        return "not this"


@pytest.mark.parametrize("name", [np.str_("cam"), Name("cam")])
def test_a_text_of_any_make_is_a_name(bundle: Path, name: str) -> None:
    image = inputs_for(load_bundle(bundle).plan)[0]
    with Client.embedded(EdgeSettings(agent=AgentGroup(models=(str(bundle),))), name=name) as client:
        with client.stream(period_ms=33, deadline_ms=LONG_MS, model=np.str_("chain")) as stream:
            assert isinstance(stream.submit(image).result(30), Answer)
        assert isinstance(client.infer({np.str_("image"): image}, LONG_MS, model=Name("chain")), Answer)
    assert client._name == "cam"
    assert type(client._name) is str


def test_texts_of_any_make_are_endpoints(tmp_path: Path) -> None:
    with Client(np.str_(f"ipc://{tmp_path}/a"), standby=Name(f"ipc://{tmp_path}/b"), name=np.str_("cam")) as client:
        assert isinstance(client.infer(X, 1.0), Missed)
