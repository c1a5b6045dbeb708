"""The lock that keeps two processes off one ipc path.

ZeroMQ deletes whatever lies at an ipc path before it binds there, be it another process's socket or somebody's file, and
says nothing. So a path is bound only under a lock (`PATH.lock`, held for as long as the socket), only where nobody
listens, and only where nothing but a socket lies. A tcp port in use is refused by the system itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from types import TracebackType

from shared.errors import UserError


class PathLock:
    """Sole right to bind one ipc path, as long as it is held. The lock dies with its process, so none is ever stale."""

    def __init__(self, path: str) -> None:
        """Take the lock. Raises `UserError` where the path is in use, its folder is missing or may not be written to."""
        self._path = Path(path)
        self._lock = Path(f"{path}.lock")
        self._owned = False
        self._fd = self._take(path)
        try:
            _check_free(path)
        except UserError:
            self.release()
            raise
        self._owned = True

    def release(self) -> None:
        """Remove the socket, which ZeroMQ leaves behind, and give the path up. To be called once the socket is closed."""
        if self._fd >= 0:
            if self._owned:
                self._path.unlink(missing_ok=True)
            self._lock.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> PathLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _take(self, path: str) -> int:
        while True:
            fd = self._open(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
                os.close(fd)
                raise UserError(f"ipc://{path} is in use by process {holder}") from None
            # Its holder may have removed the file between our opening and our locking it.
            if self._still_there(fd):
                os.ftruncate(fd, 0)
                os.write(fd, f"{os.getpid()}\n".encode())
                return fd
            os.close(fd)

    def _open(self, path: str) -> int:
        try:
            return os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            raise UserError(f"ipc://{path}: the folder {Path(path).parent} does not exist") from None
        except NotADirectoryError:
            raise UserError(f"ipc://{path}: {Path(path).parent} is not a folder") from None
        except PermissionError:
            raise UserError(f"ipc://{path}: no permission to write {self._lock}") from None
        except OSError as error:
            raise UserError(f"ipc://{path}: {self._lock} cannot be opened: {error.strerror}") from None

    def _still_there(self, fd: int) -> bool:
        try:
            there = self._lock.stat()
        except FileNotFoundError:
            return False
        held = os.fstat(fd)
        return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def _check_free(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UserError(f"ipc://{path}: something other than a socket lies at {path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # A full queue of connections is somebody's, too.
        if probe.connect_ex(path) in (0, errno.EAGAIN):
            raise UserError(f"ipc://{path} is in use by another process")
