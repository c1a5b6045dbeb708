"""A caller that waits turns the client's loop itself, where it can, and is spared what it must not see of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from queue import Queue
from types import FrameType

import pytest
from fake_agent import LONG_MS, FakeAgent, X

from edge.client import Client
from edge.leading import AT_ONCE_NS
from shared.errors import HeadtailError
from shared.events import Send
from shared.request import Answer, Outcome, Rejected
from shared.wire.messages import Submit, Withdraw

BOUND_S = 30.0
Handler = Callable[[int, FrameType | None], object]


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def client(agent: FakeAgent) -> Iterator[Client]:
    with agent.client() as client:
        yield client


@pytest.fixture
def on_signal() -> Iterator[Callable[[Handler], None]]:
    """Sets the handler of SIGUSR1 for a test."""
    before = signal.getsignal(signal.SIGUSR1)

    def use(handler: Handler) -> None:
        signal.signal(signal.SIGUSR1, handler)

    yield use
    signal.signal(signal.SIGUSR1, before)


def asked_on(agent: FakeAgent, ask: Callable[[], object]) -> threading.Thread:
    """The thread that turned the loop when a request was sent."""
    threads: list[threading.Thread] = []

    def note(submit: Submit, send: Send) -> None:
        threads.append(threading.current_thread())
        agent.answer(submit, send)

    agent.on_submit = note
    ask()
    return threads[0]


def later(number: int) -> None:
    """Send this process a signal in a moment."""
    threading.Timer(0.05, os.kill, [os.getpid(), number]).start()


def idle(client: Client) -> None:
    """Wait until the loop's own thread sleeps, so that whoever asks next leads."""
    end = time.monotonic() + BOUND_S
    driver = client._loop._driver
    while not driver.take():
        assert time.monotonic() < end
        time.sleep(0.001)
    driver.lead(lambda: True)


def lead(agent: FakeAgent, client: Client, act: Callable[[Submit, Send], None]) -> Outcome:
    """The outcome of the first `infer()` that leads (the loop's own thread may be awake by chance): `act` is what the agent
    does with it."""
    here = threading.current_thread()
    led: list[bool] = []

    def on_submit(submit: Submit, send: Send) -> None:
        if threading.current_thread() is here:
            led.append(True)
            act(submit, send)
        else:
            agent.answer(submit, send)

    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        time.sleep(2 * AT_ONCE_NS / 1e9)  # who asks without a pause may have to hand its requests over
        idle(client)
        agent.on_submit = on_submit
        outcome = client.infer(X, 2 * LONG_MS)
        if led:
            return outcome
    raise AssertionError("never led")


def test_a_caller_that_waits_leads_and_one_that_does_not_wait_does_not(agent: FakeAgent, client: Client) -> None:
    for _ in range(20):
        assert isinstance(lead(agent, client, agent.answer), Answer)
    assert asked_on(agent, lambda: client.submit(X, LONG_MS).result(30)) is client._loop._thread


def test_a_caller_does_not_lead_while_another_waits(agent: FakeAgent, client: Client) -> None:
    agent.on_submit = agent.silent
    client.submit(X, LONG_MS)
    agent.heard(Submit)
    idle(client)
    assert asked_on(agent, lambda: client.infer(X, LONG_MS)) is client._loop._thread


def test_who_leads_leaves_when_another_asks(agent: FakeAgent, client: Client) -> None:
    """The other's future is ended on the client's own thread, and the leader has its outcome."""
    threads: Queue[threading.Thread] = Queue()
    waiting: Queue[object] = Queue()
    agent.on_submit = agent.silent
    idle(client)
    leader = threading.Thread(target=lambda: waiting.put(client.infer(X, 3_000)))
    leader.start()
    agent.heard(Submit)
    agent.on_submit = agent.answer
    client.submit(X, LONG_MS).add_done_callback(lambda _: threads.put(threading.current_thread()))
    assert threads.get(timeout=BOUND_S) is client._loop._thread
    assert not isinstance(waiting.get(timeout=BOUND_S), Answer)
    leader.join(BOUND_S)


def test_a_future_whose_outcome_comes_in_a_led_turn_is_ended_on_the_clients_own_thread(
    agent: FakeAgent, client: Client
) -> None:
    """It was asked for in the very turn in which the leader asks."""
    threads: Queue[threading.Thread] = Queue()

    def both(submit: Submit, send: Send) -> None:
        agent.on_submit = agent.answer
        future = client.submit(X, LONG_MS)
        future.add_done_callback(lambda _: threads.put(threading.current_thread()))
        client._loop._driver._drain()
        agent.answer(submit, send)
        client._loop._driver._drain()

    assert isinstance(lead(agent, client, both), Answer)
    assert threads.get(timeout=BOUND_S) is client._loop._thread


def test_a_future_that_is_decided_in_the_turn_in_which_it_was_asked_for_does_not_wait_for_who_leads(
    agent: FakeAgent, client: Client
) -> None:
    asked: Queue[tuple[Submit, Send]] = Queue()

    def at_once(submit: Submit, send: Send) -> None:
        agent.answer(submit, send)
        client._loop._driver._drain()

    def waits(submit: Submit, send: Send) -> None:
        agent.on_submit = at_once
        asked.put((submit, send))

    leader = threading.Thread(target=lead, args=(agent, client, waits))
    leader.start()
    first = asked.get(timeout=BOUND_S)
    began = time.monotonic()
    assert isinstance(client.submit(X, LONG_MS).result(BOUND_S), Answer)
    assert time.monotonic() - began < LONG_MS / 1000
    agent.answer(*first)
    leader.join(BOUND_S)
    assert not leader.is_alive()


def test_an_outcome_that_the_caller_lets_go_of_is_kept_by_nobody(agent: FakeAgent, client: Client) -> None:
    outcome = lead(agent, client, agent.answer)
    assert isinstance(outcome, Answer)
    tensor = weakref.ref(outcome.outputs["y"])
    del outcome
    assert tensor() is None


def test_ctrl_c_in_the_middle_of_a_turn_leaves_the_turn_whole(agent: FakeAgent, client: Client) -> None:
    done: list[str] = []

    def interrupted(submit: Submit, send: Send) -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("the turn")

    with pytest.raises(KeyboardInterrupt):
        lead(agent, client, interrupted)
    assert done == ["the turn"]
    withdrawn = agent.heard(Withdraw)
    assert isinstance(withdrawn, Withdraw)
    agent.on_submit = agent.answer
    assert isinstance(client.infer(X, LONG_MS), Answer)
    assert client.stats().withdrawn == 1


def test_ctrl_c_ends_a_wait_at_once(agent: FakeAgent, client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        lead(agent, client, lambda submit, send: later(signal.SIGINT))
    assert time.monotonic() - began < BOUND_S
    agent.on_submit = agent.answer
    assert isinstance(client.infer(X, LONG_MS), Answer)


def test_a_handler_may_ask_and_wait_itself(
    agent: FakeAgent, client: Client, on_signal: Callable[[Handler], None]
) -> None:
    inner: list[object] = []
    submits: list[tuple[Submit, Send]] = []

    def handler(number: int, frame: FrameType | None) -> None:
        agent.on_submit = agent.answer
        inner.append(client.infer(X, LONG_MS))
        agent.answer(*submits[0])

    def first(submit: Submit, send: Send) -> None:
        submits.append((submit, send))
        later(signal.SIGUSR1)

    on_signal(handler)
    assert isinstance(lead(agent, client, first), Answer)
    assert [type(outcome) for outcome in inner] == [Answer]


def test_a_handler_that_closes_the_client_ends_the_wait(
    agent: FakeAgent, client: Client, on_signal: Callable[[Handler], None]
) -> None:
    on_signal(lambda number, frame: client.close())
    assert isinstance(lead(agent, client, lambda submit, send: later(signal.SIGUSR1)), Rejected)


def test_who_leads_may_not_wait_for_the_client_within_the_turn(agent: FakeAgent, client: Client) -> None:
    """The collector may call what asks, in the middle of a turn, on whatever thread."""
    came: list[Exception] = []

    def asks(submit: Submit, send: Send) -> None:
        try:
            client.infer(X, LONG_MS)
        except HeadtailError as error:
            came.append(error)
        agent.answer(submit, send)

    assert isinstance(lead(agent, client, asks), Answer)
    assert "own loop" in str(came[0])


def test_a_caller_deep_in_calls_or_on_a_small_stack_does_not_lead(agent: FakeAgent, client: Client) -> None:
    own = client._loop._thread
    idle(client)

    def deep(calls: int) -> threading.Thread:
        return deep(calls - 1) if calls else asked_on(agent, lambda: client.infer(X, LONG_MS))

    frames = 1
    frame: FrameType | None = sys._getframe()
    while frame := frame.f_back:
        frames += 1
    room = sys.getrecursionlimit() - frames
    assert deep(room - 150) is own
    threads: Queue[threading.Thread] = Queue()
    started = threading.Event()

    def small() -> None:
        started.wait(BOUND_S)
        threads.put(asked_on(agent, lambda: client.infer(X, LONG_MS)))

    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=small)
        thread.start()
    finally:
        threading.stack_size(before)  # which tells nothing about the threads that are there
    idle(client)
    started.set()
    assert threads.get(timeout=BOUND_S) is own
    thread.join(BOUND_S)


def test_calls_by_way_of_c_count_as_deep_as_they_are(agent: FakeAgent, client: Client) -> None:
    """Up to Python 3.11 each of an object that is called takes the room of two, and is one frame."""
    outcomes: list[Outcome] = []

    class Deep:
        def __call__(self) -> None:
            outcomes.append(client.infer(X, LONG_MS))
            self()

    idle(client)
    with pytest.raises(RecursionError):
        Deep()()
    assert outcomes
    assert {type(outcome) for outcome in outcomes} == {Answer}
    assert isinstance(client.infer(X, LONG_MS), Answer)


def test_a_future_is_ended_also_where_the_loop_never_comes_to_rest(agent: FakeAgent, client: Client) -> None:
    """It is one whose outcome came while a caller led."""
    busy = threading.Event()
    ended = threading.Event()
    pending = agent.transport.pending

    def both(submit: Submit, send: Send) -> None:
        agent.on_submit = agent.answer
        future = client.submit(X, LONG_MS)
        future.add_done_callback(lambda _: ended.set())
        client._loop._driver._drain()
        agent.answer(submit, send)
        client._loop._driver._drain()
        busy.set()

    agent.transport.pending = lambda: busy.is_set() or pending()  # type: ignore[method-assign]
    try:
        assert isinstance(lead(agent, client, both), Answer)
        assert ended.wait(BOUND_S)
    finally:
        busy.clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_is_raised_anywhere_in_a_request_that_leads_hangs_nobody() -> None:
    """A trace function may raise before any instruction, as another thread may (`PyThreadState_SetAsyncExc`)."""

    class Boom(BaseException):
        pass

    def infer(place: int) -> bool:
        """A request in which something is raised at that place; whether it has so many, as one that leads has."""
        agent = FakeAgent()
        passed = 0

        def trace(frame: FrameType, event: str, arg: object) -> object:
            nonlocal passed
            if not {"headtail", "edge", "shared"} & {frame.f_globals["__name__"].partition(".")[0]}:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            passed += event == "opcode"
            if passed == place and event == "opcode":
                raise Boom
            return trace

        with agent.client() as client:
            idle(client)
            before = sys.gettrace()
            sys.settrace(trace)  # type: ignore[arg-type]
            try:
                client.infer(X, LONG_MS)
            except Boom:
                pass
            finally:
                sys.settrace(before)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert isinstance(client.infer(X, LONG_MS), Answer | Rejected)
        return passed >= place

    reached = sum(infer(place) for place in range(1, 2_500, 13))
    assert reached > 30


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_turn_that_breaks_on_a_callers_thread_ends_the_client_and_not_the_caller(agent: FakeAgent) -> None:
    def breaks(submit: Submit, send: Send) -> None:
        raise RuntimeError("the wheel came off")

    with agent.client() as client:
        outcome = lead(agent, client, breaks)
        assert isinstance(outcome, Rejected)
        assert "the wheel came off" in str(outcome)
        assert agent.released.wait(BOUND_S)
        assert isinstance(client.infer(X, LONG_MS), Rejected)


def test_a_caller_that_asks_again_at_once_does_not_lead_while_another_thread_asks(
    agent: FakeAgent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.leading.AT_ONCE_NS", 1 << 62)
    monkeypatch.setattr("edge.leading.SHARED_NS", 1 << 62)
    client.infer(X, LONG_MS)
    other = threading.Thread(target=client.infer, args=(X, LONG_MS))
    other.start()
    other.join(BOUND_S)
    idle(client)
    assert asked_on(agent, lambda: client.infer(X, LONG_MS)) is client._loop._thread
