"""Nobody's path is taken from under them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from shared.errors import UserError
from shared.path_lock import PathLock


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent")


def test_a_path_is_locked_by_one_and_free_again_after_it(path: str) -> None:
    with PathLock(path):
        with pytest.raises(UserError) as refused:
            PathLock(path)
        assert path in str(refused.value)
        assert str(os.getpid()) in str(refused.value)
    assert not Path(f"{path}.lock").exists()
    PathLock(path).release()


HOLD = """
import sys
from shared.path_lock import PathLock
lock = PathLock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_free(path: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError) as refused:
            PathLock(path)
        assert str(holder.pid) in str(refused.value)
        holder.kill()
    assert Path(f"{path}.lock").exists()
    PathLock(path).release()


def test_a_file_of_somebody_elses_is_left_alone(path: str) -> None:
    Path(path).write_text("precious")
    with pytest.raises(UserError) as refused:
        PathLock(path)
    assert "socket" in str(refused.value)
    assert Path(path).read_text() == "precious"
    assert not Path(f"{path}.lock").exists()


def test_a_socket_that_somebody_listens_on_is_refused_and_a_stale_one_is_not(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(0)
        for _ in range(3):  # the last finds the queue of connections full
            with pytest.raises(UserError):
                PathLock(path)
        assert Path(path).is_socket()
    PathLock(path).release()
    assert not Path(path).exists()


def test_a_missing_folder_and_a_file_in_its_place_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        PathLock(str(tmp_path / "missing" / "agent"))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="not a folder"):
        PathLock(str(tmp_path / "file" / "agent"))


def test_a_folder_without_permission_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="permission"):
        PathLock(str(tmp_path / "agent"))


def test_a_lock_that_is_a_link_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    Path(f"{path}.lock").symlink_to(tmp_path / "target")
    with pytest.raises(UserError):
        PathLock(path)
    assert (tmp_path / "target").read_text() == "precious"
