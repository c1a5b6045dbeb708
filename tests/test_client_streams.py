from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from fake_agent import INFO, LONG_MS, OTHER, FakeAgent, X

from edge.announced import MAX_STREAMS
from edge.client import Client
from edge.client_stream import Stream
from edge.stub import AGENT
from shared.errors import InputError
from shared.request import Answer
from shared.wire.messages import Bye, CloseStream, OpenStream, StreamState


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client() as client:
        yield client


def until(stream: Stream, promise: str | None, reason: str) -> bool:
    """Wait until this is what the stream says; nothing else wakes the waiting thread."""
    changed = stream._loop._changed
    with changed:
        return changed.wait_for(lambda: (stream.promise, stream.reason) == (promise, reason), 30)


def test_a_stream_announces_itself_before_its_first_frame(agent: FakeAgent, client: Client) -> None:
    with client.stream(period_ms=33, deadline_ms=20, rows=2, priority=0, latest_wins=False) as stream:
        assert agent.heard(OpenStream) == OpenStream(1, "double", 2, 33_000_000, 20_000_000, 0, False)
        assert stream.wait_promise(30)
        assert (stream.promise, stream.reason) == ("whole", "")


def test_what_is_promised_follows_the_agent(agent: FakeAgent, client: Client) -> None:
    stream = client.stream(period_ms=33, deadline_ms=LONG_MS)
    assert stream.wait_promise(30)
    agent.transport.deliver(AGENT, StreamState(1, "", "overload"))
    assert until(stream, None, "overload")
    agent.transport.deliver(AGENT, StreamState(1, "small"))
    assert until(stream, "small", "")


def test_before_the_agent_has_spoken_nothing_is_promised_and_no_reason_given(agent: FakeAgent) -> None:
    agent.on_stream = lambda opened: None
    with agent.client() as client, client.stream(period_ms=33) as stream:
        agent.heard(OpenStream)
        assert (stream.promise, stream.reason) == (None, "")
        assert not stream.wait_promise(0)


def test_a_closed_stream_is_closed_at_the_agent_once(agent: FakeAgent, client: Client) -> None:
    stream = client.stream(period_ms=33)
    agent.heard(OpenStream)
    stream.close()
    stream.close()
    assert agent.heard(CloseStream) == CloseStream(1)
    assert (stream.promise, stream.reason) == (None, "closed")
    assert not stream.wait_promise(30)
    with pytest.raises(InputError, match="closed"):
        stream.submit(X)
    with client.stream(period_ms=33):
        assert agent.heard(OpenStream) == OpenStream(2, "double", 1, 33_000_000, 10_000_000, 1, True)


def test_a_stream_that_nobody_holds_is_closed_at_the_agent(agent: FakeAgent, client: Client) -> None:
    stream = client.stream(period_ms=33)
    agent.heard(OpenStream)
    del stream
    gc.collect()
    assert isinstance(client.infer(X, LONG_MS), Answer)
    assert agent.heard(CloseStream) == CloseStream(1)


def test_a_stream_is_announced_to_an_agent_that_comes_later_and_again_to_one_that_comes_back(agent: FakeAgent) -> None:
    with agent.client(connect=False) as client:
        stream = client.stream(period_ms=33)
        assert (stream.promise, stream.reason) == (None, "")
        agent.transport.connect(AGENT)
        assert agent.heard(OpenStream) == OpenStream(1, "double", 1, 33_000_000, 10_000_000, 1, True)
        assert stream.wait_promise(30)
        agent.greets = False
        agent.transport.disconnect(AGENT)
        assert until(stream, None, "agent")
        agent.transport.connect(AGENT)
        agent.attach(2)
        agent.heard(OpenStream)
        assert until(stream, "whole", "")


def test_a_stream_closed_while_the_agent_forgot_the_client_stays_closed(agent: FakeAgent, client: Client) -> None:
    kept, closed = client.stream(period_ms=33), client.stream(period_ms=10)
    agent.heard(OpenStream)
    agent.heard(OpenStream)
    agent.greets = False
    agent.transport.deliver(AGENT, Bye("hello"))
    assert until(kept, None, "agent")
    closed.close()
    agent.attach(2)
    opened = agent.heard(OpenStream)
    assert isinstance(opened, OpenStream)
    assert opened.stream == 1
    assert until(kept, "whole", "")


def test_a_promise_for_a_stream_that_is_unknown_is_counted_and_ignored(agent: FakeAgent, client: Client) -> None:
    agent.transport.deliver(AGENT, StreamState(77, "whole"))
    assert isinstance(client.infer(X, LONG_MS), Answer)
    assert client.stats().ignored == 1


def test_closing_the_client_ends_its_streams(agent: FakeAgent) -> None:
    client = agent.client()
    stream = client.stream(period_ms=33)
    assert stream.wait_promise(30)
    client.close()
    assert (stream.promise, stream.reason) == (None, "closed")
    assert agent.heard(Bye) == Bye("closing")


def test_a_waiting_thread_is_released_when_the_client_is_closed(agent: FakeAgent) -> None:
    agent.on_stream = lambda opened: None
    client = agent.client()
    stream = client.stream(period_ms=33)
    agent.heard(OpenStream)
    said: list[bool] = []
    waiting = threading.Thread(target=lambda: said.append(stream.wait_promise(60)))
    waiting.start()
    client.close()
    waiting.join(30)
    assert said == [False]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"period_ms": 0.05}, "period_ms: expected 0.1 to 3600000"),
        ({"period_ms": 4e6}, "period_ms"),
        ({"deadline_ms": 4e6}, "deadline_ms"),
        ({"rows": 0}, "rows"),
        ({"rows": 5}, "rows: expected 1 to 4, what the model takes"),
        ({"rows": 1.5}, "rows"),
        ({"priority": -1}, "priority"),
        ({"model": "third"}, "model 'third' is unknown; the agent has: double"),
    ],
)
def test_what_no_stream_may_be_is_refused_at_the_door(client: Client, fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        client.stream(**{"period_ms": 33, **fields})  # type: ignore[arg-type]


def test_a_stream_of_a_model_that_turns_out_not_to_be_there_is_promised_nothing() -> None:
    agent = FakeAgent((INFO, OTHER))
    with agent.client(connect=False) as client:
        wrong, unsaid, right = (client.stream(period_ms=33, model=name) for name in ("third", None, "other"))
        agent.transport.connect(AGENT)
        assert right.wait_promise(30)
        assert right.promise == "whole"
        for stream in (wrong, unsaid):
            assert (stream.promise, stream.reason) == (None, "input")


def test_a_client_has_room_for_a_stated_number_of_streams(client: Client) -> None:
    streams = [client.stream(period_ms=33) for _ in range(MAX_STREAMS)]
    assert streams[-1].wait_promise(30)
    with pytest.raises(InputError, match=f"{MAX_STREAMS} streams are open already"):
        client.stream(period_ms=33)
    streams[0].close()
    assert isinstance(client.infer(X, LONG_MS), Answer)
    client.stream(period_ms=33)


def test_frames_of_an_announced_stream_are_answered(client: Client) -> None:
    with client.stream(period_ms=33, deadline_ms=LONG_MS) as stream:
        outcome = stream.submit(X).result(30)
        assert isinstance(outcome, Answer)
        np.testing.assert_array_equal(outcome.outputs["y"], X * 2)


def test_of_streams_opened_faster_than_the_loop_takes_them_none_is_forgotten(agent: FakeAgent, client: Client) -> None:
    held = threading.Event()
    agent.on_submit = lambda submit, send: held.wait(30)  # type: ignore[assignment, return-value]
    client.submit(X, LONG_MS)
    streams = [client.stream(period_ms=33) for _ in range(MAX_STREAMS)]
    with pytest.raises(InputError, match=f"{MAX_STREAMS} streams are open already"):
        client.stream(period_ms=33)
    for stream in streams[:3]:
        stream.close()
    streams = streams[3:] + [client.stream(period_ms=33) for _ in range(3)]
    del streams[:2]
    gc.collect()
    streams += [client.stream(period_ms=33) for _ in range(2)]
    with pytest.raises(InputError, match="open already"):
        client.stream(period_ms=33)
    held.set()
    assert all(stream.wait_promise(30) for stream in streams)
    assert {stream.promise for stream in streams} == {"whole"}
    assert len(client._loop.machine.promises) == MAX_STREAMS


def test_a_stream_dropped_before_the_loop_has_come_to_it_is_announced_to_nobody(
    agent: FakeAgent, client: Client
) -> None:
    held = threading.Event()
    opened: list[int] = []
    agent.on_submit = lambda submit, send: held.wait(30)  # type: ignore[assignment, return-value]
    agent.on_stream = lambda announced: opened.append(announced.stream)
    client.submit(X, LONG_MS)
    client.submit(X, LONG_MS)
    client.stream(period_ms=33)
    gc.collect()
    held.set()
    agent.on_submit = agent.answer
    client.infer(X, LONG_MS)
    client.infer(X, LONG_MS)
    assert opened == []
    assert dict(client._loop.machine.promises) == {}


def test_a_frame_asked_up_to_a_period_ahead_is_answered_and_accounted(client: Client) -> None:
    with client.stream(period_ms=LONG_MS, deadline_ms=LONG_MS) as stream:
        outcome = stream.submit(X, time.monotonic_ns() + 20 * 10**9).result(30)
    assert isinstance(outcome, Answer)
    assert outcome.on_time
    assert outcome.elapsed_ns == sum(outcome.stages.values()) > 0
    assert client.stats().misaccounted == 0
