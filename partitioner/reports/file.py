"""Writing the report of a bundle again. Neither a model is loaded nor a runtime imported."""

from __future__ import annotations

import os
from pathlib import Path

from partitioner.planned import Planned
from partitioner.reports.page import render
from shared.bundle import write_manifest
from shared.errors import UserError
from shared.plan import REPORT_FILE


def write_report(planned: Planned, out: Path | None = None) -> Path:
    """Write the page to `out`, or in place of the bundle's own, and return its path; it appears when it is whole.

    Raises `UserError` where it cannot be written.
    """
    page = render(planned.record, planned.plan)
    target = out or planned.path / REPORT_FILE
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(target)
    except OSError as reason:
        unfinished.unlink(missing_ok=True)
        raise UserError(f"{target}: cannot be written ({reason.strerror})") from None
    if out is None:
        write_manifest(planned.path)
    return target
