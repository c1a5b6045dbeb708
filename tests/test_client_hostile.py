"""Whatever an application hands to its client: what is none of the things that were asked for is refused at the door."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fake_agent import LONG_MS, FakeAgent, X

from edge.client import Client
from edge.tickets import WaitTicket
from shared.errors import InputError, UserError
from shared.request import Answer
from shared.settings import CloudSettings, EdgeSettings
from shared.wire.messages import OpenStream, Submit


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client() as client:
        yield client


# --- yes and no ------------------------------------------------------------------------------------------------------


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


# --- other things at the door ----------------------------------------------------------------------------------------


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


# --- how long to wait ------------------------------------------------------------------------------------------------


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
