"""Load runs and comparisons on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from hil.load.compare import Comparison, Ratio, quantile_name
from hil.load.histogram import QUANTILES
from hil.load.report import Load, LoadReport
from hil.load.search import Found

WORDS = 4
"""Stages and reasons that are named."""


def show_report(report: LoadReport, console: Console) -> None:
    """All runs in a table; below it where time and requests went, and what is not to be believed."""
    console.print(f"{report.target}: {report.model}{f', {report.coding}' if report.coding else ''}")
    table = Table(box=None, pad_edge=False)
    table.add_column("requests", no_wrap=True)
    for name in ("sent", "on time", "on time /s", *map(quantile_name, QUANTILES), "most"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in report.runs:
        table.add_row(*_cells(run), style="dim" if run.why else None)
    console.print(table)
    console.print("Percentiles are of answers, in ms from the scheduled time; - where there are too few to tell.")
    for run in report.runs:
        for line in _lines(run):
            console.print(line, style="yellow" if run.why else None)
    if report.found is not None:
        console.print(found_words(report.found))


def found_words(found: Found) -> str:
    """What a search came to, in a sentence."""
    what = f"{found.share:.4g} of the requests on time"
    if found.rate_per_s <= 0.0:
        return f"No rate was found with {what}."
    told = f"Highest rate with {what}: {found.rate_per_s:,.4g}/s"
    if found.next_per_s is None:
        return f"{told}, the highest that was tried."
    if found.bounded_by == "load generator":
        return f"{told} or more: at {found.next_per_s:,.4g}/s the load generator was itself the bottleneck."
    return f"{told}; {found.next_per_s:,.4g}/s did not hold."


def _cells(run: Load) -> tuple[str, ...]:
    figures = run.figures
    return (
        str(run.source),
        f"{figures.requests:,}",
        f"{figures.on_time_share:.3%}",
        f"{figures.on_time_per_s:,.1f}",
        *(_ms(quantile.ms) for quantile in figures.quantiles),
        _ms(figures.most_ms if figures.latency.count else None),
    )


def _lines(run: Load) -> list[str]:
    figures, sender = run.figures, run.sender
    parts = [
        f"{figures.kinds[kind]:,} {title} {_told(counts)}"
        for kind, title, counts in (
            ("late", "late by", figures.late_by),
            ("missed", "missed by", figures.missed_by),
            ("rejected", "refused for", figures.rejected_by),
        )
        if counts
    ]
    if figures.kinds["superseded"]:
        parts.append(f"{figures.kinds['superseded']:,} superseded")
    if figures.kinds["silent"]:
        parts.append(f"no word of {figures.kinds['silent']:,}")
    if figures.overdue:
        parts.append(f"word after the deadline of {figures.overdue:,}")
    parts.append(
        f"sent p99 {sender.lateness.p99_ms:.2f} ms late, the load generator's thread {sender.thread_busy:.0%} busy"
    )
    if run.stalled:
        parts.append("the machine stood still at times")
    lines = [f"{run.source}: {'; '.join(parts)}."]
    if run.why:
        lines.append(f"{run.source}: NOT JUDGED: {run.why}.")
    return lines


def _told(counts: dict[str, int]) -> str:
    named = [f"{word} {count:,}" for word, count in list(counts.items())[:WORDS]]
    return ", ".join(named + (["..."] if len(counts) > WORDS else []))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def show_comparison(found: Comparison, console: Console) -> None:
    """Conditions first, then ratios, then what is to be doubted."""
    for condition in found.conditions:
        console.print(f"not the same: {condition}", style="yellow")
    if not found.conditions:
        console.print("The same machine, versions, target and way of measuring, as far as the reports say.")
    table = Table(box=None, pad_edge=False)
    table.add_column("run")
    table.add_column("figure")
    for name in ("first", "second", "ratio"):
        table.add_column(name, justify="right")
    before = ""
    for ratio in found.ratios:
        table.add_row("" if ratio.run == before else ratio.run, ratio.what, *_compared(ratio))
        before = ratio.run
    console.print(table)
    for which, names in (("first", found.only_first), ("second", found.only_second)):
        for name in names:
            console.print(f"only in the {which}: {name}")
    for doubt in found.doubts:
        console.print(f"to be doubted: {doubt}", style="yellow")


def _compared(ratio: Ratio) -> tuple[str, str, str]:
    form = "{:.3%}" if ratio.what == "on time" else "{:,.2f}"
    shown = tuple("-" if value is None else form.format(value) for value in (ratio.first, ratio.second))
    return shown[0], shown[1], "-" if ratio.ratio is None else f"{ratio.ratio:.3f}"
