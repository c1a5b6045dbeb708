"""headtail as a server of a harness that knows nothing of it."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hil.peers.bundle import BATCHES, write_served
from hil.peers.serve import COUNTS
from shared.bundle import load_bundle


def write_model(path: Path) -> None:
    """Twice the input."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4, 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_model_becomes_a_bundle_with_times_by_batch(tmp_path: Path) -> None:
    write_model(tmp_path / "twice.onnx")
    path, shape, sample = write_served(tmp_path / "twice.onnx", tmp_path / "out")
    assert shape == (4, 8)
    plan = load_bundle(path).plan
    assert [t.batch for t in plan.profiles[1].ranges] == list(BATCHES)
    assert len(sample) == plan.inputs[0].nbytes()


def test_the_harness_gets_answers_refusals_and_a_count_of_what_was_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    write_model(tmp_path / "models" / "twice.onnx")
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(COUNTS.size))
    monkeypatch.setenv("HEADTAIL_PEERS", str(tmp_path / "bundles"))
    adapter = importlib.reload(importlib.import_module("hil.peers.adapter"))
    headtail = adapter.ADAPTERS["headtail"]
    port = free_port()
    environment = os.environ | {"PEERS_ROOT": str(tmp_path), "PEERS_COUNTER": str(counter)}
    command = headtail.server_cmd("twice", port)
    assert command[0] == sys.executable
    server = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[1])
    try:
        told = tmp_path / "bundles" / "twice.told"
        until = time.monotonic() + 60
        while not told.exists() and server.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        statuses = asyncio.run(asked(headtail.client(), port))
    finally:
        server.terminate()
        assert server.wait(30) == 0
    assert statuses == dict.fromkeys(range(20), 200) | {20: 504}
    process, launches, rows = COUNTS.unpack(counter.read_bytes())
    assert process == server.pid
    assert rows == 20
    assert 1 <= launches <= 20


async def asked(client: Any, port: int) -> dict[int, int]:
    """Ask twenty times with much time and once with none."""
    statuses: dict[int, int] = {}
    done = asyncio.Event()

    def answered(tag: int, status: int) -> None:
        assert tag not in statuses
        statuses[tag] = status
        if len(statuses) == 21:
            done.set()

    await client.start("twice", port, 1)
    for tag in range(20):
        client.submit(tag, time.monotonic() + 30, answered)
    client.submit(20, time.monotonic() - 1, answered)
    await asyncio.wait_for(done.wait(), 60)
    await client.close()
    return statuses


def test_the_sample_is_answered_as_the_runtime_answers_it(tmp_path: Path) -> None:
    write_model(tmp_path / "twice.onnx")
    path, shape, sample = write_served(tmp_path / "twice.onnx", tmp_path / "out")
    golden = load_bundle(path).golden()[0]
    assert np.array_equal(golden.outputs[0], 2 * np.frombuffer(sample, np.float32).reshape(1, *shape))


def test_what_a_killed_node_has_not_answered_is_asked_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    write_model(tmp_path / "models" / "twice.onnx")
    monkeypatch.setenv("HEADTAIL_PEERS", str(tmp_path / "bundles"))
    monkeypatch.setenv("HEADTAIL_PEERS_NODES", "2")
    adapter = importlib.reload(importlib.import_module("hil.peers.adapter"))
    port = free_port()
    environment = os.environ | {"PEERS_ROOT": str(tmp_path), "PEERS_COUNTER": ""}
    command = adapter.ADAPTERS["headtail"].server_cmd("twice", port)
    server = subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[1], start_new_session=True)
    try:
        told = tmp_path / "bundles" / "twice.told"
        until = time.monotonic() + 60
        while not told.exists() and server.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        statuses = asyncio.run(asked_while_it_dies(adapter.ADAPTERS["headtail"].client(), port, server.pid))
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(30)
    assert statuses == dict.fromkeys(range(200), 200)


async def asked_while_it_dies(client: Any, port: int, pid: int) -> dict[int, int]:
    """Ask 200 times, one after the other, and kill the first node after a hundred."""
    statuses: dict[int, int] = {}
    await client.start("twice", port, 1)
    for tag in range(200):
        done = asyncio.Event()

        def answered(tag: int, status: int, done: asyncio.Event = done) -> None:
            statuses[tag] = status
            done.set()

        client.submit(tag, time.monotonic() + 30, answered)
        if tag == 100:
            os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(done.wait(), 60)
    await client.close()
    return statuses
