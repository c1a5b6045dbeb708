"""Reading and writing what was measured of a host's overhead, as a file of JSON."""

from __future__ import annotations

from pathlib import Path

import msgspec

from partitioner.costs.overhead import OVERHEAD_FORMAT, Overhead
from shared.errors import UserError


class _FormatOnly(msgspec.Struct, frozen=True):
    format: int


def read_overhead(path: Path) -> Overhead:
    """The overhead in a file. Raises `UserError` where it cannot be read, is of another format or is none."""
    try:
        text = path.read_bytes()
    except OSError as reason:
        raise UserError(f"overhead {path}: cannot be read ({reason.strerror})") from None
    try:
        stated = msgspec.json.decode(text, type=_FormatOnly).format
        if stated != OVERHEAD_FORMAT:
            raise UserError(
                f"overhead {path}: has format {stated}, this version reads format {OVERHEAD_FORMAT}: measure it again "
                "(headtail overhead)"
            )
        return msgspec.json.decode(text, type=Overhead)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as reason:
        raise UserError(f"overhead {path}: {reason}; expected a file of `headtail overhead`") from None


def check_place(path: Path) -> None:
    """Raise `UserError` where no file can be written, before anything is measured."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(f"output {path}: {what}; expected a file to write")


def write_overhead(overhead: Overhead, path: Path) -> None:
    """Write it. Raises `UserError` where that cannot be done."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(overhead), indent=1) + b"\n")
    except OSError as reason:
        raise UserError(f"overhead {path}: cannot be written ({reason.strerror})") from None
