from __future__ import annotations

import asyncio
import gc
import math
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from fake_agent import INFO, LONG_MS, OTHER, FakeAgent, X

from edge.answers import to_header
from edge.client import Client
from edge.stub import AGENT
from shared.errors import HeadtailError, InputError, UserError
from shared.events import Send
from shared.request import EXACT, Answer, Missed, Rejected, Superseded
from shared.wire.messages import Bye, Final, Submit, Withdraw


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client() as client:
        yield client


def test_infer_returns_the_answer(client: Client) -> None:
    outcome = client.infer(X, LONG_MS)
    assert isinstance(outcome, Answer)
    np.testing.assert_array_equal(outcome.outputs["y"], X * 2)
    assert outcome.contract == "c1"
    assert outcome.on_time
    assert sum(outcome.stages.values()) == outcome.elapsed_ns


def test_submit_returns_a_future_of_the_same(client: Client) -> None:
    futures = [client.submit({"x": X * k}, LONG_MS) for k in range(5)]
    for k, future in enumerate(futures):
        outcome = future.result(30)
        assert isinstance(outcome, Answer)
        np.testing.assert_array_equal(outcome.outputs["y"], X * k * 2)


def test_the_callers_buffer_may_be_reused_at_once(agent: FakeAgent, client: Client) -> None:
    go = threading.Event()

    def later(submit: Submit, send: Send) -> None:
        go.wait(30)
        agent.answer(submit, send)

    agent.on_submit = later
    buffer = X.copy()
    future = client.submit(buffer, LONG_MS)
    buffer[:] = 99
    go.set()
    outcome = future.result(30)
    assert isinstance(outcome, Answer)
    np.testing.assert_array_equal(outcome.outputs["y"], X * 2)


def test_a_silent_agent_is_a_miss_and_not_a_hang(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent
    began = time.monotonic_ns()
    outcome = client.infer(X, 200)
    assert isinstance(outcome, Missed)
    assert outcome.stage == "agent"
    assert time.monotonic_ns() - began >= 200_000_000


def test_a_pushed_answer_is_delivered_when_the_agent_then_falls_silent(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = lambda submit, send: agent.push(submit.sequence, 7)
    outcome = client.infer(X, 2_000)
    assert isinstance(outcome, Answer)
    assert outcome.agreement == 0.9
    assert outcome.outputs["y"].tolist() == [7]


def test_several_threads_share_a_client_and_each_gets_its_own_answer(client: Client) -> None:
    def ask(k: int) -> bool:
        outcome = client.infer(X + k, LONG_MS)
        return isinstance(outcome, Answer) and np.array_equal(outcome.outputs["y"], (X + k) * 2)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(200)))
    assert client.stats().on_time == 200


def test_a_cancelled_future_withdraws_its_request(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent
    future = client.submit(X, LONG_MS)
    while not isinstance(agent.seen.get(timeout=30), Submit):
        pass
    assert future.cancel()
    message = agent.seen.get(timeout=30)
    assert message == Withdraw(future.sequence)
    with pytest.raises(CancelledError):
        future.result(0)
    assert client.stats().withdrawn == 1


def test_a_decided_future_cannot_be_cancelled(client: Client) -> None:
    future = client.submit(X, LONG_MS)
    future.result(30)
    assert not future.cancel()


def test_coroutines_may_ask(client: Client) -> None:
    async def ask() -> list[object]:
        return list(await asyncio.gather(*(client.ainfer(X * k, LONG_MS) for k in range(8))))

    for k, outcome in enumerate(asyncio.run(ask())):
        assert isinstance(outcome, Answer)
        np.testing.assert_array_equal(outcome.outputs["y"], X * k * 2)


def test_cancelling_the_waiting_task_withdraws_the_request(agent: FakeAgent, client: Client) -> None:
    asked = threading.Event()
    agent.on_submit = lambda submit, send: asked.set()

    async def ask() -> None:
        task = asyncio.create_task(client.ainfer(X, LONG_MS))
        await asyncio.to_thread(asked.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    while not isinstance(agent.seen.get(timeout=30), Withdraw):
        pass
    assert client.stats().withdrawn == 1


def test_requests_before_the_agent_is_there_are_answered_once_it_comes(agent: FakeAgent) -> None:
    with agent.client(connect=False) as client:
        future = client.submit(X, LONG_MS)
        assert not client.attached
        agent.transport.connect(AGENT)
        assert isinstance(future.result(30), Answer)


def test_a_mistake_in_a_request_before_the_agent_is_there_is_rejected_in_words(agent: FakeAgent) -> None:
    with agent.client(connect=False) as client:
        future = client.submit(X.astype(np.float64), LONG_MS)
        agent.transport.connect(AGENT)
        outcome = future.result(30)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "input"
        assert "expected dtype float32, got float64" in outcome.detail


def test_without_any_agent_a_request_is_missed_at_its_deadline(agent: FakeAgent) -> None:
    with agent.client(connect=False) as client:
        outcome = client.infer(X, 10)
        assert isinstance(outcome, Missed)
        assert outcome.stage == "agent"


def test_after_the_agents_return_requests_are_answered_by_the_same_client(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent
    lost = client.submit(X, 100)
    agent.transport.disconnect(AGENT)
    assert isinstance(lost.result(30), Missed)
    agent.on_submit = agent.answer
    agent.greets = False
    agent.transport.connect(AGENT)
    agent.attach(2)
    assert isinstance(client.infer(X, LONG_MS), Answer)


def test_an_agent_that_leaves_for_good_reasons_is_greeted_again(agent: FakeAgent, client: Client) -> None:
    agent.transport.deliver(AGENT, Bye("hello"))
    assert isinstance(client.infer(X, LONG_MS), Answer)
    assert client.stats().attaches == 2


def test_messages_that_make_no_sense_are_counted_and_harm_nothing(agent: FakeAgent, client: Client) -> None:
    header, _ = to_header(Answer({}, "edge", None, "whole", None, EXACT, "unheard of"))
    agent.transport.deliver(AGENT, Final(1, "answer", header))
    agent.transport.deliver(AGENT, Final(12345, "superseded"))
    assert isinstance(client.infer(X, LONG_MS), Answer)
    assert client.faults() == {"contract": 1}
    assert client.stats().ignored == 1


def test_superseded_frames_of_a_stream_end_as_such(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = lambda submit, send: agent.transport.deliver(AGENT, Final(submit.sequence, "superseded"))
    with client.stream(period_ms=33, deadline_ms=LONG_MS) as stream:
        assert isinstance(stream.submit(X).result(30), Superseded)


def test_a_stream_counts_from_the_scheduled_time_and_keeps_the_senders_lateness(client: Client) -> None:
    stream = client.stream(period_ms=33, deadline_ms=LONG_MS)
    due_ns = time.monotonic_ns() - 5_000_000
    outcome = stream.submit(X, scheduled_ns=due_ns).result(30)
    assert isinstance(outcome, Answer)
    assert outcome.elapsed_ns >= 5_000_000
    assert stream.lateness_ns[0] >= 5_000_000


def test_a_frame_after_its_own_deadline_is_the_senders_miss(client: Client) -> None:
    stream = client.stream(period_ms=33, deadline_ms=10)
    outcome = stream.submit(X, scheduled_ns=time.monotonic_ns() - 20_000_000).result(30)
    assert isinstance(outcome, Missed)
    assert outcome.stage == "client"
    assert stream.late_frames == 1


def test_a_streams_requests_carry_its_number_and_rule(agent: FakeAgent, client: Client) -> None:
    streams = [client.stream(period_ms=10, deadline_ms=LONG_MS, latest_wins=wins) for wins in (True, False)]
    seen: list[tuple[int, bool]] = []

    def note(submit: Submit, send: Send) -> None:
        seen.append((submit.stream, submit.latest_wins))
        agent.answer(submit, send)

    agent.on_submit = note
    for stream in streams:
        stream.submit(X).result(30)
    assert seen == [(1, True), (2, False)]


def test_a_paced_source_leaves_out_periods_that_are_past(client: Client) -> None:
    stream = client.stream(period_ms=10)
    now = time.monotonic_ns()
    assert stream.next_due_ns(now + 5_000_000) == now + 15_000_000
    late = now - 3_600 * 10**9
    due_ns = stream.next_due_ns(late)
    assert due_ns > now
    assert (due_ns - late) % stream.period_ns == 0


@pytest.mark.parametrize("period_ms", [0, -1, math.nan])
def test_a_stream_needs_a_positive_period(client: Client, period_ms: float) -> None:
    with pytest.raises(InputError, match="period_ms"):
        client.stream(period_ms=period_ms)


@pytest.mark.parametrize("deadline_ms", [0, -5, math.nan, math.inf])
def test_a_bad_deadline_is_a_value_error_before_anything_is_sent(client: Client, deadline_ms: float) -> None:
    with pytest.raises(ValueError, match="deadline_ms"):
        client.infer(X, deadline_ms)
    assert client.stats().asked == 0


def test_a_past_absolute_deadline_is_an_input_error(client: Client) -> None:
    with pytest.raises(InputError, match="in the past"):
        client.infer(X, deadline_ns=time.monotonic_ns() - 1)


def test_an_absolute_deadline_is_taken(client: Client) -> None:
    assert isinstance(client.infer(X, deadline_ns=time.monotonic_ns() + 30 * 10**9), Answer)


def test_bad_inputs_are_refused_at_the_clients_own_door(client: Client) -> None:
    with pytest.raises(InputError, match="expected dtype float32, got uint8"):
        client.infer(X.astype(np.uint8))
    assert client.stats().asked == 0


@pytest.mark.parametrize("priority", [-1, True, 1.5, "1", None])
def test_a_priority_is_a_whole_number_from_zero(client: Client, priority: int) -> None:
    with pytest.raises(InputError, match="priority"):
        client.infer(X, priority=priority)


def test_numbers_of_numpy_are_as_good_as_pythons(client: Client) -> None:
    asked = client.infer(X, np.float32(LONG_MS), priority=np.int64(1))  # type: ignore[arg-type]
    assert isinstance(asked, Answer)
    stream = client.stream(period_ms=np.float32(10), deadline_ms=np.int64(LONG_MS))  # type: ignore[arg-type]
    due = np.int64(time.monotonic_ns())
    assert isinstance(stream.submit(X, due).result(30), Answer)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["n" * 65, "a\0b", "\ud800", 5])
def test_a_name_that_no_header_takes_is_refused(name: object) -> None:
    with pytest.raises(InputError, match="name: expected up to 64 printable characters"):
        Client(name=name)  # type: ignore[arg-type]


def test_an_unknown_model_is_refused_and_the_known_ones_named() -> None:
    agent = FakeAgent((INFO, OTHER))
    with agent.client() as client:
        assert set(client.models()) == {"double", "other"}
        with pytest.raises(InputError, match="the agent has: double, other"):
            client.infer(X, model="third")
        outcome = client.infer(X, LONG_MS, model="other")
        assert isinstance(outcome, Answer)
        assert outcome.contract == "c2"


def test_one_request_too_many_is_rejected_at_once(agent: FakeAgent) -> None:
    agent.on_submit = agent.silent
    with agent.client(max_open=2) as client:
        futures = [client.submit(X, LONG_MS) for _ in range(3)]
        outcome = futures[2].result(30)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "too-many-open"


def test_closing_ends_open_requests_at_once_and_refuses_new_ones(agent: FakeAgent) -> None:
    agent.on_submit = agent.silent
    client = agent.client()
    future = client.submit(X, LONG_MS)
    client.close()
    client.close()
    outcome = future.result(30)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "closed"
    assert isinstance(client.infer(X, LONG_MS), Rejected)
    assert agent.released.wait(30)


def test_a_blocked_thread_is_released_when_another_closes_the_client(agent: FakeAgent) -> None:
    asked = threading.Event()
    agent.on_submit = lambda submit, send: asked.set()
    client = agent.client()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.infer, X, LONG_MS)
        assert asked.wait(30)
        client.close()
        assert isinstance(waiting.result(30), Rejected)


def test_a_client_that_nobody_holds_ends_its_thread(agent: FakeAgent) -> None:
    client = agent.client()
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert agent.released.wait(30)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_loop_ends_every_request_and_says_why(agent: FakeAgent) -> None:
    def breaks(submit: Submit, send: Send) -> None:
        raise RuntimeError("the wheel came off")

    agent.on_submit = breaks
    with agent.client() as client:
        outcome = client.infer(X, LONG_MS)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "closed"
        assert "the wheel came off" in outcome.detail


def test_a_callback_may_ask_but_not_block_on_the_loop(agent: FakeAgent, client: Client) -> None:
    caught: Queue[Exception] = Queue()

    def callback(_: object) -> None:
        try:
            client.infer(X, LONG_MS)
        except HeadtailError as error:
            caught.put(error)

    go = threading.Event()

    def later(submit: Submit, send: Send) -> None:
        go.wait(30)
        agent.answer(submit, send)

    agent.on_submit = later
    client.submit(X, LONG_MS).add_done_callback(callback)
    go.set()
    assert "block the client's own loop" in str(caught.get(timeout=30))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_to_make_a_client_of_its_own(client: Client) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            client.infer(X, LONG_MS)
        except HeadtailError as error:
            status = 7 if "forked child" in str(error) else 2
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 7
    assert isinstance(client.infer(X, LONG_MS), Answer)


def test_the_applications_process_is_left_as_it_was() -> None:
    interval, enabled, frozen = sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()
    with FakeAgent().client() as client:
        client.infer(X, LONG_MS)
        assert (sys.getswitchinterval(), gc.isenabled(), gc.get_freeze_count()) == (interval, enabled, frozen)


@pytest.mark.parametrize("endpoint", ["nowhere", "ipc://", "tcp://host", "tcp://host:99999", "udp://host:1"])
def test_an_endpoint_that_is_none_is_refused_by_name(endpoint: str) -> None:
    with pytest.raises(UserError, match=re.escape(endpoint)):
        Client(endpoint)


@pytest.mark.parametrize(
    "fields", [{"endpoint": 5}, {"endpoint": None}, {"standby": 5}, {"standby": "ipc:///tmp/headtail-edge"}]
)
def test_a_standby_is_another_agent_with_an_endpoint_of_its_own(fields: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"^(endpoint|standby): expected"):
        Client(**fields)  # type: ignore[arg-type]


def test_a_client_needs_room_for_one_request() -> None:
    with pytest.raises(InputError, match="max_open"):
        Client(max_open=0)


def test_an_interpreter_ends_with_a_client_open_and_a_request_under_way(tmp_path: Path) -> None:
    program = (
        "import numpy as np\n"
        "from edge.client import Client\n"
        f"client = Client('ipc://{tmp_path}/nobody')\n"
        "future = client.submit(np.zeros(3, np.float32), 3_000_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
