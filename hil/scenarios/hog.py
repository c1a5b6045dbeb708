"""A process that takes the machine away from others: `python -m hil.scenarios.hog cpu`, `memory MIB` or `disk FOLDER`.

It has the weight of any process, none of the rigs' own, and ends when its input does, so that no rig leaves one behind.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from hil.child import LineChild

PAGE = 4096
MIB = 1 << 20
BLOCK, BLOCKS = 4 * MIB, 16
"""Bytes of a write to disk, and after how many the file begins again."""


class Hog(LineChild):
    """Such a process, in the hands of a rig, which does not wait until it has begun; `close` ends it."""

    def __init__(self, kind: str, argument: str = "") -> None:
        super().__init__("hil.scenarios.hog", (kind, argument))


def take_cpu(ended: threading.Event) -> None:
    """Compute."""
    number = 1
    while not ended.is_set():
        for _ in range(10_000):
            number = number * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF


def take_memory(mib: int, ended: threading.Event) -> None:
    """Hold so much memory, and touch every page of it again and again."""
    held = bytearray(mib * MIB)
    turn = 0
    while not ended.is_set():
        turn = turn + 1 & 0xFF
        held[::PAGE] = bytes([turn]) * len(held[::PAGE])
        ended.wait(0.05)


def take_disk(folder: Path, ended: threading.Event) -> None:
    """Write and have each write reach the disk."""
    path = folder / f"hog-{os.getpid()}.bin"
    block = os.urandom(BLOCK)
    try:
        with path.open("wb", buffering=0) as file:
            written = 0
            while not ended.is_set():
                file.seek(written % BLOCKS * BLOCK)
                file.write(block)
                os.fsync(file.fileno())
                written += 1
    finally:
        path.unlink(missing_ok=True)


def main() -> None:
    """Begin, and go on until the input ends."""
    kind, argument = sys.argv[1:]
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    if kind == "cpu":
        take_cpu(ended)
    elif kind == "memory":
        take_memory(int(argument), ended)
    else:
        take_disk(Path(argument), ended)


if __name__ == "__main__":
    main()
