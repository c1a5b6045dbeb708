"""Reading a bundle from disk, proven whole, and writing one so that it can be.

A bundle is trusted only after every file's sha256 equals the manifest's and nothing else lies in the folder: weights are
found by name from inside ONNX files, so an unlisted file could change answers under an unchanged digest. The manifest is
written last and the folder renamed into place, so a copy that was cut short has no manifest or lacks a listed file, and
is refused by name. Links are refused, wherever they point: a digest of what a link shows today says nothing of tomorrow.

Rejected: an archive (onnxruntime maps weights from a plain file); trusting file sizes and times (rsync keeps both on
damaged contents); exchanging folders by `renameat2` (two renames leave a moment without a bundle, which a loader reports
by name, and work on every file system).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from zipfile import BadZipFile

import msgspec
import numpy as np

from shared.codecs import dtype_of
from shared.errors import BundleError
from shared.plan import GOLDEN_FILE, MANIFEST, PLAN_FILE, PLAN_FORMAT, WEIGHTS_FILE, Manifest, Plan, contract_digest
from shared.plan_rules import plan_faults
from shared.request import Array, TensorSpec

MAX_JSON_BYTES = 16 << 20
"""The largest manifest or plan that is read."""

MAX_FILES = 4096

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not the wanted JSON; the last one for a field nested without end."""

Kind = TypeVar("Kind", Manifest, Plan)


class _FormatOnly(msgspec.Struct, frozen=True):
    """The one field that every format has."""

    format: int


@dataclass(frozen=True, slots=True)
class Golden:
    """One calibration input and the whole model's answer to it, one row each, in the plan's order."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was verified. `files` are the paths of all listed files by name."""

    path: Path
    plan: Plan
    contract: str
    files: dict[str, Path]

    @property
    def name(self) -> str:
        """The plan's name, by which requests ask for it."""
        return self.plan.name

    def golden(self) -> tuple[Golden, ...]:
        """The golden vectors, read now. Raises `BundleError` where they do not fit the plan."""
        try:
            with np.load(self.files[GOLDEN_FILE], allow_pickle=False) as stored:
                arrays: dict[str, Array] = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, BadZipFile) as reason:
            raise BundleError(f"{self.path}: {GOLDEN_FILE} cannot be read: {reason}") from None
        count = len({name.split("/")[1] for name in arrays if name.startswith("in/") and name.count("/") >= 2})
        if count == 0:
            raise BundleError(f"{self.path}: {GOLDEN_FILE} holds no golden vectors")
        return tuple(
            Golden(
                tuple(self._golden_array(arrays, f"in/{i}/{spec.name}", spec) for spec in self.plan.inputs),
                tuple(self._golden_array(arrays, f"out/{i}/{spec.name}", spec) for spec in self.plan.outputs),
            )
            for i in range(count)
        )

    def _golden_array(self, arrays: dict[str, Array], key: str, spec: TensorSpec) -> Array:
        array = arrays.get(key)
        if array is None:
            raise BundleError(f"{self.path}: {GOLDEN_FILE} has no {key!r}")
        wanted = dtype_of(spec.dtype)
        if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
            array = array.view(wanted)  # npz does not know the names of ml_dtypes' types
        if array.shape != spec.shape or array.dtype != wanted:
            raise BundleError(
                f"{self.path}: {GOLDEN_FILE}: {key!r} is {array.dtype}{array.shape}, expected {wanted}{spec.shape}"
            )
        return np.ascontiguousarray(array).reshape(spec.shape)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read and verify the bundle in folder `path`. Raises `BundleError` naming the bundle and the file at fault."""
    folder = Path(path)
    if not folder.is_dir():
        raise BundleError(f"{folder}: there is no bundle (expected a folder with {MANIFEST})")
    manifest = _read(folder, MANIFEST, Manifest)
    files = _verify_files(folder, manifest)
    plan = _read_plan(folder, files)
    _verify_plan(folder, plan, manifest)
    return Bundle(folder, plan, contract_digest(plan), files)


def write_manifest(folder: Path) -> None:
    """Write `manifest.json` over every other file of `folder`, at once or not at all. Raises `BundleError` for a link or
    a folder inside."""
    found = digests(folder, sorted(_listing(folder)))
    target = folder / MANIFEST
    unfinished = folder / f".{MANIFEST}.new"
    text = msgspec.json.format(msgspec.json.encode(Manifest(PLAN_FORMAT, found)), indent=1)
    with unfinished.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(target)


def finish_bundle(unfinished: Path, target: Path) -> None:
    """Move the complete folder `unfinished` to `target`, on the same file system, replacing a bundle that is there.

    The old bundle is moved aside first and removed last; it is put back where the move fails or is interrupted. Raises
    `BundleError` where `target` is something else than a bundle.
    """
    if not (unfinished / MANIFEST).is_file():
        raise BundleError(f"{unfinished}: not complete, {MANIFEST} is missing")
    check_place(target)
    if not target.exists():
        unfinished.rename(target)
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        target.rename(aside)
        unfinished.rename(target)
        shutil.rmtree(aside)
    except BaseException:  # an interruption may come between any two of them
        if not target.exists() and aside.exists():
            aside.rename(target)
        else:
            shutil.rmtree(aside, ignore_errors=True)
        raise


def check_place(target: Path) -> None:
    """Raise `BundleError` where something lies at `target` that a bundle must not replace."""
    if not target.exists() and not target.is_symlink():
        return
    known = target.is_dir() and not target.is_symlink()
    if not known or not ((target / MANIFEST).is_file() or (target / PLAN_FILE).is_file() or not any(target.iterdir())):
        raise BundleError(f"{target}: is in the way and is not a bundle")


def _listing(folder: Path) -> set[str]:
    """Names of the files in the folder, but the manifest's. Raises `BundleError` for anything that is not a plain file."""
    names: set[str] = set()
    for entry in folder.iterdir():
        if entry.name in {MANIFEST, f".{MANIFEST}.new"}:
            continue
        if entry.is_symlink() or not entry.is_file():
            raise BundleError(f"{folder}: {entry.name} is a link or a folder, a bundle holds plain files only")
        names.add(entry.name)
        if len(names) > MAX_FILES:
            raise BundleError(f"{folder}: more than {MAX_FILES} files")
    return names


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """sha256 (hexadecimal) of files of a folder, by name. Raises `BundleError` for one that cannot be read."""
    return {name: _digest(folder, name) for name in names}


def _digest(folder: Path, name: str) -> str:
    try:
        with (folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as reason:
        raise BundleError(f"{folder}: {name} cannot be read: {reason.strerror}") from None


def _read_json(folder: Path, name: str) -> bytes:
    file = folder / name
    try:
        if file.is_symlink():
            raise BundleError(f"{folder}: {name} is a link, a bundle holds plain files only")
        if file.exists() and not file.is_file():
            raise BundleError(f"{folder}: {name} is not a plain file")
        if file.stat().st_size > MAX_JSON_BYTES:
            raise BundleError(f"{folder}: {name} is larger than {MAX_JSON_BYTES} bytes")
        return file.read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{folder}: {name} is missing; the bundle is damaged or was copied only in part") from None
    except OSError as reason:
        raise BundleError(f"{folder}: {name} cannot be read: {reason.strerror}") from None


def _read(folder: Path, name: str, kind: type[Kind]) -> Kind:
    text = _read_json(folder, name)
    _check_format(folder, name, text)
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as reason:
        raise BundleError(f"{folder}: {name}: {reason}") from None


def _check_format(folder: Path, name: str, text: bytes) -> None:
    """Look at the format's number first, so that a newer one is called newer and not damaged."""
    try:
        stated = msgspec.json.decode(text, type=_FormatOnly).format
    except UNREADABLE as reason:
        raise BundleError(f"{folder}: {name}: {reason}") from None
    if stated != PLAN_FORMAT:
        raise BundleError(f"{folder}: {name} has format {stated}, this version reads format {PLAN_FORMAT}")


def _verify_files(folder: Path, manifest: Manifest) -> dict[str, Path]:
    for name in manifest.files:
        if name in {"", ".", "..", MANIFEST} or "/" in name or "\\" in name or "\0" in name:
            raise BundleError(f"{folder}: {MANIFEST} names {name!r}, expected a plain name in the bundle's own folder")
    present = _listing(folder)
    for name in sorted(manifest.files.keys() - present):
        raise BundleError(f"{folder}: {name} is missing; the bundle is damaged or was copied only in part")
    for name in sorted(present - manifest.files.keys()):
        raise BundleError(f"{folder}: {name} is not in {MANIFEST}; a bundle holds listed files only")
    for name, digest in sorted(manifest.files.items()):
        if _digest(folder, name) != digest:
            raise BundleError(f"{folder}: {name} is damaged: its sha256 is not the one in {MANIFEST}")
    return {name: folder / name for name in manifest.files}


def _read_plan(folder: Path, files: dict[str, Path]) -> Plan:
    for name in (PLAN_FILE, GOLDEN_FILE):
        if name not in files:
            raise BundleError(f"{folder}: {name} is missing from {MANIFEST}")
    return _read(folder, PLAN_FILE, Plan)


def _verify_plan(folder: Path, plan: Plan, manifest: Manifest) -> None:
    for name, digest in sorted(plan.digests.items()):
        if manifest.files.get(name) != digest:
            raise BundleError(f"{folder}: {PLAN_FILE} and {MANIFEST} do not agree about {name}")
    if WEIGHTS_FILE in manifest.files and WEIGHTS_FILE not in plan.digests:
        raise BundleError(f"{folder}: {PLAN_FILE} has no digest of {WEIGHTS_FILE}")
    for fault in plan_faults(plan):
        raise BundleError(f"{folder}: {PLAN_FILE}: {fault}")
