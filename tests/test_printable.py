"""Names of tensors may hold any character: none that a terminal obeys or XML forbids is shown, on a console or a page."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer
from graphs import Net
from hypothesis import given
from hypothesis import strategies as st
from records import SEVERAL, away, record
from tiny import make_bundle
from typer.testing import CliRunner

from partitioner import api
from partitioner.explanations.cli import main as explain
from partitioner.inspections.cli import main as inspect
from partitioner.plan_cli import show
from partitioner.planned import read_plan
from partitioner.records.record import RECORD_FILE, encode_record
from partitioner.terminal import PlainConsole
from shared.bundle import write_manifest
from shared.cli import endings
from shared.errors import UserError
from shared.plan import REPORT_FILE
from shared.printable import printable

EVIL = "c1\x1b]0;owned\x07\x00\x9b31m[red]:x:"
SHOWN = "c1␛]0;owned␇␀�31m[red]:x:"


def controls(words: str) -> set[str]:
    return {c for c in words if unicodedata.category(c) == "Cc"} - {"\n"}


@given(st.text(st.characters(exclude_characters="\r")))
def test_what_is_printable_is_xml_and_keeps_all_else(words: str) -> None:
    made = printable(words)
    assert not controls(made)
    assert len(made) == len(words)
    assert all(b in {a, "�"} or ord(b) == 0x2400 + min(ord(a), 0x21) for a, b in zip(words, made, strict=True))
    element = ElementTree.Element("a")
    element.text = made
    assert (ElementTree.fromstring(ElementTree.tostring(element, "unicode")).text or "") == made


def test_what_turns_the_direction_of_text_is_seen() -> None:
    turning = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029"
    assert printable(f"head{turning}tail") == f"head{'�' * len(turning)}tail"
    assert printable("שלום, 你好, naïve – ok") == "שלום, 你好, naïve – ok"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = make_bundle(tmp_path, name="several")
    ways = (*SEVERAL, away(EVIL, "raw", 0.5, 6.0, 9000))
    (path / RECORD_FILE).write_bytes(encode_record(record(ways, best=len(SEVERAL), routes=(len(SEVERAL),))))
    write_manifest(path)
    return path


def test_plan_explain_and_report_show_no_control_character(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    explain(bundle)
    told = capsys.readouterr().out
    show(PlainConsole(highlight=True), read_plan(bundle))
    weighed = capsys.readouterr().out
    api.report(bundle)
    for words in (told, weighed, (bundle / REPORT_FILE).read_text("utf-8")):
        assert "c1␛" in words
        assert not controls(words)


def test_inspect_shows_no_control_character_and_draws_xml(tmp_path: Path) -> None:
    net = Net(seed=5)
    net.input("x", [1, 3, 8, 8])
    net.add("Relu", [net.conv("x", "c", (3, 8))], EVIL)
    net.add("GlobalAveragePool", [EVIL], "y")
    net.output("y")
    svg, page = tmp_path / "net.svg", tmp_path / "net.html"
    app = typer.Typer()
    app.command()(inspect)
    arguments = [str(net.save(tmp_path / "net.onnx")), "--svg", str(svg), "--html", str(page)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "200"})
    ElementTree.parse(svg)
    drawn = (svg.read_text("utf-8"), page.read_text("utf-8"))
    assert all(SHOWN in words for words in drawn)
    assert "c1␛" in done.output  # the rest is on further lines of its cell
    assert not any(map(controls, (done.output, *drawn)))


def test_an_error_names_what_is_at_fault_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), endings():
        raise UserError(f"{EVIL}: no such cut")
    assert capsys.readouterr().err == f"headtail: {SHOWN}: no such cut\n"
