"""Writing the report of a bundle again. Neither a model is loaded nor a runtime imported."""

from __future__ import annotations

import os
from pathlib import Path

from partitioner.planned import Planned
from partitioner.records.revision import revise_bundle
from partitioner.reports.page import render
from shared.errors import UserError
from shared.plan import REPORT_FILE


def write_report(planned: Planned, out: Path | None = None) -> Path:
    """Write the page to `out`, or in place of the bundle's own, and return its path; it appears when it is whole.

    Raises `UserError` where it cannot be written, or `out` is another file of the bundle, which holds none but its own;
    `BundleError` for a damaged bundle.
    """
    page = render(planned.record, planned.plan)
    own = planned.path / REPORT_FILE
    target = out or own
    if target.resolve() == own.resolve():
        revise_bundle(planned.path, {REPORT_FILE: page.encode()})
        return target
    if target.resolve().is_relative_to(planned.path.resolve()):
        raise UserError(f"{target}: is inside the bundle, which holds its own files only; expected a place outside it")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(target)
    except OSError as reason:
        unfinished.unlink(missing_ok=True)
        raise UserError(f"{target}: cannot be written ({reason.strerror})") from None
    return target
