"""The report in a real browser: nothing overlaps or is cut off, at the widths of a phone, a desk and a page of paper."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Tab, find_browser, open_tab
from records import ASKED, SEVERAL, away, device, record
from tiny import make_bundle

from partitioner.records.record import Record
from partitioner.reports.page import render
from shared.bundle import load_bundle

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium: apt-get install chromium lets these tests run")

PHONE, DESK, PAPER = 390, 1280, 688
VIEWS = (
    (PHONE, "light", "screen"),
    (PHONE, "dark", "screen"),
    (DESK, "light", "screen"),
    (DESK, "dark", "screen"),
    (PAPER, "light", "print"),
)

PROBE = (Path(__file__).parent / "report_probe.js").read_text(encoding="utf-8")


def crowded() -> Record:
    """Many ways with long names that differ little."""
    ways = [device("whole", 9.0, 1.0, 2.5)]
    ways += [device(f"res-{side}", 9.0 * (side / 640) ** 2, 0.6 + side / 2000, 1.0) for side in (512, 448, 320)]
    ways += [
        away("input", f"jpeg{q}", 0.0, 9.0, 30_000 + 1200 * q, 0.9 + q / 1000, encode_ms=0.6) for q in (60, 75, 90, 95)
    ]
    for number in range(1, 5):
        name = f"/model/backbone/layer{number}/layer{number}.{number}/very_long_residual_block_{number}/Add_output_0"
        for coding, factor, agreement in (
            ("raw", 1.0, 1.0),
            ("int8", 0.25, 0.99),
            ("int6", 0.12, 0.985),
            ("int4", 0.06, 0.93),
        ):
            ways.append(
                away(name, coding, 1.8 * number, 9.0 - 1.8 * number, round(900_000 * factor / number), agreement)
            )
    ways += [
        away(f"node_{n}", "raw", 0.03 * n, 9.0 - 0.03 * n, 200_000 + 9_000 * n, measured=False) for n in range(1, 250)
    ]
    return record(
        tuple(ways),
        asked=ASKED.at("deadline", 60.0),
        name="a-very-long-name-of-a-model-with-no-spaces-in-it_v12",
        best=8,
        routes=(8, 9, 10),
    )


RECORDS = {
    "several": record,
    "crowded": crowded,
    "never": lambda: record(SEVERAL[:6], best=1, routes=()),
    "device": lambda: record(SEVERAL[:1], best=0, routes=(), asked=ASKED.at("link.rtt", 0.0)),
    "late": lambda: record(asked=ASKED.at("deadline", 3.0)),
    "far": lambda: record(asked=ASKED.at("edge-slowdown", 1000.0).at("link.rate", 90_000.0)),
}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    assert BROWSER is not None
    with open_tab(BROWSER, tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.mark.parametrize("kind", RECORDS)
def test_nothing_overlaps_or_is_cut_off_at_any_width(kind: str, tab: Tab, tmp_path: Path) -> None:
    bundle = load_bundle(make_bundle(tmp_path))
    page = tmp_path / f"{kind}.html"
    page.write_text(render(RECORDS[kind](), bundle.plan), encoding="utf-8")
    pictures = Path(os.environ.get("REPORT_PICTURES", tmp_path))
    for width, scheme, medium in VIEWS:
        tab.show(page, width, scheme, medium)
        told = tab.evaluate(PROBE)
        assert isinstance(told, dict)
        assert told["faults"] == [], (width, scheme, medium)
        assert told["drawings"] >= 4
        assert told["labels"] > 40
        assert told["paper"] == ("rgb(17, 23, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
        if kind == "several" or "REPORT_PICTURES" in os.environ:
            file = pictures / f"{kind}-{width}-{scheme}-{medium}.png"
            tab.picture(file)
            assert struct.unpack(">I", file.read_bytes()[16:20])[0] == width


def test_the_probe_finds_what_overlaps_and_what_is_cut_off(tab: Tab, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><body style='margin:0'><figure style='margin:0'><svg width='300' height='40' viewBox='0 0 300 40'>"
        "<title>bad</title><text x='10' y='20'>one label</text><text x='20' y='22'>another</text>"
        "<text x='280' y='20'>too far to the right</text></svg></figure><p style='width:2000px'>wide</p>",
        encoding="utf-8",
    )
    tab.show(page, PHONE, "light")
    told = tab.evaluate(PROBE)
    assert isinstance(told, dict)
    words = " | ".join(told["faults"])
    assert "the page is 2000 wide in" in words
    assert "'another' lies on 'one label'" in words
    assert "'too far to the right' is cut off" in words


def test_the_page_asks_for_nothing_and_runs_nothing(tab: Tab, tmp_path: Path) -> None:
    bundle = load_bundle(make_bundle(tmp_path))
    page = tmp_path / "several.html"
    page.write_text(render(record(), bundle.plan), encoding="utf-8")
    tab.show(page, DESK, "light")
    asked = tab.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    assert asked == []
    assert tab.evaluate("document.scripts.length") == 0
    headings = tab.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => e.tagName).join(' ')")
    assert isinstance(headings, str)
    assert headings.startswith("H1 H2")
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('figure svg, [role=img], [role=region]')]"
        ".filter(e => !e.getAttribute('aria-label')).length"
    )
    assert unnamed == 0
