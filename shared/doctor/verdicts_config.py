"""What a configuration asks for, and whether it can hold on this host."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shared.doctor.facts import Facts
from shared.doctor.findings import Finding
from shared.doctor.promise import epsilon_ms
from shared.process_settings import Effect
from shared.settings import CloudSettings, EdgeSettings, Insurance

FILES_OWN = 64
FILES_OF_EDGE = 2
"""Descriptors of an edge at a node: data and probes. A client at an agent has one."""

FILES_OF_NODE = 8
"""Descriptors of a node at an agent: two sockets with their connections and monitors."""


class RungTime(msgspec.Struct, frozen=True):
    """A way to answer on the device and its p99 in milliseconds, as profiled for the plan; None where it was not."""

    name: str
    p99_ms: float | None


class ModelFacts(msgspec.Struct, frozen=True):
    """A bundle that the configuration names. `fault` is what is wrong with it, empty where nothing is."""

    path: str
    name: str = ""
    fault: str = ""
    rungs: tuple[RungTime, ...] = ()


class ConfigFacts(msgspec.Struct, frozen=True):
    """A configuration file, read: an agent's (`edge`) or a node's (`cloud`).

    `effects`: what became of its `[process]` when it was applied to the doctor's own process. `refused`: why an agent or node
    would not even start with it, empty where it would.
    """

    path: str
    models: tuple[ModelFacts, ...]
    edge: EdgeSettings = EdgeSettings()
    cloud: CloudSettings | None = None
    effects: tuple[Effect, ...] = ()
    refused: str = ""

    @property
    def settings(self) -> EdgeSettings | CloudSettings:
        """Those of the file."""
        return self.cloud or self.edge


def insurance_of(config: ConfigFacts | None) -> Insurance:
    """The margins that hold: the configuration's, or the defaults where it has none."""
    return config.edge.insurance if config is not None else Insurance()


def config_findings(facts: Facts, config: ConfigFacts, deadline_ms: float) -> list[Finding]:
    """Process, executors, memory, descriptors, models."""
    settings = config.settings
    found = [Finding("CONFIGURATION", "file", config.path)]
    if config.refused:
        advice = "with this file the process does not start: change it, or the host"
        found.append(Finding("CONFIGURATION", "start", config.refused, "bad", advice, stops=True))
    found += [_effect(effect) for effect in config.effects]
    found.append(_executors(facts, settings))
    found.append(_provider(facts, settings))
    found.append(_slots(facts, settings))
    found.append(_descriptors(facts, settings))
    if not config.models:
        key = "agent.models" if isinstance(settings, EdgeSettings) else "node.models"
        advice = "name at least one NAME.plan folder; without one the process does not start"
        found.append(Finding("CONFIGURATION", "models", f"{key} names none", "bad", advice, stops=True))
    found += [_model(facts, model, settings, deadline_ms) for model in config.models]
    return found


def shortest_deadline_ms(facts: Facts, rungs: Sequence[RungTime], insurance: Insurance) -> float | None:
    """The least deadline that the quickest rung holds on a device with nothing else to do: its p99, the guard and the
    lateness of a wake-up. None where no rung was profiled."""
    times = [rung.p99_ms for rung in rungs if rung.p99_ms is not None]
    return min(times) + insurance.guard_ms + epsilon_ms(facts.wakes) if times else None


def _effect(effect: Effect) -> Finding:
    name = effect.setting
    if effect.in_force:
        return Finding("CONFIGURATION", name, f"{effect.asked}: can be had")
    return Finding("CONFIGURATION", name, f"{effect.asked}: cannot be had: {effect.why}", "bad", effect.advice)


def _executors(facts: Facts, settings: EdgeSettings | CloudSettings) -> Finding:
    execution = settings.execution
    threads = execution.executors * execution.threads
    may = len(settings.process.executor_cores) or len(facts.cores.may)
    many = execution.provider == "CPUExecutionProvider" and threads > may
    advice = (
        f"more threads that compute than cores for them ({may}): they take turns, and all take longer" if many else ""
    )
    value = f"{execution.executors} with {execution.threads} threads each"
    return Finding("CONFIGURATION", "executors", value, "look" if many else "ok", advice)


def _provider(facts: Facts, settings: EdgeSettings | CloudSettings) -> Finding:
    wanted = settings.execution.provider
    there = wanted in facts.providers
    advice = "" if there else f"this onnxruntime has: {', '.join(facts.providers) or 'none'}"
    value = wanted if there else f"{wanted} is not there"
    return Finding("CONFIGURATION", "provider", value, "ok" if there else "bad", advice, stops=not there)


def _slots(facts: Facts, settings: EdgeSettings | CloudSettings) -> Finding:
    wanted, free = settings.memory.preallocated_memory_mb, facts.memory.available_mb
    much = wanted > free
    advice = f"only {free} MiB are available: lower memory.preallocated_memory_mb" if much else ""
    return Finding("CONFIGURATION", "input slots", f"up to {wanted} MiB", "look" if much else "ok", advice)


def _descriptors(facts: Facts, settings: EdgeSettings | CloudSettings) -> Finding:
    if isinstance(settings, EdgeSettings):
        clients, nodes = settings.limits.max_clients, len(settings.nodes)
        peers = f"{clients} clients, {nodes} nodes"
        wanted = FILES_OWN + clients + FILES_OF_NODE * nodes
    else:
        peers = f"{settings.limits.max_peers} edges"
        wanted = FILES_OWN + FILES_OF_EDGE * settings.limits.max_peers
    may = facts.privileges.open_files
    few = may is not None and may < wanted
    advice = f"{may} are allowed: LimitNOFILE={wanted} in the systemd unit, or fewer peers" if few else ""
    return Finding("CONFIGURATION", "open files", f"up to {wanted} for {peers}", "look" if few else "ok", advice)


def _model(facts: Facts, model: ModelFacts, settings: EdgeSettings | CloudSettings, deadline_ms: float) -> Finding:
    name = f"model {model.name or model.path.rstrip('/').rpartition('/')[2]}"
    if model.fault:
        return Finding("CONFIGURATION", name, model.fault, "bad", "the process does not start without it", stops=True)
    if not isinstance(settings, EdgeSettings):
        return Finding("CONFIGURATION", name, "whole")
    least_ms = shortest_deadline_ms(facts, model.rungs, settings.insurance)
    if least_ms is None:
        value = "no rung of it was timed for this device"
        return Finding("CONFIGURATION", name, value, "look", "plan it again on this device: headtail plan")
    quickest = min((rung for rung in model.rungs if rung.p99_ms is not None), key=lambda rung: rung.p99_ms or 0.0)
    value = f"rung {quickest.name} takes {quickest.p99_ms:.1f} ms (p99), so that it holds {least_ms:.1f} ms and longer"
    short = least_ms > deadline_ms
    advice = (
        f"no answer of the device comes within {deadline_ms:g} ms: plan a cheaper rung, or ask with a longer deadline"
    )
    return Finding("CONFIGURATION", name, value, "look" if short else "ok", advice if short else "")
