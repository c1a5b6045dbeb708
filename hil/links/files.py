"""Files of links: traces and logs of echoes read, texts read, with errors that name the file."""

from __future__ import annotations

from pathlib import Path

from hil.links.echoes import HELD_MS, UNSEEN_MS, EchoLog, read_echoes, to_trace, usual_step_us
from hil.links.trace import Trace
from hil.links.trace_csv import is_trace, read_trace
from shared.errors import UserError

MOST_BYTES = 1 << 30


def read_link(
    path: Path, step_ms: float | None = None, held_ms: float = HELD_MS, unseen_ms: float = UNSEEN_MS
) -> Trace:
    """The link in a file: a trace, or a log of echoes, which is turned into one (`hil.links.echoes.to_trace`).

    `step_ms` are the steps of a log; its usual interval where None. Raises `UserError` that names the file and what is wrong.
    """
    text = read_text(path)
    if is_trace(text):
        return read_trace(text, str(path))
    log = read_echoes(text, str(path))
    step_us = _step_us(log, step_ms)
    try:
        return to_trace(log, step_us, held_ms, unseen_ms)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def read_text(path: Path) -> str:
    """The text of a file. Raises `UserError` where it cannot be read, is too large or no text."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path}: {path.stat().st_size} bytes; expected at most {MOST_BYTES}")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file in UTF-8") from None


def _step_us(log: EchoLog, step_ms: float | None) -> int:
    if step_ms is None:
        return usual_step_us(log)
    if not 1.0 <= step_ms <= 1000.0:
        raise UserError(f"--step-ms is {step_ms:g}; expected 1 to 1000")
    return round(step_ms * 1000)
