"""Files of results: what cannot be written is refused before anything runs, and what is there stays as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from processes import COMMAND

from hil.written import require_folder, require_place, write_json
from shared.errors import UserError

PATIENCE_S = 30.0
CASE = Path(__file__).parent.parent / "configs" / "goodput" / "one_model.toml"


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    there, new, dangling = tmp_path / "there", tmp_path / "new", tmp_path / "dangling"
    there.write_text("kept")
    dangling.symlink_to(new)
    require_place(there, new, dangling, None, Path("/dev/stdout"))
    assert there.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "there"]


def test_a_pipe_is_not_tried_since_its_reader_would_see_it_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    require_place(tmp_path / "pipe")


@pytest.mark.parametrize("name", ["", "no/file", "file/below", "n" * 300, "nul\0"])
def test_a_file_that_cannot_be_written_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written: "):
        require_place(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_made_or_refused_by_name(tmp_path: Path) -> None:
    require_folder(tmp_path / "a" / "b")
    require_folder(None)
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: cannot be written: File exists"):
        require_folder(tmp_path / "file")


def test_what_is_written_is_json_whatever_the_figures_are(tmp_path: Path) -> None:
    def no(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    write_json(tmp_path / "x", {"a": float("nan"), "b": float("inf"), "c": 1.5})
    assert json.loads((tmp_path / "x").read_text(), parse_constant=no) == {"a": None, "b": None, "c": 1.5}
    with pytest.raises(UserError, match="full: cannot be written: No space left on device"):
        write_json(Path("/dev/full"), {})


@pytest.mark.parametrize(
    "command",
    [
        ("sim", "goodput", str(CASE), "--requests", "10000000", "--json"),
        ("sim", "goodput", str(CASE), "--requests", "10000000", "--svg"),
        ("sim", "crowd", "--svg"),
        ("sim", "regret", "--svg"),
        ("bench", "load", "ipc:///tmp/nobody", "--rate", "10", "--json"),
        ("bench", "--only", "leak", "--json"),
        ("chaos", "--json"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_command_says_so_before_it_runs(command: tuple[str, ...]) -> None:
    began = time.monotonic()
    ended = subprocess.run([*COMMAND, *command, "/dev/null/x"], check=False, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "headtail: /dev/null/x: cannot be written: Not a directory\n"
    assert time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("whole_group", [True, False], ids=["from the terminal", "to the command alone"])
def test_an_interrupt_ends_a_command_and_the_processes_that_work_for_it(whole_group: bool) -> None:
    command = subprocess.Popen(
        [*COMMAND, "sim", "goodput", str(CASE), "--requests", "10000000", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not (working := _workers(command.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        assert working, "no process works"
        began = time.monotonic()
        (os.killpg if whole_group else os.kill)(command.pid, signal.SIGINT)
        _, said = command.communicate(timeout=PATIENCE_S)
        assert command.returncode == 130
        assert "Traceback" not in said
        assert time.monotonic() - began < PATIENCE_S / 2
        assert not any(Path(f"/proc/{pid}").exists() for pid in working)
    finally:
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()


def _workers(parent: int) -> list[int]:
    """The children of a process that have worked for a second, two of them; else none."""
    found = [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    tick = os.sysconf("SC_CLK_TCK")
    busy: list[int] = []
    for pid in found:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[11]) + int(fields[12]) > 1.5 * tick:
            busy.append(pid)
    return busy if len(busy) >= 2 else []
