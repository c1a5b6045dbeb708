"""Processes of the rigs take the code of the process that starts them, whatever the folder of the command holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hil
from hil.monitor import Monitor
from hil.own_code import environment


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project that has names of ours and of the standard library."""
    for name in ("hil", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "queue.py").write_text("raise SystemExit('not the queue that was meant')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_folder_of_the_command_hides_nothing() -> None:
    words = "import hil, queue, shared.errors; print(hil.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", words], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == hil.__file__


@pytest.mark.usefixtures("folder")
def test_a_helper_starts_there() -> None:
    with Monitor(1.0) as monitor:
        assert not monitor.ended


def test_a_users_own_path_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert environment()["PYTHONPATH"].endswith("/somewhere")
