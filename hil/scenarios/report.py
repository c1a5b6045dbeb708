"""A run's report as data, and as JSON: what was played, how it went, by what it was judged, on which machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hil.report import Environment
from hil.scenarios.figures import RunFigures
from hil.scenarios.judge import Judgement
from hil.scenarios.scenario import Scenario
from hil.scenarios.timeline import Struck
from shared.lateness import LatenessFigures

FORMAT = 1


class LinkLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link over the run, for drawing: every `step_ms` its round trip in ms, None where nothing passes."""

    name: str
    step_ms: float
    round_trip_ms: tuple[float | None, ...]


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the report of one scenario. `earlier` are the judgements of tries that were set aside since the machine was too
    noisy. `notes` are sentences for a person, `journals` the files of the processes' journals."""

    format: int
    scenario: Scenario
    backend: str
    figures: RunFigures
    struck: tuple[Struck, ...]
    links: tuple[LinkLine, ...]
    machine: LatenessFigures
    judgement: Judgement
    earlier: tuple[Judgement, ...]
    notes: tuple[str, ...]
    journals: tuple[str, ...]
    seconds: float
    environment: Environment


def write_json(report: Report, path: Path) -> None:
    """Write the report as JSON, whole or not at all."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    unfinished.replace(path)
