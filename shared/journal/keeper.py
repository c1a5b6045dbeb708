"""When and where a process saves its journal: the shell around a `Recorder`.

    `save(path)`           now, on the calling thread, wherever the caller wants
    `ask("signal")`        soon, on a thread of its own, into the folder of the settings
    `ask("share")`         the same, where a folder is set, not too often, and only so many files are kept
    the machine raises     at once, before the error leaves the loop; it then tells where its journal is

Saves come when things go badly, so that they must not make them worse: the loop's own part is to go on, the thread makes
the file piece by piece, pauses in between, and compresses without the interpreter's lock. A file appears under its name only
when it is whole. The thread is made with the keeper, before a process takes real-time priority, which threads made later
would inherit.

Whatever goes wrong with a file is one `JournalError`, and whatever goes wrong with a journal leaves the loop, the thread and
the machine's own error as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from shared.errors import JournalError
from shared.journal.file import head_of, pieces
from shared.journal.kind import MachineKind, Recorded, Setup
from shared.journal.recorder import Recorder
from shared.journal.share import OnTimeShare
from shared.ports import Machine
from shared.settings import Journal
from shared.standard_streams import say

SUFFIX = ".journal"
PAUSE_S = 0.002
"""Between two pieces of a file that nobody waits for."""

MOST_ASKED = 4
"""Saves that wait for the one under way, at most."""

CLOSE_S = 5.0
"""How long closing waits for a file that is being written."""

Reason = Literal["asked", "signal", "share", "raised"]


class Keeper:
    """The journal of one process. `machine` is what its loop should drive; `idle` what the loop calls before it sleeps.

    `setup` must be `kind.normal`, and `machine` built from it just now. With `journal.events` 0 nothing is recorded.
    """

    def __init__(
        self, machine: Recorded, kind: MachineKind, setup: Setup, settings: Journal, *, own_process: bool
    ) -> None:
        """`own_process`: the process is ours, so that saves may be asked for from outside and are told on stderr. In an
        application's, a thread is made only where a folder is set, and a save that failed is a Python warning."""
        self.machine: Machine = machine
        self.idle: Callable[[int], None] | None = None
        self._kind = kind
        self._name = setup.name
        self._settings = settings
        self._own_process = own_process
        self._recorder: Recorder | None = None
        self._queue: SimpleQueue[Reason | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._saved_share_s = float("-inf")
        if settings.events:
            watched = settings.folder and settings.save_below > 0.0
            share = OnTimeShare(settings.save_below, settings.save_window, lambda: self.ask("share"))
            self._recorder = recorder = Recorder(
                machine,
                kind,
                setup,
                events=settings.events,
                clock=time.monotonic_ns,
                look=share.look if watched else None,
                strict=False,
            )
            recorder.rescue = self._rescue
            recorder.gave_up = lambda why: self._tell_failure(f"the journal records no more: {why}")
            self.machine = recorder
            self.idle = recorder.idle
        if own_process or (settings.events and settings.folder):
            self._thread = threading.Thread(target=self._serve, name="headtail-journal", daemon=True)
            self._thread.start()

    def save(self, path: Path, reason: Reason = "asked") -> int:
        """Write the journal to `path`, in place of what is there; how many steps it holds. From any thread.

        Raises `JournalError` where nothing is recorded, or no file of that name can be written."""
        return self._write(path, reason, paced=False)

    def ask(self, reason: Reason) -> None:
        """Have the journal saved soon. From any thread and from a signal handler. Does nothing where enough are asked for."""
        if reason == "share":
            now_s = time.monotonic()
            if now_s - self._saved_share_s < self._settings.save_pause_s:
                return
            self._saved_share_s = now_s
        if self._queue.qsize() < MOST_ASKED:
            self._queue.put(reason)

    def close(self) -> None:
        """Let a file that is being written be finished, and end the thread."""
        self._closing.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        if self._recorder is not None:
            self._recorder.let_go()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (reason := self._queue.get()) is not None:
            try:
                path = self._place(reason)
                steps = self._write(path, reason, paced=True)
                self._prune(path.parent)
            except Exception as error:  # the thread is there for the next one
                self._tell_failure(f"the journal was not saved: {_told(error)}")
            else:
                why = "too few requests were on time" if reason == "share" else "it was asked for"
                self._tell(f"journal saved, since {why}: {path} ({steps} steps)")

    def _tell(self, line: str) -> None:
        if self._own_process:
            say(f"headtail: {line}")

    def _tell_failure(self, line: str) -> None:
        self._tell(line)
        if not self._own_process:
            try:
                warnings.warn(f"headtail: {line}", stacklevel=2)
            except UserWarning as warning:  # made an error by the application's filters, which nobody here can take
                say(f"{warning}")

    def _rescue(self, error: Exception) -> None:
        """The machine broke a rule: keep what led there, and say where."""
        try:
            path = self._place("raised")
            steps = self._write(path, "raised", paced=False)
        except Exception as failure:  # it must not take the place of the machine's own
            error.add_note(f"the journal of what led here was not saved: {_told(failure)}")
        else:
            error.add_note(f"the journal of what led here: {path} ({steps} steps); headtail replay shows it")

    def _place(self, reason: Reason) -> Path:
        """Where a journal that nobody named a file for goes. Raises `JournalError` where there is no such folder."""
        try:
            folder = Path(self._settings.folder or tempfile.gettempdir())
        except OSError as error:
            raise JournalError(f"no folder for temporary files: {error.strerror}; journal.folder names one") from None
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        return folder / f"{self._prefix()}{stamp}-{reason}{SUFFIX}"

    def _prefix(self) -> str:
        return f"{self._kind.name}-{re.sub(r'[^A-Za-z0-9_.-]', '_', self._name)}-"

    def _prune(self, folder: Path) -> None:
        stamped = re.compile(re.escape(self._prefix()) + r"\d{8}T\d{6}\.\d{6}Z-[a-z]+" + re.escape(SUFFIX))
        try:
            mine = sorted(path for path in folder.iterdir() if stamped.fullmatch(path.name))
            for path in mine[: -self._settings.keep_files]:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise JournalError(f"{folder}: older journals cannot be removed: {error.strerror}") from None

    def _write(self, path: Path, reason: Reason, *, paced: bool) -> int:
        if self._recorder is None:
            raise JournalError("journal.events is 0: nothing is recorded")
        frozen = self._recorder.frozen()
        head = head_of(
            frozen,
            reason=reason,
            saved=datetime.now(UTC).isoformat(timespec="milliseconds"),
            headtail=_version(),
            code=code_digest(self._kind),
            python=platform.python_version(),
        )
        try:
            part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}.part")
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    for piece in pieces(head, frozen):
                        file.write(piece)
                        if paced:
                            self._closing.wait(PAUSE_S)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {error.strerror}") from None
        except ValueError as error:
            raise JournalError(f"{str(path)!r:.200}: cannot be written: no file can be called that: {error}") from None
        return sum(len(segment.records) for segment in frozen.segments)


def code_digest(kind: MachineKind) -> str:
    """A digest of the source of the modules that a machine is made of: tells whether a journal was made by other code. Empty,
    which means unknown, where the source cannot be read any more."""
    digest = hashlib.sha256()
    for module in kind.known.modules:
        if module.__file__ is not None:
            try:
                digest.update(Path(module.__file__).read_bytes())
            except OSError:
                return ""
    return digest.hexdigest()[:16]


def _version() -> str:
    try:
        return version("headtail")
    except PackageNotFoundError:
        return ""


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, JournalError) else f"{type(error).__name__}: {error}"
