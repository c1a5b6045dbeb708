"""Reports of a scenario: JSON that can be read back, JUnit XML, a page that shows everything and needs nothing else."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from browser import Tab, find_browser, open_tab
from msgspec.structs import replace

from hil.ledger import Entry
from hil.report import environment
from hil.scenarios.figures import RunFigures, figures
from hil.scenarios.judge import judge
from hil.scenarios.junit import to_junit
from hil.scenarios.page import page
from hil.scenarios.report import FORMAT, LinkLine, Report, write_json
from hil.scenarios.scenario import Budgets, Fault, Scenario
from hil.scenarios.timeline import Struck
from shared.lateness import LatenessFigures

MS = 1_000_000
BROWSER = find_browser()
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium lets these tests run")
VIEWS = ((390, "light", "screen"), (390, "dark", "screen"), (1280, "light", "screen"), (1280, "dark", "screen"))


def entries(node: str) -> list[Entry]:
    found: list[Entry] = []
    for n in range(600):
        due, source = n * 33 * MS, "cloud" if node else "edge"
        answered = Entry(due, "on_time", (4 + n % 7) * MS, source, "whole", "exact", node=node if n < 400 else "")
        if n >= 400 or not node:
            answered = replace(answered, source="edge", fidelity="rung(small, 0.5)")
        found.append(answered)
    found[200] = Entry(200 * 33 * MS, "late", 24 * MS, "edge", "small", "rung(small, 0.5)")
    found[201] = Entry(201 * 33 * MS, "missed", 20 * MS, detail="<agent>")
    return found


def made(**changes: object) -> Report:
    faults = (
        Fault(at_s=4.0, kind="kill", on="in-use", for_s=3.0),
        Fault(at_s=8.0, kind="stop", on="node-b", for_s=0.4, repeat=9, every_s=1.0),
        Fault(at_s=12.0, kind="clock_step", on="edge"),
    )
    scenario = Scenario(
        name="a trial", about="Much <goes> wrong.", faults=faults, budgets=Budgets(cloud_share=0.9, back_s=0.1)
    )
    struck = (
        Struck(0, 4000.2, 7001.0, ("node-a",)),
        *(Struck(1, 8000.0 + 1000 * n, 8400.0 + 1000 * n, ("node-b",)) for n in range(9)),
        Struck(2, 12000.0, None, ("edge",)),
    )
    marked = [n % 50 == 0 for n in range(600)]
    run = RunFigures(figures(entries("node-a"), marked, 20.0, 0), figures(entries(""), marked, 20.0, 0), 0, (), 0.98)
    line = LinkLine("air", 50.0, tuple(None if 100 <= n < 120 else 2.0 + n % 9 for n in range(400)))
    report = Report(
        format=FORMAT,
        scenario=scenario,
        backend="emulator",
        figures=run,
        struck=struck,
        links=(line, replace(line, name="other")),
        machine=LatenessFigures(20_000, 0.05, 0.4, 3.0, 7.0, 0.001),
        judgement=judge(scenario, run, struck),
        earlier=(),
        notes=("a note with <brackets>",),
        journals=("out/journals/edge.journal",),
        seconds=23.4,
        environment=environment(("slice",)),
    )
    return replace(report, **changes)


def test_the_json_can_be_read_back(tmp_path: Path) -> None:
    report = made()
    write_json(report, tmp_path / "a.json")
    assert msgspec.json.decode((tmp_path / "a.json").read_bytes(), type=Report) == report


def test_junit_has_a_case_for_each_rule() -> None:
    report = made()
    root = ElementTree.fromstring(to_junit([report, report]))
    suite = root[0]
    assert suite.attrib["name"] == "a trial"
    assert int(suite.attrib["tests"]) == len(suite) == len(report.judgement.rules)
    failed = [case.attrib["name"] for case in suite if case.find("failure") is not None]
    assert failed == [rule.expected for rule in report.judgement.broken]
    assert len(failed) == int(suite.attrib["failures"]) >= 1
    noisy = replace(
        report,
        judgement=replace(
            report.judgement,
            noisy="it stalled",
            rules=tuple(replace(rule, judged=rule.holds) for rule in report.judgement.rules),
        ),
    )
    (suite,) = ElementTree.fromstring(to_junit([noisy]))
    assert suite.attrib["failures"] == "0"
    assert int(suite.attrib["skipped"]) == len(failed)


def test_the_page_shows_everything_and_needs_nothing_else() -> None:
    report = made()
    text = page(report)
    for words in ("Much &lt;goes&gt; wrong.", "a note with &lt;brackets&gt;", "node-b stopped for 0.4 s", "BROKEN"):
        assert words in text
    for rule in report.judgement.rules:
        assert rule.expected.split(":")[0].replace("'", "&#x27;") in text
    assert not re.search(r'(src|href)="(?!data:|#)|<script|@import|url\((?!#)', text)
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    assert BROWSER is not None
    with open_tab(BROWSER, tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@needs_browser
def test_nothing_overlaps_or_is_cut_off(tab: Tab, tmp_path: Path) -> None:
    probe = (Path(__file__).parent / "report_probe.js").read_text(encoding="utf-8")
    file = tmp_path / "page.html"
    file.write_text(page(made()), encoding="utf-8")
    pictures = Path(os.environ.get("REPORT_PICTURES", tmp_path))
    for width, scheme, medium in VIEWS:
        tab.show(file, width, scheme, medium)
        found = tab.evaluate(probe)
        assert isinstance(found, dict)
        assert found["faults"] == [], (width, scheme)
        assert found["labels"] > 20
        assert found["paper"] == ("rgb(17, 23, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
        picture = pictures / f"hil-{width}-{scheme}.png"
        tab.picture(picture)
        assert struct.unpack(">I", picture.read_bytes()[16:20])[0] == width
