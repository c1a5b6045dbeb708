"""An agent in the client's own process, behind a transport without a network, for tests of the client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

import numpy as np

from edge.answers import to_header
from edge.client import Client
from edge.client_loop import Parts
from edge.outcomes import Outcomes
from edge.stub import AGENT, Stub
from edge.tickets import OutcomeFuture
from shared.events import Action, Event, Send, SendFailed
from shared.fakes import FakeTransport
from shared.request import EXACT, Answer, Fidelity
from shared.wire.messages import (
    PROTOCOL,
    Attach,
    Attached,
    Final,
    Message,
    ModelInfo,
    OpenStream,
    Provisional,
    StreamState,
    Submit,
)

INFO = ModelInfo("double", "c1", (("x", "float32", (1, 3)),), ("y",), True, 4)
OTHER = ModelInfo("other", "c2", (("x", "float32", (1, 3)),), ("y",), True, 4)
LONG_MS = 30_000.0
X = np.array([[1, 2, 3]], np.float32)


class FakeAgent:
    """An agent in the client's own process: doubles what it is given, or does what a test says."""

    def __init__(self, models: tuple[ModelInfo, ...] = (INFO,)) -> None:
        self.transport = FakeTransport()
        self.models = models
        self.seen: Queue[Message] = Queue()
        self.on_submit: Callable[[Submit, Send], None] = self.answer
        self.on_stream: Callable[[OpenStream], None] = self.grant
        self.greets = True
        self.released = threading.Event()

    def perform(self, action: Action) -> Event | None:
        assert isinstance(action, Send)
        message = action.message
        if isinstance(message, Attach) and self.greets:
            self.attach(1)
        if not self.transport.send(action):
            return SendFailed(action.link, message)
        self.seen.put(message)
        if isinstance(message, Submit):
            self.on_submit(message, action)
        if isinstance(message, OpenStream):
            self.on_stream(message)
        return None

    def attach(self, incarnation: int) -> None:
        self.transport.deliver(AGENT, Attached(PROTOCOL, "edge", incarnation, self.models))

    def push(self, sequence: int, value: float, agreement: float = 0.9) -> None:
        answer = Answer({"y": np.full(1, value)}, "edge", None, "small", None, Fidelity("rung", "s", agreement), "c1")
        header, arrays = to_header(answer)
        self.transport.deliver(AGENT, Provisional(sequence, header), tuple(a.tobytes() for a in arrays))

    def answer(self, submit: Submit, send: Send) -> None:
        doubled = np.asarray(send.frames[0]) * 2
        header, arrays = to_header(Answer({"y": doubled}, "edge", None, "whole", None, EXACT, submit.model))
        self.transport.deliver(AGENT, Final(submit.sequence, "answer", header), tuple(a.tobytes() for a in arrays))

    def grant(self, opened: OpenStream, rung: str = "whole", reason: str = "") -> None:
        self.transport.deliver(AGENT, StreamState(opened.stream, rung, reason))

    def heard(self, kind: type[Message]) -> Message:
        """The next message of this kind that the client sends."""
        while True:
            message = self.seen.get(timeout=30)
            if isinstance(message, kind):
                return message

    def silent(self, submit: Submit, send: Send) -> None:
        pass

    def client(self, max_open: int = 16, *, connect: bool = True) -> Client:
        stub = Stub("app", 1, Outcomes("app", max_open))
        client = Client(parts=Parts(stub, self.perform, self.released.set, transports=(self.transport,)))
        if connect:
            self.transport.connect(AGENT)
            assert client.wait_attached(30)
        return client


def gated(agent: FakeAgent) -> threading.Event:
    """The agent waits for this event before it answers, so that callbacks are there when the outcome comes."""
    go = threading.Event()

    def later(submit: Submit, send: Send) -> None:
        go.wait(30)
        agent.answer(submit, send)

    agent.on_submit = later
    return go


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
