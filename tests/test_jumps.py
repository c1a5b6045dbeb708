"""A suspension of the host, seen by the real loops of all kinds of process: client, embedded agent, agent and node."""

from __future__ import annotations

import select
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from processes import ANY_PORT, PATIENCE_S, SilentNode, with_ladder
from tiny import inputs_for, make_bundle

from cloud.node import Node
from edge.agent import Agent
from edge.client import Client
from shared.bundle import load_bundle
from shared.events import Received, Send
from shared.request import Array, Missed, Outcome
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Memory, NodeAddress, NodeGroup
from shared.transport import Dealers
from shared.wire.codec import decode_node
from shared.wire.messages import PROTOCOL, Bye, Hello, Message, Probe

LONG_MS = 30_000.0
SUSPENDED_NS = 5_000_000_000


class Watches:
    """Stands for `JumpWatch` in all loops made while it is in place. `made` are theirs, in order."""

    def __init__(self) -> None:
        self.made: list[Watch] = []

    def __call__(self) -> Watch:
        self.made.append(Watch())
        return self.made[-1]


class Watch:
    """Tells of a jump once, when the test says so."""

    able = True

    def __init__(self) -> None:
        self.jump_ns = 0

    def jumped(self) -> int:
        jump_ns, self.jump_ns = self.jump_ns, 0
        return jump_ns


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> Watches:
    made = Watches()
    monkeypatch.setattr("shared.driver.JumpWatch", made)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@pytest.fixture(scope="module")
def bundle(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that only a node can answer."""
    return with_ladder(make_bundle(tmp_path_factory.mktemp("bundles"), "chain"))


@pytest.fixture(scope="module")
def image(whole: Path) -> Array:
    return inputs_for(load_bundle(whole).plan)[0]


class Service(Protocol):
    def run(self) -> None: ...
    def stop(self) -> None: ...


@contextmanager
def running(service: Service) -> Generator[None, None, None]:
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield
    finally:
        service.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def edge(bundle: Path, node: str, endpoint: str = AgentGroup().endpoint) -> EdgeSettings:
    group = AgentGroup(endpoint=endpoint, models=(str(bundle),))
    return EdgeSettings(agent=group, nodes=(NodeAddress(name="n1", endpoint=node),))


def assert_suspended(outcome: Outcome) -> None:
    assert isinstance(outcome, Missed)
    assert outcome.stage == "client"
    assert "suspended" in outcome.detail


def test_a_client_ends_what_is_open_and_goes_on(watches: Watches, image: Array, tmp_path: Path) -> None:
    with Client(f"ipc://{tmp_path}/agent") as client:
        (watch,) = watches.made
        before = client.submit(image, LONG_MS)
        client.submit(image, 1.0).result(PATIENCE_S)  # so that the first has surely been taken
        watch.jump_ns = SUSPENDED_NS
        after = client.submit(image, 1.0)
        assert_suspended(before.result(PATIENCE_S))
        outcome = after.result(PATIENCE_S)
        assert isinstance(outcome, Missed)
        assert outcome.stage == "agent"


def test_an_embedded_agent_ends_what_is_open(watches: Watches, bundle: Path, image: Array) -> None:
    with SilentNode() as silent, Client.embedded(edge(bundle, silent.endpoint)) as client:
        (watch,) = watches.made
        before = client.submit(image, LONG_MS)
        while not silent.asked.wait(0.1):
            before = client.submit(image, LONG_MS)
        watch.jump_ns = SUSPENDED_NS
        client.submit(image, LONG_MS)
        assert_suspended(before.result(PATIENCE_S))


def test_an_agent_ends_what_its_clients_had_asked(watches: Watches, bundle: Path, image: Array, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/agent"
    with SilentNode() as silent:
        agent = Agent(edge(bundle, silent.endpoint, endpoint))
        (watch,) = watches.made
        with running(agent), Client(endpoint) as client:
            assert client.wait_attached(PATIENCE_S)
            before = client.submit(image, LONG_MS)
            while not silent.asked.wait(0.1):
                before = client.submit(image, LONG_MS)
            watch.jump_ns = SUSPENDED_NS
            client.submit(image, LONG_MS)
            assert_suspended(before.result(PATIENCE_S))


def test_a_node_asks_its_edges_to_greet_anew(watches: Watches, whole: Path) -> None:
    group = NodeGroup(endpoint=ANY_PORT, models=(str(whole),))
    node = Node(CloudSettings(node=group, memory=Memory(preallocated_memory_mb=64)))
    (watch,) = watches.made
    with running(node):
        link = Link(node.endpoint)
        link.say(Hello(PROTOCOL, "edge", 1, "data", (next(iter(node.models.values())),)))
        assert link.hears("Welcome")
        watch.jump_ns = SUSPENDED_NS
        link.say(Probe(1, 1, 0, 0))
        assert link.hears("Bye") == Bye("hello")
        link.close()


class Link:
    """An edge's connection to a node, by hand."""

    def __init__(self, endpoint: str) -> None:
        self._dealers = Dealers("edge", 1, decode_node, max_message_mb=1, send_buffer_kb=64, send_mark=4)
        self._dealers.connect("n1/data", endpoint)

    def say(self, message: Message) -> None:
        while not self._dealers.send(Send("n1/data", message)):
            self._heard()

    def hears(self, kind: str) -> Message:
        for _ in range(100):
            for message in self._heard():
                if type(message).__name__ == kind:
                    return message
        raise AssertionError(f"no {kind} came")

    def close(self) -> None:
        self._dealers.close()

    def _heard(self) -> list[Message]:
        if not self._dealers.pending():
            poll = select.poll()
            poll.register(self._dealers.fileno(), select.POLLIN)
            poll.poll(300)
        return [event.message for event in self._dealers.drain() if isinstance(event, Received)]
