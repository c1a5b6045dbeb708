"""The one JSON of a load run: what was asked of what, on which machine, and what came of it. Plain data."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hil.load.figures import Figures
from hil.load.search import Found
from hil.load.sender import Sender
from hil.load.source import Source
from shared.errors import UserError
from shared.lateness import LatenessFigures

FORMAT = "headtail load 1"


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The machine that the load generator ran on. `cores` are those it may use, `load` the system's load average of the last
    minute before it began, `versions` those of libraries by name."""

    host: str
    processor: str
    cores: int
    system: str
    python: str
    load: float
    versions: dict[str, str]


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one source. `why`: why the load generator's own figures forbid to judge it, empty where they do not.
    `machine` is what a 1 ms timer of the machine saw meanwhile, `stalled` whether that was a stall by `hil.monitor.Noise`."""

    source: Source
    figures: Figures
    sender: Sender
    why: str
    machine: LatenessFigures
    stalled: bool

    @property
    def judged(self) -> bool:
        """Whether the figures are the target's."""
        return not self.why


class LoadReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All runs against one target, in order. `model` is the plan's name and `contract` its digest; `target` the endpoint, or
    the bundle where the rig started a node of its own. `found` is there where a rate was searched for."""

    environment: Environment
    target: str
    model: str
    contract: str
    coding: str
    seed: int
    warm_up_s: float
    runs: tuple[Load, ...]
    found: Found | None = None
    format: str = FORMAT


def read_report(path: Path) -> LoadReport:
    """Read one. Raises `UserError` that names the file, for one that is not there or no such report."""
    try:
        report = msgspec.json.decode(path.read_bytes(), type=LoadReport)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not a report of `headtail bench load --json`: {error}") from None
    if report.format != FORMAT:
        raise UserError(f"{path}: a report of the format {report.format!r}, expected {FORMAT!r}")
    return report
