"""A client under many threads and under asyncio: every request ends once, and nothing is kept of what is over."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest
from fake_agent import LONG_MS, FakeAgent, X

from edge.announced import Announced
from edge.client import Client
from edge.stub import AGENT, Stub
from shared.errors import InputError
from shared.events import Send
from shared.request import Answer, Missed, Outcome, Rejected
from shared.wire.messages import Submit

OnSubmit = Callable[[Submit, Send], None]
THREADS = 8
EACH = 60


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client(max_open=THREADS * EACH) as client:
        yield client


def kept(client: Client) -> dict[str, int]:
    """How much a client keeps of its requests and streams, in all of its books."""
    loop = client._loop
    stub = loop.machine
    assert isinstance(stub, Stub)
    streams: Announced = stub._streams
    outcomes = stub._outcomes
    return {
        "tickets": len(loop._state.tickets),
        "mailbox": len(loop._mailbox._events),
        "abandoned": loop._streams.waiting + len(loop._streams._open) + len(loop._streams._told),
        "requests": len(stub._requests),
        "given": len(stub._given),
        "open": len(outcomes._open),
        "unsent": len(outcomes._unsent),
        "streams": len(streams) + len(streams.promises),
        "told": sum(len(agent.open) + len(agent.due) for agent in streams._agents),
    }


def by_turns(fates: Iterator[OnSubmit]) -> OnSubmit:
    """What an agent does with each request in turn."""

    def act(submit: Submit, send: Send) -> None:
        next(fates)(submit, send)

    return act


def rest(client: Client) -> None:
    """Wait until the loop has done all that was put to it before: it takes calls in their order."""
    client.infer(X, LONG_MS)
    client.infer(X, LONG_MS)


def test_after_thousands_of_requests_of_every_fate_nothing_is_kept(agent: FakeAgent, client: Client) -> None:
    dice = random.Random(1)
    agent.on_submit = by_turns(iter(lambda: dice.choice([agent.answer, agent.silent]), None))
    for turn in range(2_000):
        with client.stream(period_ms=10) as stream:
            futures = [client.submit(X, 0.5), client.submit(X, LONG_MS), stream.submit(X)]
            for future in futures[:2]:
                future.cancel()
            while kept(client)["mailbox"] > 1_000:  # calls that the loop has not taken yet are bounded
                time.sleep(0.001)
            if turn % 100 == 0:
                agent.transport.disconnect(AGENT)
                agent.transport.connect(AGENT)
    agent.on_submit = agent.answer
    client.wait_attached(30)
    rest(client)
    while client.stats().open:
        rest(client)
    assert set(kept(client).values()) == {0}, kept(client)
    assert len(client._loop.machine._outcomes.owed.due) <= 8 * THREADS * EACH  # type: ignore[attr-defined]


def test_requests_that_were_never_taken_leave_nothing_behind(agent: FakeAgent) -> None:
    client = agent.client(connect=False)
    client.submit(X, LONG_MS).cancel()
    future = client.submit(X, LONG_MS)
    client.close()
    assert isinstance(future.result(30), Rejected)
    counts = client.stats()
    assert counts.asked == counts.rejected + counts.withdrawn
    for _ in range(10):
        assert isinstance(client.infer(X, LONG_MS), Rejected)
        client.stream(period_ms=10).close()
    assert kept(client)["given"] == kept(client)["tickets"] == kept(client)["mailbox"] == 0


def test_threads_that_ask_withdraw_and_close_at_once_each_get_what_is_theirs(agent: FakeAgent) -> None:
    client = agent.client(max_open=THREADS * EACH)
    begin = threading.Barrier(THREADS)
    seen: Counter[str] = Counter()
    asked = threading.Semaphore(0)

    def one(number: int) -> list[str]:
        dice = random.Random(number)
        begin.wait(30)
        fates: list[str] = []
        for _ in range(EACH):
            tensor = X + number
            future = client.submit(tensor, LONG_MS)
            asked.release()
            if dice.random() < 0.3 and future.cancel():
                with pytest.raises(CancelledError):
                    future.result(0)
                fates.append("withdrawn")
                continue
            outcome = future.result(30)
            if isinstance(outcome, Answer):
                np.testing.assert_array_equal(outcome.outputs["y"], tensor * 2)
            fates.append(type(outcome).__name__)
        return fates

    def close() -> None:
        for _ in range(THREADS * EACH // 2):
            asked.acquire()
        client.close()

    with ThreadPoolExecutor(THREADS + 1) as pool:
        closing = pool.submit(close)
        for fates in pool.map(one, range(THREADS)):
            seen.update(fates)
        closing.result(30)
    assert set(seen) <= {"Answer", "withdrawn", "Rejected"}
    assert seen.total() == THREADS * EACH
    assert kept(client)["tickets"] == kept(client)["requests"] == kept(client)["open"] == 0


def test_streams_may_be_opened_used_and_closed_by_many_threads(client: Client) -> None:
    def one(number: int) -> int:
        answered = 0
        for _ in range(EACH):
            with client.stream(period_ms=33, deadline_ms=LONG_MS) as stream:
                outcome = stream.submit(X + number).result(30)
                answered += isinstance(outcome, Answer) and stream.promise in {None, "whole"}
        return answered

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(one, range(THREADS))) == [EACH] * THREADS
    rest(client)
    assert set(kept(client).values()) == {0}


def test_a_stream_that_one_thread_closes_takes_no_more_frames_of_another(client: Client) -> None:
    stream = client.stream(period_ms=33, deadline_ms=LONG_MS)
    refused = threading.Event()

    def frames() -> int:
        for count in range(100_000):
            try:
                stream.submit(X).result(30)
            except InputError:
                refused.set()
                return count
        return -1

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(frames)
        rest(client)
        stream.close()
        assert refused.wait(30)
        assert running.result(30) >= 0


# --- asyncio -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(6))
def test_a_task_cancelled_at_any_point_leaves_no_request_behind(agent: FakeAgent, client: Client, turns: int) -> None:
    agent.on_submit = by_turns(itertools.cycle([agent.answer, agent.silent]))

    async def ask() -> str:
        task = asyncio.create_task(client.ainfer(X, LONG_MS))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            return type(await task).__name__
        except asyncio.CancelledError:
            return "cancelled"

    async def all_of_them() -> set[str]:
        return {await ask() for _ in range(40)}

    assert asyncio.run(all_of_them()) <= {"Answer", "cancelled"}
    agent.on_submit = agent.answer
    rest(client)
    assert set(kept(client).values()) == {0}
    counts = client.stats()
    assert counts.asked == counts.on_time + counts.withdrawn


def test_a_request_that_the_caller_gives_up_waiting_for_is_withdrawn(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.ainfer(X, LONG_MS), 0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(client.ainfer(X, LONG_MS) for _ in range(5))), 0.01)

    asyncio.run(ask())
    agent.on_submit = agent.answer
    rest(client)
    assert client.stats().withdrawn == 6
    assert set(kept(client).values()) == {0}


def test_an_event_loop_closed_while_a_request_is_open_disturbs_nobody(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent
    loop = asyncio.new_event_loop()

    async def ask() -> asyncio.Future[Outcome]:
        return client.asubmit(X, 50)

    future = loop.run_until_complete(ask())
    loop.close()
    while client.stats().open:
        assert isinstance(client.infer(X, 20), Missed)
    assert not future.done()
    agent.on_submit = agent.answer
    rest(client)
    assert set(kept(client).values()) == {0}


def test_event_loops_of_several_threads_share_a_client(client: Client) -> None:
    async def ask(number: int) -> bool:
        outcomes = await asyncio.gather(*(client.ainfer(X + number, LONG_MS) for _ in range(20)))
        return all(isinstance(o, Answer) and np.array_equal(o.outputs["y"], (X + number) * 2) for o in outcomes)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda number: asyncio.run(ask(number)), range(4)))


def test_closing_the_client_ends_what_coroutines_wait_for(agent: FakeAgent) -> None:
    agent.on_submit = agent.silent
    client = agent.client()

    async def ask() -> list[Outcome]:
        waiting = asyncio.gather(*(client.ainfer(X, LONG_MS) for _ in range(5)))
        await asyncio.sleep(0)
        await asyncio.to_thread(client.close)
        return await waiting

    assert {type(outcome) for outcome in asyncio.run(ask())} == {Rejected}


# --- how late -----------------------------------------------------------------------------------------------------------


def test_how_late_outcomes_were_decided_is_published(agent: FakeAgent, client: Client) -> None:
    assert client.health.lateness.count == 0
    assert isinstance(client.infer(X, LONG_MS), Answer)
    punctual = client.health
    assert (punctual.lateness.count, punctual.lateness.max_ms) == (1, 0.0)
    agent.on_submit = agent.silent
    began = time.monotonic_ns()
    assert isinstance(client.infer(X, 20), Missed)
    took_ms = (time.monotonic_ns() - began) / 1e6
    health = client.health
    assert health.lateness.count == 2
    assert 0 < health.lateness.max_ms <= took_ms - 20
    assert (health.asking, health.faults, health.counts.asked) == ("agent", {}, 2)
