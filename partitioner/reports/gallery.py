"""The charts of a report one by one, each as an SVG file that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from partitioner.records.record import Record
from partitioner.reports import charts as draw
from partitioner.reports.charts import Picture
from partitioner.reports.style import ALONE, DRAWING
from shared.errors import UserError

WIDTH = 560.0
"""Width of a chart in pixels."""

_HATCH = (
    '<defs><pattern id="late" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="hatchline" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>'
)
_SELECTORS = re.compile(r"([^{}]+)\{")


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. `name` has no spaces, `title` is for people, `svg` a whole SVG file, light or dark as its reader is.
    A notebook draws it."""

    name: str
    title: str
    svg: str

    def save(self, path: str | Path) -> None:
        """Write the SVG file. Raises `UserError` where it cannot be written."""
        try:
            Path(path).write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror})") from None

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, slots=True)
class Drawing:
    """A model drawn: `svg` is a whole SVG file, `page` an HTML page with the drawing, the cuts and facts. A notebook draws
    it."""

    svg: str
    page: str

    def _repr_svg_(self) -> str:
        return self.svg


def charts_of(record: Record, width: float = WIDTH) -> tuple[Chart, ...]:
    """The charts of a record under the conditions that were asked for, `width` pixels wide, in the report's order. Where the
    time goes, the ladder and the cuts are left out where there is nothing to draw."""
    picture = Picture.of(record)
    winner, deadline_ms = picture.explanation.winner, record.asked.deadline_ms
    wanted: list[tuple[str, str, Callable[[float], str]]] = [
        ("winners-by-rate-and-round-trip", "Winners by rate and round trip", lambda w: draw.rtt_map(picture, w)),
        ("winners-by-rate-and-device", "Winners by rate and device ratio", lambda w: draw.ratio_map(picture, w)),
        ("latency-by-rate", "Latency of every way against the rate of the link", lambda w: draw.latency(picture, w)),
        ("front", "Front of latency, agreement and bytes sent", lambda w: draw.front(picture, w)),
    ]
    if winner is not None:
        wanted.append(
            ("time", f"Where the time goes: {winner.label}", lambda w: draw.waterfall(winner, deadline_ms, w))
        )
    if record.rungs:
        wanted.append(("ladder", "The ladder", lambda w: draw.ladder(record, w)))
    if draw.crossings(record, picture.marks):
        wanted.append(("cuts", "What crosses where the model may be cut", lambda w: draw.chain(picture, w)))
    return tuple(Chart(name, title, standalone(make(width))) for name, title, make in wanted)


def standalone(drawing: str) -> str:
    """A drawing of the report as a file of its own. Its rules hold inside it alone, also where a page takes it in as it
    is."""
    head = '<svg xmlns="http://www.w3.org/2000/svg" class="chart" '
    return drawing.replace("<svg ", head, 1).replace(
        "<title>", f"<style>{ALONE}{_scoped(DRAWING)}</style>{_HATCH}<title>", 1
    )


def _scoped(rules: str) -> str:
    """Rules that hold inside a drawing of class `chart` alone."""

    def within(match: re.Match[str]) -> str:
        return ",".join(f"svg.chart {one.strip().removeprefix('svg ')}" for one in match[1].split(",")) + "{"

    return _SELECTORS.sub(within, rules)
