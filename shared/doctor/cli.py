"""`headtail doctor`: reads and measures this host, and says what it means for the promise."""

from __future__ import annotations

import os
import platform
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from shared.bundle import load_bundle
from shared.doctor.facts import Facts
from shared.doctor.findings import Finding, Verdict
from shared.doctor.gpu import load_nvml, read_gpus
from shared.doctor.machine import (
    Watch,
    load_psutil,
    read_libraries,
    read_memory,
    read_privileges,
    read_sensors,
)
from shared.doctor.page import page
from shared.doctor.promise import Promise, promise, sentences
from shared.doctor.timing import PYTHON_SECONDS, Hog, measure_collector, measure_wakes
from shared.doctor.tree import Tree
from shared.doctor.verdicts import processor_findings, time_findings
from shared.doctor.verdicts_config import ConfigFacts, ModelFacts, RungTime, config_findings, insurance_of
from shared.doctor.verdicts_host import (
    gpu_findings,
    heat_findings,
    library_findings,
    limit_findings,
    memory_findings,
)
from shared.errors import BundleError, SettingsError
from shared.plan import Plan
from shared.process_host import LinuxHost, suspended_s
from shared.process_settings import apply, check_cores
from shared.settings import EdgeSettings
from shared.settings_file import load_cloud, load_edge

CANNOT = 1
COLOURS: dict[Verdict, str] = {"ok": "green", "look": "yellow", "bad": "red"}


class Report(msgspec.Struct, frozen=True):
    """All of `--json`. `config` is None without `--config`."""

    promise: Promise
    findings: tuple[Finding, ...]
    facts: Facts
    config: ConfigFacts | None


def main(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a page.")] = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600.0, help="How long wake-ups are measured, alone and beside a busy thread.")
    ] = 5.0,
    config: Annotated[
        Path | None, typer.Option(help="An agent's or a node's configuration: can what it asks for hold here?")
    ] = None,
    deadline_ms: Annotated[
        float, typer.Option(min=0.1, max=60_000.0, help="The deadline to judge by, in milliseconds.")
    ] = 10.0,
) -> None:
    """Say how well this host can keep promises in time, and what to do about it.

    Ends with status 1 where something makes the promise impossible here, and says what.
    """
    if sys.stderr.isatty():
        sys.stderr.write(f"measuring for {2 * seconds + min(seconds, PYTHON_SECONDS):g} s ...\n")
    report = examine(seconds, None if config is None else read_config(config), deadline_ms)
    if as_json:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    else:
        kernel = report.facts.kernel
        where = "a virtual machine" if kernel.virtual else "this host"
        title = (
            f"headtail doctor on {where}: Linux {kernel.release}, {kernel.architecture}\n"
            f"Measured for {seconds:g} s alone, then for {seconds:g} s beside a busy thread."
        )
        ending = sentences(report.promise, insurance_of(report.config))
        paint = _paint if sys.stdout.isatty() else None
        sys.stdout.write("\n".join(page(title, report.findings, ending, paint)) + "\n")
    sys.stdout.flush()
    if not report.promise.possible:
        raise typer.Exit(CANNOT)


def read_config(path: Path) -> ConfigFacts:
    """A configuration file of either kind, and the bundles that it names. Raises `SettingsError`."""
    if _is_node(path):
        node = load_cloud(path)
        return ConfigFacts(str(path), _models(node.node.models), cloud=node)
    agent = load_edge(path)
    return ConfigFacts(str(path), _models(agent.agent.models), agent)


def examine(seconds: float, config: ConfigFacts | None, deadline_ms: float) -> Report:
    """Read, measure and judge. The process settings of `config` are applied to this very process, which is what they would do
    to an agent or a node."""
    psutil, tree = load_psutil(), Tree()
    uname, may = os.uname(), tuple(sorted(os.sched_getaffinity(0)))
    libraries, providers = read_libraries()
    privileges = read_privileges()
    with Hog() as hog:
        if config is not None:
            config = adapted(config)
        switch_us = (config.settings.process if config is not None else EdgeSettings().process).switch_interval_us
        watch = Watch(psutil, tree, os.getpid())
        wakes = measure_wakes(seconds, switch_us, hog)
        during = watch.during()
    facts = Facts(
        headtail=version("headtail"),
        python=platform.python_version(),
        wakes=wakes,
        collector=measure_collector(),
        clocks=tree.clocks(suspended_s()),
        kernel=tree.kernel(uname.release, uname.version, uname.machine),
        cores=tree.cores(may),
        memory=read_memory(psutil),
        privileges=privileges,
        during=during,
        sensors=read_sensors(psutil),
        libraries=libraries,
        providers=providers,
        gpus=read_gpus(load_nvml()),
    )
    return judge(facts, config, deadline_ms)


def judge(facts: Facts, config: ConfigFacts | None, deadline_ms: float) -> Report:
    """Findings and what they mean."""
    insurance = insurance_of(config)
    findings = [
        *time_findings(facts, insurance),
        *processor_findings(facts),
        *memory_findings(facts),
        *limit_findings(facts, insurance),
        *library_findings(facts),
        *heat_findings(facts),
        *gpu_findings(facts),
        *(config_findings(facts, config, deadline_ms) if config is not None else ()),
    ]
    return Report(promise(facts.wakes, insurance, deadline_ms, findings), tuple(findings), facts, config)


def adapted(config: ConfigFacts) -> ConfigFacts:
    """The configuration with what became of its process settings in this process."""
    asked = config.settings.process
    host = LinuxHost()
    try:
        check_cores(asked, host)
    except SettingsError as refusal:
        return msgspec.structs.replace(config, refused=str(refusal))
    effects = apply(msgspec.structs.replace(asked, required=False), host)
    missing = ", ".join(effect.setting for effect in effects if not effect.in_force)
    refused = f"process.required is true, and {missing} cannot be had" if missing and asked.required else ""
    return msgspec.structs.replace(config, effects=effects, refused=refused)


def _paint(verdict: Verdict, word: str) -> str:
    return typer.style(word, fg=COLOURS[verdict], bold=verdict == "bad")


def _is_node(path: Path) -> bool:
    try:
        return "node" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False  # whoever reads it next says what is wrong with it


def _models(paths: Sequence[str]) -> tuple[ModelFacts, ...]:
    return tuple(_model(path) for path in paths)


def _model(path: str) -> ModelFacts:
    try:
        plan = load_bundle(path).plan
    except BundleError as error:
        return ModelFacts(path, fault=str(error))
    return ModelFacts(path, plan.name, rungs=_rungs(plan))


def _rungs(plan: Plan) -> tuple[RungTime, ...]:
    profile = plan.profile("edge")
    found: list[RungTime] = []
    for rung in plan.ladder:
        time = profile and profile.time(rung.program, 0, len(plan.programs[rung.program].segments))
        found.append(RungTime(rung.name, time.p99_us / 1000 if time else None))
    return tuple(found)
