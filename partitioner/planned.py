"""A plan as the functions of `partitioner.api` give and take it: its bundle's place, what it says, and what it rests on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from partitioner.records.file import read_record
from partitioner.records.record import Record
from partitioner.reports.gallery import WIDTH, Chart, charts_of
from shared.plan import Plan


@dataclass(frozen=True, slots=True)
class Planned:
    """A bundle on disk. `plan` is what a node and an agent serve, `record` all ways that were weighed, with their parts in
    microseconds, and the conditions, data and machine that they were weighed with."""

    path: Path
    plan: Plan
    record: Record

    def __str__(self) -> str:
        return f"{self.path}: {self.plan.chosen}"


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written: where it lies, and the record that it shows."""

    path: Path
    record: Record

    def charts(self, width: float = WIDTH) -> tuple[Chart, ...]:
        """Its charts one by one, drawn now, `width` pixels wide."""
        return charts_of(self.record, width)

    def chart(self, name: str, width: float = WIDTH) -> Chart:
        """The chart of this name. Raises `KeyError` that lists the names where there is none."""
        found = {chart.name: chart for chart in self.charts(width)}
        if name not in found:
            raise KeyError(f"{name!r} is none of {', '.join(found)}")
        return found[name]


Given = Planned | str | os.PathLike[str]
"""A plan, or the path of a bundle."""


def read_plan(path: str | os.PathLike[str]) -> Planned:
    """The bundle in this folder, proven whole, with its record; no model is loaded. Raises `BundleError`."""
    bundle, record = read_record(Path(path))
    return Planned(bundle.path, bundle.plan, record)


def as_planned(given: Given) -> Planned:
    """What was given, read where it is a path. Raises `BundleError`."""
    return given if isinstance(given, Planned) else read_plan(given)
