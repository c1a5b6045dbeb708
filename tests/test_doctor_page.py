"""The doctor's page, and the command itself on this very machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tiny import make_bundle

from shared.doctor.cli import Report, adapted, read_config
from shared.doctor.findings import Finding
from shared.doctor.page import WIDTH, page
from shared.errors import SettingsError

COMMAND = (sys.executable, "-c", "from shared.cli import main; main()", "doctor", "--seconds", "0.1")


def test_a_finding_is_a_line_and_its_advice_stands_below() -> None:
    findings = [
        Finding("TIME", "clock source", "tsc"),
        Finding("TIME", "suspension", "not noticed", "look", "do not suspend"),
        Finding("GPU", "a device with a long name", "held down", "bad", "cool it"),
    ]
    assert page("title", findings, ["It means this."]) == [
        "title",
        "",
        "TIME",
        "  ok   clock source       tsc",
        "  look suspension         not noticed",
        "                          -> do not suspend",
        "",
        "GPU",
        "  BAD  a device with a long name",
        "                          held down",
        "                          -> cool it",
        "",
        "look: worth a look; BAD: costs answers. What to do is written under each.",
        "",
        "WHAT IT MEANS",
        "  It means this.",
    ]


def test_no_line_is_wider_than_the_page_and_nothing_is_lost() -> None:
    words = " ".join(f"word{number}" for number in range(80))
    lines = page(words, [Finding("G", "name", words, "bad", words)], [words])
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(lines).count("word79") == 4


def test_what_is_well_gets_no_advice_and_no_legend() -> None:
    text = "\n".join(page("t", [Finding("G", "n", "v", advice="not needed")], []))
    assert "not needed" not in text
    assert "worth a look" not in text


def test_only_the_word_of_the_verdict_is_painted() -> None:
    lines = page("t", [Finding("G", "n", "v", "bad", "a")], [], lambda verdict, word: f"<{verdict}:{word.strip()}>")
    assert "  <bad:BAD>n                  v" in lines


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=120, check=False)


def test_the_command_says_the_same_as_json_and_ends_with_what_can_be_promised() -> None:
    done = run("--json")
    assert "Traceback" not in done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert done.returncode == (0 if report.promise.possible else 1)
    assert report.facts.wakes.alone.count >= 100
    assert {"TIME", "PROCESSOR", "MEMORY", "LIMITS", "SOFTWARE"} <= {finding.group for finding in report.findings}
    assert report.config is None


def test_a_deadline_that_leaves_nothing_ends_with_status_1_and_says_so() -> None:
    done = run("--deadline-ms", "0.2")
    assert done.returncode == 1
    assert "THE PROMISE CANNOT BE KEPT HERE" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= WIDTH


@pytest.mark.parametrize(("name", "group"), [("edge", "agent"), ("cloud", "node")])
def test_a_configuration_of_either_kind_is_read_with_its_models(tmp_path: Path, name: str, group: str) -> None:
    bundle = make_bundle(tmp_path, "chain")
    path = tmp_path / f"{name}.toml"
    path.write_text(f'[{group}]\nmodels = ["{bundle.name}", "absent.plan"]\n[process]\nnice = 1\n')
    config = read_config(path)
    there, absent = config.models
    assert (there.name, there.fault) == ("chain", "")
    assert [rung.name for rung in there.rungs]
    assert "there is no bundle" in absent.fault
    assert config.settings.process.nice == 1


def test_a_configuration_with_a_mistake_is_one_line_and_status_2(tmp_path: Path) -> None:
    path = tmp_path / "edge.toml"
    path.write_text("[process]\nnise = 1\n")
    done = run("--config", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "process.nise: unknown key; did you mean 'nice'?" in done.stderr
    with pytest.raises(SettingsError, match="no such file"):
        read_config(tmp_path / "none.toml")


def test_a_core_that_is_not_there_is_told_and_nothing_is_applied(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    path = tmp_path / "edge.toml"
    path.write_text("[process]\ncores = [8191]\nnice = 5\n")
    config = adapted(read_config(path))
    assert "process.cores: names core 8191" in config.refused
    assert config.effects == ()
    assert os.sched_getaffinity(0) == before


def test_the_command_with_a_configuration_tells_what_it_asks_for(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    path = tmp_path / "edge.toml"
    path.write_text(f"[process]\ncores = [{core}]\nslice_us = 0\nlock_memory = true\n")
    done = run("--config", str(path), "--json")
    assert done.returncode == 1
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.config is not None
    assert [effect.setting for effect in report.config.effects] == ["process.cores", "process.lock_memory"]
    assert any("agent.models names none" in reason for reason in report.promise.because)
