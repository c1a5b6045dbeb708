"""Runs one scenario: makes what is known, builds the stage over a backend, plays, judges, and again where the machine was
too noisy to judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from hil.links.trace import Trace
from hil.report import environment
from hil.scenarios.backend import Backend
from hil.scenarios.figures import RunFigures, figures, marks
from hil.scenarios.judge import Judgement, judge
from hil.scenarios.known import Known, make_known
from hil.scenarios.oracle import Course, Request, oracle_share
from hil.scenarios.player import Played, Player
from hil.scenarios.report import FORMAT, LinkLine, Report
from hil.scenarios.scenario import Scenario
from hil.scenarios.stage import Stage
from hil.scenarios.timeline import Struck, frames, unreachable

LINE_STEP_MS = 50.0

MakeBackend = Callable[[Scenario], Backend]
"""Builds the network of a scenario. Raises `UserError` where it cannot carry it."""

Say = Callable[[str], None]


def run_scenario(
    scenario: Scenario,
    played_traces: Mapping[str, Trace],
    folder: Path,
    backend: tuple[str, MakeBackend],
    weight: tuple[str, ...],
    say: Say,
) -> Report:
    """Play a scenario as often as it takes, at most `noise.tries` times, and report the last one. `played_traces` are those
    of its links by name; `folder` takes bundle, logs and journals; `backend` is its name and what makes it. Raises
    `HeadtailError` where a process ends by itself."""
    began_s = time.monotonic()
    known = make_known(scenario, folder)
    earlier: list[Judgement] = []
    while True:
        report = _once(scenario, known, folder, backend, played_traces, say)
        if not report.judgement.noisy or len(earlier) + 1 >= scenario.noise.tries or _hopeless(report.judgement):
            break
        earlier.append(report.judgement)
        say(f"{report.judgement.noisy}: played again")
    return msgspec.structs.replace(
        report,
        earlier=tuple(earlier),
        seconds=round(time.monotonic() - began_s, 1),
        environment=environment(weight),
    )


def _hopeless(judgement: Judgement) -> bool:
    """Whether something is broken that no noise excuses."""
    return bool(judgement.broken)


def _once(
    scenario: Scenario,
    known: Known,
    folder: Path,
    backend: tuple[str, MakeBackend],
    played_traces: Mapping[str, Trace],
    say: Say,
) -> Report:
    name, make = backend
    player = Player(scenario, known)
    network = make(scenario)
    try:
        with Stage(scenario, known, folder, network, played_traces, lambda: player.node) as stage:
            try:
                stage.begin_links()
                player.attach(stage)
                warmed = player.warm()
                say("warm" if warmed else "the cloud does not answer as it should before the first frame")
                played = player.play(stage, warmed)
            finally:
                player.close()
            stage.check()
            journals = stage.save_journals()
            notes = [*network.told(), *stage.strikes.told]
    finally:
        network.close()
    if not warmed:
        notes.append("Before the first frame the cloud did not answer fifteen frames in a row.")
    run = _figures(scenario, known, played, played_traces)
    return Report(
        format=FORMAT,
        scenario=scenario,
        backend=name,
        figures=run,
        struck=played.struck,
        links=_lines(scenario, courses(scenario, played.struck, played_traces, played.traces)),
        machine=played.seen.figures,
        judgement=judge(scenario, run, played.struck),
        earlier=(),
        notes=tuple(notes),
        journals=tuple(str(path) for path in journals),
        seconds=0.0,
        environment=environment(()),
    )


def _figures(scenario: Scenario, known: Known, played: Played, played_traces: Mapping[str, Trace]) -> RunFigures:
    deadline_ms = scenario.stream.deadline_ms
    arms = {
        arm: figures(
            entries,
            marks(entries, played.seen.stalls, scenario.noise, deadline_ms),
            deadline_ms,
            played.began_ns,
        )
        for arm, entries in played.entries.items()
    }
    routes = known.bundle.plan.routes
    request = Request(
        min(route.bytes_up for route in routes),
        min(route.bytes_down for route in routes),
        scenario.model.cloud_ms,
    )
    oracle = oracle_share(
        scenario,
        courses(scenario, played.struck, played_traces, played.traces),
        unreachable(scenario, played.struck),
        request,
        [frame.at_ns for frame in frames(scenario) if frame.arm == "test"],
    )
    return RunFigures(arms["test"], arms["control"], played.hung, played.sums, round(oracle, 4))


def courses(
    scenario: Scenario, struck: tuple[Struck, ...], played_traces: Mapping[str, Trace], into_ns: Mapping[str, int]
) -> dict[str, Course]:
    """Each link as it was over the run."""
    found: dict[str, Course] = {}
    end_ms = scenario.stream.seconds * 1e3
    for link in scenario.links:
        mine = [
            (scenario.faults[one.fault], (round(one.begin_ms * 1e6), round((one.end_ms or end_ms) * 1e6)))
            for one in struck
            if scenario.faults[one.fault].link in ("", link.name)
        ]
        found[link.name] = Course(
            up=link.up,
            down=link.down,
            others=tuple((span, fault.up, fault.down) for fault, span in mine if fault.kind == "shape"),
            trace=played_traces.get(link.name),
            into_ns=into_ns.get(link.name, 0),
            shut=tuple(span for fault, span in mine if fault.kind in ("stall", "dark")),
        )
    return found


def _lines(scenario: Scenario, known: Mapping[str, Course]) -> tuple[LinkLine, ...]:
    steps = int(scenario.stream.seconds * 1e3 / LINE_STEP_MS) + 1
    lines: list[LinkLine] = []
    for name, course in known.items():
        values: list[float | None] = []
        for step in range(steps):
            at_ns = round(step * LINE_STEP_MS * 1e6)
            up, down = course.at(at_ns, True), course.at(at_ns, False)
            values.append(None if up.outage or down.outage else round(up.delay_ms + down.delay_ms, 2))
        lines.append(LinkLine(name, LINE_STEP_MS, tuple(values)))
    return tuple(lines)
