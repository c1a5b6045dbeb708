"""Reading the record of a bundle. Neither a model is loaded nor a runtime imported."""

from __future__ import annotations

from pathlib import Path

from partitioner.records.record import RECORD_FILE, Record, decode_record
from shared.bundle import Bundle, load_bundle
from shared.errors import BundleError


def read_record(path: Path) -> tuple[Bundle, Record]:
    """The bundle in folder `path`, proven whole, and its record. Raises `BundleError` for a damaged bundle, for one that was
    made without a record, and for a record of another format."""
    bundle = load_bundle(path)
    file = bundle.files.get(RECORD_FILE)
    if file is None:
        raise BundleError(
            f"{path}: {RECORD_FILE} is missing: the bundle was made without a record, make the plan again"
        )
    try:
        text = file.read_bytes()
    except OSError as reason:
        raise BundleError(f"{path}: {RECORD_FILE} cannot be read: {reason.strerror}") from None
    return bundle, decode_record(text, str(path))
