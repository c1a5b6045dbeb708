"""A short scenario with real processes over the emulated network (skipped, with the reason, where it cannot be), and one over
the unprivileged proxy: everything that was asked is in the report, and nothing of it is lost, doubled or wrong."""

from __future__ import annotations

import errno
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from emulated import needs_kernel
from rich.console import Console

from hil.emulator.shape import Shape
from hil.scenarios import cli
from hil.scenarios.emulated import EmulatedNetwork
from hil.scenarios.find import shipped
from hil.scenarios.proxied import ProxiedNetwork
from hil.scenarios.report import Report
from hil.scenarios.run import MakeBackend, run_scenario
from hil.scenarios.scenario import Fault, LinkPart, Noise, Scenario, Stream
from hil.services import HEADTAIL
from shared.errors import UserError

SHAPE = Shape(delay_ms=1.0, rate_mbit=200.0)
FAULTS = (
    Fault(at_s=0.3, kind="kill", on="in-use", for_s=0.3),
    Fault(at_s=0.6, kind="meddle", on="node-b", what=("identity", "corrupt"), for_s=0.3),
    Fault(at_s=0.7, kind="stall", for_s=0.1),
    Fault(at_s=0.9, kind="heat", on="device", times=1.5, for_s=0.2),
    Fault(at_s=1.0, kind="clock_step", on="node-a"),
    Fault(at_s=1.2, kind="suspend", on="device", for_s=0.2),
)
ALWAYS = ("no request lost", "every request has one", "nothing late is called")


def played(folder: Path, make: MakeBackend) -> Report:
    scenario = Scenario(
        name="short",
        about="a few seconds of it",
        stream=Stream(rate_hz=50.0, seconds=1.6, deadline_ms=60.0),
        links=(LinkPart(up=SHAPE, down=SHAPE),),
        faults=FAULTS,
        noise=Noise(tries=1),
    )
    return run_scenario(scenario, {}, folder, ("test", make), (), Console(quiet=True).print)


def check(report: Report) -> None:
    """What holds whatever the machine does meanwhile."""
    for rule in report.judgement.rules:
        if rule.expected.startswith(ALWAYS[:2]):
            assert rule.holds, rule
    assert any(rule.expected.startswith(ALWAYS[2]) for rule in report.judgement.rules)
    assert report.figures.test.frames == report.figures.control.frames == 70, "ten of each fall into the suspension"
    assert [one.fault for one in report.struck] == list(range(len(FAULTS)))
    assert report.struck[0].victims[0] in ("node-a", "node-b")
    assert all(one.end_ms is not None for one in report.struck if FAULTS[one.fault].for_s)
    assert {Path(name).name.rsplit("-", 2)[0] for name in report.journals} >= {"edge-edge", "edge-control"}
    assert report.figures.control.by_source.keys() <= {"edge"}


@needs_kernel
def test_a_short_scenario_between_namespaces(tmp_path: Path) -> None:
    check(played(tmp_path, EmulatedNetwork))


def test_a_short_scenario_through_the_proxy(tmp_path: Path) -> None:
    report = played(tmp_path, ProxiedNetwork)
    check(report)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"names": ["nothing"]}, "'nothing' is no scenario"),
        ({"names": ["lossy_wifi"], "backend": "ssh"}, "--hosts names the hosts"),
        ({"names": ["address_change"], "backend": "proxy"}, "cannot carry a fault 'readdress'"),
        ({"names": ["node_crash"], "backend": "proxy", "trace": Path("none.csv")}, "none.csv: cannot be read"),
    ],
)
def test_the_command_line_says_what_is_wrong(tmp_path: Path, arguments: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as error:
        cli.run(out=tmp_path, **arguments)
    assert told in str(error.value)


def test_what_cannot_be_read_or_written_is_told_before_anything_is_played(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('name = "other"\nabout = "x"\n[[links]]\ntrace = "none.csv"\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"none.csv: cannot be read"):
        cli.run(names=["good_link", str(other)], out=tmp_path / "out", backend="proxy")
    with pytest.raises(OSError, match="missing"):
        cli.run(names=["good_link"], out=tmp_path / "out", backend="proxy", junit=tmp_path / "missing" / "x.xml")
    assert not (tmp_path / "out").exists()


@needs_kernel
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("0,1e11\n10,1e11\n", "up_delay_ms of a trace is 5e+10 in step 0"),
        ("0,5\n0.5,5\n", "a trace in steps of 0.5 ms"),
    ],
)
def test_a_trace_that_the_emulator_cannot_play_is_refused_before_anything_is_played(
    tmp_path: Path, rows: str, told: str
) -> None:
    trace = tmp_path / "drive.csv"
    trace.write_text(f"# headtail link trace 1\nt_ms,rtt_ms\n{rows}", encoding="utf-8")
    with pytest.raises(UserError, match=rf"drive.csv: {re.escape(told)}"):
        cli.run(names=["good_link"], out=tmp_path / "out", trace=trace)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_told_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Report:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hil.scenarios.runs.run_scenario", full)
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path / 'good_link'))}: No space left on device$"):
        cli.run(names=["good_link"], out=tmp_path, backend="proxy")


def test_the_shipped_scenarios_are_listed() -> None:
    done = subprocess.run([*HEADTAIL, "hil", "scenarios"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in shipped())
