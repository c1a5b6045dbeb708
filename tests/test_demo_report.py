"""The demo's reports: what the JSON holds, and that the page shows every phase and needs nothing from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from tiny import make_bundle

from hil.demo_board import DemoBoard
from hil.ledger import Entry
from hil.phases import Heat, LinkShape, Phase, demo_phases
from hil.report import FORMAT, Report, environment, summary_of, write_json
from hil.report_html import page
from hil.report_svg import panel
from hil.results import PhaseResult, summarise
from hil.verdict import judge
from shared.bundle import load_bundle
from shared.lateness import LatenessFigures

MS = 1_000_000
PHASES = demo_phases(40, LinkShape(200, 2), LinkShape(20, 6), Heat(1.6, ("res-96",)))
KEYS = {
    "name", "frames", "on_time", "late", "missed", "rejected", "superseded", "lost", "duplicated", "wrong",
    "by_source", "by_rung", "p50_ms", "p99_ms", "machine_lateness_p99_ms",
}  # fmt: skip


def result(phase: Phase) -> PhaseResult:
    entries = [Entry(n * 33 * MS, "on_time", 5 * MS, "cloud", "whole", "exact") for n in range(phase.frames)]
    entries[3] = Entry(entries[3].due_ns, "late", 12 * MS, "edge", "small", "rung(small, 0.5)")
    entries[4] = Entry(entries[4].due_ns, "missed", 10 * MS, detail="<agent>")
    entries[5] = Entry(entries[5].due_ns, "lost")
    faults = tuple((fault.frame * 33 * MS, str(fault)) for fault in phase.faults)
    return summarise(phase, entries, 10.0, 0, faults, LatenessFigures(p99_ms=0.25), phase.kind == "slow")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    bundle = load_bundle(make_bundle(tmp_path_factory.mktemp("report")))
    results = tuple(result(phase) for phase in PHASES)
    return Report(
        format=FORMAT,
        deadline_ms=10.0,
        split_deadline_ms=30.0,
        deadline_why="it is the smallest",
        slowdown=4.0,
        phases=results,
        verdict=judge(results),
        plans=(summary_of(bundle, 1.5),),
        notes=("a note with <brackets>",),
        planted="",
        images=(),
        seconds=120.0,
        environment=environment(["slice"]),
    )


def test_the_json_holds_for_each_phase_what_is_promised(report: Report, tmp_path: Path) -> None:
    write_json(report, tmp_path / "report.json")
    tree = json.loads((tmp_path / "report.json").read_text())
    assert tree["deadline_ms"] == 10.0
    assert [phase["name"] for phase in tree["phases"]] == [phase.name for phase in PHASES]
    for phase in tree["phases"]:
        assert phase.keys() >= KEYS
        outcomes = sum(phase[key] for key in ("on_time", "late", "missed", "rejected", "superseded"))
        assert phase["frames"] == outcomes + phase["lost"]
        assert phase["machine_lateness_p99_ms"] == 0.25
    assert tree["environment"].keys() >= {"python", "system", "processor", "cores", "libraries"}
    assert not tree["verdict"]["holds"]


def test_the_json_can_be_read_back(report: Report) -> None:
    again = msgspec.json.decode(msgspec.json.encode(report), type=Report)
    assert again == report


def test_a_plan_is_told_by_its_cuts_ways_and_rungs(report: Report) -> None:
    plan = report.plans[0]
    assert len(plan.cuts) == 4
    assert any("jpeg90" in route for route in plan.routes)
    assert any(rung.startswith("small") for rung in plan.rungs)


def test_the_page_shows_every_phase_rule_plan_and_note(report: Report) -> None:
    html = page(report, [("whole", b"png")])
    for phase in PHASES:
        assert phase.title in html
    for words in (
        "link stalled",
        "cloud-a killed",
        "it is the smallest",
        "a note with &lt;brackets&gt;",
        "6 rules are BROKEN",
        "BROKEN</td>",
    ):
        assert words in html
    assert html.count("<svg") == len(PHASES) + 2
    assert report.plans[0].contract in html
    assert html.count("the machine stalled") == 1


def test_the_page_needs_nothing_from_elsewhere(report: Report) -> None:
    html = page(report, [("whole", b"png")])
    assert not re.search(r"<script|<link|https?:|url\(", html)
    assert re.findall(r'src="([^"]{0,30})', html) == ["data:image/png;base64," + "cG5n"]


def test_a_panel_is_a_drawing_with_a_mark_for_every_frame(report: Report) -> None:
    drawing = ElementTree.fromstring(panel(report.phases[5]))
    marks = [node for node in drawing if node.tag in ("circle", "path")]
    assert len(marks) == report.phases[5].frames
    width, height = (float(edge) for edge in cast(str, drawing.get("viewBox")).split()[2:])
    for node in drawing.iter("circle"):
        assert 0 <= float(node.get("cx", "-1")) <= width
        assert 0 <= float(node.get("cy", "-1")) <= height


def test_without_a_terminal_each_phase_is_a_line(tmp_path: Path) -> None:
    with (tmp_path / "said.txt").open("w") as file:
        board = DemoBoard(Console(file=file, width=80), 0.0)
        board.expect(PHASES)
        for phase in PHASES:
            board.watch(phase, "running", result(phase))
            board.watch(phase, "done", result(phase))
        board.watch(Phase("trial", "control", "trial at 10 ms", 20), "done", result(PHASES[0]))
        board.finish()
        board.verdict(judge([result(phase) for phase in PHASES]), {})
    lines = (tmp_path / "said.txt").read_text().splitlines()
    for phase in PHASES:
        assert sum(line.startswith(f"{phase.title} ") for line in lines) == sum(p.title == phase.title for p in PHASES)
    assert not any("trial" in line for line in lines)
    assert lines[-1] == "verdict: 6 rules are BROKEN"


def test_the_columns_stand_below_each_other_in_a_file_and_what_was_not_repeated_is_told(tmp_path: Path) -> None:
    first = replace(result(PHASES[2]), not_repeated_because="no time was left for it")
    second = replace(result(PHASES[5]), repeated=True, lost=12, on_time=1234, frames=2000)
    with (tmp_path / "said.txt").open("w") as file:
        board = DemoBoard(Console(file=file, width=80), 0.0)
        board.expect(PHASES)
        for phase, one in ((PHASES[2], first), (PHASES[5], second)):
            board.watch(phase, "done", one)
        board.finish()
        board.verdict(judge([replace(first, by_source={}, on_time=0), second]), {})
    head, *rows, told = (tmp_path / "said.txt").read_text().splitlines()[:4]
    for name in ("on time", "late", "missed", "lost", "p50 ms", "p99 ms", "machine p99 ms"):
        end = head.index(f" {name} ") + 1 + len(name)
        assert all(row[end - 1] != " " and row[end] == " " for row in rows), name
    for name in ("answers by", "rung", "fidelity"):
        at = head.index(f" {name}") + 1
        assert all(row[at] != " " and row[at - 1] == " " for row in rows), name
    assert ["stalled" in row for row in rows] == [True, False]
    assert ["repeated" in row for row in rows] == [False, True]
    assert told == f"the machine stalled and it was not repeated: {PHASES[2].title}: no time was left for it"


def test_a_rule_that_was_not_judged_is_shown_as_that_on_screen_and_page(report: Report, tmp_path: Path) -> None:
    shaken = [
        replace(one, on_time=0, missed=one.frames, lost=0, late=0, machine_stalled=True, not_repeated_because="x < y")
        if one.kind == "slow"
        else replace(
            one,
            on_time=one.frames,
            missed=0,
            lost=0,
            late=0,
            cloud_on_time=1.0,
            whole_on_time=1.0,
            whole_on_time_last_half=1.0,
        )
        for one in report.phases
    ]
    verdict = judge(shaken)
    html = page(replace(report, phases=tuple(shaken), verdict=verdict), [])
    assert html.count(">not judged</td>") == verdict.not_judged == 1
    assert "not repeated: x &lt; y" in html
    with (tmp_path / "said.txt").open("w") as file:
        DemoBoard(Console(file=file, width=80), 0.0).verdict(verdict, {})
    lines = (tmp_path / "said.txt").read_text().splitlines()
    assert sum(line.startswith("not judged ") and line.endswith("the machine stalled") for line in lines) == 1
    assert lines[-1] == f"verdict: {verdict.words}"
