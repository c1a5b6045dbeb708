"""Directories on disk: the file that somebody edits, watched, and what is kept of the last one over restarts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from shared.directory import Directory, encode, newest
from shared.errors import SettingsError
from shared.events import DirectorySeen, Event
from shared.settings_check import decode
from shared.settings_file import load
from shared.timer import make_timer

Tell = Callable[[str], None]
"""Takes a line that a person should read."""

LOOK_NS = 1_000_000_000
"""How often a file is looked at."""


def load_directory(path: Path) -> Directory:
    """The directory in a TOML file: `epoch`, and a table `[[nodes]]` for each node as in an agent's file. Raises
    `SettingsError` that names the file and the key."""
    return load(path, Directory)


def load_kept(path: Path) -> Directory | None:
    """What `keep` wrote; None where there is nothing yet. Raises `SettingsError` where the file is no directory."""
    try:
        return decode(msgspec.json.decode(path.read_bytes(), type=dict[str, object]), Directory)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, SettingsError) as error:
        raise SettingsError(f"{path}: no list of nodes that was kept: {error}") from None


def keep(path: Path, directory: Directory) -> None:
    """Write a directory in place of the one before, whole or not at all. Raises `OSError`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(encode(directory))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


class Keeping:
    """Keeps directories on a thread of its own, since a disk may be slow; of several that wait the last. `tell` hears, once,
    why one could not be written."""

    def __init__(self, path: Path, tell: Tell) -> None:
        """Raises `SettingsError` where the file's folder is not there."""
        if not path.parent.is_dir():
            raise SettingsError(f"fleet.state: is {str(path)!r}; expected a file in a folder that is there")
        self._path = path
        self._tell = tell
        self._wanted: Directory | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.fault = ""
        """Why the last one could not be written."""

    def keep(self, directory: Directory) -> None:
        """Have this one written, soon."""
        with self._lock:
            self._wanted = directory
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="directory", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Wait for what is being written."""
        thread = self._thread
        if thread is not None:
            thread.join(5.0)

    def _work(self) -> None:
        while True:
            with self._lock:
                directory, self._wanted = self._wanted, None
                if directory is None:
                    self._thread = None
                    return
            try:
                keep(self._path, directory)
                self.fault = ""
            except OSError as error:
                before, self.fault = self.fault, f"{self._path}: cannot be written: {error.strerror}"
                if self.fault != before:
                    self._tell(f"{self.fault}; the list of nodes is not kept")


class DirectoryWatch:
    """A source of `DirectorySeen`: looks once a second whether a directory's file has changed. What cannot be read is
    counted in `faults`, and the last good one counts on."""

    def __init__(self, path: Path, tell: Tell, *, announce: bool) -> None:
        """`announce`: the first event tells of what is there now (`first`). `tell` hears what is wrong with the file later.
        Raises `SettingsError` where the file is no directory."""
        self._path = path
        self._announce = announce
        self._stamp = _stamp(path)
        self.first = load_directory(path)
        self._last = self.first
        self._tell = tell
        self.faults = 0
        self._timer = make_timer()
        self._due_ns = 0
        self._set()

    def fileno(self) -> int:
        """Readable when it is time to look."""
        return self._timer.fileno()

    def drain(self) -> Iterable[Event]:
        """The file's directory, where it has changed."""
        if self._announce:
            self._announce = False
            return (DirectorySeen(self.first),)
        if time.monotonic_ns() < self._due_ns:
            return ()
        self._timer.ack()
        self._set()
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return ()
        self._stamp = stamp
        try:
            found = load_directory(self._path)
        except SettingsError as error:
            self.faults += 1
            self._tell(f"{error}; the list of nodes stays as it was")
            return ()
        if found.epoch <= self._last.epoch and found != self._last:
            self._tell(
                f"{self._path}: epoch: is {found.epoch}; expected more than {self._last.epoch} for a list that counts"
            )
        self._last = newest(self._last, found) or found
        return (DirectorySeen(found),)

    def pending(self) -> bool:
        """Whether the first is still to be told."""
        return self._announce

    def close(self) -> None:
        """Release the timer."""
        self._timer.close()

    def _set(self) -> None:
        self._due_ns = time.monotonic_ns() + LOOK_NS
        self._timer.set(self._due_ns)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        seen = path.stat()
    except OSError:
        return (0, 0, 0)
    return (seen.st_mtime_ns, seen.st_size, seen.st_ino)
