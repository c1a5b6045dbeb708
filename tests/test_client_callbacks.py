"""What the application's own code does on the client's thread, in callbacks and tickets, ends nothing but itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from queue import Queue

import pytest
from fake_agent import LONG_MS, FakeAgent, X, gated, in_a_callback, unanswered

from edge.client import Client
from shared.errors import HeadtailError
from shared.events import Send
from shared.request import Answer, Rejected
from shared.wire.messages import Submit, Withdraw


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client() as client:
        yield client


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
