"""Traces as CSV: one row a step, a header that names units, and errors that name the line.

The first line is `# headtail link trace 1`; further lines that begin with `#` say whatever their author likes. Numbers are
written so that reading gives the same bits back.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator

import numpy as np

from hil.links.trace import MAX_STEPS, Direction, Floats, Trace
from shared.errors import UserError

MARK = "# headtail link trace 1"
"""The first line of a trace; a file without it may be an echo log (`hil.links.echoes`)."""

TIME, ROUND_TRIP = "t_ms", "rtt_ms"
DELAYS = ("up_delay_ms", "down_delay_ms")
OPTIONAL = ("up_rate_mbit", "down_rate_mbit", "up_loss", "down_loss", "up_outage", "down_outage")


def is_trace(text: str) -> bool:
    """Whether a file says of itself that it is a trace."""
    return text.startswith(MARK)


def write_trace(trace: Trace) -> str:
    """A trace as the text of a CSV file."""
    up, down = trace.up, trace.down
    delays = (
        {ROUND_TRIP: trace.round_trip_ms}
        if trace.halved
        else dict(zip(DELAYS, (up.delay_ms, down.delay_ms), strict=True))
    )
    rest = (up.rate_mbit, down.rate_mbit, up.loss, down.loss, up.outage.astype(float), down.outage.astype(float))
    columns = delays | dict(zip(OPTIONAL, rest, strict=True))
    lines = [MARK, ",".join((TIME, *columns))]
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    lines += [
        ",".join((_number(index * trace.step_us / 1000), *(_number(value) for value in row)))
        for index, row in enumerate(rows)
    ]
    return "\n".join(lines) + "\n"


def read_trace(text: str, name: str) -> Trace:
    """The trace in the text of a CSV file called `name`.

    Columns: `t_ms` from 0 in even steps; `up_delay_ms` and `down_delay_ms`, or `rtt_ms`, which each direction gets half
    of; and where they are there `up_rate_mbit`, `down_rate_mbit` (0: unlimited), `up_loss`, `down_loss` (0 to 1),
    `up_outage`, `down_outage` (0 or 1). What is left out is 0.

    Raises `UserError` that names the line and the column.
    """
    if not is_trace(text):
        raise UserError(f"{name}, line 1: not a link trace; expected {MARK!r}")
    header, rows = table(text, name)
    given = [column for column in header if column != TIME]
    known = {TIME, ROUND_TRIP, *DELAYS, *OPTIONAL}
    if unknown := [column for column in header if column not in known]:
        raise UserError(f"{name}: the column {unknown[0]!r} is unknown; expected some of {', '.join(sorted(known))}")
    halved = ROUND_TRIP in given
    if (
        TIME not in header
        or halved == all(column in given for column in DELAYS)
        or (halved and set(DELAYS) & set(given))
    ):
        raise UserError(f"{name}: expected the columns {TIME} and either {ROUND_TRIP} or both {' and '.join(DELAYS)}")
    values: dict[str, list[float]] = {column: [] for column in header}
    places: list[int] = []
    for line, cells in rows:
        for column, cell in zip(header, cells, strict=True):
            values[column].append(number(cell, f"{name}, line {line}: {column}", *_range(column), _form(column)))
        places.append(line)
        if len(places) > MAX_STEPS:
            raise UserError(f"{name}, line {line}: more than {MAX_STEPS} rows")
    step_us = _step_us(values[TIME], places, name)
    arrays = {column: np.array(column_values) for column, column_values in values.items()}
    if halved:
        arrays |= dict.fromkeys(DELAYS, arrays[ROUND_TRIP] / 2)
    return Trace(step_us, _direction(arrays, "up", len(places)), _direction(arrays, "down", len(places)), halved)


def table(text: str, name: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Header and rows of CSV text without its comments; each row with its line, and as many cells as the header.

    Raises `UserError` where there is no header, a column is named twice, or a row has another number of cells.
    """
    lines = (
        (line, content) for line, content in enumerate(text.splitlines(), 1) if content.strip() and content[0] != "#"
    )
    first = next(lines, None)
    if first is None:
        raise UserError(f"{name}: the file is empty; expected a header with {TIME}")
    header = [cell.strip() for cell in _cells(first[1], f"{name}, line {first[0]}")]
    if len(set(header)) < len(header):
        raise UserError(f"{name}, line {first[0]}: a column is named twice")

    def rows() -> Iterator[tuple[int, list[str]]]:
        for line, content in lines:
            cells = _cells(content, f"{name}, line {line}")
            if len(cells) != len(header):
                raise UserError(f"{name}, line {line}: {len(cells)} cells; expected {len(header)} as in the header")
            yield line, cells

    return header, rows()


def _cells(content: str, place: str) -> list[str]:
    try:
        return next(csv.reader([content]))
    except csv.Error as error:
        raise UserError(f"{place}: not a row of CSV: {error}") from None


def number(cell: str, place: str, least: float, most: float, form: str) -> float:
    """The number in a cell. Raises `UserError` that begins with `place` where it is none or out of range."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and least <= value <= most) or (form == "0 or 1" and value not in {0.0, 1.0}):
        raise UserError(f"{place} is {cell.strip()!r}; expected {form}")
    return value


def _range(column: str) -> tuple[float, float]:
    return (0.0, 1.0) if column.endswith(("loss", "outage")) else (0.0, 1e12)


def _form(column: str) -> str:
    if column.endswith("outage"):
        return "0 or 1"
    return "a number from 0 to 1" if column.endswith("loss") else "a number of 0 or more"


def _step_us(times_ms: list[float], places: list[int], name: str) -> int:
    if len(times_ms) < 2:
        raise UserError(f"{name}: {len(times_ms)} rows; expected at least two, which give the step")
    step_us = round(times_ms[1] * 1000)
    if step_us < 1:
        raise UserError(f"{name}, line {places[1]}: {TIME} is {times_ms[1]:g}; expected more than 0")
    expected = np.arange(len(times_ms)) * step_us
    wrong = np.flatnonzero(np.abs(np.array(times_ms) * 1000 - expected) > 0.5)
    if wrong.size:
        index = int(wrong[0])
        raise UserError(
            f"{name}, line {places[index]}: {TIME} is {times_ms[index]:g}; expected {expected[index] / 1000:g}, "
            f"since steps are even and begin at 0"
        )
    return step_us


def _direction(arrays: dict[str, Floats], side: str, steps: int) -> Direction:
    def column(name: str) -> Floats:
        found = arrays.get(f"{side}_{name}")
        return np.zeros(steps) if found is None else found

    return Direction(column("delay_ms"), column("rate_mbit"), column("loss"), column("outage") > 0)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and value < 1e15 else repr(value)
