"""A bundle that is changed on disk is whole at every moment: a change that fails or is interrupted leaves the old one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from records import record
from tiny import make_bundle

from partitioner import planned
from partitioner.inversions import inverting
from partitioner.inversions.inversion import Inversion
from partitioner.records.file import read_record
from partitioner.records.record import RECORD_FILE, encode_record
from partitioner.records.revision import revise_bundle
from partitioner.reports.file import write_report
from shared.bundle import load_bundle, write_manifest
from shared.errors import BundleError, UserError
from shared.plan import MANIFEST, REPORT_FILE

FOUND = Inversion("cut", "raw", "by place", (8, 8, 3), 0.9, 30.0, 10.0, 24, 8)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = make_bundle(tmp_path / "place", name="several")
    (path / RECORD_FILE).write_bytes(encode_record(record()))
    (path / REPORT_FILE).write_text("the old page")
    write_manifest(path)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def failing(monkeypatch: pytest.MonkeyPatch, name: str, reason: BaseException) -> list[str]:
    """From now on no file of this name can be opened for writing, from its first byte on."""
    opened = Path.open
    hit: list[str] = []

    def open_(self: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if "w" in mode and name in self.name:
            hit.append(self.name)
            raise reason
        return opened(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", open_)
    return hit


def report(path: Path) -> None:
    write_report(planned.read_plan(path))


def invert(path: Path) -> None:
    """The end of `headtail invert`, what it finds being given."""
    inverting.invert_plan(planned.read_plan(path), path, 0)


@pytest.fixture
def finds_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check itself, which takes data and a model, finds this at once."""
    monkeypatch.setattr(inverting, "load_sources", lambda *_: ())
    monkeypatch.setattr(inverting, "divide", lambda *_, **__: SimpleNamespace(fit=(), held_out=()))
    monkeypatch.setattr(inverting, "load_segments", lambda *_: None)
    monkeypatch.setattr(inverting, "invert_routes", lambda *_: (FOUND,))


@pytest.mark.usefixtures("finds_something")
@pytest.mark.parametrize(
    ("change", "name"),
    [(report, REPORT_FILE), (report, MANIFEST), (invert, RECORD_FILE), (invert, REPORT_FILE), (invert, MANIFEST)],
)
@pytest.mark.parametrize("reason", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_change_that_ends_half_way_leaves_the_old_bundle_alone(
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
    name: str,
    reason: BaseException,
) -> None:
    before = contents(bundle.parent)
    with monkeypatch.context() as patched:
        hit = failing(patched, name, reason)
        with pytest.raises((UserError, KeyboardInterrupt)):
            change(bundle)
    assert hit
    assert contents(bundle.parent) == before
    read_record(bundle)


@pytest.mark.usefixtures("finds_something")
@pytest.mark.parametrize("change", [report, invert])
def test_a_change_keeps_all_other_files_and_leaves_a_whole_bundle(bundle: Path, change: Callable[[Path], None]) -> None:
    before, contract = contents(bundle.parent), load_bundle(bundle).contract
    change(bundle)
    after = contents(bundle.parent)
    assert load_bundle(bundle).contract == contract
    changed = {Path(name).name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {REPORT_FILE, MANIFEST} | ({RECORD_FILE} if change is invert else set())


def test_a_bundle_is_changed_where_a_link_to_it_points(bundle: Path, tmp_path: Path) -> None:
    link = tmp_path / "current.plan"
    link.symlink_to(bundle)
    revise_bundle(link, {REPORT_FILE: b"new"})
    assert link.is_symlink()
    assert load_bundle(bundle).files[REPORT_FILE].read_bytes() == b"new"


def test_a_damaged_bundle_is_not_made_to_look_whole(bundle: Path) -> None:
    plan = planned.read_plan(bundle)
    (bundle / RECORD_FILE).write_bytes(b"{}")
    with pytest.raises(BundleError, match=RECORD_FILE):
        write_report(plan)


def test_a_page_inside_the_bundle_is_refused_unless_it_is_the_bundles_own(bundle: Path) -> None:
    plan = planned.read_plan(bundle)
    with pytest.raises(UserError, match=r"page\.html: is inside the bundle"):
        write_report(plan, bundle / "page.html")
    assert write_report(plan, bundle / REPORT_FILE) == bundle / REPORT_FILE
    assert load_bundle(bundle).files[REPORT_FILE].read_text("utf-8") != "the old page"
