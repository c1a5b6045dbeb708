"""Journals of real processes: an agent and nodes, one of which is killed, and an agent inside the application."""

from __future__ import annotations

import select
import signal
from pathlib import Path

import pytest
from processes import ANY_PORT, PATIENCE_S, ServiceProcess, cloud_settings, edge_settings, with_ladder
from tiny import inputs_for, make_bundle

from edge.client import Client
from hil.journals import load
from hil.replay import run_again
from hil.replay_lives import Life
from shared.bundle import load_bundle
from shared.errors import JournalError
from shared.journal.file import Journal
from shared.request import Answer, Array
from shared.settings import AgentGroup, EdgeSettings

LONG_MS = 30_000.0


def saved_by(process: ServiceProcess) -> Journal:
    """Ask a process for its journal by signal, and read the file that it names."""
    process._process.send_signal(signal.SIGUSR1)
    stderr = process._process.stderr
    assert stderr is not None
    readable, _, _ = select.select([stderr], [], [], PATIENCE_S)
    assert readable
    line = stderr.readline()
    assert line.startswith("headtail: journal saved, since it was asked for: "), line
    return load(Path(line.split(": ")[2].partition(" (")[0]))


def answered_by(client: Client, image: Array, nodes: set[str]) -> str:
    """Ask until one of these nodes answers; which one."""
    for _ in range(10_000):
        outcome = client.infer(image, LONG_MS)
        if isinstance(outcome, Answer) and outcome.node in nodes:
            return outcome.node
    raise AssertionError(f"none of {nodes} ever answered")


def assert_same(found: Journal, ends: dict[str, int]) -> list[Life]:
    """That a journal replays byte for byte, and that this is what became of its requests; their lives."""
    summary, lives = run_again(found)
    assert summary.difference is None
    assert summary.same_code
    assert summary.replayed == summary.steps > 0
    assert summary.ends == ends
    return lives


def test_the_journals_of_an_agent_and_of_its_nodes_replay_although_one_node_was_killed(tmp_path: Path) -> None:
    bundle = with_ladder(make_bundle(tmp_path, "chain"), "small")
    image = inputs_for(load_bundle(bundle).plan)[0]
    endpoint = f"ipc://{tmp_path}/agent"
    keep = f'[journal]\nfolder = "{tmp_path}/journals"\n'
    nodes: dict[str, ServiceProcess] = {}
    with Client(endpoint) as client:
        for name in ("n1", "n2"):
            (tmp_path / name).mkdir()
            text = cloud_settings([bundle]) + keep
            nodes[name] = ServiceProcess("cloud", tmp_path / name, text, "--endpoint", ANY_PORT, "--name", name)
        ends = [(name, node.endpoint) for name, node in nodes.items()]
        with (
            nodes["n1"],
            nodes["n2"],
            ServiceProcess("edge", tmp_path, edge_settings(endpoint, [bundle], ends, keep)) as agent,
        ):
            first = answered_by(client, image, set(nodes))
            nodes[first].kill()
            other = answered_by(client, image, set(nodes) - {first})
            for _ in range(50):
                assert isinstance(client.infer(image, LONG_MS), Answer)

            found = saved_by(agent)
            assert (found.head.kind, found.head.name, found.head.reason) == ("edge", "edge", "signal")
            lives = assert_same(found, {"answer": client.stats().asked})
            assert {life.by.partition(":")[0] for life in lives} >= {first, other}

            tail = saved_by(nodes[other])
            assert (tail.head.kind, tail.head.name) == ("node", other)
            summary, lives = run_again(tail)
            assert summary.difference is None
            assert any(life.end == "reply" for life in lives)

            assert isinstance(client.infer(image, LONG_MS), Answer)
            status, _, errors = agent.end()
            assert (status, errors) == (0, "")


def test_an_application_saves_the_journal_of_the_agent_that_it_carries(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, "chain")
    image = inputs_for(load_bundle(bundle).plan)[0]
    with Client.embedded(EdgeSettings(agent=AgentGroup(models=(str(bundle),))), name="app") as client:
        for _ in range(20):
            assert isinstance(client.infer(image, LONG_MS), Answer)
        steps = client.save_journal(tmp_path / "app.journal")
    found = load(tmp_path / "app.journal")
    assert len(list(found.records)) == steps
    assert_same(found, {"answer": 20})
    assert image.tobytes()[:64] not in b"".join(found.records)


def test_the_journal_of_an_agent_in_another_process_is_not_the_clients_to_save(tmp_path: Path) -> None:
    with Client(f"ipc://{tmp_path}/nobody") as client, pytest.raises(JournalError, match="the signal USR1"):
        client.save_journal(tmp_path / "x.journal")
