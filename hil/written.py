"""Files that a command writes when it is done: what cannot be written is refused before anything is run, since what hours of
measuring have found would else be lost."""

from __future__ import annotations

from pathlib import Path

import msgspec

from shared.errors import UserError


def require_place(*paths: Path | None) -> None:
    """Refuse files that cannot be written, and leave what is there as it is. Raises `UserError` that names the file."""
    for path in paths:
        if path is None:
            continue
        try:
            target = path.resolve()
            there = target.exists()
            if (
                not there or target.is_file() or target.is_dir()
            ):  # what else there is, a pipe for instance, is not tried
                with target.open("ab"):
                    pass
            if not there:
                target.unlink()
        except (OSError, ValueError) as error:
            raise _unwritten(path, error) from None


def require_folder(path: Path | None) -> None:
    """Make a folder for files, where it is not there. Raises `UserError` that names it."""
    if path is not None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise _unwritten(path, error) from None


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, in lines; a number that JSON does not know is null. Raises `UserError` that names the file."""
    write_text(path, msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file. Raises `UserError` that names it."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritten(path, error) from None


def _unwritten(path: Path, error: OSError | ValueError) -> UserError:
    why = error.strerror if isinstance(error, OSError) else str(error)
    return UserError(f"{path}: cannot be written: {why}")
