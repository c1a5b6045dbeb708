"""How a client begins and ends: what could not be made leaves nothing behind, and what is closed neither."""

from __future__ import annotations

import gc
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from fake_agent import LONG_MS, FakeAgent, X, in_a_callback
from tiny import inputs_for, make_bundle

from edge.broker import Broker
from edge.client import Client
from shared.bundle import load_bundle
from shared.driver import Mailbox
from shared.errors import InputError, InvariantBroken
from shared.events import Send, StreamClosed
from shared.request import Answer, Array, Missed, Outcome, Rejected
from shared.settings import AgentGroup, EdgeSettings
from shared.wire.messages import Submit


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


def ask(client: Client, image: Array, times: int) -> list[Outcome]:
    return [client.infer(image, LONG_MS) for _ in range(times)]


def test_an_embedded_agent_whose_journal_can_hold_nothing_goes_on_serving(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise InvariantBroken("a journal cannot hold a bool")

    image = inputs_for(load_bundle(bundle).plan)[0]
    monkeypatch.setattr("shared.journal.recorder.encode_record", broken)
    client = Client.embedded(EdgeSettings(agent=AgentGroup(models=(str(bundle),))))
    with pytest.warns(UserWarning, match=r"the journal records no more: .*cannot hold a bool"):
        outcomes = ask(client, image, 3)
    client.close()
    assert {type(outcome) for outcome in outcomes} == {Answer}


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


def test_a_closed_client_that_nobody_holds_is_gone_before_the_collector_comes(agent: FakeAgent, tmp_path: Path) -> None:
    many, objects_of_one = 20, 30

    def come_and_go(make: Callable[[], Client]) -> None:
        client = make()
        client.submit(X, LONG_MS)
        loop = weakref.ref(client._loop)
        client.close()
        del client
        assert loop() is None

    for make in (agent.client, lambda: Client(f"ipc://{tmp_path}/nobody")):
        come_and_go(make)
        gc.collect()
        gc.disable()
        try:
            for _ in range(many):
                come_and_go(make)
            assert gc.collect() < objects_of_one
        finally:
            gc.enable()


def brokers() -> list[Broker]:
    """Those that are there, be they other tests'."""
    return [each for each in gc.get_objects() if isinstance(each, Broker)]


def test_the_agent_of_a_closed_client_that_carried_it_is_gone_before_the_collector_comes(bundle: Path) -> None:
    """Its journal alone takes five megabytes."""
    settings = EdgeSettings(agent=AgentGroup(models=(str(bundle),)))
    gc.collect()
    gc.disable()
    try:
        others = [id(each) for each in brokers()]
        with Client.embedded(settings) as client:
            given = inputs_for(load_bundle(bundle).plan)
            client.infer(given[0], LONG_MS)
            (broker,) = (weakref.ref(each) for each in brokers() if id(each) not in others)
        del client
        assert broker() is None
    finally:
        gc.enable()


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
