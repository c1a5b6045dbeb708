"""The command `headtail`: its list of verbs, its hints, and what each ending becomes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer

from shared import cli
from shared.commands import Command
from shared.errors import InvariantBroken, PeerError, SettingsError, Unsatisfiable

THERE = Command("ride", "Go for a ride.", "verbs_of_the_test:ride", extra="edge", requires=("msgspec",))
GROUP = Command("tour", "Go for several rides.", "verbs_of_the_test:tour")
ABSENT = Command("fly", "Take off.", "no_such_module:fly", extra="wings", requires=("no_such_module_at_all",))
ENDINGS: dict[str, BaseException] = {
    "user": SettingsError("edge.toml: link.rtt_ms: is -1;\nexpected float >= 0.0"),
    "bug": InvariantBroken("rule 3: two answers"),
    "unforeseen": KeyError("heat"),
    "parameter": typer.BadParameter("not so fast"),
    "permission": PermissionError(13, "Permission denied", "secret/m.onnx"),
    "full": OSError(28, "No space left on device"),
    "folder": IsADirectoryError(21, "Is a directory", "m.onnx"),
    "timeout": TimeoutError("the node did not answer"),
    "nameless": ConnectionResetError(),
    "impossible": Unsatisfiable("--device-memory: at least\n5 bytes"),
    "peer": PeerError("frames", "expected 2, got 1"),
    "interrupt": KeyboardInterrupt(),
    "exit": typer.Exit(7),
}


def ride(
    where: Annotated[str, typer.Argument(help="The place.")], end: Annotated[str, typer.Option(help="How.")] = ""
) -> None:
    """Go for a ride [to the end].

    It takes its time.
    """
    if end:
        raise ENDINGS[end]
    typer.echo(f"rode to {where}")


def tour() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command("ride")(cli.guarded(ride))
    return app


@pytest.fixture(autouse=True)
def verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("verbs_of_the_test")
    module.__dict__.update(ride=ride, tour=tour, COMMANDS=(THERE,))
    monkeypatch.setitem(sys.modules, "verbs_of_the_test", module)
    monkeypatch.setenv("COLUMNS", "120")


def status_of(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as ending:
        cli.run(arguments, (THERE, GROUP, ABSENT))
    return ending.value.code


def test_help_lists_every_verb_and_the_extra_of_one_that_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == 0
    printed = capsys.readouterr().out
    assert "Go for a ride." in printed
    assert "Take off. (needs the extra 'wings': pip install 'headtail[wings]')" in printed
    assert "needs the extra 'edge'" not in printed


def test_help_of_a_verb_is_the_docstring_of_its_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("ride", "--help") == 0
    printed = capsys.readouterr().out
    assert "Go for a ride [to the end]." in printed
    assert "It takes its time." in printed
    assert "The place." in printed


def test_a_verb_runs_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("ride", "home") == 0
    assert capsys.readouterr().out == "rode to home\n"


def test_a_verb_may_have_verbs_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("tour", "ride", "north") == 0
    assert capsys.readouterr().out == "rode to north\n"
    assert status_of("tour", "ride", "north", "--end", "user") == 2
    assert capsys.readouterr().err == "headtail: edge.toml: link.rtt_ms: is -1; expected float >= 0.0\n"


@pytest.mark.parametrize("arguments", [("fly",), ("fly", "high", "--speed", "3", "-x"), ("fly", "--help")])
def test_a_verb_whose_extra_is_missing_says_so(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert status_of(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err == "headtail: fly needs the extra 'wings': pip install 'headtail[wings]'\n"
    assert captured.out == ""


def test_a_user_error_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("ride", "home", "--end", "user") == 2
    assert capsys.readouterr().err == "headtail: edge.toml: link.rtt_ms: is -1; expected float >= 0.0\n"


def test_what_nothing_satisfies_is_one_line_and_status_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("ride", "home", "--end", "impossible") == 4
    assert capsys.readouterr().err == "headtail: --device-memory: at least 5 bytes\n"


@pytest.mark.parametrize(
    ("end", "line"),
    [
        ("permission", "secret/m.onnx: Permission denied"),
        ("full", "No space left on device"),
        ("folder", "m.onnx: Is a directory"),
        ("timeout", "the node did not answer"),
        ("nameless", "ConnectionResetError"),
    ],
)
def test_what_the_system_refuses_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], end: str, line: str
) -> None:
    assert status_of("ride", "home", "--end", end) == 2
    assert capsys.readouterr().err == f"headtail: {line}\n"


def test_a_bug_tells_its_story_and_has_status_70(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("ride", "home", "--end", "bug") == 70
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert printed.splitlines()[-1].endswith("a bug worth reporting: rule 3: two answers")


@pytest.mark.parametrize("arguments", [("ride", "home"), ("tour", "ride", "north")])
def test_what_nobody_foresaw_is_a_bug_too_and_no_refusal(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert status_of(*arguments, "--end", "unforeseen") == 70
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    last = printed.splitlines()[-1]
    assert last == (
        "headtail: a bug of headtail; please report it to its maintainers with the lines above: KeyError: 'heat'"
    )


@pytest.mark.parametrize(("end", "status"), [("parameter", 2), ("peer", 1), ("interrupt", 130), ("exit", 7)])
def test_other_endings_have_their_status_and_no_traceback(
    capsys: pytest.CaptureFixture[str], end: str, status: int
) -> None:
    assert status_of("ride", "home", "--end", end) == status
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("ride", "home", "--fast"), "--fast"),
        (("ride",), "WHERE"),
        (("rid", "home"), "ride"),
        (("--fast",), "--fast"),
    ],
)
def test_wrong_usage_names_the_thing_and_has_status_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    assert status_of(*arguments) == 2
    printed = capsys.readouterr().err
    assert named.lower() in printed.lower()
    assert "Traceback" not in printed


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--version") == 0
    assert capsys.readouterr().out.startswith("headtail 0.")


def test_verbs_come_from_entry_points_in_the_order_of_their_names() -> None:
    point = EntryPoint("test", "verbs_of_the_test:COMMANDS", cli.GROUP)
    assert cli.commands([point]) == (THERE,)
    with pytest.raises(InvariantBroken, match="'ride' is defined twice"):
        cli.commands([point, point])


def test_the_packages_of_headtail_define_the_verbs_of_the_manual() -> None:
    found = cli.commands(entry_points(group=cli.GROUP))
    assert [command.name for command in found] == [
        "bench",
        "chaos",
        "cloud",
        "cut-everywhere",
        "deadletters",
        "demo",
        "doctor",
        "edge",
        "explain",
        "hil",
        "inspect",
        "invert",
        "overhead",
        "plan",
        "profile",
        "replay",
        "report",
        "sim",
        "tune",
        "verify",
        "when-to-split",
    ]
    for command in found:
        assert command.summary.endswith(".")
        assert set(command.extra.split(",")) <= {"", "edge", "cloud", "plan", "demo", "dev"}
        assert bool(command.requires) == bool(command.extra)


@pytest.mark.parametrize("command", cli.commands(entry_points(group=cli.GROUP)), ids=lambda command: command.name)
def test_a_verb_loads_with_no_more_than_it_says_it_requires(command: Command) -> None:
    optional = {"zmq", "onnx", "onnxruntime", "PIL", "skimage", "simplejpeg", "zstandard", "qoi", "msgpack", "psutil"}
    program = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(optional - set(command.requires))}))\n"
        f"importlib.import_module({command.target.partition(':')[0]!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert set(command.requires) <= optional


def test_listing_the_verbs_imports_none_of_what_they_need() -> None:
    program = (
        "import sys; sys.argv = ['headtail', '--help']\ntry:\n    from shared.cli import main; main()\nfinally:\n"
        + (
            "    heavy = {'zmq', 'numpy', 'psutil', 'onnx', 'onnxruntime', 'scipy', 'PIL', 'skimage', 'simplejpeg'}\n"
            "    heavy |= {'zstandard', 'qoi'}\n"
            "    sys.stderr.write(repr(sorted(heavy & sys.modules.keys())))\n"
        )
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr == "[]"


def test_the_installed_command_refuses_a_missing_configuration_in_one_line(tmp_path: Path) -> None:
    command = Path(sys.executable).parent / "headtail"
    asked = [str(command), "edge", "--config", str(tmp_path / "none.toml")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == f"headtail: {tmp_path / 'none.toml'}: no such file\n"
