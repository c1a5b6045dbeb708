"""A standby agent beside a primary one, as real processes: killed, stopped and continued under a client that asks on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from processes import PATIENCE_S, ServiceProcess, edge_settings, refused, with_ladder
from tiny import inputs_for, make_bundle

from edge.client import Client
from edge.host import Host
from edge.tickets import OutcomeFuture
from shared.bundle import load_bundle
from shared.errors import SettingsError
from shared.plan import SegmentRange
from shared.request import Answer, Array
from shared.settings import AgentGroup, EdgeSettings, Memory

LONG_MS = 30_000.0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundles"), "chain")


@pytest.fixture(scope="module")
def image(bundle: Path) -> Array:
    return inputs_for(load_bundle(bundle).plan)[0]


def agent(folder: Path, name: str, bundle: Path, *, standby: bool = False) -> ServiceProcess:
    home = folder / name
    home.mkdir(exist_ok=True)
    settings = edge_settings(f"ipc://{folder}/{name}.sock", [bundle])
    return ServiceProcess("edge", home, settings.replace("[agent]\n", f"[agent]\nstandby = {str(standby).lower()}\n"))


def client_of(folder: Path) -> Client:
    return Client(f"ipc://{folder}/first.sock", standby=f"ipc://{folder}/second.sock")


def until(client: Client, image: Array, asking: str) -> Answer:
    """Ask until requests go to this agent; every one of them is answered meanwhile. The answer of that agent."""
    for _ in range(100_000):
        known = client.asking
        outcome = client.infer(image, LONG_MS)
        assert isinstance(outcome, Answer)
        if known == client.asking == asking:
            return outcome
    raise AssertionError(f"{asking} was never asked")


def all_answers(futures: list[OutcomeFuture]) -> set[str]:
    """The rungs that answered, of which each future has one."""
    outcomes = [future.result(PATIENCE_S) for future in futures]
    assert all(isinstance(outcome, Answer) for outcome in outcomes), outcomes
    return {outcome.rung for outcome in outcomes if isinstance(outcome, Answer)}


def accounted(client: Client) -> bool:
    counts = client.stats()
    ended = counts.on_time + counts.late + counts.missed + counts.rejected + counts.superseded
    return counts.asked == ended + counts.withdrawn + counts.open


def test_a_standby_answers_with_the_cheapest_rung_under_the_contract_of_the_whole(
    bundle: Path, image: Array, tmp_path: Path
) -> None:
    with agent(tmp_path, "second", bundle, standby=True), client_of(tmp_path) as client:
        assert client.wait_attached(PATIENCE_S)
        answer = until(client, image, "standby")
        assert (answer.rung, answer.fidelity.kind) == ("small", "rung")
        assert answer.contract == load_bundle(bundle).contract
        with client.stream(period_ms=1_000, deadline_ms=500) as stream:
            assert stream.wait_promise(PATIENCE_S)
            assert stream.promise == "small"


def test_no_request_is_lost_when_the_primary_is_killed_and_it_is_asked_again_when_it_is_back(
    bundle: Path, image: Array, tmp_path: Path
) -> None:
    with agent(tmp_path, "second", bundle, standby=True), client_of(tmp_path) as client:
        for _ in range(2):
            with agent(tmp_path, "first", bundle) as first:
                assert until(client, image, "agent").rung == "whole"
                futures = [client.submit(image, LONG_MS) for _ in range(20)]
                first.kill()
                futures += [client.submit(image, LONG_MS) for _ in range(20)]
                assert all_answers(futures) <= {"whole", "small"}
                assert until(client, image, "standby").rung == "small"
        assert accounted(client)
        assert client.stats().missed == client.stats().rejected == 0


def test_no_request_is_lost_when_the_primary_is_stopped_and_it_is_asked_again_when_it_goes_on(
    bundle: Path, image: Array, tmp_path: Path
) -> None:
    with (
        agent(tmp_path, "second", bundle, standby=True),
        agent(tmp_path, "first", bundle) as first,
        client_of(tmp_path) as client,
    ):
        for cycle in range(1, 3):
            assert until(client, image, "agent").rung == "whole"
            first.stop()
            futures = [client.submit(image, LONG_MS) for _ in range(20)]
            assert all_answers(futures) == {"small"}
            assert until(client, image, "standby").rung == "small"
            assert client.stats().silences == cycle
            first.resume()
        assert until(client, image, "agent").rung == "whole"
        assert accounted(client)
        assert client.stats().missed == client.stats().rejected == 0


def test_a_standby_with_another_version_of_the_model_is_counted_and_never_answers_for_it(
    bundle: Path, image: Array, tmp_path: Path
) -> None:
    other = with_ladder(make_bundle(tmp_path, "chain"), "whole")
    with agent(tmp_path, "second", other, standby=True), client_of(tmp_path) as client:
        assert client.wait_attached(PATIENCE_S)
        with agent(tmp_path, "first", bundle) as first:
            until(client, image, "agent")
            assert client.faults() == {"standby-contract": 1}
            first.kill()
            future = client.submit(image, LONG_MS)
        with agent(tmp_path, "first", bundle):
            assert all_answers([future]) == {"whole"}


def test_a_standby_loads_and_reserves_nothing_but_the_cheapest_rung(bundle: Path) -> None:
    def host(*, standby: bool) -> Host:
        group = AgentGroup(models=(str(bundle),), standby=standby)
        return Host(EdgeSettings(agent=group, memory=Memory(preallocated_memory_mb=1)), 1, own_process=False)

    made = host(standby=True)
    try:
        (plan,) = made.plans.values()
        assert ([rung.name for rung in plan.ladder], plan.routes) == (["small"], ())
        (executor,) = made._shop._executors
        (programs,) = executor._programs.values()
        assert set(programs._sessions) == {(1, 0)}
        slots = executor._buffers
        assert slots.slots(load_bundle(bundle).contract, SegmentRange(1, 0, 1))
        assert not slots.slots(load_bundle(bundle).contract, SegmentRange(0, 0, 3))
    finally:
        made.close()


def test_a_model_without_any_rung_has_no_standby(bundle: Path, tmp_path: Path) -> None:
    bare = with_ladder(make_bundle(tmp_path, "chain"))
    with pytest.raises(SettingsError, match=r"agent\.standby: model 'chain' has no rung"):
        Host(EdgeSettings(agent=AgentGroup(models=(str(bare),), standby=True)), 1, own_process=False)


def test_a_standby_with_nodes_does_not_start(bundle: Path, tmp_path: Path) -> None:
    settings = edge_settings(f"ipc://{tmp_path}/agent", [bundle], [("n1", "tcp://127.0.0.1:1")])
    status, errors = refused("edge", tmp_path, settings.replace("[agent]\n", "[agent]\nstandby = true\n"))
    assert status == 2
    assert "nodes: has 1; expected none beside agent.standby" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("end", [ServiceProcess.kill, ServiceProcess.stop])
def test_a_standby_that_is_lost_changes_nothing_while_the_primary_is_there(
    bundle: Path, image: Array, tmp_path: Path, end: Callable[[ServiceProcess], None]
) -> None:
    with (
        agent(tmp_path, "first", bundle),
        agent(tmp_path, "second", bundle, standby=True) as second,
        client_of(tmp_path) as client,
    ):
        until(client, image, "agent")
        asked = client.stats().standby
        end(second)
        all_answers([client.submit(image, LONG_MS) for _ in range(20)])
        assert client.stats().standby == asked
