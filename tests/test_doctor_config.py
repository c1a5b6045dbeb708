"""What a configuration asks for, against a host that is well but for one thing."""

from __future__ import annotations

import msgspec
import pytest
from doctor_rig import GOOD, spoiled, wakes

from shared.doctor.facts import Facts
from shared.doctor.findings import Finding
from shared.doctor.verdicts_config import (
    ConfigFacts,
    ModelFacts,
    RungTime,
    config_findings,
    insurance_of,
    shortest_deadline_ms,
)
from shared.process_settings import Effect
from shared.settings import (
    CloudLimits,
    CloudSettings,
    EdgeSettings,
    Execution,
    Insurance,
    Memory,
    NodeAddress,
    Process,
)

FACE = ModelFacts(
    "/m/face.plan", "face", rungs=(RungTime("whole", 12.0), RungTime("small", 6.0), RungTime("new", None))
)
EDGE = ConfigFacts("edge.toml", (FACE,))
CLOUD = ConfigFacts("cloud.toml", (FACE,), cloud=CloudSettings())


def wrong(facts: Facts, config: ConfigFacts, deadline_ms: float = 10.0) -> list[Finding]:
    return [finding for finding in config_findings(facts, config, deadline_ms) if finding.verdict != "ok"]


def only(facts: Facts, config: ConfigFacts, deadline_ms: float = 10.0) -> Finding:
    (finding,) = wrong(facts, config, deadline_ms)
    assert finding.advice
    return finding


def edge(**settings: object) -> ConfigFacts:
    return msgspec.structs.replace(EDGE, edge=msgspec.structs.replace(EdgeSettings(), **settings))


@pytest.mark.parametrize("config", [EDGE, CLOUD])
def test_a_configuration_that_holds_here_has_nothing_to_look_at(config: ConfigFacts) -> None:
    assert wrong(GOOD, config) == []


def test_a_setting_that_cannot_be_had_is_told_with_its_reason() -> None:
    refused = Effect("process.nice", "-5", False, "RLIMIT_NICE", "raise it")
    finding = only(GOOD, msgspec.structs.replace(EDGE, effects=(Effect("process.cores", "[0]", True), refused)))
    assert (finding.name, finding.verdict, finding.stops) == ("process.nice", "bad", False)
    assert "RLIMIT_NICE" in finding.value


def test_a_process_that_would_not_start_stops_the_promise() -> None:
    finding = only(GOOD, msgspec.structs.replace(EDGE, refused="process.cores: names core 9"))
    assert (finding.name, finding.stops) == ("start", True)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (edge(execution=Execution(executors=3, threads=2)), "executors"),
        (edge(execution=Execution(executors=2), process=Process(executor_cores=(3,))), "executors"),
        (edge(memory=Memory(preallocated_memory_mb=20_000)), "input slots"),
        (msgspec.structs.replace(CLOUD, cloud=CloudSettings(limits=CloudLimits(max_peers=40_000))), "open files"),
    ],
)
def test_what_asks_for_more_than_there_is_is_worth_a_look(config: ConfigFacts, name: str) -> None:
    assert only(GOOD, config).name == name


def test_executors_of_a_graphics_device_are_not_counted_against_cores() -> None:
    execution = Execution(provider="CUDAExecutionProvider", executors=8)
    facts = spoiled(providers=("CUDAExecutionProvider", "CPUExecutionProvider"))
    assert wrong(facts, edge(execution=execution)) == []


def test_a_provider_that_is_not_there_stops_the_promise_and_names_those_that_are() -> None:
    finding = only(GOOD, edge(execution=Execution(provider="CUDAExecutionProvider")))
    assert (finding.name, finding.stops) == ("provider", True)
    assert "CPUExecutionProvider" in finding.advice


def test_nodes_take_descriptors_of_an_agent() -> None:
    nodes = tuple(NodeAddress(name=f"n{number}", endpoint=f"tcp://h:{number}") for number in range(200))
    assert only(spoiled(privileges={"open_files": 1024}), edge(nodes=nodes)).name == "open files"


@pytest.mark.parametrize("config", [EDGE, CLOUD])
def test_a_configuration_without_models_or_with_a_broken_one_stops_the_promise(config: ConfigFacts) -> None:
    assert only(GOOD, msgspec.structs.replace(config, models=())).stops
    broken = ModelFacts("/m/face.plan", fault="/m/face.plan: there is no bundle")
    finding = only(GOOD, msgspec.structs.replace(config, models=(broken,)))
    assert finding.stops
    assert finding.name == "model face.plan"


def test_the_least_deadline_of_a_device_is_its_quickest_rung_with_guard_and_lateness() -> None:
    margins = Insurance(guard_ms=0.5)
    assert shortest_deadline_ms(spoiled(wakes=wakes(0.1, 0.3)), FACE.rungs, margins) == pytest.approx(6.8)
    assert shortest_deadline_ms(GOOD, (RungTime("new", None),), margins) is None


def test_a_deadline_that_no_rung_holds_is_worth_a_look() -> None:
    assert wrong(GOOD, EDGE, 7.0) == []
    assert "6.7 ms" in only(GOOD, EDGE, 6.0).value


def test_a_model_that_was_never_timed_is_worth_a_look() -> None:
    model = ModelFacts("/m/face.plan", "face", rungs=(RungTime("whole", None),))
    assert "headtail plan" in only(GOOD, msgspec.structs.replace(EDGE, models=(model,))).advice


def test_the_margins_are_the_configurations_where_it_has_some() -> None:
    own = Insurance(hold_ms=2.0, hold_max_ms=3.0)
    assert insurance_of(edge(insurance=own)) == own
    assert insurance_of(CLOUD) == insurance_of(None) == Insurance()
