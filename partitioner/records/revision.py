"""Changing files of a bundle that lies on disk: the old one stays whole until the new one is.

Rejected: replacing file by file, since the manifest fits none of the states between; hard links to what stays as it is,
since not every file system has them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from shared.bundle import finish_bundle, load_bundle, write_manifest
from shared.errors import UserError


def revise_bundle(path: Path, files: Mapping[str, bytes]) -> None:
    """Write the bundle in folder `path` again, these files of it changed or added, by name, and all others as they are.

    It is written beside the old one, which takes the room of both for a while, and takes its place when it is whole. Where
    that fails or is interrupted, the old one stays and nothing else does. Raises `BundleError` for a bundle that is damaged,
    `UserError` where the new one cannot be written.
    """
    folder = path.resolve()
    kept = load_bundle(folder).files
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    try:
        draft.mkdir()
        for name, file in kept.items():
            if name not in files:
                shutil.copyfile(file, draft / name)
        for name, content in files.items():
            (draft / name).write_bytes(content)
        write_manifest(draft)
        finish_bundle(draft, folder)
    except OSError as reason:
        raise UserError(f"{path}: cannot be written ({reason.strerror})") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
