"""Agent and node as real processes that do to themselves what their settings ask, whatever this machine allows."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest
from processes import ANY_PORT, ServiceProcess, cloud_settings, edge_settings, refused
from tiny import make_bundle

from cloud.node import NodeStats
from edge.agent import AgentStats
from edge.client import Client
from shared.errors import SettingsError
from shared.settings import AgentGroup, EdgeSettings, Process
from shared.transport import Dealers, Router
from shared.wire.codec import decode_edge, decode_node

FIRST = min(os.sched_getaffinity(0))
ASKS = f"[process]\ncores = [{FIRST}]\nnice = 3\nrealtime_priority = 1\nlock_memory = true\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


def settings_of(verb: str, bundle: Path, tmp_path: Path) -> str:
    if verb == "edge":
        return edge_settings(f"ipc://{tmp_path}/agent", [bundle])
    return cloud_settings([bundle])


@pytest.mark.parametrize("verb", ["edge", "cloud"])
def test_each_setting_is_in_force_or_told_on_stderr_and_all_are_in_the_stats(
    verb: str, bundle: Path, tmp_path: Path
) -> None:
    settings = settings_of(verb, bundle, tmp_path) + ASKS
    options = ("--stats",) if verb == "edge" else ("--stats", "--endpoint", ANY_PORT)
    with ServiceProcess(verb, tmp_path, settings, *options) as process:
        cores = os.sched_getaffinity(process.pid)
        status, output, errors = process.end()
    assert status == 0
    assert cores == {FIRST}
    kind = AgentStats if verb == "edge" else NodeStats
    stats = msgspec.json.decode(output.splitlines()[-1], type=kind)
    asked = ["process.cores", "process.nice", "process.realtime_priority", "process.lock_memory"]
    assert [effect.setting for effect in stats.process if effect.setting != "suspension"] == asked
    assert (stats.memory.in_use, stats.memory.slots > 0, stats.memory.nbytes > 0) == (0, True, True)
    told = [line for line in errors.splitlines() if line.startswith("headtail: process.")]
    refusals = [f"headtail: {effect}" for effect in stats.process if not effect.in_force]
    assert told == [line for line in refusals if "process." in line]


@pytest.mark.parametrize("verb", ["edge", "cloud"])
def test_a_running_process_tells_its_stats_on_a_signal_and_goes_on(verb: str, bundle: Path, tmp_path: Path) -> None:
    options = () if verb == "edge" else ("--endpoint", ANY_PORT)
    with ServiceProcess(verb, tmp_path, settings_of(verb, bundle, tmp_path), *options) as process:
        kind = AgentStats if verb == "edge" else NodeStats
        while not (stats := msgspec.json.decode(process.told(signal.SIGUSR2), type=kind)).stalls.count:
            pass  # it has said that it is ready, and its loop has not turned yet
        status, output, _ = process.end()
    assert (status, output) == (0, "")
    assert 0 < stats.stalls.p50_ms <= stats.stalls.p99_ms <= stats.stalls.max_ms
    assert stats.memory.slots > 0


@pytest.mark.parametrize("verb", ["edge", "cloud"])
def test_a_core_that_is_not_there_is_refused_in_one_line(verb: str, bundle: Path, tmp_path: Path) -> None:
    settings = settings_of(verb, bundle, tmp_path) + "[process]\nexecutor_cores = [8191]\n"
    status, errors = refused(verb, tmp_path, settings)
    assert status == 2
    (line,) = errors.splitlines()
    assert "process.executor_cores: names core 8191" in line


def test_an_application_with_an_embedded_agent_is_left_alone_and_told_so(bundle: Path) -> None:
    before = os.sched_getaffinity(0), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    process = Process(nice=3, cores=(FIRST,))
    settings = EdgeSettings(agent=AgentGroup(models=(str(bundle),)), process=process)
    with pytest.warns(UserWarning, match=r"process\.cores, process\.nice: not applied"):
        client = Client.embedded(settings)
    client.close()
    assert (os.sched_getaffinity(0), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before
    with pytest.raises(SettingsError, match=r"process\.required"):
        Client.embedded(msgspec.structs.replace(settings, process=Process(nice=3, required=True)))


def test_a_transport_knows_the_threads_that_its_sockets_began() -> None:
    def own() -> set[int]:
        return {int(task.name) for task in Path("/proc/self/task").iterdir()}

    before = own()
    router = Router(ANY_PORT, decode_edge, max_message_mb=1)
    assert router.threads
    assert router.threads == own() - before
    router.close()
    nodes = Dealers("edge", 1, decode_node, max_message_mb=1, send_buffer_kb=64, send_mark=4)
    assert nodes.threads == frozenset()
    nodes.close()
