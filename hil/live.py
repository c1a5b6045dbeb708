"""The table that grows while the demo runs: `python -m hil.live`, a process of its own.

Drawing a table takes milliseconds of Python, which the client's thread in the demo's own process would wait for, and
frames would be late for the sake of showing that they are not. So the demo writes one JSON line for each change and never
waits: where the terminal is slower than the demo, lines are left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from hil.own_code import environment
from partitioner.terminal import PlainConsole

COLUMNS = (
    "phase", "on time", "late", "missed", "lost", "p50 ms", "p99 ms", "machine p99 ms", "machine", "answers by", "rung",
    "fidelity",
)  # fmt: skip
"""What has no bounded length comes last, so that numbers stand below each other in a file as well."""

NUMBERS = range(1, 8)


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One phase as the table shows it, as words. `state`: `waiting`, `running`, `done`."""

    title: str
    state: str
    cells: tuple[str, ...] = ()


class Board(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the table."""

    lines: tuple[Line, ...]


def table_of(board: Board) -> Table:
    """The table as rich draws it."""
    table = Table(expand=False, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, name in enumerate(COLUMNS):
        if number in NUMBERS:
            table.add_column(name, justify="right", min_width=len(max(name.split(), key=len)))
        else:
            table.add_column(name, overflow="fold")
    styles = {"waiting": "dim", "running": "bold", "done": None}
    for line in board.lines:
        table.add_row(line.title, *(line.cells or ("",) * (len(COLUMNS) - 1)), style=styles.get(line.state))
    return table


class LiveTable:
    """The process that draws, fed by `show`. Without a terminal there is none, and `show` does nothing."""

    def __init__(self, terminal: bool) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        if terminal:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hil.live"], stdin=subprocess.PIPE, env=environment()
            )
            os.set_blocking(self._fd, False)

    def show(self, board: Board) -> None:
        """Have the table drawn, unless the one before is still on its way."""
        if self._process is None:
            return
        data = self._rest or msgspec.json.encode(board) + b"\n"
        try:
            self._rest = data[os.write(self._fd, data) :]
        except BlockingIOError:
            self._rest = b"" if data is not self._rest else self._rest
        except BrokenPipeError:
            self._process = None

    def close(self, board: Board) -> None:
        """Draw the table a last time and leave it on the terminal."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        os.set_blocking(process.stdin.fileno(), True)
        try:
            process.stdin.write(self._rest + msgspec.json.encode(board) + b"\n")
            process.stdin.close()
        except BrokenPipeError:
            pass
        process.wait()

    @property
    def _fd(self) -> int:
        assert self._process is not None  # noqa: S101 -- asked only where there is one
        assert self._process.stdin is not None  # noqa: S101 -- made with a pipe
        return self._process.stdin.fileno()


def draw(lines: Iterable[bytes], console: Console) -> None:
    """Draw each board that comes in, until the lines end."""
    with Live(console=console, auto_refresh=False) as live:
        for line in lines:
            live.update(table_of(msgspec.json.decode(line, type=Board)), refresh=True)


def main() -> None:
    """Draw boards from standard input until it ends."""
    try:
        draw(sys.stdin.buffer, PlainConsole(highlight=True))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
