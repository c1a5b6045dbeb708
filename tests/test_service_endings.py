"""How agent and node end, as processes: whatever signals come late, whoever takes what they say, with nothing left."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import processes
import pytest
from processes import COMMAND, PATIENCE_S, ServiceProcess, cloud_settings, edge_settings
from tiny import make_bundle

from cloud.node import Node
from edge.agent import Agent
from edge.client import Client
from shared.settings import AgentGroup, CloudSettings, EdgeSettings, Memory, NodeGroup

VERBS = pytest.mark.parametrize("verb", ["edge", "cloud"])

LATE = """
import os, signal

class Late:
    def __init__(self, number):
        self.number = number

    def __del__(self, kill=os.kill, process=os.getpid()):
        kill(process, self.number)

late = [Late(signal.SIGTERM), Late(signal.SIGINT), Late(signal.SIGUSR1), Late(signal.SIGUSR2)]
from shared.cli import main
main()
"""
"""`headtail`, which gets signals when the interpreter takes its modules apart and handles none any more."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


def settings_of(verb: str, folder: Path, bundle: Path) -> str:
    endpoint = f"ipc://{folder}/socket"
    return edge_settings(endpoint, [bundle]) if verb == "edge" else cloud_settings([bundle], endpoint)


@VERBS
def test_signals_in_the_last_moments_of_a_service_do_not_change_its_status(
    verb: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "COMMAND", (sys.executable, "-c", LATE))
    with ServiceProcess(verb, tmp_path, settings_of(verb, tmp_path, bundle)) as service:
        assert service.end() == (0, "", "")


@VERBS
def test_a_service_that_cannot_say_that_it_is_ready_says_so_and_leaves_nothing(
    verb: str, bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "settings").write_text(settings_of(verb, tmp_path, bundle))
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >/dev/full', "sh", *COMMAND, verb, "--config", str(tmp_path / "settings")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "headtail: standard output: No space left on device\n")
    assert [path.name for path in tmp_path.iterdir()] == ["settings"]


def test_an_agent_serves_with_all_standard_streams_closed(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(settings_of("edge", tmp_path, bundle))
    agent = subprocess.Popen(
        [
            "sh",
            "-c",
            'exec "$@" <&- >&- 2>&-',
            "sh",
            *COMMAND,
            "edge",
            "--config",
            str(tmp_path / "settings"),
            "--stats",
        ]
    )
    try:
        with Client(f"ipc://{tmp_path}/socket") as client:
            assert client.wait_attached(PATIENCE_S)
        agent.terminate()
        assert agent.wait(PATIENCE_S) == 0
    finally:
        agent.kill()
        agent.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["settings"]


@pytest.mark.parametrize("failing", ["Driver", "Front", "Router"])
def test_an_agent_that_cannot_be_made_leaves_neither_socket_nor_thread(
    failing: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*parts: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"edge.agent.{failing}", refuse)
    before = set(threading.enumerate())
    group = AgentGroup(endpoint=f"ipc://{tmp_path}/socket", models=(str(bundle),))
    with pytest.raises(KeyboardInterrupt):
        Agent(EdgeSettings(agent=group))
    assert set(threading.enumerate()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", ["Driver", "Keeper", "Router"])
def test_a_node_that_cannot_be_made_leaves_neither_socket_nor_thread(
    failing: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*parts: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"cloud.node.{failing}", refuse)
    before = set(threading.enumerate())
    group = NodeGroup(endpoint=f"ipc://{tmp_path}/socket", models=(str(bundle),))
    with pytest.raises(KeyboardInterrupt):
        Node(CloudSettings(node=group, memory=Memory(preallocated_memory_mb=64)))
    assert set(threading.enumerate()) == before
    assert list(tmp_path.iterdir()) == []
