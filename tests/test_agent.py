from __future__ import annotations

import dataclasses
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import cast

import numpy as np
import pytest
from processes import (
    ANY_PORT,
    PATIENCE_S,
    ServiceProcess,
    SilentNode,
    cloud_settings,
    edge_settings,
    refused,
    with_ladder,
)
from tiny import inputs_for, make_bundle, run_chain

from edge.client import Client
from edge.client_link import agent_link
from edge.client_loop import ClientMachine
from edge.tickets import OutcomeFuture
from shared.bundle import load_bundle
from shared.errors import BundleError, SettingsError
from shared.events import Action, Event, Received
from shared.request import Answer, Array, Missed, Rejected
from shared.settings import AgentGroup, EdgeSettings, Link
from shared.wire.messages import Provisional

LONG_MS = 30_000.0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@pytest.fixture(scope="module")
def image(bundle: Path) -> Array:
    return inputs_for(load_bundle(bundle).plan)[0]


@pytest.fixture(scope="module")
def truth(bundle: Path, image: Array) -> dict[str, Array]:
    return run_chain(bundle, load_bundle(bundle).plan.programs[0].segments, {"image": image})


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/agent"


def assert_exact(outcome: object, truth: dict[str, Array]) -> Answer:
    assert isinstance(outcome, Answer)
    assert set(outcome.outputs) == {"logits", "best"}
    for name, array in outcome.outputs.items():
        assert np.allclose(array.astype(np.float64), truth[name].astype(np.float64), atol=1e-5)
    return outcome


def until_cloud(client: Client, image: Array) -> Answer:
    """Ask until a node answers. The local answer must not be better, or nobody would ask a node."""
    for _ in range(10_000):
        outcome = client.infer(image, LONG_MS)
        if isinstance(outcome, Answer) and outcome.source == "cloud":
            return outcome
    raise AssertionError("no node ever answered")


def test_an_agent_answers_its_clients_and_ends_cleanly(
    bundle: Path, image: Array, truth: dict[str, Array], tmp_path: Path, endpoint: str
) -> None:
    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [bundle]), "--stats") as agent:
        assert agent.endpoint == endpoint
        with Client(endpoint) as client, Client(endpoint) as other:
            assert client.wait_attached(PATIENCE_S)
            assert other.wait_attached(PATIENCE_S)
            assert set(client.models()) == {"chain"}
            for asking in (client, other):
                answer = assert_exact(asking.infer(image, LONG_MS), truth)
                assert answer.source == "edge"
                assert sum(answer.stages.values()) == answer.elapsed_ns
        status, output, errors = agent.end()
    assert (status, errors) == (0, "")
    assert '"agent":"edge"' in output
    assert not (tmp_path / "agent").exists()


def test_an_embedded_agent_gives_the_same_answers(bundle: Path, image: Array, truth: dict[str, Array]) -> None:
    settings = EdgeSettings(agent=AgentGroup(models=(str(bundle),)))
    with Client.embedded(settings) as client:
        assert_exact(client.infer({"image": image}, LONG_MS), truth)
        rows = np.concatenate([image, image])
        outcome = client.infer(rows, LONG_MS)
        assert isinstance(outcome, Answer)
        assert outcome.outputs["logits"].shape == (2, 5)


def test_settings_made_in_code_are_held_to_the_rules_of_a_file() -> None:
    with pytest.raises(SettingsError, match=r"^link\.rate_mbit: is 0\.0; expected "):
        Client.embedded(EdgeSettings(link=Link(rate_mbit=0.0)))


def test_an_embedded_agent_needs_a_bundle_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="there is no bundle"):
        Client.embedded(EdgeSettings(agent=AgentGroup(models=(str(tmp_path / "none.plan"),))))
    with pytest.raises(SettingsError, match=r"agent\.models"):
        Client.embedded(EdgeSettings())


def test_a_node_answers_for_the_agent_and_counts_what_it_ran(
    image: Array, truth: dict[str, Array], tmp_path: Path, endpoint: str
) -> None:
    weak = with_ladder(make_bundle(tmp_path, "chain"), "small")
    with ServiceProcess("cloud", tmp_path, cloud_settings([weak]), "--stats", "--endpoint", ANY_PORT) as own:
        with (
            ServiceProcess("edge", tmp_path, edge_settings(endpoint, [weak], [("n1", own.endpoint)])),
            Client(endpoint) as client,
        ):
            answer = until_cloud(client, image)
            assert answer.node == "n1"
            assert str(answer.fidelity) == "exact"
            assert_exact(answer, truth)
            assert sum(answer.stages.values()) == answer.elapsed_ns
        status, output, _ = own.end()
    assert status == 0
    assert '"launches":[{"contract":' in output


class Watching:
    """A client's machine that tells to which requests an answer was pushed."""

    def __init__(self, machine: ClientMachine, pushed: Queue[tuple[int, bool]]) -> None:
        self._machine = machine
        self._pushed = pushed

    def __getattr__(self, name: str) -> object:
        return getattr(self._machine, name)

    def handle(self, event: Event, now: int) -> list[Action]:
        actions = self._machine.handle(event, now)
        if isinstance(event, Received) and isinstance(event.message, Provisional):
            self._pushed.put((event.message.sequence, True))
        return actions


def until_pushed(client: Client, image: Array, seen: Queue[tuple[int, bool]]) -> OutcomeFuture:
    """Ask until the agent pushes an answer and holds it for a better one; that request."""
    while True:
        future = client.submit(image, 1_500)
        future.add_done_callback(lambda done: seen.put((cast(OutcomeFuture, done).sequence, False)))
        while (news := seen.get(timeout=PATIENCE_S))[0] != future.sequence:
            pass
        if news[1]:
            return future


@pytest.mark.parametrize("end", [ServiceProcess.kill, ServiceProcess.stop])
def test_when_the_agent_falls_silent_the_answer_that_it_had_pushed_is_delivered_at_the_deadline(
    image: Array, tmp_path: Path, endpoint: str, end: Callable[[ServiceProcess], None]
) -> None:
    bundle = with_ladder(make_bundle(tmp_path, "chain"), "small")
    seen: Queue[tuple[int, bool]] = Queue()
    parts = agent_link(endpoint, "app", 1, 16)
    watching = cast(ClientMachine, Watching(parts.machine, seen))
    with SilentNode() as silent, Client(parts=dataclasses.replace(parts, machine=watching)) as client:
        settings = edge_settings(endpoint, [bundle], [("n1", silent.endpoint)])
        with ServiceProcess("edge", tmp_path, settings) as agent:
            assert client.wait_attached(PATIENCE_S)
            future = until_pushed(client, image, seen)
            end(agent)
            outcome = future.result(PATIENCE_S)
            assert isinstance(outcome, Answer)
            assert (outcome.source, outcome.rung) == ("edge", "small")
            assert isinstance(client.infer(image, 100), Missed)
            if end is ServiceProcess.stop:
                agent.resume()
                assert isinstance(client.infer(image, LONG_MS), Answer)
                return
        with ServiceProcess("edge", tmp_path, settings):
            assert client.wait_attached(PATIENCE_S)
            assert isinstance(client.infer(image, LONG_MS), Answer)


def test_killing_the_agent_before_it_has_any_answer_ends_in_a_miss_of_the_agent_and_a_new_one_is_asked(
    image: Array, tmp_path: Path, endpoint: str
) -> None:
    bundle = with_ladder(make_bundle(tmp_path, "chain"))
    with SilentNode() as silent, Client(endpoint) as client:
        settings = edge_settings(endpoint, [bundle], [("n1", silent.endpoint)])
        with ServiceProcess("edge", tmp_path, settings) as agent:
            assert client.wait_attached(PATIENCE_S)
            future = client.submit(image, 2_000)
            while not silent.asked.wait(0.1):
                future = client.submit(image, 2_000)
            agent.kill()
            outcome = future.result(PATIENCE_S)
            assert isinstance(outcome, Missed)
            assert outcome.stage == "agent"
        whole = edge_settings(endpoint, [make_bundle(tmp_path / "again", "chain")])
        with ServiceProcess("edge", tmp_path, whole):
            assert isinstance(client.infer(image, LONG_MS), Answer)


def test_a_stopped_agent_hangs_nobody_and_serves_again_when_it_goes_on(
    bundle: Path, image: Array, truth: dict[str, Array], tmp_path: Path, endpoint: str
) -> None:
    with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [bundle])) as agent, Client(endpoint) as client:
        assert client.wait_attached(PATIENCE_S)
        agent.stop()
        futures = [client.submit(image, 200) for _ in range(5)]
        for future in futures:
            outcome = future.result(PATIENCE_S)
            assert isinstance(outcome, Missed)
            assert outcome.stage == "agent"
        agent.resume()
        assert_exact(client.infer(image, LONG_MS), truth)


def test_a_stream_is_promised_again_by_an_agent_that_was_killed_and_started_anew(
    bundle: Path, image: Array, tmp_path: Path, endpoint: str
) -> None:
    settings = edge_settings(endpoint, [bundle])
    with Client(endpoint) as client, client.stream(period_ms=1_000, deadline_ms=LONG_MS) as stream:
        for _ in range(2):
            with ServiceProcess("edge", tmp_path, settings) as agent:
                assert isinstance(stream.submit(image).result(PATIENCE_S), Answer)
                assert stream.wait_promise(PATIENCE_S)
                assert (stream.promise, stream.reason) == ("whole", "")
                agent.kill()
                while client.attached:
                    assert isinstance(client.infer(image, 20), Missed | Rejected)
            assert (stream.promise, stream.reason) == (None, "agent")


def test_a_client_may_be_made_and_asked_before_its_agent_starts(
    bundle: Path, image: Array, truth: dict[str, Array], tmp_path: Path, endpoint: str
) -> None:
    with Client(endpoint) as client:
        future = client.submit(image, LONG_MS)
        with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [bundle])):
            assert_exact(future.result(PATIENCE_S), truth)


def test_a_second_agent_on_the_same_path_is_refused_and_the_first_goes_on(
    bundle: Path, image: Array, tmp_path: Path, endpoint: str
) -> None:
    settings = edge_settings(endpoint, [bundle])
    with ServiceProcess("edge", tmp_path, settings), Client(endpoint) as client:
        status, errors = refused("edge", tmp_path, settings)
        assert status == 2
        assert f"{tmp_path}/agent" in errors
        assert "Traceback" not in errors
        assert isinstance(client.infer(image, LONG_MS), Answer)


def test_an_agent_says_once_that_another_one_took_its_name(bundle: Path, tmp_path: Path, endpoint: str) -> None:
    second = tmp_path / "second"
    second.mkdir()
    with ServiceProcess("cloud", tmp_path, cloud_settings([bundle]), "--endpoint", ANY_PORT) as node:
        nodes = [("n1", node.endpoint)]
        with ServiceProcess("edge", tmp_path, edge_settings(endpoint, [bundle], nodes)) as older:
            ends = time.monotonic() + PATIENCE_S
            with ServiceProcess("edge", second, edge_settings(f"{endpoint}-2", [bundle], nodes)):
                while json.loads(older.told(signal.SIGUSR2))["counters"].get("replaced", 0) < 3:
                    assert time.monotonic() < ends
                    time.sleep(0.05)
            _, _, errors = older.end()
    assert errors.count("the node n1 serves another agent 'edge', started later, in place of this one") == 1, errors


def test_a_node_whose_port_is_in_use_says_so(bundle: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        status, errors = refused("cloud", tmp_path, cloud_settings([bundle], where))
    assert status == 2
    assert f"{where} is in use" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("verb", ["edge", "cloud"])
def test_a_process_without_models_says_which_key_is_empty(verb: str, tmp_path: Path, endpoint: str) -> None:
    settings = edge_settings(endpoint, []) if verb == "edge" else cloud_settings([])
    status, errors = refused(verb, tmp_path, settings)
    assert status == 2
    assert ("agent.models" if verb == "edge" else "node.models") in errors
    assert "Traceback" not in errors


def test_a_damaged_bundle_is_refused_by_name(tmp_path: Path, endpoint: str) -> None:
    bundle = make_bundle(tmp_path, "identity")
    (bundle / "weights.bin").write_bytes(b"other")
    status, errors = refused("edge", tmp_path, edge_settings(endpoint, [bundle]))
    assert status == 2
    assert "weights.bin" in errors
    assert "Traceback" not in errors
