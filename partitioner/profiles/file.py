"""Reading and writing profile files."""

from __future__ import annotations

import os
from pathlib import Path

from partitioner.profiles.record import SUFFIX, DeviceProfile, decode_profile, encode_profile
from shared.errors import UserError


def load_profile(path: Path) -> DeviceProfile:
    """The profile in a file. Raises `UserError` where it cannot be read, is damaged or of another format."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; a profile was expected") from None
    except OSError as reason:
        raise UserError(f"{path}: cannot be read as a profile: {reason.strerror}") from None
    return decode_profile(text, str(path))


def check_out(path: Path) -> Path:
    """A path to which a profile can be written. Raises `UserError` before anything is measured for it."""
    if path.suffix != SUFFIX or not path.stem:
        raise UserError(f"output {path}: expected a path that ends in {SUFFIX}")
    if path.is_dir():
        raise UserError(f"output {path}: a folder lies there")
    if not path.parent.is_dir():
        raise UserError(f"output {path}: there is no folder {path.parent}")
    return path


def save_profile(profile: DeviceProfile, path: Path) -> None:
    """Write a profile; the file appears under its name when it is whole. Raises `UserError` where it cannot be written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(encode_profile(profile))
        draft.replace(path)
    except OSError as reason:
        draft.unlink(missing_ok=True)
        raise UserError(f"output {path}: cannot be written: {reason.strerror}") from None
