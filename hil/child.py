"""A helper process that answers lines: one line in, one line out, and it ends when its input ends.

Pipes rather than a socket: nobody else can reach them, and a helper whose rig has died reads the end of its input and
ends as well, so that no rig leaves a process behind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from hil.own_code import environment
from shared.errors import HeadtailError


class LineChild:
    """`python -m MODULE ARGUMENTS` in a session of its own, at `place` where a command that runs it elsewhere is given. Use
    it as a context manager, or `close` it.

    Raises `HeadtailError` where the process has ended.
    """

    def __init__(self, module: str, arguments: Sequence[str] = (), place: Sequence[str] = ()) -> None:
        self._name = module
        self._process = subprocess.Popen(  # noqa: S603 -- our own module
            [*place, sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process's number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has gone."""
        return self._process.poll() is not None

    def ask(self, line: bytes) -> bytes:
        """Send one line (without its end) and return the answer to it."""
        assert self._process.stdin is not None  # noqa: S101 -- made with a pipe
        assert self._process.stdout is not None  # noqa: S101 -- made with a pipe
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (OSError, ValueError) as error:
            raise HeadtailError(f"the process {self._name} is gone: {error}") from error
        if not answer:
            raise HeadtailError(f"the process {self._name} has ended")
        return answer

    def close(self) -> None:
        """End the process; returns when it has gone. Doing it twice does nothing."""
        assert self._process.stdin is not None  # noqa: S101 -- made with a pipe
        assert self._process.stdout is not None  # noqa: S101 -- made with a pipe
        with suppress(BrokenPipeError):  # a line that a process which is gone has not taken
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
