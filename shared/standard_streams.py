"""Standard input, output and error of a process, where its caller has closed them or they take nothing."""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO

NAMES = ("stdin", "stdout", "stderr")
"""The streams by their descriptors' numbers."""


def open_missing_streams() -> None:
    """Have each stream that the process was started without lead to the null device, before anything else is opened: else
    whoever prints finds None, and the next file or socket gets the stream's number and, from a child, what is printed."""
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is None:
            stream = open(_null_at(number), "w" if number else "r", errors="backslashreplace")  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


class OutputError(OSError):
    """Standard output takes nothing; `reader_left` is whether whoever read it has gone. It has no `errno` and is no
    `BrokenPipeError`, of which rich and typer make endings of their own, with the status that means that a verb says no."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}")
        self.reader_left = isinstance(error, BrokenPipeError)


class Output(TextIOWrapper):
    """Standard output, whose errors say that they are its."""

    def write(self, text: str, /) -> int:
        """As of a file. Raises `OutputError`."""
        try:
            return super().write(text)
        except OSError as error:
            raise OutputError(error) from None

    def flush(self) -> None:
        """As of a file. Raises `OutputError`."""
        try:
            super().flush()
        except OSError as error:
            raise OutputError(error) from None


def name_output() -> None:
    """Have whatever standard output does not take be told by its name."""
    plain, buffer = sys.stdout, sys.stdout.buffer
    if isinstance(plain, TextIOWrapper):
        through = plain.write_through
        sys.stdout = Output(buffer, plain.encoding, plain.errors, "\n", plain.line_buffering, write_through=through)


def unwritten(stream: TextIO) -> OSError | None:
    """Have `stream` written out; where it does not take what it still holds, the reason. It then leads to the null device, so
    that the end of the process does not meet the same error again."""
    try:
        stream.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        return error
    return None


def _null_at(number: int) -> int:
    """The null device, as descriptor `number` where that is free, for children as well; else as one of no stream's."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened == number:
        os.set_inheritable(number, True)
        return number
    try:
        if _is_open(number):
            return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, len(NAMES))
        return os.dup2(opened, number)
    finally:
        os.close(opened)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def say(line: str) -> None:
    """A line on stderr, if there is one that takes it: a service does not fail for want of it."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
