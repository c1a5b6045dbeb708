"""What the commands on link traces print."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hil.links.model import LinkModel, time_shares
from hil.links.summary import Distance, Figure


def states_told(model: LinkModel) -> str:
    """The states of a model, a line each: share of time, mean time in it, round trip, rates, loss."""
    rows: list[tuple[str, ...]] = [
        ("state", "time", "mean stay", "round trip", "rate up", "rate down", "loss up", "loss down")
    ]
    for state, share in zip(model.states, time_shares(model).tolist(), strict=True):
        start = (state.name, f"{100 * share:.1f} %", f"{state.dwell_ms:.0f} ms")
        if state.outage:
            rows.append((*start, "none", "", "", "", ""))
            continue
        rates = (f"{rate:.3g} Mbit/s" if rate > 0 else "unlimited" for rate in state.rate_mbit)
        losses = (f"{100 * loss:.3g} %" for loss in state.mean_loss)
        rows.append((*start, f"{state.floor_ms + state.median_ms:.1f} ms", *rates, *losses))
    return aligned(rows)


def compared(names: Sequence[str], traces: Sequence[Sequence[Figure]]) -> str:
    """The figures of traces side by side, without those that none of them has."""
    rows = [
        (figures[0].name, *(_told(figure) for figure in figures))
        for figures in zip(*traces, strict=True)
        if any(not math.isnan(figure.value) for figure in figures)
    ]
    return aligned([("", *names), *rows])


def distances_told(pairs: Iterable[tuple[str, Sequence[Distance]]]) -> str:
    """Distances of pairs of traces, a line each, without those that a pair does not have."""
    rows: list[tuple[str, ...]] = [("", "", "greatest gap", "typical ratio")]
    for name, distances in pairs:
        rows += [
            (name, distance.name, f"{distance.greatest_gap:.3f}", f"{distance.typical_ratio:.3f}")
            for distance in distances
            if not math.isnan(distance.greatest_gap)
        ]
    return aligned(rows)


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows of as many cells as lines of text: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _told(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "-"
    return (
        f"{figure.value:.4g} {figure.unit}".rstrip() if abs(figure.value) < 1e4 else f"{figure.value:.0f} {figure.unit}"
    )
