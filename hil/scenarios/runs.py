"""Plays scenarios one after the other, writes what came of each, and shows it."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from hil.emulator.namespaces import check_able
from hil.emulator.trace_source import trace_sources
from hil.links.trace import Trace
from hil.scenarios.backend import Backend
from hil.scenarios.carried import cannot_carry
from hil.scenarios.check import check_scenario
from hil.scenarios.emulated import EmulatedNetwork
from hil.scenarios.find import load_scenario, traces
from hil.scenarios.hosts import load_hosts
from hil.scenarios.junit import to_junit
from hil.scenarios.page import page
from hil.scenarios.proxied import ProxiedNetwork
from hil.scenarios.remote import RemoteNetwork
from hil.scenarios.report import Report, write_json
from hil.scenarios.run import MakeBackend, run_scenario
from hil.scenarios.scenario import LinkPart, Scenario, shortened
from hil.scenarios.timeline import ARMS, frames
from hil.verdict import BROKEN, HOLDS, NOT_JUDGED
from hil.weight import add_weight
from partitioner.terminal import PlainConsole
from shared.errors import SettingsError, UserError

SWITCH_S = 0.0005
"""Thread switch interval of this process, which is the application here."""

WIDTH = 120
"""Of what is printed where nobody says how wide the terminal is."""

STYLES = {HOLDS: "green", BROKEN: "bold red", NOT_JUDGED: "yellow"}


@dataclass(frozen=True, slots=True)
class Ways:
    """The options of `headtail hil run`."""

    out: Path
    backend: str = "emulator"
    hosts: Path | None = None
    trace: Path | None = None
    seconds: float = 0.0
    tries: int = 0
    junit: Path | None = None


def play_all(files: Sequence[Path], ways: Ways) -> bool:
    """Play the scenarios in these files; whether every budget of all of them holds. Raises `UserError` where one of them, or
    this machine, cannot be used, before anything is played."""
    chosen = [adapted(load_scenario(path), ways) for path in files]
    make = _backend(ways, chosen)
    known = [_traces(scenario, ways.backend) for scenario in chosen]
    if ways.junit is not None:
        ways.junit.write_text(to_junit(()), encoding="utf-8")  # where it cannot be written, that shows before the runs
    weight = tuple(add_weight())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.setswitchinterval(SWITCH_S)
    console = PlainConsole(width=None if sys.stdout.isatty() else WIDTH)
    reports: list[Report] = []
    for scenario, played in zip(chosen, known, strict=True):
        folder = _folder(ways.out / scenario.name)
        console.print(f"{scenario.name}: {scenario.about}", style="bold")
        with _room_told(folder):
            report = run_scenario(scenario, played, folder, (ways.backend, make), weight, console.print)
            reports.append(report)
            write_json(report, folder / f"{scenario.name}.json")
            (folder / f"{scenario.name}.html").write_text(page(report), encoding="utf-8")
        _show(report, folder, console)
        if ways.junit is not None:
            ways.junit.write_text(to_junit(reports), encoding="utf-8")
    if len(reports) > 1:
        console.print(_overview(reports))
    return all(report.judgement.holds for report in reports)


def adapted(scenario: Scenario, ways: Ways) -> Scenario:
    """The scenario with the options' trace, length and number of tries. Raises `SettingsError` where they do not fit it."""
    if ways.trace is not None:
        first = scenario.links[0]
        link = LinkPart(name=first.name, trace=str(ways.trace.resolve()), queue_kb=first.queue_kb)
        about = f"{scenario.about} Here the link {first.name} plays {ways.trace.name} instead."
        scenario = replace(scenario, about=about, links=(link, *scenario.links[1:]))
    if ways.seconds:
        scenario = shortened(scenario, ways.seconds)
    if ways.tries:
        scenario = replace(scenario, noise=replace(scenario.noise, tries=ways.tries))
    check_scenario(scenario)
    if {frame.arm for frame in frames(scenario)} != set(ARMS):
        raise SettingsError(
            f"{scenario.name}: {scenario.stream.seconds:g} s hold no frame of each arm; expected a longer run "
            "(stream.seconds, --seconds), or the device awake in it"
        )
    return scenario


def _traces(scenario: Scenario, backend: str) -> dict[str, Trace]:
    found = traces(scenario)
    if backend != "emulator":
        return found
    for link in scenario.links:
        if link.name in found:
            try:
                trace_sources(found[link.name], link.queue_kb << 10)
            except UserError as error:
                raise UserError(f"{link.trace or link.model}: {error}") from None
    return found


def _backend(ways: Ways, chosen: Sequence[Scenario]) -> MakeBackend:
    if ways.backend == "emulator":
        try:
            check_able()
        except UserError as error:
            able = [scenario.name for scenario in chosen if not cannot_carry(scenario)]
            offer = f"; --backend proxy needs none of that and can carry {', '.join(able)}" if able else ""
            raise UserError(f"{error}{offer}") from None
        return EmulatedNetwork
    if ways.backend == "proxy":
        for scenario in chosen:
            why = cannot_carry(scenario)
            if why:
                raise UserError(f"{scenario.name}: the proxy shapes connections, not packets, and cannot carry {why}")
        return ProxiedNetwork
    assert ways.hosts is not None  # noqa: S101 -- the command line asks for it
    known = load_hosts(ways.hosts)

    def make(scenario: Scenario) -> Backend:
        return RemoteNetwork(scenario, known)

    return make


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {path}: cannot be made ({error.strerror})") from None
    return path


@contextmanager
def _room_told(folder: Path) -> Generator[None]:
    """Where a disk is full the system does not say which: what is written here goes into `folder`. Raises `UserError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"{error.filename or folder}: {error.strerror}") from None
        raise


def _show(report: Report, folder: Path, console: PlainConsole) -> None:
    table = Table("", "expected", "found")
    for rule in report.judgement.rules:
        table.add_row(Text(rule.word, STYLES[rule.word]), Text(rule.expected), Text(rule.found))
    console.print(table)
    test, control = report.figures.test, report.figures.control
    console.print(
        f"{test.frames} frames ({test.marked} marked), by {_counts(test.by_source)}; not answered: {_counts(test.misses)}; "
        f"p50 {test.p50_ms:.1f}, p99 {test.p99_ms:.1f} ms; control {control.frames} ({control.marked} marked), "
        f"p50 {control.p50_ms:.1f}, p99 {control.p99_ms:.1f} ms; the machine: p99 {report.machine.p99_ms:.2f}, "
        f"at most {report.machine.max_ms:.1f} ms late"
    )
    for note in report.notes:
        console.print(note)
    if report.judgement.noisy:
        console.print(f"This run says nothing about shares: {report.judgement.noisy}.", style="yellow")
    console.print(f"{folder / f'{report.scenario.name}.html'}\n")


def _overview(reports: Sequence[Report]) -> Table:
    table = Table("scenario", "verdict", "on time", "control", "by the cloud", "oracle", "marked", "tries")
    for report in reports:
        figures = report.figures
        style = "green" if report.judgement.holds else "bold red" if report.judgement.broken else "yellow"
        table.add_row(
            report.scenario.name,
            Text(report.judgement.word, style),
            f"{figures.test.share:.1%}",
            f"{figures.control.share:.1%}",
            f"{figures.test.cloud_share:.1%}",
            f"{figures.oracle:.1%}",
            f"{figures.test.marked} of {figures.test.frames}",
            f"{len(report.earlier) + 1}",
        )
    return table


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
