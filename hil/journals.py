"""Journals of both kinds: reading them from disk, for whoever replays them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cloud.journal import NODE
from edge.journal import EDGE
from shared.errors import JournalError
from shared.journal.file import Journal, read
from shared.journal.kind import MachineKind
from shared.journal.recorder import Recorder
from shared.journal.replay import journal_of

KINDS: dict[str, MachineKind] = {EDGE.name: EDGE, NODE.name: NODE}
"""What may be replayed, by the name that a journal has for it."""


def load(path: Path) -> Journal:
    """The journal in a file. Raises `JournalError`, in one line that begins with the file."""
    with named(path):
        try:
            return read(path.read_bytes(), KINDS)
        except OSError as error:
            raise JournalError(f"cannot be read: {error.strerror}") from None


@contextmanager
def named(path: Path) -> Generator[None, None, None]:
    """Have whatever `JournalError` comes of a journal begin with its file: much is wrong with one only once it is run."""
    try:
        yield
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from None


def journal(recorder: Recorder) -> Journal:
    """What a recorder holds now, written and read again: for rigs that need no file."""
    return journal_of(recorder.frozen(), KINDS)
